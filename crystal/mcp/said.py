"""Recalled text on its way to an agent: quoted, cut, and with the words that say where it comes from. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crystal.text.quoting import quote, quote_line
from crystal.timewords.parse import local

WEB_TOOL = re.compile(r"WebFetch|WebSearch|(?:^|_)(?:fetch|crawl|scrape|browse)|web_?search|browser", re.IGNORECASE)
"""The tools whose results come from the network: those of the client, and what servers of tools usually call theirs."""

_LABEL = 120


def label(text: str | None) -> str | None:
    """Return a name (of a project, a branch, a machine ...) as one short line; None stays None."""
    return None if text is None else quote_line(text, _LABEL)


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who said something, when and where. ``kind`` is one of ``KINDS``, ``by`` says it in words."""

    kind: str
    by: str
    timestamp: int | None = None
    project: str | None = None
    device: str | None = None
    session: str | None = None

    def place(self, here: str) -> str:
        """Return when and where in a few words; the device only if it is another than ``here``."""
        day = "time unknown" if self.timestamp is None else f"{local(self.timestamp):%Y-%m-%d}"
        device = None if self.device == here else label(self.device)
        return " ".join(part for part in (day, label(self.project), device) if part)


KINDS = ("user", "assistant", "tool", "web", "subagent", "summary", "file", "memory")


def kind_of(role: str, tool: str | None = None, subagent: str | None = None) -> tuple[str, str]:
    """Return whose words a text is: the kind, and in words."""
    name = label(tool)
    if role == "tool_result" and tool is not None and WEB_TOOL.search(tool):
        return "web", f"web {name}"
    inside = ", in a subagent" if subagent else ""
    if role == "tool_result":
        return "tool", f"tool {name or 'unknown'}{inside}"
    if role == "tool_call":
        return "tool", f"call of tool {name or 'unknown'}{inside}"
    if role == "subagent" or subagent:
        return "subagent", "subagent"
    if role == "thinking":
        return "assistant", "assistant, thinking"
    known = {"source": "file"}.get(role, role)
    return (known, known) if known in KINDS else ("tool", label(role) or "unknown")


def excerpt(text: str, room: int, start: int = 0) -> tuple[str, int]:
    """Return a text quoted, from ``start`` on and at most ``room`` characters of it, and how many are left after it."""
    whole = quote(text)
    part = whole[start : start + max(1, room)]
    left = max(0, len(whole) - start - len(part))
    before, after = "[…] " if start else "", f" […] ({left} more characters)" if left else ""
    return f"{before}{part}{after}", left
