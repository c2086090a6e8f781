"""A home and devices with a relay between them that is a dict: for the tests of the mirror."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from crystal.store import Store
from crystal.store.health import checks
from crystal.store.search.vectors import ensure_generation, pending_chunks, promote, put_vectors
from crystal.store.sync.mirror_content import KINDS
from crystal.sync.errors import NotAtRelayError
from crystal.sync.mirror.device import Mirror
from crystal.sync.mirror.publishing import manifest, publish, take_device_report
from tests.support.embedding_store import Dice
from tests.support.store_factory import NOW, open_store

COMPARED = {one.table: one.columns for one in KINDS.values() if one.table != "chunks"}


class FakeRelay:
    """Keeps objects. ``spoil`` may change what is handed out, ``fail`` may raise before anything happens."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.sent = self.fetched = 0
        self.spoil: Callable[[bytes, bytes], bytes] = lambda _ident, data: data
        self.fail: Callable[[str], None] = lambda _what: None

    def put_object(self, object_id: bytes, data: bytes, *, resend: bool = False) -> str:
        self.fail("put")
        assert self.kept.setdefault(object_id, data) == data
        assert len(data) <= 8 << 20
        self.sent += len(data)
        return "created"

    def get_object(self, object_id: bytes) -> bytes:
        self.fail("get")
        if object_id not in self.kept:
            raise NotAtRelayError("no such object")
        self.fetched += len(self.kept[object_id])
        return self.spoil(object_id, self.kept[object_id])

    def delete_object(self, object_id: bytes) -> None:
        self.fail("delete")
        self.kept.pop(object_id, None)

    def objects(self):
        self.fail("list")
        return tuple(
            SimpleNamespace(object_id=ident, size=len(data), created_at=0) for ident, data in self.kept.items()
        )


@dataclass
class World:
    """One home, one relay; manifests go straight to the devices."""

    folder: Path
    relay: FakeRelay
    store: Store
    dice: random.Random
    now: int = NOW
    serial: int = 0
    manifest: Mapping[str, object] | None = None

    @classmethod
    def make(cls, folder: Path, seed: int = 1) -> World:
        return cls(folder, FakeRelay(), open_store(folder), random.Random(seed))

    def publish(self) -> Mapping[str, object] | None:
        self.now += 1000
        body = publish(self.store, self.relay, now=self.now, random=self.dice.randbytes)
        newest = manifest(self.store)  # not ``body``: who was killed just before has lost his
        if newest is not None and newest != self.manifest:
            self.manifest = newest
            self.serial += 1
        return body

    def device(self, name: str = "device") -> Mirror:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return Mirror(folder / "mirror.db")

    def sync(self, mirror: Mirror):
        if self.manifest is not None:
            mirror.take(self.manifest, self.serial)
        return mirror.fetch(self.relay)

    def both(self, mirror: Mirror):
        self.publish()
        return self.sync(mirror)


def rows_of(store: Store) -> dict[str, object]:
    """Everything that a mirror is to have of a store, row for row."""
    found: dict[str, object] = {
        table: sorted(store.rows(f"SELECT {', '.join(columns)} FROM {table}"), key=repr)
        for table, columns in COMPARED.items()
    }
    columns = ", ".join((*KINDS["text"].columns, "text_sha256"))
    found["chunks"] = store.rows(f"SELECT {columns} FROM chunks ORDER BY id")
    row = store.row("SELECT id, provider, model, dimension FROM embedding_generations WHERE serving = 1")
    found["serving"] = row
    if row is not None:
        vectors = store.rows(f"SELECT rowid, embedding FROM chunks_vec_{row[0]}")
        found["vectors"] = dict(vectors)
        is_filling = store.value("SELECT 1 FROM embedding_generations WHERE id > ?", (row[0],))
        if not is_filling:  # another model is asked again for what this one refused
            refused = "SELECT id FROM chunks WHERE vector_generation = ? ORDER BY id"
            found["refused"] = store.rows(refused, (-row[0],))
    return found


def assert_equal(world: World, mirror: Mirror) -> None:
    """The mirror is home's memory, row for row, and its keyword index agrees with it."""
    home = rows_of(world.store)
    with Store.open(mirror.path) as there:
        copy = rows_of(there)
        for name, rows in home.items():
            if name in ("vectors", "serving", "refused") and not home.get("vectors") and not home.get("refused"):
                continue  # a model without vectors is of no use, and does not travel alone
            assert copy.get(name) == rows, name
        assert there.value("SELECT count(*) FROM mirror_rows") == 0
        assert there.value("PRAGMA quick_check") == "ok"


def embed(store: Store, model: Dice) -> None:
    """Embed everything that waits, and let the model serve."""
    generation = ensure_generation(store, model.provider, model.model, model.dimension, NOW)
    waiting = pending_chunks(store, generation, 10_000)
    put_vectors(store, generation, [(ident, model.embed_query(text)) for ident, _, text in waiting])
    promote(store, generation)


def drop(store: Store, uuid: str) -> None:
    """Delete a line with its chunks."""
    with store.transaction():
        checks.drop_turns(store, [store.value("SELECT id FROM turns WHERE uuid = ?", (uuid,))])


def tell(world: World, device: Mirror) -> None:
    take_device_report(world.store, device.told(), now=world.now)


def bytes_of(device: Mirror) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(device.path.parent.iterdir()))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World.make(tmp_path)
    yield world
    world.store.close()
