"""Claims of transcript/tables.py: a database of another form is named, and read as soon as crystal knows the form."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import apsw
import pytest

from crystal.transcript.messages import SnapshotReader
from crystal.transcript.reader import reader_of
from crystal.transcript.snapshot import Snapshot, SourceError
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.table import each_row

NEEDED = {
    "opencode": "session message part session_message session.id message.id message.session_id message.data part.id"
    " part.message_id part.data session_message.data session_message.type session_message.id",
    "goose": "sessions messages sessions.id messages.id messages.session_id messages.role messages.content_json",
    "cursor": "cursorDiskKV cursorDiskKV.key cursorDiskKV.value",
    "zed": "threads threads.id threads.data",
    "kiro": "conversations_v2.value conversations.value conversations_v2.conversation_id",
    "openclaw": "transcript_events transcript_events.seq transcript_events.event_json transcript_events.event_zstd",
}


NOTED = {
    "opencode": "session.parent_id session.title session_v2.parent_id session_v2.directory",
    "goose": "sessions.session_type sessions.name sessions.working_dir messages.metadata_json",
    "cursor": "ItemTable composerHeaders",
    "zed": "threads.parent_id threads.created_at threads.folder_paths",
    "kiro": "conversations conversations_v2",
    "openclaw": "session_windows session_windows.spawned_by transcript_rewrite_watermarks.generation",
}


def change(database: apsw.Connection, name: str, *, back: bool = False) -> None:
    """Rename a table, or a column of one, as a newer version of a program might."""
    table, _, column = name.partition(".")
    old, new = (f"{column or table}_new", column or table) if back else (column or table, f"{column or table}_new")
    database.execute("PRAGMA legacy_alter_table = on")
    if column:
        database.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{old}" TO "{new}"')
    else:
        database.execute(f'ALTER TABLE "{old}" RENAME TO "{new}"')


def read(harness: str, path: Path, name: str, database: apsw.Connection) -> list[str]:
    """Read a database whole, and return what its reader missed in it."""

    def rows(sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            return iter(database.execute(sql, values).fetchall())  # type: ignore[arg-type]
        except apsw.SQLError as error:
            raise SourceError(str(error)) from error

    reader, source = reader_of(harness), Snapshot(PurePath("/home/me", name), b"", rows, {})
    assert isinstance(reader, SnapshotReader), path
    for conversation in reader.conversations(source):
        list(reader.records(source, conversation))
    return source.missing


@each_row(("harness", "needed", "noted"), [(name, NEEDED[name], NOTED[name]) for name in NEEDED])
def test_a_table_or_column_with_another_name_is_named(harness: str, needed: str, noted: str) -> None:
    tried = 0
    for path, name in samples.sample_files(harness):
        if path.suffix != samples.DATABASE_SUFFIX:
            continue
        database = samples.database_of(path)
        assert read(harness, path, name, database) == []
        for one in f"{needed} {noted}".split():
            table, _, column = one.partition(".")
            has = "SELECT count(*) FROM pragma_table_info(?) WHERE name LIKE ?"
            [(columns,)] = database.execute(has, (table, column or "%"))
            [(rows,)] = database.execute(f'SELECT count(*) FROM "{table}"') if columns else [(0,)]
            if rows:
                change(database, one)
                with contextlib.suppress(SourceError):
                    missed = read(harness, path, name, database)
                    assert one in noted.split()
                    assert missed[0].partition(".")[0] == table
                change(database, one, back=True)
                tried += 1
    assert tried >= len(needed.split()) + len(noted.split())


@pytest.mark.slow
def test_what_a_changed_database_holds_comes_in_when_it_is_understood(home: Path) -> None:
    samples.lay_out("opencode", home)
    [path] = home.rglob("opencode.db")
    with apsw.Connection(str(path)) as database:
        change(database, "message.data")
    assert crystal("init", "--yes", "--no-import").code == 0
    done = crystal("backfill"), crystal("sync")
    assert "has no message.data, which crystal reads" in done[1].out + done[1].err
    assert "no message.data" in crystal("doctor").out
    assert 0 < len(samples.captured()[1]) < len(samples.expected("opencode")[1])
    with apsw.Connection(str(path)) as database:
        change(database, "message.data", back=True)
    assert (crystal("backfill").code, crystal("sync").code) == (0, 0)
    assert samples.captured() == samples.expected("opencode")
    assert crystal("verify").code == 0


@pytest.mark.slow
@each_row(
    ("harness", "ending", "why"),
    [
        ("cline", ".messages.json", "is not complete JSON: bytes 531 to 1,187 cannot be read"),
        ("goose", "sessions.db", "is cut off: it has 18,432 of 36,864 bytes"),
    ],
)
def test_a_file_that_was_cut_is_named_once_with_what_is_wrong(home: Path, harness: str, ending: str, why: str) -> None:
    samples.lay_out(harness, home)
    path = min(home.rglob(f"*{ending}"))
    assert crystal("init", "--yes", "--import", "--wait").code == 0
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert f"{path}: {why}" in crystal("sync").err
    assert f"{path}: {why} (what was read before is kept)" in " ".join(crystal("doctor").out.split())
    proof = crystal("verify")
    assert f"unreadable: {path}, bytes 0 to {len(whole) // 2:,}: {why}" in " ".join(proof.out.split())
    assert "crystal cannot read the files above; once it can, run: crystal sync" in proof.err
    path.write_bytes(whole)
    assert (crystal("sync").code, crystal("verify").code) == (0, 0)


@pytest.mark.slow
@each_row(
    ("harness", "lost"),
    [
        ("cursor", "DELETE FROM cursorDiskKV WHERE key GLOB 'composerData:*'"),
        ("goose", "DELETE FROM sessions"),
        ("opencode", "DELETE FROM session"),
    ],
)
def test_a_session_whose_row_is_gone_later_is_kept_once(home: Path, harness: str, lost: str) -> None:
    samples.lay_out(harness, home)
    assert crystal("init", "--yes", "--import", "--wait").code == 0
    before = samples.captured()[1]
    for path in [*home.rglob("*.vscdb"), *home.rglob("sessions.db"), *home.rglob("opencode.db")]:
        with apsw.Connection(str(path)) as database, contextlib.suppress(apsw.SQLError):  # Cursor's other database
            database.execute(lost)
    assert crystal("sync").code in (0, 1)
    assert samples.captured()[1] == before
