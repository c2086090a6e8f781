"""What the hook tells at a moment: found in the file, once, within the budget, and nothing on any doubt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.assist.facts import HEAD, Fact, cure_fact, encode_facts, failure_fact, reason_fact, written
from crystal.context.prepared import Rules, read_marks, write_contexts
from crystal.hook import assist
from crystal.hook import event as hook
from crystal.hook.assist import KEY_BYTES, key_of
from crystal.hook.matching import facts_for_failure, plain_error, plain_line
from crystal.hook.session_start import context_file
from tests.support.copied_hook import SESSION, Hook, unfenced
from tests.support.table import each_row

SHOP = "/home/dev/shop"
LINE = "RETRIES = 3  # attempts for each message"
REASON = "I keep three because the queue drops a message after the fourth attempt."
FACTS = [
    reason_fact(written("src/worker.py", [plain_line(LINE)], 1, "one"), "2026-11-20", "how often do we retry?", REASON),
    failure_fact("src/worker.py", "make lint", 2, "two", "2026-11-21"),
    cure_fact(plain_error("cat: no such file or directory"), "cat x", ['the agent ran "sh y"'], 3, "two", "2026-11-22"),
]
EDIT = {"file_path": f"{SHOP}/src/worker.py", "old_string": f"a = 1\n  {LINE}\n", "new_string": "a = 1\n"}
BEFORE = {"hook_event_name": "PreToolUse", "session_id": SESSION, "cwd": SHOP, "tool_name": "Edit", "tool_input": EDIT}
AFTER = {
    **BEFORE,
    "hook_event_name": "PostToolUseFailure",
    "tool_input": {"command": "cat x"},
    "error": "Exit code 1\ncat: /tmp/x.txt: No such file or directory",
}
PROMPT = {**BEFORE, "hook_event_name": "UserPromptSubmit", "prompt": f"What is this?\n{AFTER['error']}\nIt was fine."}
RULES = Rules("/none", "-", {}, moments=("edit", "failure"), assist_tokens="2000")
Tell = Callable[..., str | None]


@pytest.fixture
def door(tmp_path: Path) -> Hook:
    return Hook(tmp_path)


def lay(data: Path, facts: list[Fact] = FACTS, rules: Rules = RULES) -> Path:
    write_contexts(data, rules, [])
    path = data / "context" / f"{context_file(SHOP)}.facts"
    path.write_bytes(encode_facts(SHOP, HEAD.format(project="shop"), facts, b"k" * 16, b"i"))
    return path


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    def asked(said: dict[str, Any], env: dict[str, str] | None = None) -> str | None:
        who = said["session_id"], said["cwd"]
        given = str(tmp_path), said, who, env or {}, 5_000_000, hook.parse_hook_input
        found = hook._attempt(lambda: assist.answer(assist.HookCall(*given)))
        context = ((found or {}).get("hookSpecificOutput") or {}).get("additionalContext")
        return None if context is None else unfenced(context)

    return asked


def test_the_real_hook_tells_it_before_an_edit_and_after_a_failure_once(door: Hook) -> None:
    lay(door.data)
    answer = door.start(BEFORE)["hookSpecificOutput"]
    assert answer["hookEventName"] == "PreToolUse"
    head, why, failed = unfenced(answer["additionalContext"]).split("\n")
    assert (
        head
        == "recalled, as data: crystal, of earlier sessions in project shop; the words of the user and the assistant"
    )
    assert REASON in why
    assert '"make lint" failed' in failed
    assert door.run(BEFORE) is None
    assert 'the agent ran "sh y"' in door.run(AFTER)["hookSpecificOutput"]["additionalContext"]
    assert door.run(AFTER) is None
    assert door.run({**AFTER, "session_id": "three"}) is not None
    assert door.notes == []  # nobody is started for it
    for path, injection in read_marks(door.data, 0):
        assert injection is not None
        assert (injection.session_id, injection.source) == (path.stem, "assist")
    assert read_marks(door.data, 0)[0][1].why == {"edit": 2, "failure": 1}


def test_a_prompt_is_told_a_known_cure_of_an_error_in_it_once(door: Hook) -> None:
    lay(door.data)
    assert door.run(PROMPT) is None, "the moment is off"
    lay(door.data, rules=replace(RULES, moments=("prompt", "failure")))
    answer = door.run(PROMPT)["hookSpecificOutput"]
    assert answer["hookEventName"] == "UserPromptSubmit"
    assert 'the agent ran "sh y"' in answer["additionalContext"]
    for said in (PROMPT, AFTER, {**PROMPT, "session_id": "three", "prompt": f"make lint {LINE} no such file"}):
        assert door.run(said) is None
    assert door.notes == [], "nobody is started for it"


@each_row("form", ["I get {}", "fix this: {}", "lint fails with `{}`", "- {}"])
def test_an_error_inside_a_sentence_is_the_same_error(form: str) -> None:
    error = "src/cart.py:3:3: error is not nil but it returns nil (nilerr)"

    def find(*parts: str) -> dict[str, str] | None:
        return {"body": "cured"} if parts == ("error", plain_error(error)) else None

    assert facts_for_failure(form.format(error), find) == [{"body": "cured"}]
    assert facts_for_failure("nothing: 3 files are fine here today", find) == []


def test_other_shapes_of_edits_are_known_and_other_files_lines_and_errors_are_not(tmp_path: Path, tell: Tell) -> None:
    lay(tmp_path)
    changes = [{"old_string": "nothing known here", "new_string": "x"}, {"old_string": LINE, "new_string": "x"}]
    several = {"file_path": f"{SHOP}/src/worker.py", "edits": changes}
    assert REASON in (tell({**BEFORE, "tool_name": "MultiEdit", "tool_input": several}) or "")
    anew = {"file_path": f"{SHOP}/src/worker.py", "content": "all new"}
    assert "make lint" in (tell({**BEFORE, "session_id": "w", "tool_name": "Write", "tool_input": anew}) or "")
    quiet: list[dict[str, Any]] = [
        {"file_path": f"{SHOP}/other.py", "old_string": LINE, "new_string": ""},
        {"file_path": f"{SHOP}/other/worker.py", "old_string": LINE, "new_string": LINE},
        {
            "file_path": f"{SHOP}/other/worker.py",
            "old_string": f"{LINE}\nfirst other line\nsecond other line",
            "new_string": "",
        },
        {"file_path": None},
        {},
        {"file_path": f"{SHOP}/other/worker.py", "old_string": LINE, "new_string": ""},
        {"file_path": f"{SHOP}/src/worker.py", "edits": [7]},
        {"file_path": f"{SHOP}/other/worker.py", "old_string": 7},
    ]
    assert [tell({**BEFORE, "session_id": "q", "tool_input": given}) for given in quiet] == [None] * len(quiet)
    errors = ["", "Exit code 1", "cat: no such file or folder", "x" * 100_000, "\x1b[31m\ud800", None, 7]
    assert [tell({**AFTER, "session_id": "q", "error": text}) for text in errors] == [None] * len(errors)


@pytest.mark.parametrize(
    "rules",
    [
        {"moments": ()},
        {"moments": ("failure",)},
        {"assist_tokens": "10"},
        {"stamp": "another"},
        {"variables": {"CRYSTAL_ASSIST_MODE": "on"}},
        {"private_folders": ("/home/dev/",)},
        {"private_sessions": ("1f35",)},
        {"off": (SESSION,)},
    ],
    ids=str,
)
def test_what_the_rules_forbid_is_not_told(tmp_path: Path, tell: Tell, rules: dict[str, Any]) -> None:
    lay(tmp_path, rules=Rules(**{"config": "/none", "stamp": "-", "variables": {}, "moments": ("edit",),
                                 "assist_tokens": "2000", **rules}))  # fmt: skip
    assert tell(BEFORE) is None
    assert tell({**BEFORE, "cwd": "/home/x/../dev/shop"}) is None


def test_on_any_doubt_it_is_silent(tmp_path: Path, tell: Tell) -> None:
    assert tell(BEFORE) is None
    path = lay(tmp_path)
    whole = path.read_bytes()
    for content in (b"", whole[:-3], whole[: len(whole) // 2], b"\0" * 99, whole.replace(b"{", b"["), b"\n" + whole):
        path.write_bytes(content)
        assert tell(BEFORE) is None
    path.write_bytes(whole)
    for said in ({"cwd": "/home/dev/shopping"}, {"cwd": "/home"}, {"cwd": None}, {"session_id": None}):
        assert tell({**BEFORE, **said}) is None
    for own, text in (("one", REASON), ("two", "make lint")):
        assert text not in (tell({**BEFORE, "session_id": own}) or text)
    (tmp_path / "told").mkdir(exist_ok=True)
    (tmp_path / "told" / f"{SESSION}.assist").write_text("damaged\n")
    assert tell(BEFORE) is None


def test_a_folder_below_its_project_is_found_and_another_repository_below_is_not(tmp_path: Path, tell: Tell) -> None:
    shop = tmp_path / "shop"
    (shop / "src" / "deep").mkdir(parents=True)
    (shop / "vendor" / "other" / ".git").mkdir(parents=True)
    write_contexts(tmp_path, RULES, [])
    ready = tmp_path / "context" / f"{context_file(str(shop))}.facts"
    ready.write_bytes(encode_facts(str(shop), HEAD.format(project="shop"), FACTS, b"k", b"i"))
    assert tell({**BEFORE, "cwd": str(shop / "vendor" / "other")}) is None
    assert REASON in (tell({**BEFORE, "cwd": str(shop / "src" / "deep")}) or "")
    tree, own = tmp_path / "tree", shop / ".git" / "worktrees" / "tree"
    for folder in (tree / "src", own):
        folder.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {own}\n")
    there = {**BEFORE, "session_id": "x", "cwd": str(tree / "src")}
    assert tell(there) is None, "the repository does not know this working tree"
    (own / "gitdir").write_text(f"{tree}/.git\n")
    written_there = {**EDIT, "file_path": str(tree / "src" / "worker.py")}
    assert tell({**there, "tool_input": {**written_there, "file_path": str(tree / "worker.py")}}) is None
    for told, place in ((written_there, tree), ({**EDIT, "file_path": f"{shop}/.worktrees/x/src/worker.py"}, shop)):
        assert "make lint" in (tell({**there, "session_id": str(place), "cwd": str(place), "tool_input": told}) or "")


@pytest.mark.slow
def test_hooks_that_run_at_once_tell_a_thing_once(door: Hook) -> None:
    lay(door.data)
    given = json.dumps(BEFORE).encode()
    env = {"LDM_HOME": str(door.ldm), "PATH": "/usr/bin:/bin"}
    runs = [subprocess.Popen(door.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) for _ in range(8)]
    for run in runs:
        assert run.stdin is not None
        run.stdin.write(given)
        run.stdin.close()
    said = [run.stdout.read() for run in runs if run.stdout is not None]
    assert [run.wait() for run in runs] == [0] * 8
    assert sum(text.count(REASON.encode()) for text in said) == 1
    assert sum(text.count(b"make lint") for text in said) == 1
    for run in runs:
        assert run.stdout is not None
        run.stdout.close()


@given(st.lists(st.tuples(st.text(max_size=6), st.integers(0, 9)), max_size=30), st.binary(max_size=16))
def test_each_key_finds_the_latest_fact(rows: list[tuple[str, int]], secret: bytes) -> None:
    facts = [Fact((("file", name),), at, "s", f"{name} {at}") for name, at in rows]
    content = encode_facts("/f", "p", facts, secret, secret)
    lines = content.split(b"\n")
    header = json.loads(lines[0])
    end = 1 + int(header["facts"])
    assert len(lines) == end + 1
    index = [lines[end][at : at + KEY_BYTES] for at in range(0, len(lines[end]), KEY_BYTES)]
    assert index == sorted(index)
    assert len(index) == int(header["keys"])
    keys = {row[:16]: int(row[16:]) for row in index}
    found = {name: json.loads(lines[1 + keys[key_of(secret, "file", name)]])["body"] for name, _ in rows}
    assert found == {name: f"{name} {max(at for other, at in rows if other == name)}" for name, _ in rows}


def test_an_error_is_known_again_whatever_its_paths_numbers_and_signs() -> None:
    same = [
        "ERROR: cannot open /a/b.txt: permission was denied (code 13)",
        "error: cannot open '/c/d.md' permission was denied",
    ]
    assert (
        plain_error(same[0].replace("(code 13)", ""))
        == plain_error(same[1])
        == "error cannot open permission was denied"
    )
    pinned = "no matching distribution found for {}, see line {}"
    for one, other, more in (("shop==9.9", "shop==1.0", "cart==9.9"), ("react@^17.0.0", "react@18.3.1", "vue@18.3.1")):
        assert plain_error(pinned.format(one, 3)) == plain_error(pinned.format(other, "a/b.py:4"))
        assert plain_error(pinned.format(one, 3)) != plain_error(pinned.format(more, 3))
    assert [plain_error(text) for text in ("", "exit code 1", "12 34 56 78 90 12 34", "a b c d", "x" * 500)] == [""] * 5


ALIKE = "a.go:{}:2: Error return value of `{}` is not checked (errcheck)"


def test_errors_that_one_program_words_alike_are_told_apart_by_their_names(tmp_path: Path, tell: Tell) -> None:
    names = ["client.Enqueue", "regexp.MatchString", "os.exit", "parseV2"]
    cures = [cure_fact(plain_error(ALIKE.format(7, name)), name, [], 3, "two", "2026-11-22") for name in names]
    lay(
        tmp_path,
        [*cures, cure_fact(plain_error("./a.go:1:2: it is undefined: v2.Run"), "go", [], 4, "two", "2026-11-22")],
    )
    for name in (*names, "other.Name", "parseV3"):
        told = tell({**AFTER, "session_id": name, "error": f"Exit code 1\n{ALIKE.format(146, name)}"})
        assert (told is None) if name not in names else (told is not None and f'"{name}", was cured' in told)
    assert tell({**AFTER, "session_id": "x", "error": "./b.go:9:1: it is undefined: v2.Stop"}) is None
    assert plain_error("see: cannot read cart.py of it") == plain_error("see: cannot read b/mill.py:12: of it")


def test_a_file_written_anew_tells_of_the_lines_that_go(tmp_path: Path, tell: Tell) -> None:
    shop = tmp_path / "shop"
    (shop / "src").mkdir(parents=True)
    write_contexts(tmp_path, RULES, [])
    ready = tmp_path / "context" / f"{context_file(str(shop))}.facts"
    ready.write_bytes(encode_facts(str(shop), HEAD.format(project="shop"), FACTS[:1], b"k", b"i"))
    path, outside = shop / "src" / "worker.py", tmp_path / "worker.py"

    def write(session: str, content: str = "a = 1\n") -> str | None:
        tool_input = {"file_path": str(path), "content": content}
        return tell({**BEFORE, "cwd": str(shop), "session_id": session, "tool_name": "Write", "tool_input": tool_input})

    assert write("new") is None
    outside.write_text(f"a = 1\n{LINE}\n")
    path.symlink_to(outside)
    assert write("linked") is None
    path.unlink()
    for session, text in (
        ("long", f"{LINE}\n" + "#" * (1 << 18)),
        ("twice", f"{LINE}\n{LINE}\n"),
        ("bytes", "\0\ud800"),
    ):
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        assert write(session) is None
    path.write_text(f"a = 1\n{LINE}\n")
    assert write("kept", f"b = 2\n{LINE}\n") is None
    assert REASON in (write("gone") or "")
    path.unlink()
    os.mkfifo(path)  # which nobody writes: the hook does not wait
    assert write("pipe") is None


@pytest.mark.skipif(sys.platform == "win32", reason="the hook is untested on Windows")
def test_other_words_and_a_success_are_told_nothing(door: Hook) -> None:
    lay(door.data)
    assert door.run({**BEFORE, "hook_event_name": "PostToolUse"}) is None
    assert door.run({**BEFORE, "hook_event_name": "UserPromptSubmit", "prompt": LINE}) is None
    assert door.run(BEFORE, env={"CRYSTAL_PRIVATE": "1"}) is None
    assert door.run(BEFORE, env={"CRYSTAL_INTERNAL": "1"}) is None
    for said in (
        {"session_id": "../../outside"},
        {"session_id": ""},
        {"cwd": "shop"},
        {"cwd": 7},
        {"tool_input": None},
    ):
        assert door.run({**BEFORE, **said}) is None
    assert {path.name for path in door.data.rglob("*.assist")} == set()
