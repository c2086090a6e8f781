"""Claims of the reader of Cursor: a conversation in several stores is one, and rows that grow replace themselves."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.transcript.cursor_store import parts
from crystal.transcript.line import parse_line
from crystal.transcript.line_context import Context, complete
from crystal.transcript.reader import reader_of
from crystal.transcript.snapshot import Snapshot, SourceError
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import examples, part_of
from tests.support.transcript_lines import json_values

SAMPLES = Path(__file__).parents[1] / "data" / "agents" / "cursor" / "home"
EDITOR = Path(".config/Cursor/User/globalStorage/state.vscdb")
COPIES = Path(".cursor/projects/home-me-shop")
TALK = "5d0f7c2e-41b8-4f6a-9c3d-8e7b1a2f6d40"
READER: Any = reader_of("cursor")


def put_editor(home: Path) -> apsw.Connection:
    path = home / EDITOR
    path.parent.mkdir(parents=True)
    database = apsw.Connection(str(path))
    database.execute((SAMPLES / f"{EDITOR}.sql").read_text("utf-8"))
    return database


def put_copy(home: Path, *, age: float) -> None:
    target = home / COPIES / "agent-transcripts" / TALK / f"{TALK}.jsonl"
    target.parent.mkdir(parents=True)
    target.write_bytes((SAMPLES / COPIES / "agent-transcripts" / TALK / f"{TALK}.jsonl").read_bytes())
    os.utime(target, (time.time() - age, time.time() - age))


def said(session: str) -> list[str]:
    done = crystal("show", session, "--json")
    return [turn["text"] for turn in json.loads(done.out)["turns"]] if done.code == 0 else []


def sync() -> None:
    assert crystal("sync").code == 0


@pytest.mark.parametrize("order", part_of(["copy first", "database first"]))
def test_a_conversation_in_both_stores_is_read_once_with_all_that_is_known(home: Path, order: str, ready: None) -> None:
    if order == "copy first":
        (home / EDITOR.parents[1] / "workspaceStorage" / "w").mkdir(parents=True)
        apsw.Connection(str(home / EDITOR.parents[1] / "workspaceStorage" / "w" / "state.vscdb")).execute(
            "CREATE TABLE ItemTable (key, value)"
        )
        put_copy(home, age=5)
        sync()
        assert said(TALK) == []
        put_editor(home)
    else:
        put_editor(home)
        put_copy(home, age=3600)
    sync()
    sync()
    texts = said(TALK)
    assert texts.count("Which port does the till use?") == 1
    assert "The ports are in ports.py." in texts
    proof = json.loads(crystal("verify", "--json").out)
    assert (proof["ok"], proof["percent"]) == (True, 100.0)


def test_a_copy_that_no_database_has_is_read_after_its_rest(home: Path, ready: None) -> None:
    put_editor(home).execute("DELETE FROM cursorDiskKV WHERE key = ?", (f"composerData:{TALK}",))
    put_copy(home, age=3600)
    sync()
    assert said(TALK)[0] == "Which port does the till use?"


def test_a_conversation_that_lost_its_row_before_crystal_came_is_imported(home: Path) -> None:
    put_editor(home).execute("DELETE FROM cursorDiskKV WHERE key = ?", (f"composerData:{TALK}",))
    assert crystal("init", "--yes", "--no-import").code == 0
    sync()
    assert TALK not in crystal("sessions", "--json").out
    assert crystal("backfill").code == 0
    assert said(TALK)[0] == "Which port does the till use?"
    sync()
    assert said(TALK).count("Which port does the till use?") == 1


def test_a_copy_alone_on_a_server_is_read_at_once(home: Path, ready: None) -> None:
    folder = home / ".cursor-server" / "projects" / "srv-shop"
    target = folder / "agent-transcripts" / f"{TALK}.jsonl"
    target.parent.mkdir(parents=True)
    folder.joinpath("repo.json").write_text('{"workspace": "/srv/shop"}')
    say = [
        {"type": "text", "text": "It runs again.\n\n[REDACTED]"},
        {"type": "tool_use", "name": "Shell", "input": {"command": "top"}},
    ]
    lines = [
        {"role": "user", "message": {"content": [{"type": "text", "text": "<user_query>\nRestart it\n</user_query>"}]}},
        {"role": "assistant", "message": {"content": say}},
        {"type": "turn_ended", "status": "success"},
    ]
    target.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *lines]))
    sync()
    assert said(TALK) == ["Restart it", "It runs again.", "Shell: top"] * 2
    assert "/srv/shop" in crystal("show", TALK, "--json").out


@pytest.mark.slow
def test_a_message_that_grows_replaces_its_earlier_state(home: Path, ready: None) -> None:
    database = put_editor(home)
    key = f"bubbleId:{TALK}:00000004-aaaa-4bbb-8ccc-1234567890ab"
    for text in ("The till", "The till uses port 4712."):
        database.execute("UPDATE cursorDiskKV SET value = json_set(value, '$.text', ?) WHERE key = ?", (text, key))
        sync()
    assert next(text for text in said(TALK) if text.startswith("The till")) == "The till uses port 4712."
    assert "The till" not in said(TALK)


def rows_of(tables: dict[str, list[tuple[Any, ...]]]) -> Any:
    database = apsw.Connection(":memory:")
    for name, rows in tables.items():
        database.execute(f"CREATE TABLE {name} ({'composerId' if name == 'composerHeaders' else 'key'}, value)")
        database.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)
    return database.execute


@examples(40)
@given(json_values, json_values)
def test_no_row_and_no_line_makes_it_fail(value: Any, other: Any) -> None:
    text = json.dumps(value)
    headed = json.dumps(
        {"fullConversationHeadersOnly": value, "conversation": other, "latestConversationSummary": value}
    )
    rows = [("composerData:c", headed), ("bubbleId:c:b", text), ("composerData:d", text), ("bubbleId:d:b", text)]
    tables = {"cursorDiskKV": rows, "composerHeaders": [("c", text)], "ItemTable": [("composer.composerHeaders", text)]}
    source = Snapshot(
        PurePath("User/globalStorage/state.vscdb"), b"", rows_of(tables), {PurePath("workspace.json"): b"[]"}
    )
    for conversation in READER.conversations(source):
        list(READER.records(source, conversation))
    names = ("type", "text", "thinking", "toolFormerData", "role", "content", "message", "createdAt", "timingInfo")
    for fields in (dict.fromkeys(names, value), {"type": 2, "toolFormerData": {"name": "x", "result": value}}):
        line = complete(json.dumps(fields).encode(), Context(id="x"))
        READER.facts(line)
        list(READER.turns([(0, line)], "", subagent=False))
    blocks = [{"type": kind, "args": value, "result": value} for kind in ("tool-call", "tool-result", "reasoning")]
    for role in ("user", "assistant", "tool"):
        list(parts({"role": role, "content": [*blocks, value]}))


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_blobs_of_any_form_are_read_as_far_as_they_are_understood(root: bytes, other: bytes) -> None:
    rows: dict[str, list[Any]] = {
        "SELECT key, value FROM meta": [("0", json.dumps({"latestRootBlobId": "a" * 64}))],
        "SELECT id, data FROM blobs ORDER BY rowid": [
            ("a" * 64, root),
            (other[:32].hex().rjust(64, "b"), other),
            ("c" * 64, b'{"role":"user"}'),
        ],
    }

    def find(sql: str, values: Any = ()) -> Iterator[Any]:
        return iter(rows[sql])

    source = Snapshot(PurePath("chats/x/session/store.db"), b"", find, {})
    [conversation] = READER.conversations(source)
    lines = [one.line for one in READER.records(source, conversation)]
    assert [fields["role"] for line in lines if (fields := parse_line(line))] == ["user"]
    kept = sorted(line for line in lines if parse_line(line) is None)
    assert b"\n" in root + other or kept == sorted(one or b"null" for one in (root, other) if parse_line(one) is None)


def test_a_long_blob_that_is_no_record_takes_no_time() -> None:
    begun = time.process_time()
    test_blobs_of_any_form_are_read_as_far_as_they_are_understood.hypothesis.inner_test(b"\xff" * 600_000, b"")
    assert time.process_time() - begun < 4, "8 s if each of its bytes makes one number longer"


def test_lines_of_another_program_are_refused() -> None:
    for line in (b"", b"{}\n", b'{"type":"user","message":{"role":"user","content":"x"}}\n'):
        with pytest.raises(SourceError):
            list(READER.conversations(Snapshot(PurePath("a.jsonl"), line, lambda *_: iter(()), {})))


def test_what_a_summary_stands_for_is_kept_and_what_was_taken_back_is_not() -> None:
    store = apsw.Connection(":memory:")
    store.execute("CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB); CREATE TABLE meta (key TEXT, value TEXT)")

    def put(role: str, text: str) -> bytes:
        return put_blob(json.dumps({"role": role, "content": [{"type": "text", "text": text}]}).encode())

    def put_blob(data: bytes) -> bytes:
        ident = hashlib.sha256(data).digest()
        store.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (ident.hex(), data))
        return ident

    def texts(*ids: bytes) -> list[str]:
        root = put_blob(b"".join(b"\x0a\x20" + ident for ident in ids)).hex()
        store.execute("DELETE FROM meta")
        store.execute("INSERT INTO meta VALUES ('0', ?)", (json.dumps({"agentId": "t", "latestRootBlobId": root}),))
        source = samples.snapshot_of(store, ".cursor/chats/h/t/store.db")
        [talk] = READER.conversations(source)
        lines = [complete(one.line, one.context._replace(id=one.id)) for one in READER.records(source, talk)]
        return [turn.text for turn in READER.turns(enumerate(lines), "", subagent=False)]

    asked, partly, answered = put("user", "what is quartz"), put("assistant", "A min"), put("assistant", "A mineral.")
    assert texts(put("user", "go on")) == ["go on"]
    assert texts(asked, answered) == ["what is quartz", "A mineral."]
    summary, more = put("user", "[Previous conversation summary]: quartz"), put("user", "and mica?")
    assert partly not in (asked, answered)
    assert texts(summary, more) == ["what is quartz", "A mineral.", "go on", "quartz", "and mica?"]


def test_the_words_of_a_message_may_be_in_the_tree_of_its_editor_or_in_blocks_of_code() -> None:
    tree = {"root": {"children": [{"children": [{"text": "what "}, {"text": "is it"}]}, {"text": "?"}]}}
    typed = {"type": 1, "text": "", "richText": json.dumps(tree)}
    code = [{"content": "x = 1"}, {"content": "y = 2"}]
    answer = {"type": 2, "text": "Write:\n```\nx = 1\n```", "codeBlocks": code}
    told = [[part.text for part in READER.parts(bubble) if part.text] for bubble in (typed, answer)]
    assert told == [["what is it?"], ["Write:\n```\nx = 1\n```\ny = 2"]]


def test_an_empty_composer_and_a_blob_that_is_no_record_are_counted(home: Path, ready: None) -> None:
    put_editor(home).execute("INSERT INTO cursorDiskKV VALUES ('composerData:' || ?, NULL)", (f"0{TALK[1:]}",))
    store = next(SAMPLES.rglob("store.db.sql"))
    target = home / store.relative_to(SAMPLES).with_suffix("")
    samples.write_sample(target, store.read_bytes(), is_sql=True)
    with apsw.Connection(str(target)) as database:
        database.execute("INSERT INTO blobs VALUES (?, x'0a03ff')", ("0" * 64,))
    sync()
    sync()
    assert "2 lines of Cursor cannot be parsed" in " ".join(crystal("doctor").out.split())
    assert len(json.loads(crystal("sessions", "--json").out)["sessions"]) == 3
    assert crystal("verify").code == 0
