"""Parse the lines of a Claude Code transcript into turns. Pure and tolerant.

Never raises, whatever the lines hold. The same lines give the same turns; a line that is not conversation gives none.
Does not use files, the clock or the store.

Source: docs/reference/transcript-format.md, sections 4 to 7.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crystal.model.capture import Role, Turn
from crystal.transcript.claude_code.content import block_text, call_text, head_and_tail, result_text
from crystal.transcript.claude_code.injected import is_machinery, spoken_command, strip_injected
from crystal.transcript.line import ParsedLine, clean_text, identifier, parse_line, parse_time, word
from crystal.transcript.reader import FORGOTTEN

_SYNTHETIC = "<synthetic>"

_MARKS = (b'"user"', b'"assistant"', b'"queued_command"')
"""Markers of conversation lines; a line without any of them need not be parsed."""


class _Said(NamedTuple):
    """Content of one block, before the line's own fields are added."""

    part: int
    role: Role
    text: str
    tool: str | None = None
    full_length: int = 0


def parse_turns(lines: Iterable[tuple[int, bytes]], transcript: str, *, subagent: bool) -> Iterator[Turn]:
    """Yield the turns of the lines, in their order.

    Args:
        lines: (offset of the line in its file, the line without its newline).
        transcript: The transcript's key; part of the identity of lines that have no uuid.
        subagent: The transcript is a subagent's own: its turns have the role ``subagent``.

    Source: docs/reference/transcript-format.md, section 4.
    """
    tools: dict[str, str] = {}
    for offset, line in lines:
        if not any(mark in line for mark in _MARKS):
            continue
        fields = parse_line(line)
        if fields is not None:
            yield from _turns_of(fields, line, offset, transcript, subagent=subagent, tools=tools)


def _turns_of(
    fields: ParsedLine, line: bytes, offset: int, transcript: str, *, subagent: bool, tools: dict[str, str]
) -> Iterator[Turn]:
    """Yield the turns of one parsed line. ``tools`` names the tools called so far by call id, and is updated."""
    message = _message(fields)
    if message is None:
        return
    uuid = _sent_as(fields) or identifier(fields.get("uuid"))
    inside = subagent or fields.get("isSidechain") is True
    for said in _says(fields, message, inside, tools):
        uuid = uuid or _derived_uuid(transcript, offset, line)
        yield Turn(
            uuid=uuid,
            part=said.part,
            role=said.role,
            text=said.text,
            offset=offset,
            timestamp=parse_time(fields.get("timestamp")),
            parent_uuid=identifier(fields.get("parentUuid")),
            cwd=word(fields.get("cwd")),
            branch=word(fields.get("gitBranch")),
            tool=said.tool,
            message_id=identifier(message.get("id")),
            model=identifier(message.get("model")),
            full_length=said.full_length or len(said.text),
        )


def _message(fields: ParsedLine) -> ParsedLine | None:
    """Return the message of a conversation line, None for any other line."""
    kind = fields.get("type")
    if fields.get("isMeta") or fields.get(FORGOTTEN):
        return None
    if kind == "attachment":
        return _queued_message(fields.get("attachment"))
    message = fields.get("message")
    return message if kind in ("user", "assistant") and isinstance(message, dict) else None


def _queued_message(attachment: object) -> ParsedLine | None:
    """Return a message that a person sent while the agent was working, which no user line repeats."""
    if not isinstance(attachment, dict) or attachment.get("type") != "queued_command":
        return None
    if attachment.get("commandMode") not in (None, "prompt") or not _from_a_person(attachment):
        return None
    return {"content": attachment.get("prompt")}


def _sent_as(fields: ParsedLine) -> str | None:
    """Return the uuid under which a queued message was sent: a second record of the message has the same."""
    attachment = fields.get("attachment")
    return identifier(attachment.get("source_uuid")) if isinstance(attachment, dict) else None


