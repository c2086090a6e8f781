"""A set as transcripts of Claude Code: one file a session, one folder a conversation.

Where people talk, one of them is the user and the other the assistant, and the name stands before what is said.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from retrieval_data import DataSet, Message, iso
from sessions import MODEL, VERSION

OURS = uuid.UUID("3f0c8a52-7f43-4f3c-9d0e-5b8e64d1a7c9")


@dataclass
class Written:
    """What was written, and how to get from what crystal answers to the set's own ids."""

    messages: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    size: int = 0


def write_transcripts(dataset: DataSet, projects: Path) -> Written:
    """Write the set below a folder like ``~/.claude/projects``. The same set gives the same bytes."""
    written = Written()
    sessions: dict[tuple[str, str], list[Message]] = {}
    for message in dataset.messages:
        sessions.setdefault((message.conv, message.session), []).append(message)
    for (conv, session), messages in sessions.items():
        cwd = written.folders.setdefault(conv, folder_of(conv))
        own = str(uuid.uuid5(OURS, f"session {conv} {session}"))
        written.sessions[own] = session
        path = projects / re.sub(r"[^A-Za-z0-9]", "-", cwd) / f"{own}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = b"".join(orjson.dumps(line) + b"\n" for line in _lines(messages, own, cwd, written))
        path.write_bytes(raw)
        written.size += len(raw)
        last = messages[-1].when / 1000
        os.utime(path, (last, last))
    return written


def folder_of(conv: str) -> str:
    """The working folder of a conversation, which is its project. No two share one."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", conv)
    return f"/home/dev/{plain}-{hashlib.sha256(conv.encode()).hexdigest()[:6]}"


def _lines(messages: Sequence[Message], session: str, cwd: str, written: Written) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    parent = None
    for message in messages:
        blocks = _blocks(message)
        if not blocks:
            continue
        own = str(uuid.uuid5(OURS, f"message {message.conv} {message.ident}"))
        written.messages[own] = message.ident
        lines.append({
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": cwd,
            "sessionId": session,
            "version": VERSION,
            "gitBranch": "main",
            **_body(message, own, blocks),
            "uuid": own,
            "timestamp": iso(message.when),
        })  # fmt: skip
        parent = own
    return lines


def _blocks(message: Message) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"type": "text", "text": message.said}] if message.said.strip() else []
    name = hashlib.sha256(message.ident.encode()).hexdigest()[:20]
    for number, tool in enumerate(message.tools):
        called, _, rest = tool.partition(" ")
        use = {"type": "tool_use", "id": f"toolu_{name}{number}", "name": called, "input": {"description": rest}}
        said.append(use)
    return said


def _body(message: Message, own: str, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    if message.role == "user":
        return {"type": "user", "message": {"role": "user", "content": message.whole}}
    body = {"id": f"msg_{own.replace('-', '')[:24]}", "type": "message", "role": "assistant", "model": MODEL}
    return {"type": "assistant", "message": {**body, "content": blocks, "stop_reason": "end_turn"}}
