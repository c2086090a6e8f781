"""The oldest store that is read becomes one of the newest schema, whatever happens meanwhile, and nothing is lost."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from crystal.errors import StoreDamagedError
from crystal.store import Store, connection, upgrade
from crystal.store.health import checks
from crystal.store.search import index_source, vectors
from crystal.store.vector_bytes import rounded
from tests.store.test_text_blocks import add

DIMENSION, COUNT = 64, 12

pytestmark = pytest.mark.usefixtures("_each_migration")


def vector_of(ident: int) -> bytes:
    return array("f", (1.0 / (1 + (ident * 7 + at) % 11) for at in range(DIMENSION))).tobytes()


def write_oldest(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Write a store of the oldest schema; return the texts of its chunks."""
    oldest = upgrade.steps()[:1]
    with monkeypatch.context() as patch:
        patch.setattr(upgrade, "steps", lambda: oldest)
        patch.setattr(upgrade, "newest", lambda: upgrade.OLDEST)
        with Store.open(path) as store:
            vectors.ensure_generation(store, "dice", "a", DIMENSION, 0)
            texts = add(store, COUNT)
            vectors.put_vectors(store, 1, [(ident, vector_of(ident)) for ident in texts])
    return texts


def assert_whole(store: Store, texts: dict[int, str]) -> None:
    assert dict(store.rows("SELECT id, text FROM chunks")) == texts
    kept = dict(index_source.vectors(store, 1, range(1, COUNT + 1)))
    assert kept == {ident: rounded([vector_of(ident)], DIMENSION)[0] for ident in texts}
    assert checks.database_faults(store) == []
    assert not list(checks.vector_faults(store))


def test_an_upgrade_that_is_killed_at_any_statement_is_made_by_the_next_one(tmp_path, monkeypatch):
    class Killed(Exception):
        """What stands for the end of the process."""

    old, path = tmp_path / "old.db", tmp_path / "crystal.db"
    texts = write_oldest(old, monkeypatch)
    connect, number, done = connection.connect, 0, False
    while not done:
        number += 1
        path.write_bytes(old.read_bytes())
        left = [number]

        def trace(_cursor: object, _sql: str, _bindings: object, left: list[int] = left) -> bool:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return True

        def killed(at: Path, trace: object = trace) -> object:
            db = connect(at)
            db.exec_trace = trace
            return db

        with monkeypatch.context() as patch:
            patch.setattr(connection, "connect", killed)
            try:
                Store.open(path).close()
                done = True
            except Killed:
                pass
        with Store.open(path) as store:
            assert_whole(store, texts)
    assert number > 10


def test_a_store_that_is_older_still_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    with Store.open(path) as store:
        store.execute(f"PRAGMA user_version = {upgrade.OLDEST - 1}")
    before = path.read_bytes()
    for opened in (Store.open, Store.open_existing):
        with pytest.raises(StoreDamagedError, match=f"schema {upgrade.OLDEST - 1} is older") as refused:
            opened(path)
        assert "crystal verify --repair" in refused.value.hint
    assert path.read_bytes() == before
