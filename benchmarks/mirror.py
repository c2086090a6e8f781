"""Measure the mirror: the first copy, and 20 new chunks, against the plain way: VACUUM INTO and zstd of the database.

    python benchmarks/mirror.py [--size 200MB] [--dimension 256] [--folder DIR]

Publishing and fetching run in processes of their own, so that their memory is theirs. The relay is a folder: what a
network and a relay's disk take is not in the times. Exits 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from types import SimpleNamespace

from words import Writer

from crystal.store import Store
from crystal.store.search.vectors import ensure_generation, promote
from crystal.store.sync import mirror
from crystal.store.texts import text_hash
from crystal.store.vector_bytes import rounded
from crystal.sync.envelope.blob import ZERO_TAG, seal
from crystal.sync.envelope.link import keys_of_link
from crystal.sync.mirror.device import Mirror
from crystal.sync.mirror.publishing import publish

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NEW = 20
RUNS = 40
MAX_BYTES = 100_000
MAX_MEMORY = 300 << 20
BATCH = 2_000
WORDS = 170
ADD_SESSION = "INSERT INTO sessions (session_id, agent, device, last_turn) VALUES (?, 'cc', 'desk', 1) RETURNING id"
ADD_TURN = (
    "INSERT INTO turns (id, uuid, part, session, offset, role, ts, full_length) VALUES (?, ?, 0, ?, ?, 'user', ?, 9)"
)
ADD_CHUNK = (
    "INSERT INTO chunks (id, turn, start, body, text_sha256, source, role, session, agent, device, ts,"
    " vector_generation) VALUES (?, ?, 0, ?, ?, 'conversation', 'user', ?, 'cc', 'desk', ?, ?)"
)


class Folder:
    """A relay that is a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        self.sent = self.fetched = 0

    def put_object(self, object_id: bytes, data: bytes) -> str:
        (self.path / object_id.hex()).write_bytes(data)
        self.sent += len(data)
        return "created"

    def get_object(self, object_id: bytes) -> bytes:
        data = (self.path / object_id.hex()).read_bytes()
        self.fetched += len(data)
        return data

    def delete_object(self, object_id: bytes) -> None:
        (self.path / object_id.hex()).unlink(missing_ok=True)

    def objects(self):
        return tuple(SimpleNamespace(object_id=bytes.fromhex(one)) for one in os.listdir(self.path))  # noqa: PTH208


def add(store: Store, writer: Writer, dice: random.Random, count: int, dimension: int) -> None:
    """Put so many chunks of about 1.2 KB into a store, a turn each, with a vector."""
    generation = ensure_generation(store, "embedded", "benchmark", dimension, 1)
    promote(store, generation)
    with store.transaction():
        first = 1 + (store.value("SELECT max(id) FROM turns") or 0)
        session = store.value(ADD_SESSION, (f"s{first}",))
        turns, chunks, words, vectors = [], [], [], []
        for ident in range(first, first + count):
            text = " ".join(writer.words(WORDS))
            sha = text_hash(text)
            turns.append((ident, f"u{ident}", session, ident * 900, ident))
            chunks.append((ident, ident, text, sha, session, ident, generation))
            words.append((ident, text))
            vectors.append((ident, array("f", (dice.random() for _ in range(dimension))).tobytes()))
        store.execute_many(ADD_TURN, turns)
        store.execute_many(ADD_CHUNK, chunks)
        small = zip((ident for ident, _ in vectors), rounded([one for _, one in vectors], dimension), strict=True)
        store.execute_many(f"INSERT INTO chunks_vec_{generation} (rowid, embedding) VALUES (?, vec_int8(?))", small)


def size_of(path: Path) -> int:
    return sum(one.stat().st_size for one in path.parent.glob(path.name + "*"))


def publish_now(folder: Path) -> dict[str, object]:
    """One run of home."""
    relay = Folder(folder / "relay")
    with Store.open(folder / "crystal.db") as store:
        body = publish(store, relay, now=int(time.time() * 1000), random=os.urandom)  # type: ignore[arg-type]
        told = json.dumps({"serial": 1, "as_of": 1, "body": body}).encode()
        keys, stream = keys_of_link(bytes(32)), bytes(16)
        blob = seal(keys, told, channel=2, kind=3, stream=stream, seq=1, prev=ZERO_TAG, salt=bytes(32), created_at=1)
        objects = len(mirror.listed(store))
    (folder / "manifest.json").write_text(json.dumps(body))
    return {"sent": relay.sent, "manifest": len(blob), "objects": objects}


def fetch_now(folder: Path, stop_after: int) -> dict[str, object]:
    """One run of a device."""
    relay = Folder(folder / "relay")
    serial = time.time_ns()
    device = Mirror(folder / "device" / "mirror.db")
    device.take(json.loads((folder / "manifest.json").read_text()), serial)
    left = iter(range(stop_after))
    report = device.fetch(relay, should_stop=lambda: next(left, None) is None)
    return {"fetched": relay.fetched, "is_whole": report.is_whole}


