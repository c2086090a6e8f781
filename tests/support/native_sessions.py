"""Read back what ``crystal handoff`` writes, with crystal's own reader of the agent."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any

from crystal.handoff.target import Native
from crystal.model.capture import Turn
from crystal.transcript import Context, SnapshotReader, Source, complete, completed, reader_of
from tests.support.agent_samples import no_such_table

SCHEMA = """
CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, directory TEXT, title TEXT, time_created INTEGER, time_updated INTEGER);
CREATE TABLE IF NOT EXISTS message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
CREATE TABLE IF NOT EXISTS part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER,
    data TEXT);
"""


def read_back(harness: str, native: Native) -> list[Turn]:
    """Return the turns of a session that was written."""
    reader = reader_of(harness)
    if not isinstance(reader, SnapshotReader) or harness == "codex":
        lines = native.data.split(b"\n")[:-1]
        said = lines if harness == "claude-code" else list(completed(reader, lines, Context(), lambda _: "made-up"))
        return list(reader.turns(enumerate(said), "key", subagent=False))
    with closing(sqlite3.connect(":memory:")) as database:
        rows: Any = no_such_table
        if harness == "opencode":
            import_document(database, native.data)
            rows = lambda sql, values=(): iter(database.execute(sql, values).fetchall())  # noqa: E731
        source = Source(PurePath(native.path or "/x.db"), native.data, rows, {})
        return list(reader.turns(enumerate(_records(reader, source)), "key", subagent=False))


def _records(reader: SnapshotReader, source: Source) -> Iterator[bytes]:
    for conversation in reader.conversations(source):
        for record in reader.records(source, conversation):
            yield complete(record.line, record.context._replace(id=f"x:{record.id}"))


def import_document(database: sqlite3.Connection, data: bytes) -> str:
    """Do what ``opencode import`` does with a document; return the session's id."""
    document = json.loads(data)
    info = document["info"]
    database.executescript(SCHEMA)
    times = (info["time"]["created"], info["time"]["updated"])
    database.execute(
        "INSERT INTO session VALUES (?, ?, ?, ?, ?)", (info["id"], info["directory"], info["title"], *times)
    )
    for message in document["messages"]:
        told, parts = dict(message["info"]), message["parts"]
        ident, at = told.pop("id"), told["time"]["created"]
        told.pop("sessionID")
        database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (ident, info["id"], at, at, json.dumps(told)))
        for part in parts:
            kept = {name: value for name, value in part.items() if name not in ("id", "sessionID", "messageID")}
            row = (part["id"], ident, info["id"], at, at, json.dumps(kept))
            database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
    database.commit()
    return str(info["id"])


def folder_of(home: Path) -> Path:
    """Return a folder for an agent's sessions that exists."""
    folder = home / "sessions"
    folder.mkdir(exist_ok=True)
    return folder
