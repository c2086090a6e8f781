"""Deleting chunks takes their words and vectors along, and the disk gets its space back."""

from __future__ import annotations

import contextlib
import random
from array import array

import apsw
import pytest

from crystal.store import Store
from crystal.store.notes import write_note
from crystal.store.search import space, vectors
from crystal.store.search.space import delete_chunks, give_back, is_due
from crystal.store.text_blocks import SEEN_TO
from crystal.store.texts import text_hash
from tests.support.killed import killed_at

NOW = 1_790_000_000_000
WORDS = [f"word{number}" for number in range(2_000)]
DIMENSION = 64
CHUNKS = 3_000


def filled(path, count=CHUNKS, seed=1):
    """A store of chunks with words, each with a vector."""
    dice = random.Random(seed)
    with Store.open(path) as store:
        add(store, count, dice)
        write_note(store, SEEN_TO, "1000000")  # to compress texts together has tests of its own
    return path


def add(store, count, dice):
    first = 1 + (store.value("SELECT max(id) FROM chunks") or 0)
    with store.transaction():
        for ident in range(first, first + count):
            text = f"mark{ident} " + " ".join(dice.choices(WORDS, k=120))
            store.execute(
                "INSERT INTO chunks (id, start, body, text_sha256, source, role, agent, device, ts)"
                " VALUES (?, 0, ?, ?, 'conversation', 'user', 'cc', 'desk', ?)",
                (ident, text, text_hash(text), NOW + ident),
            )
    generation = vectors.ensure_generation(store, "test", "dice", DIMENSION, NOW)
    vectors.put_vectors(store, generation, [(ident, vector(ident)) for ident in range(first, first + count)])


def vector(ident):
    dice = random.Random(ident)
    numbers = [dice.gauss(0, 1) for _ in range(DIMENSION)]
    length = sum(number * number for number in numbers) ** 0.5
    return array("f", [number / length for number in numbers]).tobytes()


def delete(store, ids):
    with store.transaction():
        return delete_chunks(store, list(ids))


def found(store, word):
    return [ident for (ident,) in store.rows("SELECT id FROM chunks WHERE instr(text, ?)", (f"{word} ",))]


def assert_whole(store):
    """The file and the vectors agree with the chunks that are left."""
    assert store.rows("PRAGMA integrity_check") == [("ok",)]
    left = store.rows("SELECT id FROM chunks ORDER BY id")
    assert store.rows("SELECT rowid FROM chunks_vec_1_rowids ORDER BY rowid") == left
    for (ident,) in left[:: max(1, len(left) // 20)]:
        assert vectors.nearest(store, 1, vector(ident), 1)[0][0] == ident
        assert found(store, f"mark{ident}") == [ident]


def size(path):
    return path.stat().st_size


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("large") / "crystal.db")


@pytest.fixture
def store(large, tmp_path):
    (tmp_path / "crystal.db").write_bytes(large.read_bytes())
    with Store.open(tmp_path / "crystal.db") as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 40, 1_200])
def test_deleted_chunks_are_found_by_no_word_and_no_vector(store, count):
    gone = list(range(5, 5 + count))
    assert delete(store, gone) == count
    assert store.value("SELECT count(*) FROM chunks") == CHUNKS - count
    assert found(store, "mark5") == []
    assert vectors.nearest(store, 1, vector(5), 1)[0][0] not in gone
    assert_whole(store)


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, 1_200])
def test_no_byte_of_a_deleted_text_stays_in_the_file(store, count):
    delete(store, range(1, 1 + count))
    store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    raw = store.path.read_bytes()
    assert b"mark3 " not in raw
    assert b"mark2999 " in raw


@pytest.mark.slow
def test_deleting_what_is_not_there_changes_nothing(store):
    assert delete(store, [10**6, 10**7]) == 0
    assert delete(store, []) == 0
    assert not is_due(store)
    assert_whole(store)


@pytest.mark.slow
def test_deleting_is_undone_with_the_callers_transaction(store):
    with contextlib.suppress(ZeroDivisionError), store.transaction():
        delete_chunks(store, list(range(1, 1_500)))
        raise ZeroDivisionError
    assert store.value("SELECT count(*) FROM chunks") == CHUNKS
    assert not is_due(store)
    assert_whole(store)


