"""Parse the result of a tool call: its exit status, and the numbers of tests that passed and failed."""

from __future__ import annotations

import re

from crystal.model.named_tuple import NamedTuple
from crystal.text.lazy_pattern import lazy_pattern

# Every match of a pattern contains one of the words beside it, so that most results need no pattern compiled.
_FAILURES = (
    "<tool_use_error>", "error", "the user doesn't want", "[request interrupted", "command ", "permission", "api error",
)  # fmt: skip
_FAILED = lazy_pattern(
    r"\s*(?:<tool_use_error>|Error\b|The user doesn't want|\[Request interrupted|Command (?:failed|timed out)"
    r"|Permission|API Error)",
    re.IGNORECASE,
)
_EXITS = ("chunk id: ", "exit code", "process exited")
_EXIT = lazy_pattern(  # Claude Code; Codex
    r"\s*(?:Chunk ID: .*\nWall time: .*\n)?(?:Exit code:?|Process exited with code) (-?\d{1,9})", re.IGNORECASE
)
_EXIT_AT_END = lazy_pattern(  # Gemini CLI and Qwen Code; Copilot CLI; Droid, Pi and OpenClaw; Cline
    r"^(?:Exit Code: (-?\d{1,9})\n(?:Signal|Background PIDs|Process Group PGID): "
    r"|<shellId: \S+ completed with exit code (\d{1,9})>$"
    r"|[(\[]?(?:Process|Command) exited with code (\d{1,9})[)\]]?$|success: (false)\Z)",
    re.MULTILINE,
)
NEAR_END = 500
"""Characters at the end of a result that contain its exit status."""
_STOPPED = lazy_pattern(  # Claude Code, opencode, Codex; Gemini CLI and Qwen Code
    r"(?:<error>Command was aborted before completion</error>\s*(?:Command running in background .*)?"
    r"|\nUser aborted the command(?:\n.*)?\n</\w+>\s*|(?:\A|\n)aborted by user(?: after [\d.]+s)?\s*)\Z"
    r"|\A(?:Command|Tool) was cancelled by user before it could complete",
)
STOPPED = 130
"""The exit status of a command that Ctrl-C ended; also of one that the user stopped while it ran."""
_REFUSALS = ("<tool_use_error>", "The user doesn't want", "[Request interrupted", "Permission to ")

_COUNTED = ("pass", "fail", "error", "FAIL", "PASS", "Ran ", "\nok", "Failures: ", "Failed: ", "OK (")
_COUNTS = lazy_pattern(  # Maven; RSpec, Minitest, ExUnit; .NET; PHPUnit; pytest, jest, mocha, cargo; unittest; go
    r"^(?:\[\w+\] )?Tests run: (?P<all1>\d+), Failures: (?P<bad1>\d+), Errors: (?P<bad2>\d+), Skipped: (?P<not1>\d+)$"
    r"|(?P<all2>\d+) (?:examples?|tests?|runs), (?:\d+ assertions?, )?(?P<bad3>\d+) failures?"
    r"(?:, (?P<bad4>\d+) errors?)?(?:, (?P<not2>\d+) (?:pending|excluded))?(?:, (?P<not3>\d+) skip(?:s|ped))?"
    r"|Failed: +(?P<failed2>\d+), Passed: +(?P<passed2>\d+)|^OK \((?P<passed3>\d+) tests?, \d+ assertions?\)"
    r"|^Tests: (?P<all3>\d+), Assertions: \d+(?:, Errors: (?P<bad5>\d+))?(?:, Failures: (?P<bad6>\d+))?"
    r"(?:, Skipped: (?P<not4>\d+))?"
    r"|(?<![\w.:-])(?:(?P<passed>\d+) (?:passed|passing)|(?P<failed>\d+) (?:failed|failing|errors?))\b"
    r"(?! generated| ?=)"
    r"|^FAILED \((?:failures|errors)=(?P<unit>\d+)|^Ran (?P<ran>\d+) tests? in"
    r"|^\s*--- (?P<go>PASS|FAIL):|^(?P<package>ok|FAIL)\s+\S+(?:/\S+)*\s+(?:[\d.]+s|\(cached\)|\[build failed\])",
    re.MULTILINE,
)


class CallOutcome(NamedTuple):
    """Outcome of a call.

    Attributes:
        exit: Its exit status: 0 if it succeeded, 1 if it failed without a status, None if unknown.
        passed: Tests that passed; None if the output has no such count: Go prints only the packages that passed.
        failed: Tests that failed.
        refused: True if it never ran, because the user or the agent's program refused it.
    """

    exit: int | None = 0
    passed: int | None = None
    failed: int | None = None
    refused: bool = False


def is_failed(result: str) -> bool:
    """Return True if the result of a tool shows that it failed. Not every program shows that."""
    return _status(result) not in (0, STOPPED)


def outcome_of(result: str) -> CallOutcome:
    """Return the outcome of a call with this result. Failed tests count as failure, even if a pipe hides the status."""
    if result.lstrip().startswith(_REFUSALS):
        return CallOutcome(1, refused=True)
    passed, failed = _tests(result)
    return CallOutcome(_status(result) or int(bool(failed)), passed, failed)


def _status(result: str) -> int:
    begin, end = result.lstrip()[:30].lower(), result[-NEAR_END:]
    if begin.startswith(_EXITS) and (code := _EXIT.match(result)):
        return int(code[1])
    if ("xit" in end or "success: false" in end) and (codes := [*_EXIT_AT_END.finditer(end)]):
        told = next(filter(None, codes[-1].groups()))  # a program that runs others prints theirs before
        return 1 if told == "false" else int(told)
    if ("abort" in result or "cancelled" in result) and _STOPPED.search(result):
        return STOPPED
    return int(begin.startswith(_FAILURES) and _FAILED.match(result) is not None)


def _sum(count: re.Match[str], *names: str) -> int:
    """Return the sum of the numbers in groups whose names begin with one of ``names``."""
    return sum(int(value) for name, value in count.groupdict("0").items() if name.startswith(names))


def _tests(result: str) -> tuple[int | None, int | None]:
    """Return the numbers of tests that passed and failed; None if no known runner printed them, or none passed."""
    passed = failed = packages = 0
    seen = False
    if not result.startswith("ok") and not any(word in result for word in _COUNTED):
        return None, None
    for count in _COUNTS.finditer(result):
        seen = True
        bad = _sum(count, "bad")
        passed += _sum(count, "passed", "ran", "all") - bad - _sum(count, "not") + (count["go"] == "PASS")
        failed += _sum(count, "failed", "unit") + bad + (count["go"] == "FAIL")
        packages += count["package"] == "FAIL"  # also one that cannot be built
    return (passed or None, failed or packages) if seen else (None, None)
