"""Claims of transcript/goose.py: however often the program writes a message again, it comes once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import apsw
import pytest

from crystal.transcript.goose import READER
from crystal.transcript.line_context import complete
from crystal.transcript.reader import Record, Snapshot
from tests.support.agent_samples import database_of

SQL = Path(__file__).parents[1] / "data/agents/goose/home/.local/share/goose/sessions/sessions.db.sql"


@pytest.fixture
def db() -> Iterator[apsw.Connection]:
    connection = database_of(SQL)
    yield connection
    connection.close()


def records(db: apsw.Connection, session: str) -> list[Record]:
    def rows(sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        yield from db.execute(sql, values)  # type: ignore[arg-type]

    source = Snapshot(PurePath("sessions.db"), b"", rows, {})
    [talk] = [one for one in READER.conversations(source) if session in (one.session, one.subagent)]
    return list(READER.records(source, talk))


def test_a_compaction_that_writes_all_messages_again_changes_none(db: apsw.Connection) -> None:
    before = records(db, "20260724_1")
    db.execute(
        "UPDATE messages SET id = id + 1000, message_id = hex(randomblob(8)),"
        """ metadata_json = replace(metadata_json, '"agentVisible": true', '"agentVisible": false')"""
    ).fetchall()
    assert records(db, "20260724_1") == before


def test_the_copy_of_a_session_has_the_ids_of_the_original(db: apsw.Connection) -> None:
    original, copy = records(db, "20260724_1"), records(db, "20260724_2")
    assert [record.id for record in copy[:4]] == [record.id for record in original[:4]]
    assert not {record.id for record in copy[4:]} & {record.id for record in original}


def test_a_file_that_the_database_took_over_has_the_same_ids(db: apsw.Connection) -> None:
    columns = "SELECT role, created_timestamp, content_json FROM messages WHERE session_id = '20260724_3' ORDER BY id"
    messages = [
        {"id": None, "role": role, "created": at, "content": json.loads(content)}
        for role, at, content in db.execute(columns)
    ]
    lines = [{"description": "Subagent task", "working_dir": "/tmp/demo/shop"}, *messages]
    data = "\n".join(map(json.dumps, lines)).encode()
    document = Snapshot(PurePath("20260724_3.jsonl"), data, lambda *_: iter(()), {})
    [talk] = READER.conversations(document)
    from_file = list(READER.records(document, talk))
    assert [(one.id, one.line) for one in from_file] == [(one.id, one.line) for one in records(db, "20260724_3")]


def test_what_version_1_50_says_to_its_model_at_each_prompt_is_nobodys_and_hides_no_prompt(db: apsw.Connection) -> None:
    db.execute("DELETE FROM messages")
    shown, hidden = '{"userVisible":true,"agentVisible":true}', '{"userVisible":false,"turnContext":true}'
    rows = [("user", "go on", shown), ("user", "<turn-context>at ten</turn-context>", hidden)]
    for at, (role, text, metadata) in enumerate([*rows, ("assistant", "Done.", shown)] * 2):
        content = json.dumps([{"type": "text", "text": text}])
        db.execute(
            "INSERT INTO messages (session_id, role, content_json, created_timestamp, metadata_json)"
            " VALUES ('20260724_1', ?, ?, ?, ?)",
            (role, content, 1784900000 + at, metadata),
        )
    lines = enumerate(complete(one.line, one.context._replace(id=one.id)) for one in records(db, "20260724_1"))
    turns = [(turn.role, turn.text) for turn in READER.turns(lines, "k", subagent=False)]
    assert turns == [("user", "go on"), ("assistant", "Done.")] * 2