def _derived_uuid(transcript: str, offset: int, line: bytes) -> str:
    """Return an id for a line without uuid, from its offset and its content."""
    digest = hashlib.sha256(f"{transcript}\n{offset}\n".encode("utf-8", "surrogatepass"))
    digest.update(line)
    return f"line-{digest.hexdigest()[:32]}"


def _says(fields: ParsedLine, message: ParsedLine, inside: bool, tools: dict[str, str]) -> Iterator[_Said]:
    """Yield the content of a conversation line, block by block. ``inside``: in a subagent."""
    if fields.get("type") == "assistant":
        return _assistant_says(fields, message, "subagent" if inside else "assistant", tools)
    if fields.get("isCompactSummary"):
        return _summary_says(message)
    return _user_says(fields, message, "subagent" if inside else "user", tools)


def _assistant_says(fields: ParsedLine, message: ParsedLine, speaker: Role, tools: dict[str, str]) -> Iterator[_Said]:
    if fields.get("isApiErrorMessage") or message.get("model") == _SYNTHETIC:
        return
    for part, block in _blocks(message):
        kind = block.get("type")
        if kind == "text":
            yield from _say(part, speaker, block_text(block))
        elif kind == "thinking":
            yield from _say(part, "thinking", block.get("thinking"))
        elif isinstance(kind, str) and kind.endswith("tool_use"):
            yield from _call(part, block, tools)
        elif isinstance(kind, str) and kind.endswith("tool_result"):
            yield from _result(part, block, tools)


def _user_says(fields: ParsedLine, message: ParsedLine, speaker: Role, tools: dict[str, str]) -> Iterator[_Said]:
    blocks = list(_blocks(message))
    results = any(block.get("type") == "tool_result" for _, block in blocks)
    human = _from_a_person(fields) and (results or not fields.get("toolUseResult"))
    for part, block in blocks:
        if block.get("type") == "tool_result":
            yield from _result(part, block, tools)
        elif human:
            text = strip_injected(block_text(block))
            if not is_machinery(text):
                yield from _say(part, speaker, text)
            elif (command := spoken_command(text)) is not None:
                yield from _say(part, speaker, command)


def _from_a_person(fields: ParsedLine) -> bool:
    """Return True if a person, and not the client, wrote the line."""
    origin = fields.get("origin")
    kind = origin.get("kind") if isinstance(origin, dict) else None
    return kind in (None, "human") and fields.get("promptSource") != "system"


def _summary_says(message: ParsedLine) -> Iterator[_Said]:
    for part, block in _blocks(message):
        yield from _say(part, "summary", strip_injected(block_text(block)))


def _call(part: int, block: ParsedLine, tools: dict[str, str]) -> Iterator[_Said]:
    name = identifier(block.get("name"))
    call = block.get("id")
    if name is not None and isinstance(call, str):
        tools[call] = name
    yield from _say(part, "tool_call", call_text(name, block.get("input")), tool=name)


def _result(part: int, block: ParsedLine, tools: dict[str, str]) -> Iterator[_Said]:
    call = block.get("tool_use_id")
    tool = tools.get(call) if isinstance(call, str) else None
    whole = strip_injected(result_text(block.get("content")))
    yield from _say(part, "tool_result", head_and_tail(whole), tool=tool, full_length=len(whole))


def _say(part: int, role: Role, text: object, *, tool: str | None = None, full_length: int = 0) -> Iterator[_Said]:
    """Yield the block's turn, unless it has no text."""
    if not isinstance(text, str):
        return
    if not text.strip() or ("\0" in text and not text.replace("\0", " ").strip()):
        return
    yield _Said(part, role, clean_text(text), tool, full_length)


def _blocks(message: ParsedLine) -> Iterator[tuple[int, ParsedLine]]:
    """Yield (index, block) of a message's content; plain text counts as one text block."""
    content = message.get("content")
    if isinstance(content, str):
        yield 0, {"type": "text", "text": content}
    elif isinstance(content, list):
        for part, block in enumerate(content):
            if isinstance(block, dict):
                yield part, block
            elif isinstance(block, str):
                yield part, {"type": "text", "text": block}
