"""A store with chunks in it, and embedders that cost nothing: for the tests of embedding and of what stands on it."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from crystal.store import Store
from crystal.store.search import vectors
from crystal.store.texts import text_hash
from crystal.store.vector_bytes import rounded

NOW = 1_790_000_000_000


def open_store(folder: Path) -> Store:
    return Store.open(folder / "crystal.db")


def add_chunk(store: Store, text: str, *, ts: int = NOW, role: str = "user") -> int:
    ident = store.value(
        "INSERT INTO chunks (start, body, text_sha256, source, role, agent, device, ts)"
        " VALUES (0, ?, ?, 'conversation', ?, 'cc-test', 'test', ?) RETURNING id",
        (text, text_hash(text), role, ts),
    )
    return int(ident)


def unit(*numbers: float) -> bytes:
    length = math.sqrt(sum(number * number for number in numbers))
    return array("f", [number / length for number in numbers]).tobytes()


class Dice:
    """The trivial embedder: a text's vector is drawn from its hash. ``fail`` may raise before a batch is answered."""

    provider = "dice"

    def __init__(
        self, model: str = "d8", dimension: int = 8, fail: Callable[[Sequence[str]], None] | None = None
    ) -> None:
        self.model, self.dimension, self.identity = model, dimension, f"dice {model}"
        self.fail = fail
        self.asked: list[list[str]] = []
        self.tokens = 0

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        self.asked.append(list(texts))
        if self.fail:
            self.fail(texts)
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> bytes:
        draw = random.Random(f"{self.model} {text}")
        return unit(*(draw.gauss(0, 1) for _ in range(self.dimension)))

    def take_tokens(self) -> int:
        taken, self.tokens = self.tokens, 0
        return taken

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.asked for text in batch]


def vectors_by_chunk(store: Store, generation: int) -> dict[int, bytes]:
    """The vectors as they are stored."""
    return dict(store.rows(f"SELECT rowid, embedding FROM chunks_vec_{generation}"))


def stored(vector: bytes) -> bytes:
    """A vector as it is stored."""
    return rounded([vector], len(vector) // 4)[0]


class VectorCounts(NamedTuple):
    """The progress of one generation: chunks that have a vector, that wait for one, and that get none."""

    stored: int
    pending: int
    refused: int


def vector_counts(store: Store, generation: int) -> VectorCounts:
    table = f"{vectors.table_of(generation)}_rowids"
    return VectorCounts(
        stored=store.value(f"SELECT count(*) FROM {table}"),
        pending=vectors.count_pending(store, generation),
        refused=len(vectors.refused_chunks(store, generation)),
    )
