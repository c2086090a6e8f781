"""Write the open form: JSON Lines with every archived line as it is, and what was said in it.

Source: docs/spec/export-format.md.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from crystal.export.archived import ArchivedLine, states_by_session, stretches
from crystal.export.form import FORMAT, VERSION
from crystal.export.whole_folder import new_file
from crystal.model.capture import Turn
from crystal.sessions.reading import SessionSummary
from crystal.store import Store
from crystal.store.capture.ledger import TranscriptState
from crystal.timewords.parse import iso

FILE = "export.jsonl"


def write_jsonl(
    store: Store,
    sessions: Iterable[SessionSummary],
    folder: Path,
    ldm_home: Path,
    crystal: str,
    now: int,
) -> None:
    """Write ``export.jsonl`` into an empty folder: the sessions, in order, with their archived transcripts.

    Paths of archives are relative to ``ldm_home``; ``crystal`` is the version of this program.
    """
    states = states_by_session(store)
    count = lines = 0
    with new_file(folder / FILE) as file:
        _put(file, {
            "type": "header", "format": FORMAT, "version": VERSION, "crystal": crystal, "written_at": iso(now),
        })  # fmt: skip
        for session in sessions:
            count += 1
            _put(file, _session(session))
            for state in states.get(session.id, ()):
                lines += _write_transcript(file, store, state, ldm_home)
        _put(file, {"type": "end", "sessions": count, "lines": lines})


def _write_transcript(file: BinaryIO, store: Store, state: TranscriptState, ldm_home: Path) -> int:
    origin, lines = state.origin, 0
    _put(file, {
        "type": "transcript", "session": origin.session_id, "subagent": origin.subagent, "key": state.mark.transcript,
        "harness": origin.harness, "agent": origin.agent, "device": origin.device,
    })  # fmt: skip
    for stretch in stretches(store, state, ldm_home):
        if stretch.lines:
            place = {"generation": stretch.generation, "start": stretch.start, "stop": stretch.stop}
            _put(file, {"type": "stretch", **place})
        for line in stretch.lines:
            _put(file, _line(line, origin.session_id, origin.subagent))
        lines += len(stretch.lines)
    return lines


def _session(one: SessionSummary) -> dict[str, Any]:
    return {
        "type": "session", "id": one.id, "title": one.title, "harness": one.harness, "agent": one.agent,
        "device": one.device, "project": one.project, "cwd": one.cwd, "branch": one.branch,
        "started_at": iso(one.started_at), "last_at": iso(one.last_at), "turns": one.turns,
    }  # fmt: skip


def _line(line: ArchivedLine, session: str, subagent: str | None) -> dict[str, Any]:
    try:
        content = {"raw": line.raw.decode()}
    except UnicodeDecodeError:
        content = {"raw_base64": base64.b64encode(line.raw).decode()}
    turns = [_turn(turn) for turn in line.turns]
    return {"type": "line", "session": session, "subagent": subagent, "offset": line.offset, **content, "turns": turns}


def _turn(turn: Turn) -> dict[str, Any]:
    """Return a turn without the fields that it does not have."""
    fields = {
        "uuid": turn.uuid, "part": turn.part, "role": turn.role, "text": turn.text, "tool": turn.tool,
        "timestamp": iso(turn.timestamp), "parent_uuid": turn.parent_uuid, "cwd": turn.cwd, "branch": turn.branch,
        "message_id": turn.message_id, "model": turn.model,
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value is not None}


def _put(file: BinaryIO, record: dict[str, Any]) -> None:
    file.write(orjson.dumps(record) + b"\n")
