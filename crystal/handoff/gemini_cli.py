"""Gemini CLI's chats: a journal in the folder that the program keeps for a project."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from crystal.config.paths import system_errors
from crystal.handoff.talk import Talk, Text
from crystal.handoff.target import NativeSession, lines
from crystal.timewords.parse import iso
from crystal.transcript.copies import COPIES, listed

_ROOT_FILE = ".project_root"
_IGNORED = ("/", "?", "<session_context>", "<hook_context>")


def write(talk: Talk, folder: Path) -> NativeSession:
    """Return the journal."""
    project = _project_folder(folder, talk.cwd)
    minute = str(iso(talk.now))[:16].replace(":", "-")
    path = project / "chats" / f"session-{minute}-{talk.session[:8]}.jsonl"
    beside = {project / _ROOT_FILE: talk.cwd.encode()}
    resume = ("gemini", "--resume", talk.session)
    return NativeSession(talk.session, lines(_records(talk)), resume, path, beside=beside)


def _project_folder(folder: Path, cwd: str) -> Path:
    """Return the folder of a project: the one that names it, else a new one, which the program takes over."""
    with system_errors(folder):
        marks = sorted(folder.glob(f"*/{_ROOT_FILE}"))
        known = next((mark.parent for mark in marks if mark.read_text("utf-8", "replace").strip() == cwd), None)
    if known is not None:
        return known
    slug = re.sub(r"[^a-z0-9]+", "-", Path(cwd).name.lower()).strip("-") or "project"
    names = (folder / (f"{slug}-{number}" if number else slug) for number in count())
    return next(name for name in names if not name.exists())


def _records(talk: Talk) -> Iterator[dict[str, Any]]:
    begun = iso(talk.now)
    project = hashlib.sha256(talk.cwd.encode()).hexdigest()
    yield {
        "sessionId": talk.session, "projectHash": project, "startTime": begun, "lastUpdated": begun, "kind": "main",
    }  # fmt: skip
    for number, one in enumerate(talk.messages):
        # The program takes what begins like a command of its own out of the conversation.
        added = [Text("Request:\n")] if one.role == "user" and one.texts[0].text.lstrip().startswith(_IGNORED) else []
        texts = [*added, *one.texts]
        yield {
            "id": talk.ident(number), "timestamp": iso(one.at), "type": "user" if one.role == "user" else "gemini",
            "content": [{"text": text.text} for text in texts], COPIES: listed([text.copy for text in texts]),
        }  # fmt: skip
