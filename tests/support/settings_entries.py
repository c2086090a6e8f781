"""Entries in the hooks of Claude Code's settings, ours and others'."""

from __future__ import annotations

from typing import Any

from crystal.install.claude_settings.hooks import MATCHER_TIMEOUT, MATCHERS, TIMEOUTS

COMMAND = "/venv/bin/python -I -S /venv/lib/crystal/hook/main.py --env LDM_HOME=/home/user/.ldm"
OLDER = "'/old venv/bin/python3.10' -I -S '/old venv/lib/crystal/hook/main.py'"
FOREIGN = {"type": "command", "command": "say done"}


def ours(event: str, command: str = COMMAND) -> dict[str, Any]:
    entry = {"type": "command", "command": command, "timeout": TIMEOUTS.get(event, MATCHER_TIMEOUT)}
    return {**MATCHERS.get(event, {}), "hooks": [entry]}
