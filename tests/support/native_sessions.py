"""Read back what ``crystal handoff`` writes, with crystal's own reader of the agent."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any

from crystal.handoff.target import NativeSession
from crystal.model.capture import Turn
from crystal.transcript.line_context import Context, complete
from crystal.transcript.messages import SnapshotReader
from crystal.transcript.reader import completed, reader_of
from crystal.transcript.snapshot import Snapshot
from tests.support.agent_samples import no_such_table
from tests.support.opencode_database import import_document


def read_back(harness: str, native: NativeSession) -> list[Turn]:
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
        source = Snapshot(PurePath(native.path or "/x.db"), native.data, rows, {})
        return list(reader.turns(enumerate(_records(reader, source)), "key", subagent=False))


def _records(reader: SnapshotReader, source: Snapshot) -> Iterator[bytes]:
    for conversation in reader.conversations(source):
        for record in reader.records(source, conversation):
            yield complete(record.line, record.context._replace(id=f"x:{record.id}"))


def folder_of(home: Path) -> Path:
    """Return a folder for an agent's sessions that exists."""
    folder = home / "sessions"
    folder.mkdir(exist_ok=True)
    return folder
