"""Recalled text on its way to an agent: made plain, and fenced with where it comes from. Pure.

Whatever was said once may hold an instruction that somebody hid in it. So none of it leaves this room without the
fence, and nothing in it can move a cursor, hide, or look like the fence itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from crystal.fence import fenced, without_tags
from crystal.when import local

WEB_TOOL = re.compile(r"WebFetch|WebSearch|(?:^|_)(?:fetch|crawl|scrape|browse)|web_?search|browser", re.IGNORECASE)
"""The tools whose results come from the network: those of the client, and what servers of tools usually call theirs."""

_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]|\x1b[\\]P^_X][^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?|\x1b[ -~]?"
)
# C0 (but tab and newline), DEL, C1, what turns the reading direction, what is invisible (but joiners), surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_LABEL = 120


def plain(text: str) -> str:
    """A text without anything that a reader does not see; what looks like a fence in it loses its bracket."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return without_tags(_HIDDEN.sub("", text))


def label(text: str | None) -> str | None:
    """A name (of a project, a branch, a machine ...) as one short line; None stays None."""
    if text is None:
        return None
    line = " ".join(plain(text).split())
    return line if len(line) <= _LABEL else line[: _LABEL - 1] + "…"


@dataclass(frozen=True, slots=True)
class Origin:
    """Who said something, when and where. ``kind`` is one of ``KINDS``, ``by`` says it in words."""

    kind: str
    by: str
    timestamp: int | None = None
    project: str | None = None
    device: str | None = None
    session: str | None = None

    @property
    def line(self) -> str:
        """All of it in a line."""
        day = None if self.timestamp is None else f"{local(self.timestamp):%Y-%m-%d %H:%M}"
        named = (("project", self.project), ("device", self.device), ("session", self.session))
        parts = [self.by, day or "time unknown", *(f"{name} {label(value)}" for name, value in named if value)]
        return ", ".join(parts)


KINDS = ("user", "assistant", "tool", "web", "subagent", "summary", "file", "memory")


def kind_of(role: str, tool: str | None = None, subagent: str | None = None) -> tuple[str, str]:
    """Whose words these are: the kind, and in words."""
    name = label(tool)
    if role == "tool_result" and tool is not None and WEB_TOOL.search(tool):
        return "web", f"web, by {name}"
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


def recalled(text: str, origin: Origin, room: int, start: int = 0) -> tuple[str, int]:
    """A text in its fence, from ``start`` on and at most ``room`` characters of it.

    Returns:
        The fenced text, and how many characters of the text are left after it.
    """
    whole = plain(text)
    part = whole[start : start + max(1, room)]
    left = max(0, len(whole) - start - len(part))
    before, after = "[…] " if start else "", f" […] ({left} more characters)" if left else ""
    return fenced(f"{before}{part}{after}", origin.line), left
