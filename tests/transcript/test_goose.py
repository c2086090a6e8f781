"""Claims of transcript/goose.py: however often the program writes a message again, it comes once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePath

import apsw
import pytest

from crystal.api import Crystal
from crystal.capture.privacy import Policy
from crystal.store.capture.privacy import PrivatePeriod
from crystal.transcript.goose import READER
from crystal.transcript.line_context import complete
from crystal.transcript.messages import Record
from crystal.transcript.snapshot import Snapshot
from tests.support.agent_samples import database_of, lay_out, snapshot_of
from tests.support.command import crystal

SQL = Path(__file__).parents[1] / "data/agents/goose/home/.local/share/goose/sessions/sessions.db.sql"


@pytest.fixture
def db() -> Iterator[apsw.Connection]:
    connection = database_of(SQL)
    yield connection
    connection.close()


def records(db: apsw.Connection, session: str) -> list[Record]:
    source = snapshot_of(db, "sessions.db")
    talks = READER.conversations(source)
    [talk] = [one for one in talks if session in [str(name).partition("~")[0] for name in (one.session, one.subagent)]]
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
    for table, column in (("sessions", "id"), ("messages", "session_id")):
        db.execute(f"UPDATE {table} SET {column} = '20260724_110002' WHERE {column} = '20260724_3'")
    columns = (
        "SELECT role, created_timestamp, content_json FROM messages WHERE session_id = '20260724_110002' ORDER BY id"
    )
    messages = [
        {"id": None, "role": role, "created": at, "content": json.loads(content)}
        for role, at, content in db.execute(columns)
    ]
    lines = [{"description": "Subagent task", "working_dir": "/tmp/demo/shop"}, *messages]
    data = "\n".join(map(json.dumps, lines)).encode()
    document = Snapshot(PurePath("20260724_110002.jsonl"), data, lambda *_: iter(()), {})
    [talk] = READER.conversations(document)
    from_file = list(READER.records(document, talk))
    assert [(one.id, one.line) for one in from_file] == [(one.id, one.line) for one in records(db, "20260724_110002")]


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


def test_a_thought_before_several_calls_at_once_is_thought_once(db: apsw.Connection) -> None:
    """As version 1.50 writes them: a message for each call, with the whole thought, and its result after it."""
    thought = {"type": "thinking", "thinking": "Both at once.", "signature": ""}
    for number in range(3):
        call = {"type": "toolRequest", "id": f"c{number}", "toolCall": {"value": {"name": "shell", "arguments": {}}}}
        result = {"type": "toolResponse", "id": f"c{number}", "toolResult": {"value": {"content": []}}}
        prompt = [{"type": "text", "text": "again"}]
        for role, content in (("assistant", [thought, call]), ("user", [result] if number != 1 else prompt)):
            db.execute(
                "INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp)"
                " VALUES (hex(randomblob(8)), '20260724_3', ?, ?, ?)",
                (role, json.dumps(content), 1_790_000_000 + number),
            )
    parts = [part for record in records(db, "20260724_3") for part in READER.parts(json.loads(record.line))]
    said = [part.role for part in parts if part.role == "tool_call" or part.text in ("Both at once.", "again")]
    assert said[-6:] == ["thinking", "tool_call", "tool_call", "user", "thinking", "tool_call"]


def test_a_counted_session_without_its_row_is_told_by_its_first_message(db: apsw.Connection) -> None:
    db.execute("DELETE FROM sessions")
    source = snapshot_of(db, "sessions.db")
    [first] = [one.session for one in READER.conversations(source) if one.session.startswith("20260724_1")]
    db.execute("UPDATE messages SET created_timestamp = created_timestamp + 3600")
    [second] = [one.session for one in READER.conversations(source) if one.session.startswith("20260724_1")]
    assert first != second
    assert "~" in first
    source.sessions = [(second, ""), ("20260724_2", "")]
    db.execute("DELETE FROM messages WHERE id = (SELECT min(id) FROM messages)")
    names = {one.session for one in READER.conversations(source)}
    assert names >= {second, "20260724_2"}  # as they were read before
    assert first not in names


def test_a_subagent_whose_parents_row_is_lost_stays_in_its_session(db: apsw.Connection) -> None:
    source = snapshot_of(db, "sessions.db")
    db.execute("ALTER TABLE sessions ADD COLUMN parent_session_id TEXT")
    db.execute("UPDATE sessions SET parent_session_id = '20260724_1' WHERE session_type = 'sub_agent'")
    before = {(one.session, one.subagent or "") for one in READER.conversations(source)}
    source.sessions = before
    db.execute("DELETE FROM sessions WHERE id = '20260724_1'")
    assert {(one.session, one.subagent or "") for one in READER.conversations(source)} == before


@pytest.mark.slow
def test_the_first_session_of_a_day_in_two_databases_is_two_sessions_each_private_by_its_own_id(home: Path) -> None:
    lay_out("goose", home)
    assert crystal("backfill").code == 0
    database = apsw.Connection(str(home / ".local/share/goose/sessions/sessions.db"))
    database.execute("DELETE FROM messages WHERE session_id <> '20260724_1'")
    database.execute("UPDATE sessions SET created_at = '2026-07-24 09:00:00'")
    said = json.dumps([{"type": "text", "text": "another machine's question"}])
    database.execute("UPDATE messages SET content_json = ?, role = 'user'", (said,))
    database.close()
    assert crystal("backfill").code == 0
    with Crystal.reader() as memory:
        first, second = (one.id for one in memory.sessions(limit=9) if one.id.startswith("20260724_1"))
        texts = [{turn.text for turn in memory.show(ident).turns} for ident in (first, second)]
    assert {"another machine's question"} in texts
    assert not texts[0] & texts[1]
    private = Policy(marks=(PrivatePeriod("20260724_1", "environment", 0, None),))
    assert private.closed_now(first) == private.closed_now(second) == "private-environment"
    assert private.closed_now("20260724_10~0") is None
    assert Policy(sessions=("20260724_1",)).closed_now(first) == "private-session"
