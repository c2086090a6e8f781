"""How a call ended, from its result; errors that are the same again."""

from __future__ import annotations

from hypothesis import strategies as st

from crystal.work.outcomes import outcome_of
from tests.support.table import each_row

MAVEN = "[ERROR] Tests run: 5, Failures: 1, Errors: 1, Skipped: 0"
RESULTS = [
    ("no word", "", (0, None, None)),
    ("a status", "Exit code 2\nmake: *** [all] Error 1", (2, None, None)),
    ("Codex", "Process exited with code 1\nOutput:\n", (1, None, None)),
    ("Codex, now", "Chunk ID: 0133db\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nno", (2, None, None)),
    ("Codex, now, success", "Chunk ID: 0133db\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\nError: none",
     (0, None, None)),
    ("Gemini CLI", "<untrusted_context>\nOutput: no\nExit Code: 3\nProcess Group PGID: 7\n</untrusted_context>",
     (3, None, None)),
    ("Qwen Code", "Command: a\nOutput: no\nError: (none)\nExit Code: 1\nSignal: (none)", (1, None, None)),
    ("Copilot CLI", "no\n<shellId: 0 completed with exit code 1>\n\n[recalled]", (1, None, None)),
    ("Pi", "no\n\n\nCommand exited with code 4\n[recalled]", (4, None, None)),
    ("Droid, of a program that runs others", "Command exited with code 1\nagain: ok\n\n[Process exited with code 0]",
     (0, None, None)),
    ("Droid", "no\n\n\n[Process exited with code 5]", (5, None, None)),
    ("Cline", "query: a\nresult: no\n\nsuccess: false", (1, None, None)),
    ("a word about a code", "see Exit Code: 3 and success: false above\ndone", (0, None, None)),
    ("another program's error", "Error: no such file", (1, None, None)),
    ("pytest", "== 3 passed in 0.1s ==", (0, 3, 0)),
    ("pytest behind a pipe", "FAILED a.py::test_b\n== 2 failed, 3 passed in 0.1s ==", (1, 3, 2)),
    ("go", "--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.01s)\nFAIL\texample.com/x\t0.1s", (1, 1, 1)),
    ("go, not built", "FAIL\texample.com/x [build failed]\nok  \texample.com/y\t0.1s", (1, None, 1)),
    ("a test's log", "WARN no id=da80-5f599 error=none\n--- PASS: TestA (0.00s)\nok  \texample.com/x\t0.1s", (0, 1, 0)),
    ("code", 't.Fatalf("load() after checkpoint 2 error = %v", e)', (0, None, None)),
    ("go, short", "ok  \texample.com/x\t0.1s", (0, None, 0)),
    ("jest", "Tests:       1 failed, 7 passed, 8 total", (1, 7, 1)),
    ("unittest", "Ran 4 tests in 0.1s\n\nFAILED (failures=1)", (1, 4, 1)),
    ("Maven, a class and all", f"{MAVEN}, Time elapsed: 1 s\n{MAVEN}", (1, 3, 2)),
    ("RSpec", "12 examples, 1 failure, 2 pending", (1, 9, 1)),
    ("Minitest", "9 runs, 20 assertions, 1 failures, 2 errors, 1 skips", (1, 5, 3)),
    ("ExUnit", "12 tests, 0 failures, 3 excluded, 2 skipped", (0, 7, 0)),
    ("Maven, with skipped tests", "[WARNING] Tests run: 5, Failures: 0, Errors: 0, Skipped: 2", (0, 3, 0)),
    (".NET", "Failed!  - Failed:     1, Passed:    11, Skipped:     0, Total:    12", (1, 11, 1)),
    ("PHPUnit", "OK (12 tests, 30 assertions)", (0, 12, 0)),
    ("PHPUnit that fails", "Tests: 12, Assertions: 30, Errors: 1, Failures: 2, Skipped: 1.", (1, 8, 3)),
    ("cargo", "test result: ok. 12 passed; 0 failed; 0 ignored", (0, 12, 0)),
    ("stopped", "1 of 9\n<error>Command was aborted before completion</error>", (130, None, None)),
    ("stopped, opencode", "(no output)\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>",
     (130, None, None)),
    ("stopped, Codex", "Wall time: 5.0 seconds\naborted by user", (130, None, None)),
    ("stopped, an older Codex", "aborted by user after 5.0s", (130, None, None)),
    ("stopped, Gemini CLI", "Command was cancelled by user before it could complete. There was no output.",
     (130, None, None)),
    ("a word about that", "grep: Command was aborted before completion\nmore", (0, None, None)),
    ("a word about it", "the docs say that tests failed once", (0, None, None)),
]  # fmt: skip


@each_row(("result", "expected"), [row[1:] for row in RESULTS])
def test_a_result_tells_how_it_ended(result: str, expected: tuple[int, int | None, int | None]) -> None:
    assert outcome_of(result)[:3] == expected


def test_what_was_refused_never_ran() -> None:
    assert outcome_of("The user doesn't want to proceed with this tool use.").refused
    assert not outcome_of("Exit code 1").refused


NUMBERS = st.integers(0, 10**9)
NAMES = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
