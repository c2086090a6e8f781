"""Claims of transcript/openclaw.py: wherever an entry lies, it is the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path, PurePath

import apsw
import pytest

from crystal.transcript.messages import Record
from crystal.transcript.openclaw import READER
from crystal.transcript.pi import READER as PI
from crystal.transcript.snapshot import Snapshot, SourceError
from tests.support.agent_samples import snapshot_of
from tests.support.table import each_row

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SESSION = "5d7e0c1a-0001-4a7b-8c9d-0e1f2a3b4c5d"
FILE = Path(__file__).parents[1] / f"data/agents/openclaw/home/.openclaw/agents/main/sessions/{SESSION}.jsonl"


def document(data: bytes, name: str = FILE.name) -> Snapshot:
    return Snapshot(PurePath("sessions", name), data, lambda *_: iter(()), {})


def database(*statements: tuple[str, tuple[object, ...]]) -> Snapshot:
    db = apsw.Connection(":memory:")
    db.execute(
        "CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT, event_zstd BLOB);"
        "CREATE TABLE session_transcript_archives (session_id TEXT, encoding TEXT, archive_blob BLOB)"
    ).fetchall()
    for sql, values in statements:
        db.execute(sql, values)  # type: ignore[arg-type]

    return snapshot_of(db, "openclaw-agent.sqlite")


def records(source: Snapshot) -> list[Record]:
    [talk] = READER.conversations(source)
    assert talk.session == SESSION
    return list(READER.records(source, talk))


def test_a_compressed_archive_has_the_records_of_the_file() -> None:
    packed = zstd.compress(FILE.read_bytes())
    archived = document(packed, f"{SESSION}.jsonl.deleted.2026-07-22T08-00-00.000Z.zst")
    assert records(archived) == records(document(FILE.read_bytes()))


def test_a_database_that_took_over_the_file_has_its_records() -> None:
    put = "INSERT INTO transcript_events VALUES (?, ?, ?, ?)"
    lines = enumerate(FILE.read_bytes().splitlines())
    events = [
        (put, (SESSION, number, None, zstd.compress(line)) if number % 2 else (SESSION, number, line.decode(), None))
        for number, line in lines
    ]
    assert records(database(*events)) == records(document(FILE.read_bytes()))


def test_a_deleted_session_is_read_from_the_archive_in_the_database() -> None:
    put = "INSERT INTO session_transcript_archives VALUES (?, 'zstd', ?)"
    assert records(database((put, (SESSION, zstd.compress(FILE.read_bytes()))))) == records(document(FILE.read_bytes()))


def test_an_entry_has_the_id_that_it_has_in_a_session_of_pi() -> None:
    both = [(PI.facts(line).uuid, line) for line in FILE.read_bytes().splitlines()]
    ours = {record.line: f"{READER.ids_of}:{record.id}" for record in records(document(FILE.read_bytes()))}
    assert [uuid for uuid, _ in both if uuid] == [ours[line] for uuid, line in both if uuid]


@each_row("data", [b"", b'{"type":"user"}\n', b"\x28\xb5\x2f\xfd damaged", zstd.compress(b"x" * 99)[:-4]])
def test_what_is_no_session_is_named(data: bytes) -> None:
    with pytest.raises(SourceError):
        list(READER.conversations(document(data)))


def test_a_trace_of_the_program_is_no_session() -> None:
    assert list(READER.conversations(document(b'{"type":"session","id":"s"}\n', "s.trajectory.jsonl"))) == []


def test_a_copy_before_a_compaction_gives_no_session_of_its_own() -> None:
    data = b'{"type":"session","id":"s1"}\n{"type":"message","id":"m1","message":{"role":"user","content":"hi"}}\n'
    copy = "a.checkpoint.11111111-2222-4333-8444-555555555555.jsonl"
    assert list(READER.conversations(Snapshot(PurePath("sessions", copy), data, rows_of_nothing, {}))) == []
    assert len(list(READER.conversations(Snapshot(PurePath("sessions", "a.jsonl"), data, rows_of_nothing, {})))) == 1


def rows_of_nothing(*_: object) -> Iterator[tuple[object, ...]]:
    return iter(())