def in_a_process(step: str, folder: Path, *more: object) -> dict[str, float]:
    """Run a step in a process of its own; with its seconds and the most memory that it had."""
    words = [sys.executable, __file__, "--step", step, "--folder", str(folder), *map(str, more)]
    start = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return {**json.loads(done.stdout), "seconds": time.perf_counter() - start}


def step(name: str, folder: Path, stop_after: int) -> None:
    found = publish_now(folder) if name == "publish" else fetch_now(folder, stop_after)
    unit = 1 if sys.platform == "darwin" else 1024
    print(json.dumps({**found, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}))


def plain_way(folder: Path) -> tuple[int, float]:
    """The size of a compressed copy of the database, and the seconds that it took."""
    start = time.perf_counter()
    target, packed = folder / "plain.db", folder / "plain.zst"
    with Store.open(folder / "crystal.db") as store:
        store.execute("VACUUM INTO ?", (str(target),))
    with target.open("rb") as source, zstd.open(packed, "wb", level=3) as sink:
        while data := source.read(1 << 20):
            sink.write(data)
    size = packed.stat().st_size
    target.unlink()
    packed.unlink()
    return size, time.perf_counter() - start


def megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f} MB"


def first_copy(folder: Path) -> bool:
    """Measure publishing all and fetching all, the latter interrupted half-way."""
    size = size_of(folder / "crystal.db")
    made = in_a_process("publish", folder)
    rate = size / made["seconds"] / 1e6
    print(f"first publish: {megabytes(made['sent'])} in {made['objects']} objects, {made['seconds']:.1f} s,"
          f" {rate:.1f} MB of database/s, {megabytes(made['memory'])} of memory")  # fmt: skip
    half = in_a_process("fetch", folder, "--stop-after", int(made["objects"]) // 2)
    rest = in_a_process("fetch", folder)
    seconds = half["seconds"] + rest["seconds"]
    again = half["fetched"] + rest["fetched"] - made["sent"]
    print(f"first sync, interrupted half-way: {megabytes(half['fetched'] + rest['fetched'])} in {seconds:.1f} s,"
          f" {size / seconds / 1e6:.1f} MB of database/s, {max(half['memory'], rest['memory']) / 1e6:,.1f} MB used,"
          f" {max(0, again):,.0f} bytes fetched again")  # fmt: skip
    packed, taken = plain_way(folder)
    print(f"plain way: {megabytes(packed)} in {taken:.1f} s to make; ours is {made['sent'] / packed:.2f} of it")
    return bool(rest["is_whole"]) and max(made["memory"], half["memory"], rest["memory"]) < MAX_MEMORY and again <= 0


def new_chunks(folder: Path, writer: Writer, dimension: int) -> bool:
    """Measure what 20 new chunks cost, again and again."""
    dice = random.Random(2)
    up: list[float] = []
    down: list[float] = []
    for _ in range(RUNS):
        with Store.open(folder / "crystal.db") as store:
            add(store, writer, dice, NEW, dimension)
        made = publish_now(folder)
        got = fetch_now(folder, 1_000)
        up.append(float(made["sent"]) + float(made["manifest"]))  # type: ignore[arg-type]
        down.append(float(got["fetched"]) + float(made["manifest"]))  # type: ignore[arg-type]
    size = size_of(folder / "crystal.db")
    middle, most = sorted(down)[RUNS // 2], max(down)
    print(f"20 new chunks: up {sorted(up)[RUNS // 2]:,.0f} bytes (most {max(up):,.0f}, mean {sum(up) / RUNS:,.0f}),"
          f" down {middle:,.0f} (most {most:,.0f}); 1 in {size / middle:,.0f} of the database")  # fmt: skip
    return most < MAX_BYTES and sorted(up)[RUNS // 2] < MAX_BYTES


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", default="200MB")
    options.add_argument("--dimension", type=int, default=256)
    options.add_argument("--folder", type=Path)
    options.add_argument("--step", help=argparse.SUPPRESS)
    options.add_argument("--stop-after", type=int, default=1 << 30, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.step:
        step(given.step, given.folder, given.stop_after)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        writer, dice = Writer(1), random.Random(1)
        size = int(float(given.size.removesuffix("MB")) * 1e6)
        with Store.open(folder / "crystal.db") as store:
            store.execute("PRAGMA synchronous = OFF")
            while size_of(folder / "crystal.db") < size:
                add(store, writer, dice, BATCH, given.dimension)
            chunks = store.value("SELECT count(*) FROM chunks")
        print(
            f"a memory of {megabytes(size_of(folder / 'crystal.db'))}: {chunks:,} chunks, vectors of {given.dimension}"
        )
        kept = [first_copy(folder), new_chunks(folder, writer, given.dimension)]
    print("targets kept" if all(kept) else "a target was missed")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
