"""Make turns of the parts of a record: what all readers but Claude Code's share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crystal.model.capture import Role, Turn
from crystal.transcript.claude_code.content import head_and_tail
from crystal.transcript.line import clean_text


class Part(NamedTuple):
    """One part of a record: who said it, the text, and the tool of a call or a result."""

    role: Role
    text: str
    tool: str | None = None


def turns_of_parts(parts: Iterable[Part], turn: Turn, *, subagent: bool) -> Iterator[Turn]:
    """Yield a turn for each part that has text.

    Args:
        parts: In their order. Their numbers are the parts of the turns, so a part without text keeps its number.
        turn: What all turns share: ``uuid``, ``offset``, times and places.
        subagent: Whether a subagent said it: words have the role ``subagent`` then.
    """
    for number, part in enumerate(parts):
        text = clean_text(part.text)
        if not text.strip():
            continue
        shown = head_and_tail(text) if part.role == "tool_result" else text
        role = "subagent" if subagent and part.role in ("user", "assistant") else part.role
        yield turn._replace(part=number, role=role, text=shown, tool=part.tool, full_length=len(text))
