"""The switch: asked for by init on a terminal, off without an answer; the hooks follow it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command import crystal

ADDED = ["PreToolUse", "PostToolUseFailure", "SubagentStart"]


def events(home: Path) -> list[str]:
    return list(json.loads((home / ".claude" / "settings.json").read_bytes())["hooks"])


def test_init_asks_for_it_once_on_a_terminal_alone(home: Path) -> None:
    assert crystal("init", "--yes", "--no-import").code == 0
    assert (crystal("config", "get", "assist.mode").out, events(home)[-1]) == ("ask\n", "UserPromptSubmit")
    before = (home / ".claude" / "settings.json").read_bytes()
    for answer, mode, added in (("\n", "off", []), ("y\n", "on", ADDED)):
        assert crystal("config", "set", "assist.mode", "ask").code == 0
        asked = crystal("init", "--no-import", typed=answer, terminal=True)
        assert "show Claude Code past decisions" in asked.out + asked.err
        assert (crystal("config", "get", "assist.mode").out, events(home)[5:]) == (f"{mode}\n", added)
        again = crystal("init", "--no-import", terminal=True)
        assert "show Claude Code" not in again.out + again.err
    assert crystal("doctor").out.count("no hook for") == 0
    assert crystal("config", "set", "assist.edit", "false").code == 0
    assert events(home)[5:] == ADDED[1:]
    assert crystal("config", "unset", "assist.mode").code == 0
    assert (home / ".claude" / "settings.json").read_bytes() == before


def test_it_adds_no_hook_where_init_added_none_and_says_so(home: Path) -> None:
    done = crystal("config", "set", "assist.mode", "on")
    assert "does not run crystal's hooks yet" in done.err
    assert not (home / ".claude" / "settings.json").exists()
    assert (
        "expected" in crystal("config", "set", "assist.mode", "sometimes").err.lower()
        or crystal("config", "set", "assist.mode", "sometimes").code == 2
    )
    assert crystal("config", "set", "assist.mode", "sometimes").code == 2
