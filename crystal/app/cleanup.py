"""Describe which conversations agents delete by themselves, and when: their own settings say it.

Source: the settings' pages of Claude Code, Gemini CLI and OpenClaw, and the two programs' code for what is not valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crystal.app.context import Machine
from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.install.json5 import as_json

_PERIOD = re.compile(r"([1-9]\d{0,5})([hdwm]?)")
_UNITS = {"h": "hour", "d": "day", "": "day", "w": "week", "m": "month"}


def cleanup_of(machine: Machine, name: str) -> str:
    """Return what an agent deletes, and when; empty if nothing, or if nothing is known."""
    usual = HARNESSES[name].cleanup
    if name not in _READERS:
        return usual
    file, describe = _READERS[name]
    roots = [root.folder for root in machine.places.transcript_roots if root.harness == name and root.is_here]
    homes = dict.fromkeys(folder.parent for folder in roots)
    found = dict.fromkeys(describe(_settings(home / file), usual) for home in homes)
    return ", or ".join(one for one in found if one) if homes else usual


def _settings(path: Path) -> Any:
    try:
        return json.loads(as_json(path.read_text("utf-8-sig")).text)
    except (OSError, ValueError, RecursionError):
        return {}


def _below(found: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _claude_code(settings: Any, usual: str) -> str:
    return _after(usual, _below(settings).get("cleanupPeriodDays"))


def _gemini_cli(settings: Any, usual: str) -> str:
    chosen = _below(settings, "general", "sessionRetention")
    most, words = chosen.get("maxCount"), _after(usual, chosen.get("maxAge"))
    if chosen.get("enabled") is False:
        return ""
    return f"{words}, and the oldest of more than {most:,}" if type(most) is int and most > 0 else words


def _openclaw(settings: Any, usual: str) -> str:
    chosen = _below(settings, "session", "maintenance")
    return "" if chosen.get("mode") == "warn" else _after(usual, chosen.get("pruneAfter"))


def _after(usual: str, period: Any) -> str:
    """Return the default words with a period such as ``30``, ``24h`` or ``4w``, if it is one."""
    found = _PERIOD.fullmatch(str(period))
    if found is None:
        return usual
    number, unit = int(found[1]), _UNITS[found[2]]
    return usual.replace("30 days", f"{number:,} {unit}{'' if number == 1 else 's'}")


_READERS: dict[str, tuple[str, Callable[[Any, str], str]]] = {
    CLAUDE_CODE: ("settings.json", _claude_code),
    "gemini-cli": ("settings.json", _gemini_cli),
    "openclaw": ("openclaw.json", _openclaw),
}
