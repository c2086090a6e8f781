"""Pi's sessions: a chain of entries in the folder of the project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal.handoff.talk import HandoffMessage, Talk
from crystal.handoff.target import NativeSession, lines
from crystal.timewords.parse import iso
from crystal.transcript.copies import COPIES, listed

_NO_USAGE = {
    "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0,
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
}  # fmt: skip
_SEPARATORS = str.maketrans("/\\:", "---")


def write(talk: Talk, folder: Path) -> NativeSession:
    """Return the session."""
    project = f"--{talk.cwd.removeprefix('/').translate(_SEPARATORS)}--"
    begun = str(iso(talk.now)).replace(":", "-").replace(".", "-")
    path = folder / project / f"{begun}_{talk.session}.jsonl"
    return NativeSession(talk.session, lines(_records(talk)), ("pi", "--session", str(path)), path)


def _records(talk: Talk) -> Iterator[dict[str, Any]]:
    yield {"type": "session", "version": 3, "id": talk.session, "timestamp": iso(talk.now), "cwd": talk.cwd}
    parent = None
    for number, one in enumerate(talk.messages):
        ident = f"{int(talk.session[:8], 16) ^ number:08x}"
        yield {
            "type": "message", "id": ident, "parentId": parent, "timestamp": iso(one.at), "message": _message(one),
            COPIES: listed(one.copies),
        }  # fmt: skip
        parent = ident


def _message(one: HandoffMessage) -> dict[str, Any]:
    content = [{"type": "text", "text": text.text} for text in one.texts]
    said = {"role": one.role, "content": content, "timestamp": one.at}
    if one.role == "user":
        return said
    model = {"api": "openai-completions", "provider": "crystal", "model": one.model or "unknown"}
    return {**said, **model, "usage": _NO_USAGE, "stopReason": "stop"}
