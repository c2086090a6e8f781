"""The ways to answer a question, side by side: crystal, the plain way, brute force.

Each is opened once and asked many times. ``answer`` gives the ids of the ten best; ``nearest`` the ten nearest vectors.
"""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
from search_questions import Question
from search_stores import MODEL, PROVIDER, Place, plain_connection
from search_text import END

from crystal.embedding.chosen_embedder import make_embedder
from crystal.embedding.late import TokenComparer
from crystal.embedding.static import static_model
from crystal.model.recall import Filters
from crystal.search.candidates import QuestionVector
from crystal.search.engine import search
from crystal.search.index import folder_of
from crystal.search.index.open_index import Absent, open_index
from crystal.search.request import MemorySource, SearchOptions, SearchRequest
from crystal.store import Store
from crystal.store.search import vectors

TOP = 10
DEPTH = 50
CRYSTAL_DEPTH = 64


class Prepared:
    """An embedder that has the vector of the one question that is asked, and takes the time of the embedded model.

    Attributes:
        taken: The seconds that the model took for the last question.
    """

    provider, model, identity = PROVIDER, MODEL, "benchmark"

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.vector = b""
        self.taken = 0.0
        self._model = make_embedder("embedded")

    def embed_query(self, text: str) -> bytes:
        start = time.perf_counter()
        self._model.embed_query(text)
        self.taken = time.perf_counter() - start
        return self.vector

    def embed_documents(self, texts: Any) -> list[bytes]:
        return [self.vector for _ in texts]

    def take_tokens(self) -> int:
        return 0


class Crystal:
    """crystal, by its public function."""

    def __init__(self, place: Place) -> None:
        self.store = Store.open_existing(place.crystal)
        self.embedder = Prepared(place.dimension)
        self.how = SearchOptions(late=lambda: TokenComparer(static_model()))  # as every door asks

    def answer(self, question: Question) -> list[int]:
        self.embedder.vector = question.vector
        request = SearchRequest(question.text, END, TOP, question.crystal_filters or Filters(), self.how)
        found = search([MemorySource(self.store, embedder=self.embedder)], request)
        return [hit.id for hit in found.hits]

    def nearest(self, question: Question) -> list[int]:
        self.embedder.vector = question.vector
        return nearest_by_crystal(self.store, self.embedder, question)

    def close(self) -> None:
        self.store.close()


def nearest_by_crystal(store: Store, embedder: Prepared, question: Question) -> list[int]:
    """The ten nearest, as the search asks for its candidates. The one place that knows how that is done."""
    with store.reading():
        asked = QuestionVector.of(store, embedder, "", question.text, {})
        index = open_index(store, folder_of(store.path))
        if isinstance(index, Absent) or not index.has_vectors(asked.generation):
            return [ident for ident, _ in vectors.nearest(store, asked.generation, asked.data, TOP)]
        near, _ = index.nearest(asked.generation, question.numbers, CRYSTAL_DEPTH)
        return index.take("id", near[:TOP]).tolist()


class Plain:
    """The plain way: one vec0 table of float32 by cosine, FTS5 joined with the chunks and sorted, RRF in Python."""

    def __init__(self, place: Place) -> None:
        self.db = plain_connection(place.plain)

    def answer(self, question: Question) -> list[int]:
        where, values = _plain_filter(question.filters)
        near = self._near(question, DEPTH)
        marks = ", ".join("?" * len(near))
        rows = self.db.execute(
            f"SELECT c.id, c.text, c.role, c.session, c.created_at FROM chunks c WHERE c.id IN ({marks}){where}",
            (*near, *values),
        )
        kept = {row[0] for row in rows}
        said = self.db.execute(
            "SELECT c.id, c.text, c.role, c.session, c.created_at, f.rank FROM chunks_fts f JOIN chunks c"
            f" ON c.id = f.rowid WHERE chunks_fts MATCH ?{where} ORDER BY f.rank LIMIT ?",
            (_plain_expression(question), *values, DEPTH),
        )
        scores: dict[int, float] = {}
        for ranked in ([ident for ident in near if ident in kept], [row[0] for row in said]):
            for rank, ident in enumerate(ranked):
                scores[ident] = scores.get(ident, 0.0) + 1 / (60 + rank + 1)
        return sorted(scores, key=lambda ident: -scores[ident])[:TOP]

    def nearest(self, question: Question) -> list[int]:
        return self._near(question, TOP)

    def _near(self, question: Question, count: int) -> list[int]:
        rows = self.db.execute(
            "SELECT chunk_id, distance FROM chunks_vec WHERE embedding MATCH ? AND k = ?", (question.vector, count)
        )
        return [ident for ident, _ in sorted(rows, key=lambda row: row[1])]

    def close(self) -> None:
        self.db.close()


def _plain_expression(question: Question) -> str:
    """All words of a question joined by OR; a quoted phrase stays one, the beginning of a word is asked for as such."""
    parts = [f'"{phrase}"' for phrase in re.findall(r'"([^"]+)"', question.text)]
    words = [f'"{word}"' for word in re.sub(r'"[^"]+"', " ", question.text).split()]
    return " OR ".join([*parts, *words]) + (" *" if question.kind == "prefix" else "")


def _plain_filter(filters: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    columns = {"since": "c.created_at >= ?", "before": "c.created_at < ?"}
    parts = [columns.get(name, f"c.{name} = ?") for name in filters]
    return "".join(f" AND {part}" for part in parts), tuple(filters.values())


class BruteForce:
    """All float32 vectors in a memory map, multiplied by NumPy."""

    def __init__(self, place: Place) -> None:
        self.matrix = place.matrix()

    def nearest(self, question: Question) -> list[int]:
        scores = self.matrix @ question.numbers
        best = np.argpartition(-scores, TOP - 1)[:TOP] if len(scores) > TOP else np.arange(len(scores))
        return (best[np.argsort(-scores[best], kind="stable")] + 1).tolist()

    def close(self) -> None:
        del self.matrix
