"""What the hook hears in a prompt, and what it says at a session's start: the real file, real pipes."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.hook import event as hook
from crystal.hook.remember import DOUBT, KEEP, judged
from crystal.hook.remember_line import line_for_user
from crystal.memories.rules import MEMORY_ID
from tests.support.command import crystal
from tests.support.copied_hook import SESSION, START, Hook
from tests.support.table import each_row

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the hook is untested on Windows")


# --- what a prompt asks to remember


KEPT = [
    ("remember that the port is 8080", "the port is 8080"),
    ("Remember: we deploy on Fridays", "we deploy on Fridays"),
    ("REMEMBER THAT  we never rebase", "we never rebase"),
    (" \n\tplease remember to always sign commits", "to always sign commits"),
    ("remember this: the key is under the pot", "the key is under the pot"),
    ("remember\n\nfirst\n\nsecond\n", "first\n\nsecond"),
    ("remember that http://x.test/a=b is our staging server", "http://x.test/a=b is our staging server"),
    ("\ufeffremember this: a", "a"),
    ("记住我喜欢用制表符", "我喜欢用制表符"),
    ("记住：周五部署", "周五部署"),
    ("請記住: 週五部署", "週五部署"),
    ("请记住，所有提交都要签名", "所有提交都要签名"),
    ("记住 - 用制表符", "用制表符"),
    ("remember\u3000this：全角", "全角"),
    ("Remember \u2014 our bank is N26", "our bank is N26"),
    ("remember, we deploy on Fridays", "we deploy on Fridays"),
    ("For future sessions, remember that tests need redis", "tests need redis"),
    ("remember from now on: explain before you edit", "explain before you edit"),
    ("remember for next time: npm ci", "npm ci"),
    ("remember:\n- a\n- b at our place", "- a\n- b at our place"),
    ("remember I prefer tabs", "I prefer tabs"),
    ("remember never force push", "never force push"),
    ("remember to use uv instead of pip", "to use uv instead of pip"),
    ("Remember please that I work on BSD", "I work on BSD"),
    ("remember the linter is Ruff", "the linter is Ruff"),
    ("remember that I am deaf, so no audio links", "I am deaf, so no audio links"),
    ("remember we use Bazel. Apps live in `apps/*`.", "we use Bazel. Apps live in `apps/*`."),
    ("remember for this project: tabs", "tabs"),
]


@each_row(("prompt", "words"), KEPT)
def test_what_stands_behind_the_word_is_remembered(prompt: str, words: str) -> None:
    assert judged(prompt) == (KEEP, words, False)


@each_row(
    ("prompt", "words"),
    [
        ("remember everywhere: I prefer tabs", "I prefer tabs"),
        ("Remember everywhere that I am Ada", "I am Ada"),
        ("please remember EVERYWHERE my name is Ada", "my name is Ada"),
    ],
)
def test_everywhere_is_told_apart(prompt: str, words: str) -> None:
    assert judged(prompt) == (KEEP, words, True)


@each_row(
    "prompt",
    ["remember: one file at a time", "remember that the array is sorted", "remember we use tabs. Reformat the file."],
)
def test_what_may_be_of_the_task_alone_is_in_doubt(prompt: str) -> None:
    assert judged(prompt)[0] == DOUBT


def labelled(name: str) -> list[tuple[str, bool]]:
    """Prompts with whether they ask to remember something: a line each, ``+`` or ``-`` first."""
    path = Path(__file__).parent.parent / "data" / "remember" / f"{name}.txt"
    lines = path.read_text("utf-8").splitlines()
    return [(line[2:].replace("\\n", "\n"), line.startswith("+")) for line in lines]


@each_row(
    ("names", "least", "recall"),
    [
        (["tuned", "held-out"], 0.98, 0.58),
        (["hard"], 0.98, 0.5),
        ([f"fresh-{number}" for number in range(1, 9)], 0.97, 0.73),
        (["fresh-9"], 0.98, 0.48),
        (["fresh-10"], 0.98, 0.66),
        (["fresh-11"], 0.93, 0.66),
        ([f"voice-{voice}" for voice in ("terse", "polite", "manager", "dictation", "code")], 0.98, 0.42),
    ],
)
def test_what_is_taken_was_meant_so(names: list[str], least: float, recall: float) -> None:
    """What each set gave before the rules had seen it is in tests/data/remember/README.md."""
    prompts = [one for name in names for one in labelled(name)]
    taken = [is_wish for prompt, is_wish in prompts if judged(prompt)[0] == KEEP]
    assert sum(taken) / len(taken) >= least
    assert sum(taken) / sum(is_wish for _, is_wish in prompts) >= recall


@each_row(
    "prompt",
    [
        "",
        "remember ",
        "remember everywhere:",
        "remember our staging port:",
        "remembering is hard",
        "Remembered: nothing",
        "do you remember the port",
        "I remember: it was 8080",
        "<task-notification>remember: x</task-notification>",
        "rеmember: with a Cyrillic letter",
        "remember the build is broken, fix it",
        "remember me should default to false",
        "remember when we met",
        "remember this",
        "remember that you changed the port. Update the tests.",
        "remember that we use pnpm, add a lock file",
        "remember that we are on the branch fix/login and main moved",
        "remember that the server runs on port 8080 and curl it",
    ],
)
def test_other_prompts_ask_for_nothing(prompt: str) -> None:
    assert judged(prompt)[0] is None


@pytest.mark.slow
@given(st.text(max_size=60))
def test_any_prompt_is_understood_or_left(text: str) -> None:
    for prompt in (text, f"remember {text}", f"Please remember: {text}", f"remember this: {text}", f"记住{text}"):
        verdict, words, _ = judged(prompt)
        assert verdict != KEEP or (words in prompt and words.strip() == words)
        is_looked_at = any(word in prompt[: hook.NEAR].lower() for word in hook.REMEMBER)
        assert verdict is None or is_looked_at


def test_in_doubt_one_line_says_how_to_keep_it_and_nothing_is_written(door: Hook) -> None:
    answer = door.run({**START, "hook_event_name": "UserPromptSubmit", "prompt": "remember: small commits"})
    assert answer == {"systemMessage": hook.NOT_KEPT}
    assert [path.name for path in door.ldm.rglob("*")] == ["memory"]


def test_a_prompt_that_asks_leaves_its_words_for_the_worker_alone(door: Hook) -> None:
    said = {
        **START,
        "hook_event_name": "UserPromptSubmit",
        "prompt": "remember everywhere: tabs \ud83d \u0000 漢",
        "source": 7,
    }
    answer = door.start(said)
    (note,) = door.notes
    ident = note["remember"].pop("id")
    assert MEMORY_ID.fullmatch(ident)
    assert note["remember"] == {"words": "tabs \ud83d \u0000 漢", "length": 10, "everywhere": True}
    line = f"crystal: remembered {ident}; undo: crystal memories deprecate {ident}"
    assert answer == {"systemMessage": line}
    assert (note["event"], note["cwd"], note["awaited"]) == ("UserPromptSubmit", "/home/dev/shop", None)
    (path,) = (door.data / "spool").glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (door.ldm / "worked").read_text() == "x"


def test_too_many_words_are_counted_and_not_written(door: Hook) -> None:
    answer = door.run(
        {**START, "hook_event_name": "UserPromptSubmit", "prompt": "remember this: " + "no such words " * 600}
    )
    (note,) = door.notes
    assert {**note["remember"], "id": ""} == {"words": None, "length": 8399, "everywhere": False, "id": ""}
    assert answer == {"systemMessage": "crystal: not remembered: 8,399 characters, a memory has at most 8,000"}
    assert not any(b"such" in path.read_bytes() for path in door.ldm.rglob("*") if path.is_file())


def test_of_what_may_be_private_nothing_is_promised(door: Hook) -> None:
    said = {**START, "hook_event_name": "UserPromptSubmit", "prompt": "remember this: x"}
    by_environment = door.run(said, env={"CRYSTAL_PRIVATE_PROJECTS": "/home/dev/*"})
    (door.data / "private").touch()
    for answer in (by_environment, door.run(said)):
        assert ", unless it is private here; undo: " in answer["systemMessage"]


@pytest.mark.slow
def test_while_capture_is_paused_the_line_says_so_at_once(home: Path) -> None:
    crystal("init", "--yes")
    wish: dict[str, object] = {"words": "we deploy on Fridays", "id": "mem-0123456789ab"}
    data = home / ".ldm" / "memory"
    crystal("--off")
    expected = "not remembered: capture is paused; resume with: crystal --on"
    assert line_for_user(wish, str(data), {}, True) == expected
    crystal("--on")
    assert line_for_user(wish, str(data), {}, True).startswith("remembered mem-0123456789ab; undo: ")


SECRET = "ghp_" + "kJ8sLm2Qw9ZxCv4BnT6yUiOpAsDfGh1JqRtE"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (SECRET, "not remembered: the text is a secret"),
        (f"<private>{SECRET}</private>", "not remembered: the text is a secret"),
        (f"the key of our staging server is {SECRET}", "remembered mem-"),
        ("https://docs.example.org/handbook/deploying-on-fridays", "remembered mem-"),
    ],
)
def test_what_is_nothing_but_a_secret_is_refused_in_the_line(home: Path, words: str, begins: str) -> None:
    wish: dict[str, object] = {"words": words, "id": "mem-0123456789ab"}
    line = line_for_user(wish, str(home / ".ldm" / "memory"), dict(os.environ), True)
    assert line.startswith(begins)
    assert SECRET not in line
    assert "unless" not in line


def test_the_check_for_a_secret_uses_the_package_that_the_hook_belongs_to(door: Hook) -> None:
    folder = Path(door.command[-1]).parent
    (folder.parent / "worker.py").write_text("import sys\ndef check_words(): sys.exit(3)\n")
    link = "https://docs.example.org/handbook/deploying-on-fridays"  # no secret, but long enough to be looked at
    code = f"import os, sys; sys.path.insert(0, {str(folder)!r}); import json, remember_line\n"
    code += f"print(json.dumps(remember_line.is_nothing_but_secret({link!r}, dict(os.environ))))"
    assert door.start({}, ("-c", code)) is True


def test_without_a_note_nothing_is_said_to_be_remembered(door: Hook) -> None:
    (door.data / "spool").touch()
    answer = door.run({**START, "hook_event_name": "UserPromptSubmit", "prompt": "remember this: x"})
    assert answer == {"systemMessage": "crystal: not remembered: nothing can be written; run: crystal doctor"}


@each_row(
    ("said", "env"),
    [
        ({"prompt": "fix the bug, and remember the tests"}, {}),
        ({"prompt": "please fix it"}, {}),
        ({"prompt": "remember when we met?"}, {}),
        ({"prompt": ["remember x"]}, {}),
        ({}, {}),
        ({"prompt": "remember this: x", "agent_id": "a1"}, {}),
        ({"prompt": "remember this: x"}, {"CRYSTAL_PRIVATE": "1"}),
        ({"prompt": "remember this: x"}, {"CRYSTAL_INTERNAL": "1"}),
    ],
)
def test_every_other_prompt_leaves_no_trace(door: Hook, said: dict[str, Any], env: dict[str, str]) -> None:
    assert (
        door.run({"session_id": SESSION, "cwd": "/w", "hook_event_name": "UserPromptSubmit", **said}, env=env) is None
    )
    assert [path.name for path in door.ldm.rglob("*")] == ["memory"]
