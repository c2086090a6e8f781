"""What the hook hears in a prompt, and what it says at a session's start: the real file, real pipes."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.context import Ready, Rules, Told, write_contexts
from crystal.context.choosing import Choice
from crystal.hook import main as hook
from crystal.hook import session_start
from crystal.hook.remember import words_to_remember
from crystal.hook.remember_line import line_for_user
from crystal.hook.session_start import stamp_of
from crystal.memories.rules import MEMORY_ID
from tests.hook.test_hook import ALLOWED_MODULES
from tests.support.command import crystal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the hook is untested on Windows")

SESSION = "1f35fa49-0000-4000-8000-000000000001"
START = {"session_id": SESSION, "cwd": "/home/dev/shop", "hook_event_name": "SessionStart", "source": "startup"}
WORKER = "import os\ndef main():\n    open(os.path.join(os.environ['LDM_HOME'], 'worked'), 'a').write('x')\n"


class Hook:
    """A copied hook whose worker only tells that it ran."""

    def __init__(self, root: Path) -> None:
        self.ldm, package = root / "ldm", root / "package" / "crystal"
        self.data = self.ldm / "memory"
        self.data.mkdir(parents=True)
        (package / "hook").mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "worker.py").write_text(WORKER)
        for name in (
            "main.py",
            "session_start.py",
            "worker.py",
            "remember.py",
            "remember_line.py",
            "remember_words.py",
        ):
            (package / "hook" / name).write_bytes(Path(hook.__file__).with_name(name).read_bytes())
        self.command = [sys.executable, "-I", "-S", str(package / "hook" / "main.py")]

    def run(self, said: dict[str, Any], code: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Any:
        """Run it; gives what it prints, parsed, None when that is nothing."""
        done = subprocess.run(
            [*self.command[:3], *code] if code else self.command,
            input=json.dumps(said).encode(),
            env={**os.environ, "LDM_HOME": str(self.ldm), "CRYSTAL_HOOK_WAIT": "1", **(env or {})},
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert done.stderr == b""
        return json.loads(done.stdout) if done.stdout else None

    def told(self, **said: Any) -> str | None:
        env = said.pop("env", {})
        answer = self.run({**START, **said}, env=env)
        return None if answer is None else unfenced(answer["hookSpecificOutput"]["additionalContext"])

    @property
    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted((self.data / "spool").glob("*.json"))]

    def lay_ready(self, folders: dict[str, str], rules: Rules | None = None) -> None:
        ready = [Ready(None if cwd == "default" else cwd, told(text)) for cwd, text in folders.items()]
        write_contexts(self.data, rules or Rules("/none", "-", {}), ready)


def unfenced(text: str) -> str:
    """What stands in a fence whose tags have the same nonce."""
    match = re.fullmatch(r"<crystal-memory-([a-z0-9]{6})>\n(.*)\n</crystal-memory-\1>", text, re.DOTALL)
    assert match, text[:60]
    return match[2]


def told(text: str) -> Told:
    return Told(text, (Choice("mem-0123456789ab", "memory", text, True, "why"),), 2, 34)


@pytest.fixture
def door(tmp_path: Path) -> Hook:
    return Hook(tmp_path)


# --- what a prompt asks to remember


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("remember the port is 8080", "the port is 8080"),
        ("Remember: we deploy on Fridays", "we deploy on Fridays"),
        ("REMEMBER THAT  tabs always win", "tabs always win"),
        (" \n\tplease remember to always sign commits", "to always sign commits"),
        ("Please Remember that: x1", "x1"),
        ("remember this: the key is under the pot", "the key is under the pot"),
        ("remember\n\nfirst\n\nsecond\n", "first\n\nsecond"),
        ("remember: what is our port? 8080", "what is our port? 8080"),
        ("remember how to deploy: make ship", "how to deploy: make ship"),
        ("remember that http://x.test/?a=b is the staging server", "http://x.test/?a=b is the staging server"),
        ("\ufeffremember: a", "a"),
        ("记住我喜欢用制表符", "我喜欢用制表符"),
        ("记住：周五部署", "周五部署"),
        ("請記住: 週五部署", "週五部署"),
        ("请记住，所有提交都要签名", "所有提交都要签名"),
        ("記住 8080 是測試埠", "8080 是測試埠"),
        ("remember\u3000：全角", "全角"),
        ("remember - buy milk", "buy milk"),
        ("Remember \u2014 buy milk", "buy milk"),
        ("remember, we deploy on Fridays", "we deploy on Fridays"),
        ("Please, remember: x", "x"),
        ("remember:\n- a\n- b", "- a\n- b"),
        ("记住 - 用制表符", "用制表符"),
        ("remember: this", "this"),
    ],
)
def test_what_stands_behind_the_word_is_remembered(prompt: str, words: str) -> None:
    assert words_to_remember(prompt) == (words, False)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("remember everywhere: I prefer tabs", "I prefer tabs"),
        ("Remember everywhere that I am Ada", "I am Ada"),
        ("please remember EVERYWHERE my name is Ada", "my name is Ada"),
    ],
)
def test_everywhere_is_told_apart(prompt: str, words: str) -> None:
    assert words_to_remember(prompt) == (words, True)


def labelled(name: str) -> list[tuple[str, bool]]:
    """Prompts with whether they ask to remember something: a line each, ``+`` or ``-`` first."""
    path = Path(__file__).parent.parent / "data" / "remember" / f"{name}.txt"
    lines = path.read_text("utf-8").splitlines()
    return [(line[2:].replace("\\n", "\n"), line.startswith("+")) for line in lines]


@pytest.mark.parametrize(("name", "least"), [("tuned", 0.99), ("held-out", 0.95)])
def test_what_is_taken_was_meant_so(name: str, least: float) -> None:
    """The rules were made with the first set in sight and not changed after the second was first tried."""
    prompts = labelled(name)
    taken = [is_wish for prompt, is_wish in prompts if words_to_remember(prompt)]
    assert sum(taken) / len(taken) >= least
    assert sum(taken) / sum(is_wish for _, is_wish in prompts) >= 0.9


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "remember ",
        "remember everywhere:",
        "remembering is hard",
        "Remembered: nothing",
        "do you remember the port",
        "I remember: it was 8080",
        "<task-notification>remember: x</task-notification>",
        "rеmember: with a Cyrillic letter",
    ],
)
def test_other_prompts_ask_for_nothing(prompt: str) -> None:
    assert words_to_remember(prompt) is None


@given(st.text(max_size=60))
def test_any_prompt_is_understood_or_left(text: str) -> None:
    for prompt in (text, f"remember {text}", f"Please remember: {text}", f"记住{text}"):
        found = words_to_remember(prompt)
        assert found is None or (found[0] in prompt and found[0].strip() == found[0])
        begin = prompt.lstrip("\ufeff \t\r\n").lstrip()[:1].lower()
        assert found is None or (begin and begin in hook.PROMPT_BEGINS)


def test_a_prompt_that_asks_leaves_its_words_for_the_worker_alone(door: Hook) -> None:
    said = {
        **START,
        "hook_event_name": "UserPromptSubmit",
        "prompt": "remember everywhere: tabs \ud83d \u0000 漢",
        "source": 7,
    }
    answer = door.run(said)
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
    answer = door.run({**START, "hook_event_name": "UserPromptSubmit", "prompt": "remember: " + "no such words " * 600})
    (note,) = door.notes
    assert {**note["remember"], "id": ""} == {"words": None, "length": 8399, "everywhere": False, "id": ""}
    assert answer == {"systemMessage": "crystal: not remembered: 8,399 characters, a memory has at most 8,000"}
    assert not any(b"such" in path.read_bytes() for path in door.ldm.rglob("*") if path.is_file())


def test_of_what_may_be_private_nothing_is_promised(door: Hook) -> None:
    said = {**START, "hook_event_name": "UserPromptSubmit", "prompt": "remember: x"}
    by_environment = door.run(said, env={"CRYSTAL_PRIVATE_PROJECTS": "/home/dev/*"})
    (door.data / "private").touch()
    for answer in (by_environment, door.run(said)):
        assert ", unless it is private here; undo: " in answer["systemMessage"]


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


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (SECRET, "not remembered: it is nothing but a secret"),
        (f"<private>{SECRET}</private>", "not remembered: it is nothing but a secret"),
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
    assert door.run({}, ("-c", code)) is True


def test_without_a_note_nothing_is_said_to_be_remembered(door: Hook) -> None:
    (door.data / "spool").touch()
    answer = door.run({**START, "hook_event_name": "UserPromptSubmit", "prompt": "remember: x"})
    assert answer == {"systemMessage": "crystal: not remembered: nothing can be written; run: crystal doctor"}


@pytest.mark.parametrize(
    ("said", "env"),
    [
        ({"prompt": "fix the bug, and remember the tests"}, {}),
        ({"prompt": "please fix it"}, {}),
        ({"prompt": "remember when we met?"}, {}),
        ({"prompt": ["remember x"]}, {}),
        ({}, {}),
        ({"prompt": "remember: x", "agent_id": "a1"}, {}),
        ({"prompt": "remember: x"}, {"CRYSTAL_PRIVATE": "1"}),
        ({"prompt": "remember: x"}, {"CRYSTAL_INTERNAL": "1"}),
    ],
)
def test_every_other_prompt_leaves_no_trace(door: Hook, said: dict[str, Any], env: dict[str, str]) -> None:
    assert (
        door.run({"session_id": SESSION, "cwd": "/w", "hook_event_name": "UserPromptSubmit", **said}, env=env) is None
    )
    assert [path.name for path in door.ldm.rglob("*")] == ["memory"]


# --- what a session is told


def test_a_session_is_told_once_for_each_source(door: Hook) -> None:
    door.lay_ready({"default": "for all", "/home/dev/shop": "for the 漢 shop"})
    assert door.told() == "for the 漢 shop"
    assert door.told() is None
    assert door.told(source="compact") == "for the 漢 shop"
    assert door.told(session_id="other", cwd="/home/dev/shop/") == "for the 漢 shop"
    assert door.told(session_id="third", cwd="/home/dev/shop/sub") == "for all"
    marks = sorted((door.data / "told").iterdir())
    assert [path.name for path in marks] == [
        f"{SESSION}.compact",
        f"{SESSION}.startup",
        "other.startup",
        "third.startup",
    ]
    at, _, rest = marks[0].read_text().partition(" ")
    assert at.isdecimal()
    assert json.loads(rest) == {"candidates": 1, "chosen": ["mem-0123456789ab"], "omitted": 2, "tokens": 34}
    assert {stat.S_IMODE(path.stat().st_mode) for path in door.data.rglob("*.json")} == {0o600}


@pytest.mark.parametrize(
    "said",
    [
        {"agent_id": "a1"},
        {"agent_type": "general-purpose"},
        {"env": {"CRYSTAL_PRIVATE": "yes"}},
        {"env": {"CRYSTAL_INTERNAL": "1"}},
        {"env": {"CRYSTAL_CONTEXT_ENABLED": "false"}},
        {"env": {"CRYSTAL_CONFIG": "/another"}},
        {"source": "fork"},
        {"source": None},
        {"source": "../startup"},
        {"session_id": "../../x"},
        {"session_id": None},
        {"cwd": None},
        {"cwd": "/secret/new/project"},
        {"session_id": "hush-1"},
        {"session_id": "closed"},
        {"hook_event_name": "Stop"},
    ],
)
def test_a_session_that_should_hear_nothing_hears_nothing(door: Hook, said: dict[str, Any]) -> None:
    rules = Rules("/none", "-", {"CRYSTAL_CONTEXT_ENABLED": ""}, ("hush-",), ("/secret/",), ("closed",))
    door.lay_ready({"default": "for all", "/home/dev/shop": "for the shop"}, rules)
    assert door.told(**said) is None
    assert not (door.data / "told").exists()


def test_settings_that_changed_since_stop_it(door: Hook, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[context]\nenabled = true\n")
    door.lay_ready({"default": "for all"}, Rules(str(config), stamp_of(str(config)), {}))
    assert door.told() == "for all"
    config.write_text("[context]\nenabled = false\n")
    assert door.told(session_id="other") is None
    config.unlink()
    assert door.told(session_id="other") is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"body": 5}', b"\xff", b'{"cwd": "/home/dev/shop"'])
@pytest.mark.parametrize("name", ["rules.json", session_start.context_file("/home/dev/shop")])
def test_a_broken_file_is_borne_in_silence(door: Hook, name: str, content: bytes) -> None:
    door.lay_ready({"default": "for all", "/home/dev/shop": "for the shop"})
    (door.data / "context" / name).write_bytes(content)
    assert door.told() in (None, "for all")


def test_another_folder_under_the_same_name_is_not_told(door: Hook) -> None:
    door.lay_ready({"default": "for all", "/home/dev/shop": "for the shop"})
    folder = door.data / "context"
    (folder / session_start.context_file("/home/dev/shop")).replace(
        folder / session_start.context_file("/home/dev/other")
    )
    assert door.told(cwd="/home/dev/other") == "for all"


def test_a_stalled_capture_is_told_beside_it(door: Hook) -> None:
    door.lay_ready({"default": "for all"})
    (door.data / "stalled").write_text("capture is not working")
    answer = door.run(START)
    assert answer is not None
    assert answer["systemMessage"] == "crystal: capture is not working"
    assert unfenced(answer["hookSpecificOutput"]["additionalContext"]) == "for all"


def notice(door: Hook, **values: object) -> None:
    (door.data / "notice.json").write_text(json.dumps({"line": None, "last_turn": None, **values}))


def test_a_pause_is_told_at_each_start_but_not_when_a_session_is_compacted(door: Hook) -> None:
    notice(door, line="paused since 2026-11-22 10:00: nothing that is said is kept; resume with: crystal --on")
    for source in ("startup", "resume", "clear", "startup"):
        told = door.run({**START, "source": source, "session_id": f"s-{source}"})
        assert told is not None
        assert told["systemMessage"].startswith("crystal: paused since 2026-11-22 10:00")
    assert door.run({**START, "source": "compact", "session_id": "other"}) is None
    assert door.run({**START, "hook_event_name": "Stop"}) is None


def test_hooks_that_did_not_run_for_a_day_are_told_once(door: Hook, tmp_path: Path) -> None:
    projects = tmp_path / "projects"
    (projects / "p").mkdir(parents=True)
    start = {**START, "transcript_path": str(projects / "p" / "new.jsonl")}
    three_days_ago = time.time() - 3 * 86_400
    notice(door, last_turn=str(round(1000 * three_days_ago)))
    (projects / "p" / "new.jsonl").write_text("this session's own says nothing")
    assert door.run(start) is None
    grown = projects / "p" / "other.jsonl"
    grown.write_text("x")
    os.utime(grown, (three_days_ago + 10, three_days_ago + 10))  # what the client wrote after its last hook
    assert door.run(start) is None
    os.utime(grown, (three_days_ago + 3600, three_days_ago + 3600))
    told = door.run(start)
    assert told is not None
    assert "the hook had not run for 3 days" in told["systemMessage"]
    assert door.run(start) is None
    notice(door, last_turn=str(round(1000 * (time.time() - 2 * 86_400))))  # it ran, and stopped again
    grown.write_text("y")
    assert "for 2 days" in door.run(start)["systemMessage"]  # type: ignore[index]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"line": 5, "last_turn": "x"}', b"\xff", b'{"line":"\\u001b[2J"}']
)
def test_a_broken_notice_is_borne(door: Hook, content: bytes) -> None:
    (door.data / "notice.json").write_bytes(content)
    told = door.run(START)
    assert told is None or told["systemMessage"].isprintable()


def test_a_note_that_cannot_be_written_is_told(door: Hook) -> None:
    (door.data / "spool").write_text("in the way")
    told = door.run(START)
    assert told == {"systemMessage": f"crystal: nothing is kept: {door.data} cannot be written; run: crystal doctor"}
    assert door.run({**START, "hook_event_name": "Stop"}) is None


def test_a_long_context_is_printed_whole(door: Hook) -> None:
    text = "漢字 and words " * 20_000
    door.lay_ready({"default": text})
    assert door.told() == text


def test_two_hooks_at_once_tell_it_once(door: Hook) -> None:
    door.lay_ready({"default": "for all"})
    env = {**os.environ, "LDM_HOME": str(door.ldm), "CRYSTAL_HOOK_WAIT": "1"}
    running = [subprocess.Popen(door.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) for _ in range(4)]
    printed = [process.communicate(json.dumps(START).encode(), timeout=60)[0] for process in running]
    assert len([one for one in printed if one]) == 1


def test_the_other_half_loads_next_to_nothing(door: Hook) -> None:
    door.lay_ready({"default": "for all"})
    look = """
import sys, os
path, before = sys.argv[1], set(sys.modules)
space = {"__name__": "hook", "__file__": path}
exec(compile(open(path).read(), path, "exec"), space)
space["main"]([])
with open(os.path.join(os.environ["LDM_HOME"], "modules"), "w") as file:
    file.write(" ".join(set(sys.modules) - before))
"""
    for said in (START, {**START, "hook_event_name": "UserPromptSubmit", "prompt": "remember: x"}):
        door.run(said, ("-c", look, door.command[3]), {"CRYSTAL_HOOK_WAIT": ""})
        loaded = set((door.ldm / "modules").read_text().split())
        assert {"session_start", "remember"} & loaded
        assert loaded <= ALLOWED_MODULES
