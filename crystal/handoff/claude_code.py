"""Claude Code's sessions: a line for each message, linked by ``parentUuid``, in the folder of the project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal.config.harnesses import CLAUDE_CODE
from crystal.handoff.talk import Talk
from crystal.handoff.target import NativeSession, lines
from crystal.timewords.parse import iso
from crystal.transcript.copies import COPIES, listed
from crystal.transcript.reader import reader_of


def write(talk: Talk, folder: Path) -> NativeSession:
    """Return the transcript."""
    path = reader_of(CLAUDE_CODE).resume_folder(folder, talk.cwd) / f"{talk.session}.jsonl"
    return NativeSession(talk.session, lines(_records(talk)), ("claude", "--resume", talk.session), path)


def _records(talk: Talk) -> Iterator[dict[str, Any]]:
    shared = {
        "isSidechain": False, "userType": "external", "cwd": talk.cwd, "sessionId": talk.session,
        "gitBranch": talk.branch or "",
    }  # fmt: skip
    for number, one in enumerate(talk.messages):
        content = [{"type": "text", "text": text.text} for text in one.texts]
        message: dict[str, Any] = {"role": one.role, "content": content}
        if one.role == "assistant":
            message |= {
                "id": f"msg_{talk.ident(number).replace('-', '')}", "type": "message", "model": one.model or "unknown",
                "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0},
            }  # fmt: skip
        yield {
            "parentUuid": talk.ident(number - 1) if number else None, **shared, "type": one.role, "message": message,
            "uuid": talk.ident(number), "timestamp": iso(one.at), COPIES: listed(one.copies),
        }  # fmt: skip
