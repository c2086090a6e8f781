"""Texts that are compressed together are read, deleted and given back like texts that are alone."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw
import pytest

from crystal.store import Store
from crystal.store.health import checks
from crystal.store.search.space import delete_chunks
from crystal.store.text_blocks import is_due, pack_texts, put_texts, texts_alone
from crystal.store.texts import text_hash

WORDS = [f"word{number}" for number in range(500)]
COUNT = 200


def add(store: Store, count: int = COUNT, seed: int = 1) -> dict[int, str]:
    """Add chunks of about 700 characters, ten in a transaction; return their texts."""
    dice = random.Random(seed)
    texts = {at: f"mark{at}. " + " ".join(dice.choices(WORDS, k=100)) for at in range(1, 1 + count)}
    write(store, texts)
    return texts


def write(store: Store, texts: dict[int, str], together: int = 10) -> None:
    rows = list(texts.items())
    for at in range(0, len(rows), together):
        with store.transaction():
            store.execute_many(
                "INSERT INTO chunks (id, start, body, text_sha256, source, role, agent, device)"
                " VALUES (?, 0, x'', ?, 'conversation', 'user', 'cc', 'desk')",
                [(ident, text_hash(text)) for ident, text in rows[at : at + together]],
            )
            put_texts(store, rows[at : at + together])


def size_of(store: Store) -> int:
    return int(store.value("SELECT sum(length(body)) FROM text_blocks"))


def pack(store: Store) -> None:
    assert pack_texts(store, lambda: False)


def delete(store: Store, ids: Iterable[int]) -> None:
    with store.transaction():
        delete_chunks(store, list(ids))


def assert_holds(store: Store, texts: dict[int, str]) -> None:
    assert dict(store.rows("SELECT id, text FROM chunks")) == texts
    assert checks.chunks_with_wrong_hash(store) == []
    assert texts_alone(store) == 0
    assert store.value("PRAGMA foreign_key_check") is None


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "crystal.db") as opened:
        yield opened


def test_small_blocks_become_large_ones_in_less_space(store: Store) -> None:
    texts = add(store)
    assert_holds(store, texts)
    before = size_of(store)
    assert is_due(store)
    pack(store)
    assert not is_due(store)
    assert store.value("SELECT count(*) FROM text_blocks") < 10
    assert size_of(store) < before
    assert_holds(store, texts)


def test_old_texts_with_their_chunks_become_blocks(store: Store) -> None:
    texts = add(store)
    with store.transaction():
        store.execute("UPDATE chunks SET body = iif(id % 2, packed(text), text)")
        store.execute("DELETE FROM text_blocks")
    assert_holds(store, texts)
    pack(store)
    assert store.value("SELECT count(*) FROM chunks WHERE length(body) < 10") > 0.8 * COUNT
    assert_holds(store, texts)


def test_a_deleted_text_takes_its_block_along_and_leaves_the_others(store: Store) -> None:
    texts = add(store)
    pack(store)
    before = dict(store.rows("SELECT id, body FROM text_blocks"))
    delete(store, [3, 4, 150])
    texts = {ident: text for ident, text in texts.items() if ident not in (3, 4, 150)}
    after = dict(store.rows("SELECT id, body FROM text_blocks"))
    gone = [body for ident, body in before.items() if ident not in after]
    assert (len(after), len(gone)) == (len(before), 2)
    assert_holds(store, texts)
    store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert not any(body[100:200] in store.path.read_bytes() for body in gone)


def test_an_undone_transaction_leaves_nothing_that_was_read_in_it(store: Store) -> None:
    texts = add(store)

    class Undone(Exception):
        pass

    def failing() -> bool:
        return False

    def fail(_: object) -> bool:
        assert dict(store.rows("SELECT id, text FROM chunks")) == texts
        raise Undone

    store.before_commit = lambda: fail(None)
    with contextlib.suppress(Undone):
        pack_texts(store, failing)
    store.before_commit = None
    delete(store, range(1, 40))
    pack(store)
    assert_holds(store, {ident: text for ident, text in texts.items() if ident >= 40})


def test_another_process_reads_what_was_packed_and_deleted_meanwhile(store: Store) -> None:
    texts = add(store)
    pack(store)
    with Store.open_existing(store.path) as other:
        assert_holds(other, texts)
        with other.reading():
            assert other.value("SELECT text FROM chunks WHERE id = 1") == texts[1]
            delete(store, [1])
            assert dict(other.rows("SELECT id, text FROM chunks")) == texts
        assert_holds(other, {ident: text for ident, text in texts.items() if ident != 1})


def test_a_damaged_block_is_told_by_the_hashes_of_its_texts(store: Store) -> None:
    add(store)
    store.execute("UPDATE text_blocks SET body = x'01ff' WHERE id = 2")
    assert checks.chunks_with_wrong_hash(store) == list(range(11, 21))


@pytest.mark.slow
def test_very_short_texts_become_blocks_too(store: Store) -> None:
    texts = {ident: f"{ident}" for ident in range(1, 4_100)}
    write(store, texts, together=500)
    pack(store)
    assert store.value("SELECT count(*) FROM text_blocks") == 3
    assert_holds(store, texts)
