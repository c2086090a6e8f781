"""What the files of the index do not have yet, as a part and as vectors in memory; kept until the store changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from crystal.search.index.files import Array
from crystal.search.index.part_vectors import Meanings, build_arrays
from crystal.search.index.parts import IndexPart, build_part
from crystal.store import Store
from crystal.store.search import index_log, index_source
from crystal.store.search.index_log import Log, State
from crystal.store.search.tokenizer import tokenizer


@dataclass(slots=True)
class Tail:
    """The chunks that the log names.

    Attributes:
        part: Those that are to be read from the store, None when there is none.
        log: What is stale in the files, and what got a vector.
        vectors: For each generation asked for: the chunks, ascending, with their vectors.
    """

    part: IndexPart | None
    log: Log
    vectors: dict[int, tuple[Array, Meanings] | None] = field(default_factory=dict)

    def meanings(self, store: Store, generation: int) -> tuple[Array, Meanings] | None:
        """Return the vectors that a generation has of these chunks; None if it has none."""
        if generation not in self.vectors:
            self.vectors[generation] = vectors_of(store, generation, (*self.log.fresh, *self.log.embedded))
        return self.vectors[generation]


_kept: dict[tuple[Path, tuple[str, ...]], tuple[State, tuple[int, int, int, bytes | None], Tail]] = {}


def read_tail(store: Store, state: State) -> Tail:
    """Return the tail of the present snapshot."""
    counted = index_log.count_log(store)
    reader = store.path, store.hidden
    known = _kept.get(reader)
    if known is not None and known[:2] == (state, counted):
        return known[2]
    tail = tail_of(store, index_log.read_log(store))
    _kept[reader] = (state, counted, tail)
    return tail


def tail_of(store: Store, log: Log) -> Tail:
    """Read the chunks that a log calls fresh."""
    if not log.fresh:
        return Tail(None, log)
    return Tail(IndexPart(build_part(index_source.documents(store, log.fresh), tokenizer(store))), log)


def vectors_of(store: Store, generation: int, ids: tuple[int, ...]) -> tuple[Array, Meanings] | None:
    """Return the vectors that a generation has of some chunks, ascending by chunk."""
    rows = sorted(index_source.vectors(store, generation, ids))
    if not rows:
        return None
    dimension = len(rows[0][1])
    arrays = build_arrays(lambda: ((at, vector) for at, (_, vector) in enumerate(rows)), len(rows), dimension)
    return np.array([ident for ident, _ in rows], np.int64), Meanings(arrays)
