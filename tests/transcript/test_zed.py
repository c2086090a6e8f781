"""Claims of transcript/zed.py: a thread that is saved again, or in a newer form, gives each text once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal.transcript.line_context import complete
from crystal.transcript.messages import Record
from crystal.transcript.snapshot import SourceError
from crystal.transcript.tables import unpacked
from crystal.transcript.zed import READER
from tests.support.agent_samples import database_of, snapshot_of

SQL = Path(__file__).parents[1] / "data/agents/zed/home/.local/share/zed/threads/threads.db.sql"
MODERN = "11111111-0000-4000-8000-000000000001"
LEGACY = "22222222-0000-4000-8000-000000000001"


@pytest.fixture
def db() -> Iterator[apsw.Connection]:
    connection = database_of(SQL)
    yield connection
    connection.close()


def records(db: apsw.Connection, ident: str) -> list[Record]:
    source = snapshot_of(db, "threads.db")
    [talk] = [one for one in READER.conversations(source) if ident == (one.subagent or one.session)]
    return list(READER.records(source, talk))


def said(db: apsw.Connection, ident: str) -> list[tuple[str, int, str, str]]:
    lines = [complete(one.line, one.context._replace(id=one.id)) for one in records(db, ident)]
    return [(turn.uuid, turn.part, turn.role, turn.text) for turn in READER.turns(enumerate(lines), "", subagent=False)]


def thread(db: apsw.Connection, ident: str) -> Any:
    [(data,)] = db.execute("SELECT data FROM threads WHERE id = ?", (ident,))
    return json.loads(unpacked(data))


def save(db: apsw.Connection, ident: str, document: object) -> None:
    db.execute("UPDATE threads SET data = ?, data_type = 'json' WHERE id = ?", (json.dumps(document), ident)).fetchall()


def test_an_older_thread_keeps_its_ids_when_it_is_saved_in_the_newest_form(db: apsw.Connection) -> None:
    before = said(db, LEGACY)
    uses = {"ToolUse": {"id": "c1", "name": "read_file", "input": {"path": "host.toml"}}}
    results = {"c1": {"tool_use_id": "c1", "content": {"Text": "host = crystal.example"}}}
    texts = [{"Thinking": {"text": "I look.", "signature": None}}, {"Text": "One moment."}, uses]
    messages = [
        {"User": {"id": "new", "content": [{"Text": "Which host?"}]}},
        {"Agent": {"content": texts, "tool_results": results}},
        {"Agent": {"content": [{"Text": "It is crystal.example."}], "tool_results": {}}},
    ]
    save(db, LEGACY, {**thread(db, LEGACY), "version": "0.3.0", "messages": messages})
    assert said(db, LEGACY) == before
    assert len(before) == 6


def test_an_answer_keeps_its_id_while_it_grows(db: apsw.Connection) -> None:
    whole, before = thread(db, MODERN), said(db, MODERN)
    for count in range(len(whole["messages"]) + 1):
        save(db, MODERN, {**whole, "messages": whole["messages"][:count]})
        assert set(said(db, MODERN)) <= set(before)


def test_a_prompt_that_is_changed_keeps_what_was_answered_before(db: apsw.Connection) -> None:
    whole, before = thread(db, MODERN), {one[:2] for one in said(db, MODERN) if one[2] != "summary"}
    changed = [{"User": {"id": "u-8", "content": [{"Text": "And which host?"}]}}, whole["messages"][1]]
    save(db, MODERN, {**whole, "messages": changed})
    assert not {one[:2] for one in said(db, MODERN) if one[2] != "summary"} & before


def test_what_is_no_thread_is_named(db: apsw.Connection) -> None:
    db.execute("UPDATE threads SET data = x'28b52ffd00' WHERE id = ?", (MODERN,)).fetchall()
    with pytest.raises(SourceError):
        records(db, MODERN)
    db.execute("DROP TABLE threads").fetchall()
    with pytest.raises(SourceError):
        list(READER.conversations(snapshot_of(db, "threads.db")))
