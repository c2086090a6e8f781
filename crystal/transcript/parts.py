"""Make turns of the parts of a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crystal.model.capture import Role, Turn
from crystal.transcript.claude_code.content import block_text, call_text, head_and_tail, result_text
from crystal.transcript.copies import copied_turns
from crystal.transcript.line import Fields, clean_text, word

_FILES_FOLLOW = "--- Content from referenced files ---"
MIN_UNIQUE_ID = 32
"""A shorter id may come again in another session."""


class Part(NamedTuple):
    """One part of a record: who said it, the text, and the tool of a call or a result."""

    role: Role
    text: str
    tool: str | None = None


def unique_id(ident: str, session: str) -> str:
    """Return the id of a message that no other session has: itself if it is long, else after its session's."""
    return ident if len(ident) >= MIN_UNIQUE_ID else f"{session}-{ident}"


def turns_of_parts(parts: Iterable[Part], turn: Turn, record: Fields, *, subagent: bool) -> Iterator[Turn]:
    """Yield a turn for each part that has text.

    Args:
        parts: In their order. Their numbers are the parts of the turns, so a part without text keeps its number.
        turn: What all turns share: ``uuid``, ``offset``, times and places.
        record: The record: crystal itself may have written it, see ``crystal.handoff``.
        subagent: Whether a subagent said it: words have the role ``subagent`` then.
    """
    copies = copied_turns(record, turn)
    if copies is not None:
        yield from copies
        return
    for number, part in enumerate(parts):
        if not part.text.replace("\0", " ").strip():
            continue
        text = clean_text(part.text)
        shown = head_and_tail(text) if part.role == "tool_result" else text
        role = "subagent" if subagent and part.role in ("user", "assistant") else part.role
        yield turn._replace(part=number, role=role, text=shown, tool=part.tool, full_length=len(text))


def without_files(text: str) -> str:
    """Return what a person typed: without the files that Gemini CLI and its forks add behind it."""
    typed, are_added, _ = text.partition(_FILES_FOLLOW)
    return typed.rstrip() if are_added else text


def parts_of_blocks(content: object, role: Role, tools: dict[str, str | None] | None = None) -> Iterator[Part]:
    """Yield the parts of a message whose content is a text, or blocks in the form of Anthropic's API.

    ``tools`` names the tools called so far by the id of the call, and is updated.
    """
    tools = {} if tools is None else tools
    for block in content if isinstance(content, list) else [content]:
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(block, dict) and kind == "thinking":
            yield Part("thinking", word(block.get("thinking")) or word(block.get("text")) or "")
        elif isinstance(block, dict) and kind == "tool_use":
            name = word(block.get("name"))
            tools[str(block.get("id"))] = name
            yield Part("tool_call", call_text(name, block.get("input")), name)
        elif isinstance(block, dict) and kind == "tool_result":
            texts = block.get("content")
            tool = word(block.get("name")) or tools.get(str(block.get("tool_use_id")))
            yield Part("tool_result", result_text(texts) or call_text(None, texts), tool)
        else:
            yield Part(role, block_text(block))
