"""Build the remainder of a forgotten line: its place in the conversation, without its text.

The client follows ``parentUuid`` from line to line and wants a result for every call, so lines of the conversation keep
their ids, times and kinds. Every other line becomes blank. Both are padded to the original length, so that the offsets
of other lines, which identify lines without an id, do not change.
"""

from __future__ import annotations

from typing import Any

import orjson

from crystal import transcript

WORDS = "[forgotten]"
_KEPT = (
    "type",
    "uuid",
    "parentUuid",
    "logicalParentUuid",
    "sessionId",
    "timestamp",
    "isSidechain",
    "isMeta",
    "userType",
    "entrypoint",
    "version",
    "requestId",
    "agentId",
    "cwd",
)
_KEPT_OF_MESSAGE = ("id", "type", "role", "model", "stop_reason", "stop_sequence", "usage")


def shell_of(line: bytes) -> bytes:
    """Return the remainder of a line (without its newline) that is kept when it is forgotten."""
    fields = transcript.parse_line(line)
    if fields is None or fields.get("type") not in ("user", "assistant") or transcript.facts_of(fields).uuid is None:
        return b" " * len(line)
    message = fields.get("message")
    shell = {name: fields[name] for name in _KEPT if _is_short(fields.get(name, {}))}
    shell[transcript.FORGOTTEN] = True
    shell["message"] = _message(message if isinstance(message, dict) else {}, str(fields["type"]))
    try:
        return orjson.dumps(shell).ljust(len(line))
    except (TypeError, ValueError, orjson.JSONEncodeError):
        return b" " * len(line)


def is_shell(line: bytes) -> bool:
    """Return True if a line was forgotten already."""
    if not line.strip():
        return True
    mark = b'"' + transcript.FORGOTTEN.encode() + b'":true'
    return mark in line and bool((transcript.parse_line(line) or {}).get(transcript.FORGOTTEN))


def _is_short(value: object) -> bool:
    """Return True if a field can hold only a name, a number or nothing."""
    return value is None or isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= 200)


def _message(message: dict[str, Any], role: str) -> dict[str, Any]:
    kept = {name: message[name] for name in _KEPT_OF_MESSAGE if _is_short(message.get(name, {}))}
    kept["role"] = role
    usage = message.get("usage")
    if isinstance(usage, dict):
        kept["usage"] = {name: count for name, count in usage.items() if isinstance(count, int)}
    content = message.get("content")
    kept["content"] = [_block(block) for block in content] if isinstance(content, list) and content else WORDS
    return kept


def _block(block: object) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(block, dict) and kind == "tool_use" and _are_names(block, "id", "name"):
        return {"type": kind, "id": block["id"], "name": block["name"], "input": {}}
    if isinstance(block, dict) and kind == "tool_result" and _are_names(block, "tool_use_id"):
        return {"type": kind, "tool_use_id": block["tool_use_id"], "content": WORDS}
    return {"type": "text", "text": WORDS}


def _are_names(block: dict[str, Any], *names: str) -> bool:
    return all(isinstance(block.get(name), str) and len(block[name]) <= 200 for name in names)
