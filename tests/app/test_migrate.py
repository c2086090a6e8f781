"""``crystal migrate``: what other memory programs have stored comes once, whole, and from files that stay as they are."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
from pathlib import Path

import apsw
import pytest

from crystal.app.context import open_machine
from crystal.app.import_past import import_sessions
from crystal.app.migrate.found import FoundStore
from crystal.app.migrate.migration import Migration
from tests.support import memory_stores as stores
from tests.support.command import Done, crystal
from tests.support.examples import part_of
from tests.support.exports import remember
from tests.support.killed import killed_at
from tests.support.migrating import (
    COUNTS,
    MAKERS,
    MEMORIES,
    SECRET,
    TEXTS,
    fingerprints,
    hits,
    listed,
    make_claude_mem,
    make_deja_vu,
    make_episodic_memory,
    make_memory_crystal,
    numbers,
    start,
    took,
)
from tests.support.providers_server import KEY, serve_providers
from tests.support.providers_server import vector as served_vector


def everything() -> tuple[int, list[str], list[str]]:
    """The number of turns, the texts of all chunks, and those of all memories."""
    with open_machine() as machine:
        texts = sorted(text for (text,) in machine.store.rows("SELECT text FROM chunks"))
        memories = sorted(uid for (uid,) in machine.store.rows("SELECT uid FROM memories"))
        return machine.store.value("SELECT count(*) FROM turns"), texts, memories


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one, marks=() if one in ("memory-crystal", "context-embeddings") else pytest.mark.slow)
        for one in MAKERS
    ],
)
def test_a_store_comes_once_and_stays_as_it_is(home: Path, name: str, ready: None) -> None:
    path = MAKERS[name](home)
    before = fingerprints(path.parent)
    rows, new, left_out = COUNTS[name]
    assert numbers(listed()[name]) == numbers(json.loads(crystal("migrate", name, "--dry-run", "--json").out))
    assert everything() == (0, [], [])
    first = took(name)
    assert numbers(first) == (rows, new, 0, left_out)
    assert numbers(took(name)) == (rows, 0, new, left_out)
    kept = everything()
    took(name)
    assert everything() == kept
    assert hits("zeppelin")
    assert not any(SECRET in text or "quokka" in text for text in kept[1])
    assert fingerprints(path.parent) == before
    assert crystal("verify").code == 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one, marks=() if one == "episodic-memory" else pytest.mark.slow)
        for one in MAKERS
        if one != "deja-vu"
    ],
)
@pytest.mark.parametrize("odd", [None, b"\xff\xfe"])
def test_rows_with_odd_values_are_taken_or_left_out_for_good(
    home: Path, name: str, odd: bytes | None, ready: None
) -> None:
    with apsw.Connection(str(MAKERS[name](home))) as database:
        tables = (
            "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
            " WHERE m.type = 'table' AND m.sql NOT LIKE '%VIRTUAL%'"
        )
        for table, column in database.execute(tables).fetchall():
            with contextlib.suppress(apsw.Error):  # such a row cannot be
                database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % 2 = 0', (odd,))
    rows, new, *_ = numbers(took(name))
    assert new
    assert numbers(took(name))[:2] == (rows, 0)
    assert crystal("verify").code == 0


def test_init_tells_of_the_stores_that_are_here(home: Path) -> None:
    make_claude_mem(home)
    make_deja_vu(home)
    assert "claude-mem, deja-vu can be taken over: crystal migrate" in crystal("init", "--yes", "--no-import").out


def test_every_row_is_counted_once_whatever_its_state(home: Path, ready: None) -> None:
    path = home / "old.db"
    empty = [(text, "fact", "active") for text in ("", " \n")]
    stores.memory_crystal(path, ("hello", "\n\t", " ", "hello"), memories=(*MEMORIES, *empty))
    db = apsw.Connection(str(path))
    db.execute(
        "UPDATE chunks SET created_at = '2026-01-01T00:00:00Z'; UPDATE chunks SET source_type = 'file' WHERE id = 3"
    )
    db.execute("INSERT INTO entities (name, created_at, updated_at) VALUES ('tea', '', '')")
    first = took("memory-crystal", "--from", str(path))
    assert first["left_out"] == {
        "without text": 3,
        "crystal keeps no entities": 1,
        "forgotten in memory-crystal": 1,
        "no text is left of it": 1,
    }
    assert numbers(first) == (9, 2, 1, 6)  # the second hello is the first
    notes = home / "notes.jsonl"
    stores.deja_vu(notes, ("once", "once", "", ""))
    assert numbers(took("deja-vu", "--from", str(notes))) == (4, 1, 1, 2)
    assert numbers(took("memory-crystal", "--from", str(path)))[0:2] == (9, 0)
    assert (
        f"crystal migrate memory-crystal --from {path}"
        in crystal("migrate", "memory-crystal", "--from", str(path), "--yes").err
    )


def test_a_memory_keeps_its_category_and_its_time(home: Path, ready: None) -> None:
    make_memory_crystal(home)
    took("memory-crystal")
    (memory,) = json.loads(crystal("memories", "--json").out)["memories"]
    assert (memory["text"], memory["category"], memory["source"]) == (
        "the user likes tea",
        "preference",
        "memory-crystal",
    )
    assert memory["created_at"].startswith("2026-02-01")


@pytest.mark.slow
def test_a_database_that_was_made_again_knows_what_came(home: Path, ready: None) -> None:
    for name, make in MAKERS.items():
        make(home)
        took(name)
    kept = everything()
    for path in (home / ".ldm" / "memory").glob("crystal.db*"):
        path.unlink()
    assert crystal("verify", "--repair").code == 0
    assert everything() == kept
    assert {name: took(name)["new"] for name in MAKERS} == dict.fromkeys(MAKERS, 0)
    assert everything() == kept


def test_without_yes_it_asks_and_takes_nothing(home: Path, ready: None) -> None:
    make_claude_mem(home)
    done = crystal("migrate", "claude-mem")
    assert done.code == 2
    assert "4 to take over" in done.out
    assert "--yes" in done.err
    assert everything() == (0, [], [])


def test_an_unknown_store_and_one_that_is_not_here_are_named(home: Path, ready: None) -> None:
    assert "known: memory-crystal" in failed(crystal("migrate", "mem0"), 2)
    assert "--from FILE" in failed(crystal("migrate", "claude-mem"), 1)
    assert "is no file" in failed(crystal("migrate", "claude-mem", "--from", str(home), "--yes"), 2)
    assert "--from goes with NAME" in failed(crystal("migrate", "--from", __file__), 2)
    other = home / "other.db"
    apsw.Connection(str(other)).execute("CREATE TABLE t (a)")
    assert "no database of claude-mem" in failed(crystal("migrate", "claude-mem", "--from", str(other), "--yes"), 1)
    assert "file is not a database" in failed(crystal("migrate", "claude-mem", "--from", __file__, "--yes"), 1)


def failed(done: Done, code: int) -> str:
    assert done.code == code, done.err
    return done.err


def test_a_session_that_crystal_has_itself_is_known(home: Path) -> None:
    remember(home, ("fix the zeppelin", "done"), session=stores.SESSION)
    make_claude_mem(home)
    counts = took("claude-mem")
    assert numbers(counts) == (5, 2, 2, 1)  # the observation and the summary are in no transcript
    assert len(hits("helium")) >= 1
    assert crystal("show", stores.SESSION).out.count("you ·") == 1


def test_a_session_whose_transcript_is_here_is_left_to_backfill(home: Path) -> None:
    path = home / ".claude" / "projects" / "w" / f"{stores.SESSION}.jsonl"
    remember(home, ("said before crystal", "yes"), session=stores.SESSION)
    text = path.read_text(encoding="utf-8")
    for one in (home / ".ldm").rglob("*"):
        if one.is_file():
            one.unlink()
    path.write_text(text, encoding="utf-8")
    start()
    make_claude_mem(home)
    assert took("claude-mem")["left_out"]["its transcript is on this disk: crystal backfill imports it"] == 2
    path.unlink()  # the agent's clean-up
    assert took("claude-mem")["new"] == 2


@pytest.mark.parametrize("name", part_of(["memory-crystal", "claude-mem", "episodic-memory"]))
def test_what_was_forgotten_of_a_transcript_comes_from_no_store(home: Path, name: str) -> None:
    remember(home, (*TEXTS[:2], "fix the zeppelin"), session=stores.SESSION)
    assert crystal("forget", "--query", "zeppelin", "--yes").code == 0
    (home / ".claude" / "projects" / "w" / f"{stores.SESSION}.jsonl").unlink()  # the agent's clean-up
    MAKERS[name](home)
    found = took(name)
    assert found["left_out"].get("private, or forgotten here", 0) >= 2
    assert not hits("zeppelin", "--source", "conversation")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memory-crystal", "claude-mem"])
def test_what_was_forgotten_stays_forgotten(home: Path, name: str, ready: None) -> None:
    MAKERS[name](home)
    took(name)
    assert crystal("forget", "--session", stores.SESSION, "--yes").code == 0
    assert not hits("zeppelin")
    for memory in json.loads(crystal("memories", "--json").out)["memories"]:
        assert crystal("forget", memory["id"], "--yes").code == 0
    again = took(name)
    assert again["new"] == again["known"] == 0
    assert everything() == (0, [], [])


def test_the_vectors_are_kept_and_nothing_is_embedded_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "A paragraph about airships.\n\n" * 120
    texts = ("how do we deploy the zeppelin", "with make", long)
    monkeypatch.setattr(stores, "vector", lambda number, dimension: packed(served_vector(texts[number], dimension)))
    stores.memory_crystal(home / ".ldm" / "old.db", texts)
    with serve_providers() as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "openai")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        start()
        kept = took("memory-crystal", "--from", str(home / ".ldm" / "old.db"))["vectors"]
        assert (kept["read"], kept["is_chosen"]) == (3, True)
        assert kept["kept"] > 3  # the long text has several chunks
        assert crystal("sync", "--wait").code == 0
        assert [one.path for one in server.asked] == []
        best = hits(texts[0], "--fusion", "similarity")[0]
        assert (best["text"], round(best["score"], 2)) == (texts[0], 1.0)
        assert len(server.asked) == 1  # the question
        assert took("memory-crystal", "--from", str(home / ".ldm" / "old.db"))["vectors"]["kept"] == 0


def packed(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def test_vectors_of_another_model_can_be_taken_later(home: Path, monkeypatch: pytest.MonkeyPatch, ready: None) -> None:
    make_memory_crystal(home)
    first = took("memory-crystal")["vectors"]
    assert (first["read"], first["is_chosen"], first["kept"]) == (4, False, 0)
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serve_providers() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        assert took("memory-crystal")["vectors"]["kept"] == 2  # not that of the text with the secret


def migrate_dying(found: FoundStore, at: int = 0) -> int:
    """Take a store over, in a process that ends at a statement; return the number of statements until its end."""
    with open_machine() as machine, found.opened(machine) as container, killed_at(machine.store, at) as run:
        migration = Migration(machine, found, container)
        import_sessions(machine, migration.plan(), lambda _: None, cleaners=0)
        migration.take_memories()
        migration.keep_vectors()
    return run.statements


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "every"),
    [("claude-mem", 12), *(pytest.param(one, 3, marks=pytest.mark.slow) for one in ("claude-mem", "memory-crystal"))],
)
def test_it_can_die_at_any_statement_and_run_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, every: int
) -> None:
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    found = FoundStore(name, MAKERS[name](home))
    start()
    shutil.copytree(home / ".ldm", home / "fresh")
    statements = migrate_dying(found)
    wanted = everything()
    assert statements > 50
    for at in range(1, statements + 1, every):
        shutil.rmtree(home / ".ldm")
        shutil.copytree(home / "fresh", home / ".ldm")
        assert migrate_dying(found, at) >= at
        migrate_dying(found)
        assert everything() == wanted
    assert crystal("verify").code == 0


@pytest.mark.slow
def test_the_owner_may_be_at_work(home: Path, ready: None) -> None:
    path = make_claude_mem(home)
    owner = apsw.Connection(str(path))
    owner.execute("BEGIN IMMEDIATE; UPDATE observations SET subtitle = 'not committed'")
    assert took("claude-mem")["new"] == 4
    owner.execute("COMMIT")
    assert took("claude-mem")["new"] == 0


@pytest.mark.slow
def test_lancedb_tables_come_with_their_vectors(home: Path) -> None:
    lancedb = pytest.importorskip("lancedb")
    folder = home / ".ldm" / "memory" / "lance"
    rows = [
        {"text": text, "vector": [0.1 * (number + 1)] * 1536, "role": "user", "source_type": kind,
         "source_id": "cc:s-1", "agent_id": "main", "token_count": 3, "created_at": "2026-01-01T00:00:00Z"}
        for number, (text, kind) in enumerate((
            ("the zeppelin", "conversation"), ("of lance", "conversation"), ("notes.md", "file"), ("tea", "manual")))
    ]  # fmt: skip
    lancedb.connect(str(folder)).create_table("chunks", rows)
    start()
    before = fingerprints(folder)
    first = took("lancedb")
    assert (first["read"], first["new"], sum(first["left_out"].values())) == (4, 2, 2)
    assert took("lancedb")["new"] == 0
    assert hits("zeppelin")
    assert fingerprints(folder) == before


def test_an_export_has_what_was_taken_over(home: Path, ready: None) -> None:
    make_episodic_memory(home)
    took("episodic-memory")
    assert crystal("export", "--all", "--as", "jsonl", "--to", str(home / "out")).code == 0
    (path,) = (home / "out").glob("*.jsonl")
    assert "an airship" in path.read_text(encoding="utf-8")
