"""The switch: asked for by init on a terminal, off without an answer; the hooks follow it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crystal.install.claude_settings.hooks import TIMEOUTS
from tests.support.command import crystal

ADDED = ["PreToolUse", "PostToolUseFailure", "SubagentStart"]


def events(home: Path) -> list[str]:
    return list(json.loads((home / ".claude" / "settings.json").read_bytes())["hooks"])


def test_init_asks_for_it_once_on_a_terminal_alone(home: Path, ready: None) -> None:
    assert (crystal("config", "get", "assist.mode").out, events(home)[-1]) == ("ask\n", "UserPromptSubmit")
    before = (home / ".claude" / "settings.json").read_bytes()
    for answer, mode, added in (("\n", "off", []), ("y\n", "on", ADDED)):
        assert crystal("config", "set", "assist.mode", "ask").code == 0
        asked = crystal("init", "--no-import", typed=answer, terminal=True)
        assert "after a compaction or in a subagent" in asked.out + asked.err
        assert (crystal("config", "get", "assist.mode").out, events(home)[5:]) == (f"{mode}\n", added)
        again = crystal("init", "--no-import", terminal=True)
        assert "show Claude Code" not in again.out + again.err
    assert crystal("doctor").out.count("no hook for") == 0
    assert crystal("config", "set", "assist.edit", "false").code == 0
    assert events(home)[5:] == ADDED[1:]
    assert crystal("config", "unset", "assist.mode").code == 0
    assert (home / ".claude" / "settings.json").read_bytes() == before


def test_init_takes_the_answer_and_an_empty_list_of_the_users_stays(home: Path) -> None:
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    original = b'{"hooks": {"PreToolUse": [], "Stop" : [ ]},\n  "model": "x"}\n'
    settings.write_bytes(original)
    assert crystal("init", "--yes", "--no-import", "--assist", "on", "--dry-run").out.count("NotebookEdit") == 1
    assert settings.read_bytes() == original
    assert crystal("init", "--yes", "--no-import").code == 0
    off = settings.read_bytes()
    for mode, added in (("on", {*ADDED}), ("off", {"PreToolUse"}), ("ask", {"PreToolUse"})):
        assert crystal("init", "--yes", "--no-import", "--assist", mode).code == 0
        assert crystal("config", "get", "assist.mode").out == f"{mode}\n"
        assert {*events(home)} - {*TIMEOUTS} == added
        assert (settings.read_bytes() == off) == (mode != "on")
    assert crystal("init", "--yes", "--assist", "perhaps").code == 2
    assert crystal("uninstall", "--yes").code == 0
    assert settings.read_bytes() == original


@pytest.mark.slow
def test_the_hooks_of_another_agent_follow_it(home: Path) -> None:
    (home / ".codex").mkdir()
    assert crystal("init", "--yes", "--no-import", "--agent", "codex").code == 0
    hooks = home / ".codex" / "hooks.json"
    off = hooks.read_bytes()
    done = crystal("config", "set", "assist.mode", "on")
    assert "trust crystal's" in done.err
    assert "no agent runs" not in done.err
    added = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SubagentStart"]
    assert [*json.loads(hooks.read_bytes())["hooks"]][4:] == added
    crystal("config", "set", "context.enabled", "false")
    assert [*json.loads(hooks.read_bytes())["hooks"]][4:] == added[1:]
    crystal("config", "set", "assist.edit", "false")
    crystal("config", "set", "context.enabled", "true")
    assert [*json.loads(hooks.read_bytes())["hooks"]][4:] == ["SessionStart", *added[1:2], *added[3:]]
    assert "trust" not in crystal("config", "set", "search.reach", "8").err
    for key in ("assist.mode", "assist.edit", "context.enabled"):
        done = crystal("config", "unset", key)
        assert (done.code, "trust" in done.err) == (0, False)
    assert hooks.read_bytes() == off


def test_a_file_that_cannot_be_changed_is_named_and_the_others_follow(home: Path) -> None:
    names = {"codex": home / ".codex" / "hooks.json", "qwen-code": home / ".qwen" / "settings.json"}
    assert crystal("init", "--yes", "--no-import", *(word for name in names for word in ("--agent", name))).code == 0
    first, second = names.values()
    before = first.read_bytes()
    first.chmod(0o444)
    assert "read-only" not in crystal("config", "set", "assist.tokens", "900").err
    done = crystal("config", "set", "assist.mode", "on")
    assert done.code == 0
    assert f"{first} is read-only and stays as it is; allow it: chmod u+w {first}" in done.err
    assert first.read_bytes() == before
    assert "PreToolUse" in second.read_text()


def test_it_adds_no_hook_where_init_added_none_and_says_so(home: Path) -> None:
    for key, value in (("assist.mode", "on"), ("context.enabled", "true")):
        assert "no agent runs crystal's hooks yet" in crystal("config", "set", key, value).err
    assert not (home / ".claude" / "settings.json").exists()
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('{"enabledPlugins": {"crystal@crystal": true}}')
    assert "no agent runs" not in crystal("config", "set", "assist.mode", "on").err  # the plugin has the entries
    settings.unlink()
    assert crystal("config", "set", "assist.mode", "sometimes").code == 2
