"""Measure whether a memory keeps up as it grows: embedding on one core, a new turn's cost, what deleting gives back.

    python benchmarks/growth.py [--chunks 500000] [--turns 200] [--folder DIR]

One core, where the system lets a process choose. A store is written with crystal's own functions, embedded with the
embedded model, added to in turn with an empty one, and halved. It is deleted at the end. The exit code is 1 when a
target was missed.
"""

# ruff: noqa: E402 - NumPy loads after the number of its threads is set

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

from search_process import own_memory, this_machine
from search_stores import SEED, add_session, embed_all, make_ready
from search_text import BATCH, END, Memories

from crystal.ingest.ingest import ingest
from crystal.model.capture import Origin, Project, Segment, SegmentPiece, Watermark
from crystal.store import Store
from crystal.store.search import space

MINUTES, COSTLIER, LEFT = 10, 1.3, 0.6
ROUND = 5
PROJECT = Project("/home/dev/growth", "/home/dev/growth", None, "growth")


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--chunks", type=int, default=500_000)
    options.add_argument("--turns", type=int, default=200)
    options.add_argument("--folder", type=Path, help="where there is room; the system's temporary folder if not given")
    given = options.parse_args()
    print(this_machine(), flush=True)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        full = Path(folder) / "full" / "crystal.db"
        empty = Path(folder) / "empty" / "crystal.db"
        kept = [embedding(full, given.chunks), inserting(full, empty, given.turns), deleting(full)]
    print("targets kept" if all(kept) else "a target was missed")
    return 0 if all(kept) else 1


# ------------------------------------------------------------------------------------------------------- embedding


def embedding(path: Path, chunks: int) -> bool:
    """Write, embed and index so many chunks on one core. Making the texts up is not counted."""
    memories, written, busy = Memories(SEED), 0.0, 0.0
    with Store.open(path) as store, store.importing():
        for batch in memories.batches(chunks):
            start, cpu = time.perf_counter(), time.process_time()
            with store.transaction():
                for at in range(len(batch.sessions)):
                    add_session(store, batch, at)
            written, busy = written + time.perf_counter() - start, busy + time.process_time() - cpu
        start, cpu = time.perf_counter(), time.process_time()
        embed_all(store)
        embedded = time.perf_counter() - start
    start = time.perf_counter()
    make_ready(path)
    indexed, busy = time.perf_counter() - start, busy + time.process_time() - cpu
    whole = written + embedded + indexed
    share, memory = 60 * MINUTES * chunks / 500_000, own_memory()
    print(f"growth: {chunks:,} chunks on one core: written with keywords {written:.1f} s, embedded in {embedded:.1f} s"
          f" ({chunks / embedded:,.0f} chunks/s), made ready to search {indexed:.1f} s; together {whole:.1f} s,"
          f" {chunks / whole:,.0f} chunks/s, CPU {busy:.1f} s; at most {share:.0f} s; {memory}")  # fmt: skip
    return whole < share


# ------------------------------------------------------------------------------------------------------- inserting


@dataclass
class Speaker:
    """Says turns into a store, the way the worker does after the hook: read, cleaned, ingested, embedded."""

    store: Store
    folder: Path
    offset: int = 0

    def say(self, number: int, text: str) -> None:
        said = {
            "type": "user",
            "uuid": f"growth-{number}",
            "timestamp": "2026-11-20T10:00:00.000Z",
            "cwd": PROJECT.cwd,
            "message": {"role": "user", "content": text},
        }
        line = json.dumps(said).encode()
        clean = line + b"\n"
        end = self.offset + len(clean)
        piece = SegmentPiece(
            self.offset, end, "captured", None, clean, hashlib.sha256(clean).digest(), ((self.offset, line),)
        )
        before, after = Watermark("growth", self.offset), Watermark("growth", end)
        segment = Segment(Origin("cc-desk", "desk", "growth"), "/nowhere/growth.jsonl", before, after, (piece,))
        ingest(
            self.store,
            segment,
            ldm_home=self.folder,
            archive_folder=self.folder / "archive",
            find_project=lambda _: PROJECT,
            now=END,
        )
        self.offset = end

    def embed(self) -> None:
        embed_all(self.store)


def inserting(full: Path, empty: Path, turns: int) -> bool:
    """What a turn costs in a full store and in an empty one, in turn."""
    batch = Memories(SEED).batch(10_000, BATCH)
    with Store.open(full) as large, Store.open(empty) as small:
        speakers = {"full": Speaker(large, full.parent), "empty": Speaker(small, empty.parent)}
        said: dict[str, list[float]] = {name: [] for name in speakers}
        vectors: dict[str, list[float]] = {name: [] for name in speakers}
        for at in range(0, turns + ROUND, ROUND):
            for name, speaker in speakers.items() if at % (2 * ROUND) else reversed(speakers.items()):
                for number in range(at, at + ROUND):
                    said[name].append(_ms(lambda: speaker.say(number, batch.texts[number % BATCH])))  # noqa: B023
                vectors[name].append(_ms(speaker.embed) / ROUND)
    kept = True
    for label, taken, first in (("ingest", said, ROUND), ("embedding", vectors, 1)):
        large_ms, small_ms = (taken[name][first:] for name in ("full", "empty"))  # the first round loads and plans
        middles = statistics.median(large_ms), statistics.median(small_ms)
        means = statistics.mean(large_ms), statistics.mean(small_ms)
        ratio = middles[0] / middles[1]
        print(f"growth: {label} of a turn: {middles[0]:.2f} ms in the full store, {middles[1]:.2f} ms in an empty one,"
              f" ratio {ratio:.2f}; means {means[0]:.2f} and {means[1]:.2f} ms,"
              f" ratio {means[0] / means[1]:.2f}; at most {COSTLIER}", flush=True)  # fmt: skip
        kept = kept and ratio <= COSTLIER
    return kept


def _ms(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


# -------------------------------------------------------------------------------------------------------- deleting


def deleting(path: Path) -> bool:
    """Delete every other session's chunks, give the space back, and see what is left of the file."""
    with Store.open(path) as store:
        before = _size(path)
        ids = [row for (row,) in store.rows("SELECT id FROM chunks WHERE session % 2 = 0 ORDER BY id")]
        start = time.perf_counter()
        with store.transaction():
            space.delete_chunks(store, ids)
        deleted = time.perf_counter() - start
        middle = _size(path)
        start = time.perf_counter()
        given = space.give_back(store)
        cut = time.perf_counter() - start
        left = store.value("SELECT count(*) FROM chunks")
    after, ratio = _size(path), _size(path) / before
    print(f"growth: {len(ids):,} of {len(ids) + left:,} chunks deleted in {deleted:.1f} s, space given back in"
          f" {cut:.1f} s: {before / 1e6:,.0f} MB before, {middle / 1e6:,.0f} MB after deleting,"
          f" {after / 1e6:,.0f} MB in the end, {given / 1e6:,.0f} MB given back, ratio {ratio:.2f}")  # fmt: skip
    return after <= LEFT * before


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))


if __name__ == "__main__":
    sys.exit(main())
