"""Claims about every reader of databases: what a damaged row, or one of a lost session, said is read, kept or named."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import json
import operator
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apsw

from crystal.transcript.line_context import complete
from crystal.transcript.reader import reader_of
from crystal.transcript.record_kinds import count_records
from crystal.transcript.snapshot import Snapshot, SourceError
from crystal.transcript.tables import unpacked
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


HUGE = "\u2028\u0085 e\u0301 \u202e \0 𝒳" * 5_000
ODD: tuple[Any, ...] = (None, 17, -(2**70), True, "", "other", [17], {"x": {"y": [1]}}, "\ud800 z", HUGE)
"""What a field may become: of any type, large, nested, of any letters."""
TOGETHER = {
    "opencode": "type state summary content",
    "cursor": "fullConversationHeadersOnly toolFormerData",
}
"""Fields that more hangs on than their own texts: results belong to calls; what is not listed was taken back."""


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from paths_in(value[key], (*path, key))


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for path in paths_in(value):
        inner = functools.reduce(operator.getitem, path, value)
        yield from [inner] if isinstance(inner, str) else []


def put(whole: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy with another value at a place; without the field if the value is ``...``."""
    whole = copy.deepcopy(whole)
    place = functools.reduce(operator.getitem, path[:-1], whole)
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return whole


def oddities(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield places in a value, each with some of the things that may be there instead."""
    for number, place in enumerate(paths_in(value)):
        yield from ((place, odd) for odd in (..., *ODD)[number % 4 :: 4])


def stored_json(database: apsw.Connection, harness: str) -> Iterator[tuple[str, int, Any, Any]]:
    """Yield (column, row, what it stores, the same parsed) of the rows with JSON, one of each form."""
    forms = set()
    for column in COLUMNS[harness]:
        table, _, name = column.partition(".")
        known = database.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        rows = database.execute(f'SELECT rowid, "{name}" FROM "{table}"').fetchall() if (name,) in known else []
        for row, stored in rows:
            try:
                value = json.loads(unpacked(stored) if isinstance(stored, bytes) else stored)
            except (TypeError, ValueError):
                continue
            form = (column, repr([[key if isinstance(key, str) else "" for key in path] for path in paths_in(value)]))
            if form not in forms:
                forms.add(form)
                yield column, row, stored, value


@each_row("harness", list(COLUMNS))
def test_a_field_that_changed_costs_nothing_else_or_is_named(harness: str) -> None:
    tried = 0
    for path, name in samples.sample_files(harness):
        if path.suffix != samples.DATABASE_SUFFIX:
            continue
        database = samples.database_of(path)
        before = read_and_named(harness, samples.snapshot_of(database, name))
        for column, row, stored, value in list(stored_json(database, harness)):
            table, _, name_of_column = column.partition(".")
            update = f'UPDATE "{table}" SET "{name_of_column}" = ? WHERE rowid = {row}'
            for place, odd in part_of(oddities(value), 2):
                changed_json = json.dumps(put(value, place, odd))
                database.execute(update, (changed_json.encode() if isinstance(stored, bytes) else changed_json,))
                after = read_and_named(harness, samples.snapshot_of(database, name))
                was = functools.reduce(operator.getitem, place, value)
                replaced = set(texts_in(was))
                texts = "\n".join([*after[0], *replaced])
                lost = [
                    text
                    for text in before[0] - after[0]
                    if text not in texts and not any(one and one in text for one in replaced)
                ]
                hangs = not {*TOGETHER.get(harness, "").split()}.isdisjoint(place)
                assert not lost or after[1] > before[1] or hangs, f"{column} {place} {odd!r:.50} {lost} {replaced}"
                tried += 1
            database.execute(update, (stored,))
    assert tried


def read_and_named(harness: str, source: Snapshot) -> tuple[Counter[str], int]:
    """Return what was said, and how much of the source is named: unknown, broken or damaged."""
    reader: Any = reader_of(harness)
    said, named = Counter[str](), 0
    for talk in reader.conversations(source):
        try:
            records = list(reader.records(source, talk))
        except SourceError:
            named += 1
            continue
        lines = [complete(one.line, one.context._replace(id=one.id, session="s")) for one in records]
        turns = list(reader.turns(enumerate(lines), "", subagent=False))
        list(map(reader.facts, lines))
        said += Counter(turn.text for turn in turns)
        assert all(turn.text.encode() for turn in turns), "no lone surrogates"
        counts = count_records(reader, list(enumerate(lines)), {turn.offset for turn in turns})
        named += sum(number for _, number in counts.unknown)
    return said, named + len(source.broken) + len(source.damaged) + len(source.missing)
