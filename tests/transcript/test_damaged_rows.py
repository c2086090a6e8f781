"""Claims about every reader of databases: what a damaged row, or one of a lost session, said is read, kept or named."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apsw

from crystal.transcript.reader import reader_of
from crystal.transcript.snapshot import SourceError
from tests.support import agent_samples as samples
from tests.support.examples import part_of
from tests.support.table import each_row
from tests.transcript.test_broken_records import COLUMNS, read

OWNERS = {
    "opencode": ("session.id", "session_v2.id", "message.session_id", "session_message.session_id", "part.message_id"),
    "goose": ("sessions.id", "messages.session_id"),
    "kiro": ("conversations.key", "conversations_v2.conversation_id"),
    "openclaw": ("transcript_events.event_zstd", "session_windows.session_id"),
    "zed": ("threads.id",),
    "cursor": ("blobs.id", "blobs.data", "meta.value"),
}
"""Columns that say what a row belongs to, and others with what was said."""
SESSIONS = ("session", "session_v2", "sessions", "session_windows")


def damaged_rows(database: apsw.Connection, harness: str) -> Iterator[str]:
    """Change a column of a row to what it never is, or delete a session's row; undo it after each."""
    columns = {*COLUMNS[harness], *OWNERS.get(harness, ())}
    for table, name in (column.split(".") for column in sorted(columns)):
        known = database.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        rows = database.execute(f'SELECT rowid FROM "{table}"').fetchall() if (name,) in known else []
        for (row,), value in itertools.product(part_of(rows, 1) if rows else [], (None, 17, b"\xff\xfe", '{"a":')):
            yield from changed(database, f'UPDATE "{table}" SET "{name}" = ? WHERE rowid = {row}', (value,))
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        if table in SESSIONS:
            for (row,) in database.execute(f'SELECT rowid FROM "{table}"').fetchall():
                yield from changed(database, f'DELETE FROM "{table}" WHERE rowid = {row}')
    if harness == "cursor" and database.execute("SELECT 1 FROM sqlite_master WHERE name = 'cursorDiskKV'").fetchall():
        stored = "SELECT substr(key, 10, 36) FROM cursorDiskKV WHERE key GLOB 'bubbleId:*'"
        of_rows = f"key GLOB 'composerData:*' AND substr(key, 14) IN ({stored})"
        yield from changed(database, f"DELETE FROM cursorDiskKV WHERE {of_rows}")


def changed(database: apsw.Connection, sql: str, values: tuple[Any, ...] = ()) -> Iterator[str]:
    database.execute("SAVEPOINT whole")
    with contextlib.suppress(apsw.ConstraintError):  # such a row cannot be
        database.execute(sql, values)
        yield f"{sql} {values}"
    database.execute("ROLLBACK TO whole; RELEASE whole").fetchall()


def texts_of(harness: str, said: list[bytes]) -> Counter[str]:
    reader = reader_of(harness)
    return Counter({turn.text for turn in reader.turns(enumerate(said), "", subagent=False) if turn.role != "summary"})


@each_row("harness", list(COLUMNS))
def test_what_a_damaged_row_said_is_read_or_named(harness: str) -> None:
    tried = 0
    for path, name in samples.sample_files(harness):
        if path.suffix != samples.DATABASE_SUFFIX:
            continue
        database = samples.database_of(path)
        before = texts_of(harness, read(harness, samples.snapshot_of(database, name))[1])
        for change in damaged_rows(database, harness):
            source = samples.snapshot_of(database, name)
            try:
                _, said, broken = read(harness, source)
            except SourceError:
                continue
            lost = before - texts_of(harness, said)
            assert not lost or broken or source.damaged, (change, lost)
            assert "DELETE" not in change or not lost, (change, lost)
            tried += 1
    assert tried
