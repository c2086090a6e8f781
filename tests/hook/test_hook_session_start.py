"""What the hook tells a session that begins."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crystal.context.prepared import Rules
from crystal.hook import session_start
from crystal.hook.session_start import stamp_of
from tests.support.copied_hook import SESSION, START, Hook, unfenced
from tests.support.examples import part_of
from tests.support.hook_machine import ALLOWED_MODULES
from tests.support.table import each_row

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the hook is untested on Windows")


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
    told = {"candidates": 1, "chosen": ["mem-0123456789ab"], "omitted": 2, "tokens": 34, "why": {"why": 1}}
    assert json.loads(rest) == told
    assert {stat.S_IMODE(path.stat().st_mode) for path in door.data.rglob("*.json")} == {0o600}


def test_an_agent_whose_system_prompt_is_made_anew_is_told_again(door: Hook) -> None:
    door.lay_ready({"default": "for all"})
    for agent, is_told in [("opencode", True), ("opencode", True), ("codex", False)]:
        answer = door.run(START, agent=agent)
        assert ("for all" in str(answer)) == is_told


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
        {"cwd": "/home/dev/../../secret/new/project"},
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


@each_row("content", part_of([b"", b"{}", b"[]", b'{"body": 5}', b"\xff", b'{"cwd": "/home/dev/shop"'], 3))
@each_row("name", ["rules.json", session_start.context_file("/home/dev/shop")])
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
    notice(door, line="paused since 2026-11-22 10:00: nothing is captured; resume with: crystal --on")
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
    notice(door, last_turn=str(round(1000 * (time.time() - 2 * 86_400 - 1))))  # it ran, and stopped again
    grown.write_text("y")
    assert "for 2 days" in door.run(start)["systemMessage"]  # type: ignore[index]


@each_row("content", [b"", b"{}", b"[]", b'{"line": 5, "last_turn": "x"}', b"\xff", b'{"line":"\\u001b[2J"}'])
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
    assert unfenced(door.start(START)["hookSpecificOutput"]["additionalContext"]) == text


@pytest.mark.slow
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
    for said in (START, {**START, "hook_event_name": "UserPromptSubmit", "prompt": "remember this: x"}):
        door.start(said, ("-c", look, str(Path(door.command[3]).with_name("event.py"))), {"CRYSTAL_HOOK_WAIT": ""})
        loaded = set((door.ldm / "modules").read_text().split())
        assert {"session_start", "remember"} & loaded
        assert loaded <= ALLOWED_MODULES
