"""The index as a search uses it: one state of the store, in files and in what has come since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crystal.store import Store
from crystal.store.scope import Scope

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Ordinals = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no index to use just now: search the store itself."""

    reason: str


def open_index(store: Store, folder: Path) -> Index | Absent:
    """Open the index as the store's present snapshot lists it. Call it inside ``store.reading()``."""
    raise NotImplementedError


class Index:
    """One state of the index. Use it inside the ``store.reading()`` in which it was opened.

    Every method may raise ``Damaged``: search the store itself then, the next refresh makes the files anew.

    Attributes:
        size: How many ordinals there are, 0 to ``size`` - 1; some may be void, which no method ever returns.
        documents: How many documents there are, for the weight of words.
    """

    size: int
    documents: int

    def take(self, name: str, ordinals: Ordinals) -> Array:
        """An attribute of documents.

        id, session, turn, project, start, ts and length are numbers, 0 where there is none (``NO_TIME`` for ts); role,
        source, agent, device, branch and subagent are strings, "" where there is none; prev and next are ordinals of
        the neighbours in the same conversation, -1 where there is none.
        """
        raise NotImplementedError

    def mask(self, scope: Scope) -> Mask | None:
        """Which documents a filter leaves; None for all of them."""
        raise NotImplementedError

    def frequency(self, term: str) -> int:
        """How many documents have a word."""
        raise NotImplementedError

    def beginning(self, prefix: str, most: int) -> list[tuple[str, int]]:
        """The words that begin so, with how many documents have them, most frequent first."""
        raise NotImplementedError

    def scores(self, terms: Sequence[tuple[Sequence[str], float]], mask: Mask | None) -> tuple[Floats, Floats]:
        """BM25 of every document, its own and padded by its neighbours; each term is (alternatives, weight)."""
        raise NotImplementedError

    def has_vectors(self, generation: int) -> bool:
        """Whether every vector of a generation can be found here; if not, search the store itself."""
        raise NotImplementedError

    def nearest(self, generation: int, query: Floats, k: int, mask: Mask | None) -> tuple[Ordinals, Floats]:
        """The documents nearest to a vector, best first, ties by ordinal, with their cosines."""
        raise NotImplementedError

    def cosines(self, generation: int, query: Floats, ordinals: Ordinals) -> Floats:
        """The cosines of documents, nan where there is no vector."""
        raise NotImplementedError
