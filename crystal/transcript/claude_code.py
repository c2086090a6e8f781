"""Parsing: from the lines of a Claude Code transcript to turns. Pure and tolerant.

Promises: never raises, whatever the lines hold; the same lines give the same turns; a line that is not conversation
gives none. Knows nothing of files, of time and of the store.

Source: docs/reference/transcript-format.md, sections 4 to 7.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crystal.model import Role, Turn
from crystal.transcript.content import block_text, call_text, head_and_tail, result_text
from crystal.transcript.injected import is_machinery, spoken_command, strip_injected
from crystal.transcript.line import ParsedLine, clean_text, identifier, parse_line, parse_time, word

_SYNTHETIC = "<synthetic>"


@dataclass(frozen=True, slots=True)
class _Said:
    """What one block says, before the line's own facts are added."""

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
        subagent: The transcript is a subagent's own: what is said in it has the role ``subagent``.

    Source: docs/reference/transcript-format.md, section 4.
    """
    tools: dict[str, str] = {}
    for offset, line in lines:
        if b'"user"' not in line and b'"assistant"' not in line:
            continue
        fields = parse_line(line)
        if fields is not None:
            yield from turns_of(fields, line, offset, transcript, subagent=subagent, tools=tools)


def turns_of(
    fields: ParsedLine, line: bytes, offset: int, transcript: str, *, subagent: bool, tools: dict[str, str]
) -> Iterator[Turn]:
    """Yield the turns of one parsed line, for who parses lines anyway; ``parse_turns`` says the rest.

    Args:
        fields: The parsed line.
        line: Its bytes, which identify it if it has no uuid.
        offset: Where it starts in its file.
        transcript: The transcript's key.
        subagent: The transcript is a subagent's own.
        tools: Names of the tools called so far by call id; results look up their tool in it. Updated.
    """
    kind = fields.get("type")
    if kind not in ("user", "assistant") or fields.get("isMeta"):
        return
    message = fields.get("message")
    if not isinstance(message, dict):
        return
    spoken_in_subagent = subagent or fields.get("isSidechain") is True
    if kind == "assistant":
        said = _assistant_says(fields, message, "subagent" if spoken_in_subagent else "assistant", tools)
    elif fields.get("isCompactSummary"):
        said = _summary_says(message)
    else:
        said = _user_says(fields, message, "subagent" if spoken_in_subagent else "user", tools)
    known: _Known | None = None
    for item in said:
        known = known or _known(fields, message, line, offset, transcript)
        yield Turn(
            uuid=known.uuid,
            part=item.part,
            role=item.role,
            text=item.text,
            offset=offset,
            timestamp=known.timestamp,
            parent_uuid=known.parent_uuid,
            cwd=known.cwd,
            branch=known.branch,
            tool=item.tool,
            message_id=known.message_id,
            model=known.model,
            full_length=item.full_length or len(item.text),
        )


def titles(lines: Iterable[tuple[int, bytes]]) -> str | None:
    """Return the session's title as the lines give it: the user's latest, else the client's latest, else None.

    A ``summary`` line of older clients counts only if the conversation that it names is among the lines: such lines
    were also written into the files of other sessions.

    Source: docs/reference/transcript-format.md, section 8.
    """
    found: dict[str, str] = {}
    summaries: list[tuple[str | None, str]] = []
    uuids: set[str] = set()
    for _, line in lines:
        fields = parse_line(line)
        if fields is None:
            continue
        if (uuid := identifier(fields.get("uuid"))) is not None:
            uuids.add(uuid)
        kind = fields.get("type")
        if kind == "custom-title" and (title := _title(fields.get("customTitle"))):
            found["custom"] = title
        elif kind == "ai-title" and (title := _title(fields.get("aiTitle"))):
            found["ai"] = title
        elif kind == "summary" and (title := _title(fields.get("summary"))):
            summaries.append((identifier(fields.get("leafUuid")), title))
    ours = [title for leaf, title in summaries if leaf is None or leaf in uuids]
    return found.get("custom") or found.get("ai") or (ours[-1] if ours else None)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the line says of all its turns."""

    uuid: str
    timestamp: int | None
    parent_uuid: str | None
    cwd: str | None
    branch: str | None
    message_id: str | None
    model: str | None


def _known(fields: ParsedLine, message: ParsedLine, line: bytes, offset: int, transcript: str) -> _Known:
    return _Known(
        uuid=identifier(fields.get("uuid")) or _derived_uuid(transcript, offset, line),
        timestamp=parse_time(fields.get("timestamp")),
        parent_uuid=identifier(fields.get("parentUuid")),
        cwd=word(fields.get("cwd")),
        branch=word(fields.get("gitBranch")),
        message_id=identifier(message.get("id")),
        model=identifier(message.get("model")),
    )


def _derived_uuid(transcript: str, offset: int, line: bytes) -> str:
    """Identify a line that has no uuid by where it stands and what it holds."""
    digest = hashlib.sha256(f"{transcript}\n{offset}\n".encode("utf-8", "surrogatepass"))
    digest.update(line)
    return f"line-{digest.hexdigest()[:32]}"


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
    """Tell whether the line says that a person, and not the client, wrote it."""
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
    whole = clean_text(strip_injected(result_text(block.get("content"))))
    yield from _say(part, "tool_result", head_and_tail(whole), tool=tool, full_length=len(whole))


def _say(part: int, role: Role, text: object, *, tool: str | None = None, full_length: int = 0) -> Iterator[_Said]:
    """Yield the block's turn, unless there is nothing in it to read."""
    if not isinstance(text, str):
        return
    clean = clean_text(text)
    if clean.replace("\ufffd", " ").isspace() or not clean:
        return
    yield _Said(part, role, clean, tool, full_length)


def _blocks(message: ParsedLine) -> Iterator[tuple[int, ParsedLine]]:
    """Yield (index, block) of a message's content; a content that is a plain text is one text block."""
    content = message.get("content")
    if isinstance(content, str):
        yield 0, {"type": "text", "text": content}
    elif isinstance(content, list):
        for part, block in enumerate(content):
            if isinstance(block, dict):
                yield part, block
            elif isinstance(block, str):
                yield part, {"type": "text", "text": block}


def _title(value: object) -> str | None:
    title = word(value)
    return " ".join(title.split()) if title is not None else None