@pytest.mark.slow
@pytest.mark.parametrize("spread", ["scattered", "the oldest", "the newest"])
def test_deleting_half_halves_the_file(store, spread):
    before = size(store.path)
    half = {
        "scattered": range(1, CHUNKS + 1, 2),
        "the oldest": range(1, CHUNKS // 2),
        "the newest": range(CHUNKS // 2, CHUNKS + 1),
    }
    delete(store, half[spread])
    assert is_due(store)
    assert give_back(store) > before / 4
    assert size(store.path) < 0.6 * before
    assert not is_due(store)
    assert_whole(store)


@pytest.mark.slow
def test_many_small_deletions_add_up(store):
    before = size(store.path)
    for start in range(1, 1_001, 100):
        delete(store, range(start, start + 100))
    assert give_back(store) > 0
    assert size(store.path) < 0.85 * before
    assert_whole(store)


@pytest.mark.slow
def test_a_little_waste_is_left_alone(store):
    delete(store, range(1, 50))
    before = size(store.path)
    assert not is_due(store)
    assert give_back(store) == 0
    assert size(store.path) == before


@pytest.mark.slow
def test_the_model_that_was_replaced_gives_its_space_back(store, monkeypatch):
    monkeypatch.setattr("crystal.store.search.space.MIN_BYTES", 1 << 14)
    monkeypatch.setattr("crystal.store.search.space.SHARE", 50)  # vectors are a small part of the file
    newer = vectors.ensure_generation(store, "test", "other", 8, NOW)
    vectors.put_vectors(store, newer, [(ident, b"\x00\x00\x80?" + bytes(28)) for ident in range(1, CHUNKS + 1)])
    assert vectors.promote(store, newer)
    before = size(store.path)
    assert is_due(store)
    assert give_back(store) > CHUNKS * DIMENSION // 2
    assert size(store.path) < before
    assert not is_due(store)
    assert store.rows("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.slow
def test_it_stops_when_told_to_and_goes_on_the_next_time(store):
    delete(store, range(1, CHUNKS, 2))
    before = size(store.path)
    calls = 0

    def stop_at(limit):
        def ask():
            nonlocal calls
            calls += 1
            return calls > limit

        return ask

    for limit in range(8):
        calls = 0
        give_back(store, should_stop=stop_at(limit))
        assert_whole(store)
    give_back(store)
    assert size(store.path) < 0.6 * before
    assert_whole(store)


@pytest.mark.slow
def test_a_process_killed_at_any_statement_loses_nothing(store):
    delete(store, range(1, CHUNKS, 2))
    for statement in (1, 4, 8, 50, 400, 1_500, 1_600, 1_700):
        with killed_at(store, statement):
            give_back(store)
        assert not store.db.in_transaction
        assert_whole(store)
    give_back(store)
    assert not is_due(store)


@pytest.mark.slow
def test_a_store_from_before_is_rewritten_once_and_cut_piece_by_piece_from_then_on(large, tmp_path, monkeypatch):
    monkeypatch.setattr("crystal.store.search.space.MIN_BYTES", 1 << 20)
    path = tmp_path / "old.db"
    path.write_bytes(large.read_bytes())
    with Store.open(path) as store:
        store.execute("PRAGMA auto_vacuum = 0")
        store.execute("VACUUM")
        before = size(path)
        delete(store, range(1, CHUNKS, 2))
        assert give_back(store) > before / 4
        assert size(path) < 0.6 * before
        assert store.value("PRAGMA auto_vacuum") == space.INCREMENTAL
        assert store.value("PRAGMA temp_store") == 2
        assert_whole(store)
        delete(store, range(2, 1_400, 2))
        assert give_back(store) > 0
        assert_whole(store)


@pytest.mark.slow
def test_an_old_store_is_not_rewritten_without_room_on_the_disk(large, tmp_path, monkeypatch):
    path = tmp_path / "old.db"
    path.write_bytes(large.read_bytes())
    with Store.open(path) as store:
        store.execute("PRAGMA auto_vacuum = 0")
        store.execute("VACUUM")
        delete(store, range(1, CHUNKS, 2))
        before = size(path)
        monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1 << 20}))
        give_back(store)
        assert size(path) >= before
        assert_whole(store)


@pytest.mark.slow
def test_a_reader_keeps_its_state_and_the_file_is_cut_later(store):
    delete(store, range(1, CHUNKS, 2))
    with Store.open_existing(store.path) as reader, reader.reading():
        seen = reader.value("SELECT count(*) FROM chunks")
        give_back(store)
        assert reader.value("SELECT count(*) FROM chunks") == seen
    before = size(store.path)
    store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert size(store.path) < before
    assert_whole(store)


@pytest.mark.slow
def test_new_chunks_go_into_what_was_given_back(store):
    delete(store, range(1, CHUNKS, 2))
    give_back(store)
    add(store, 500, random.Random(5))
    assert_whole(store)


def test_a_new_store_can_be_cut_piece_by_piece_also_when_its_maker_died_at_once(tmp_path):
    path = tmp_path / "crystal.db"
    with contextlib.closing(apsw.Connection(str(path))) as begun:
        begun.execute("PRAGMA auto_vacuum = INCREMENTAL")
    assert size(path) > 0
    with Store.open(path) as store:
        assert store.value("PRAGMA auto_vacuum") == space.INCREMENTAL
        assert store.rows("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.slow
def test_a_large_import_asks_for_a_file_without_half_empty_pages(store: Store) -> None:
    before = space.size_of(store)
    space.note_import(store, before)
    assert not space.is_due(store)
    with store.transaction():
        store.execute("CREATE TABLE filler (data)")
        store.execute("INSERT INTO filler VALUES (zeroblob(?))", (space.MIN_IMPORT_BYTES,))
    space.note_import(store, before)
    assert space.is_due(store)
    space.give_back(store)
    assert not space.is_due(store)
