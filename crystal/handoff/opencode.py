"""OpenCode's sessions: a document that the program itself imports into its database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from crystal.handoff.program import run_program
from crystal.handoff.talk import HandoffMessage, Talk
from crystal.handoff.target import NativeSession
from crystal.transcript.copies import COPIES, listed
from crystal.transcript.line import fields_of, list_of, parse_line

Model = dict[str, Any]

_VERSION = "1.0.0"
_CONFIG = ("opencode", "debug", "config")
_LAST = (
    "SELECT json_extract(data, '$.model') AS model FROM message WHERE model NOT NULL ORDER BY time_created DESC LIMIT 1"
)
_USED = ("opencode", "db", "--format", "json", _LAST)
_ID_BITS, _TICKS = (1 << 48) - 1, 1 << 12


def write(talk: Talk, folder: Path) -> NativeSession:  # noqa: ARG001 - the interface's
    """Return the document that ``opencode import`` takes."""
    model = _model(Path(talk.cwd))
    session = f"ses_{_letters(~(talk.now * _TICKS), talk.session)}"
    info = {
        "id": session, "slug": f"crystal-{talk.session[:8]}", "projectID": "global", "directory": talk.cwd,
        "title": talk.title or "Continued", "version": _VERSION, "time": {"created": talk.now, "updated": talk.now},
    }  # fmt: skip
    document = {
        "info": info,
        "messages": [_message(talk, session, model, place) for place in range(len(talk.messages))],
    }
    resume, undo = ("opencode", "-s", session), ("opencode", "session", "delete", session)
    return NativeSession(session, orjson.dumps(document), resume, load=("opencode", "import"), undo=undo)


def _model(cwd: Path) -> Model:
    """Return the model that the program's settings choose, else the one that was used last.

    It goes on with the model of a session's last request: another one would send the conversation to another provider.
    """
    provider, _, name = str((parse_line(run_program(*_CONFIG, cwd=cwd).encode()) or {}).get("model", "")).partition("/")
    if provider and name:
        return {"providerID": provider, "modelID": name}
    used = list_of(
        (parse_line(b'{"it":' + (run_program(*_USED, cwd=cwd).strip() or "[]").encode() + b"}") or {}).get("it")
    )
    last = next((parse_line(str(fields_of(row).get("model")).encode()) for row in used), None)
    return last or {"providerID": "unknown", "modelID": "unknown"}


def _letters(moment: int, ident: str) -> str:
    """Return the end of an id: 12 digits of the time, which it is sorted by, and 14 letters."""
    return f"{moment & _ID_BITS:012x}{ident.replace('-', '')[:14]}"


def _message(talk: Talk, session: str, model: Model, place: int) -> dict[str, Any]:
    one = talk.messages[place]
    ident = _message_id(talk, place)
    info: dict[str, Any] = {"id": ident, "sessionID": session, "role": one.role, "time": {"created": one.at}}
    if one.role == "user":
        info |= {"agent": "build", "model": model}
    else:
        info |= _answer(talk, one, _message_id(talk, place - 1))
    parts = [
        {
            "id": f"prt_{_letters(_moment(talk, place) + number + 1, talk.ident(place))}", "sessionID": session,
            "messageID": ident, "type": "text", "text": text.text,
            "metadata": {COPIES: listed([text.copy])[0]},
        }
        for number, text in enumerate(one.texts)
    ]  # fmt: skip
    return {"info": info, "parts": parts}


def _answer(talk: Talk, one: HandoffMessage, parent: str) -> dict[str, Any]:
    return {
        "parentID": parent, "mode": "build", "agent": "build", "path": {"cwd": talk.cwd, "root": talk.cwd}, "cost": 0,
        "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}, "finish": "stop",
        "modelID": one.model or "unknown", "providerID": "crystal", "time": {"created": one.at, "completed": one.at},
    }  # fmt: skip


def _message_id(talk: Talk, place: int) -> str:
    return f"msg_{_letters(_moment(talk, place), talk.ident(place))}"


def _moment(talk: Talk, place: int) -> int:
    """Return a time that sorts a message after those before it, and before those that are written from now on."""
    return (talk.now - len(talk.messages) + place) * _TICKS
