"""Codex's rollouts: each message as the model gets it, and as an event for the screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal.handoff.talk import HandoffMessage, Talk
from crystal.handoff.target import NativeSession, lines
from crystal.timewords.parse import iso, local
from crystal.transcript.copies import COPIES, listed


def write(talk: Talk, folder: Path) -> NativeSession:
    """Return the rollout, in the folder of its day."""
    now = local(talk.now)
    name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{talk.session}.jsonl"
    path = folder / "sessions" / f"{now:%Y}" / f"{now:%m}" / f"{now:%d}" / name
    return NativeSession(talk.session, lines(_records(talk)), ("codex", "resume", talk.session), path)


def _records(talk: Talk) -> Iterator[dict[str, Any]]:
    begun = iso(talk.now)
    meta = {
        "id": talk.session, "timestamp": begun, "cwd": talk.cwd, "originator": "crystal", "cli_version": "0.0.0",
        "source": "cli", **({"git": {"branch": talk.branch}} if talk.branch else {}),
    }  # fmt: skip
    yield {"timestamp": begun, "type": "session_meta", "payload": meta}
    for number, one in enumerate(talk.messages):
        at = iso(one.at)
        yield {
            "timestamp": at, "type": "response_item", "payload": _item(one, talk.ident(number)),
            COPIES: listed(one.copies),
        }  # fmt: skip
        for text in one.texts:
            kind = "user_message" if one.role == "user" else "agent_message"
            yield {"timestamp": at, "type": "event_msg", "payload": {"type": kind, "message": text.text}}


def _item(one: HandoffMessage, ident: str) -> dict[str, Any]:
    kind = "input_text" if one.role == "user" else "output_text"
    content = [{"type": kind, "text": text.text} for text in one.texts]
    return {"type": "message", "id": f"msg_{ident}", "role": one.role, "content": content}
