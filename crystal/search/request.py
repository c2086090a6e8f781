"""Define the request and the result of a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from datetime import tzinfo
from typing import TYPE_CHECKING, Literal, get_args

from crystal.errors import UsageError
from crystal.model.capture import MIRROR_IDS, Fusion, Memory, Recency
from crystal.model.quick_dataclass import dataclass
from crystal.model.recall import Filters, Hit
from crystal.store import Store

if TYPE_CHECKING:
    from crystal.embedding.embedder import Embedder
    from crystal.embedding.late import TokenComparer
    from crystal.search.deep import Deep

Mode = Literal["hybrid", "keywords", "vectors"]

MAX_LIMIT = 1_000
SURROUNDED = 100
MAX_WORDINGS = 5
"""Maximum number of wordings of a question; each takes the time of a search."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search that the user chooses.

    Attributes:
        recency: How much newer answers are preferred to others with nearly the same score.
        fusion: ``weighted``; ``rrf`` for Reciprocal Rank Fusion with k = 60; ``similarity`` to rank by vectors only,
            with cosines from 0 to 1 as scores and without preferences.
        deep: Asks a model for other wordings and for the order of the best answers; None to ask no model.
        late: Returns the comparer for late interaction; None to leave that out.
        tz: The time zone for time words; None for the machine's.

    Raises:
        UsageError: A value is not valid, or two exclude each other.
    """

    recency: Recency = "light"
    fusion: Fusion = "weighted"
    deep: Deep | None = None
    late: Callable[[], TokenComparer] | None = None
    tz: tzinfo | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        for name, value, known in (("recency", self.recency, Recency), ("fusion", self.fusion, Fusion)):
            if value not in get_args(known):
                raise UsageError(f"{name} is {value!r}", hint=f"use {', '.join(get_args(known))}")
        if self.deep is not None and self.fusion == "similarity":
            raise UsageError(
                "a deep search cannot be combined with the fusion similarity", hint="with --deep: --fusion weighted"
            )


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A question and everything that shapes its answer.

    Attributes:
        query: Any string. Words in quotation marks must be in a row in an answer, if any text has them so.
        now: Reference time for time words, freshness and recency, ms.
        limit: Maximum number of hits, 1 to 1,000.
        filters: The filters.
        how: The user's options.
        wordings: Other wordings of the question, each searched too; answers that several find come first.
        enough: Number of hits at which the search for more ends if copies of few texts fill the list.
        verbatim: If the question is an identifier, return only texts with it, if there are any.
        surrounded: Number of hits that get their neighbouring turns.

    Raises:
        UsageError: ``limit`` is out of range, or there are too many wordings.
    """

    query: str
    now: int
    limit: int = 10
    filters: Filters = field(default_factory=Filters)
    how: SearchOptions = field(default_factory=SearchOptions)
    wordings: tuple[str, ...] = ()
    enough: int = MAX_LIMIT
    verbatim: bool = False
    surrounded: int = SURROUNDED

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 1 <= self.limit <= MAX_LIMIT:
            raise UsageError(f"the number of hits is {self.limit}", hint=f"use 1 to {MAX_LIMIT}")
        if len(self.wordings) >= MAX_WORDINGS:
            raise UsageError(f"the question has {1 + len(self.wordings)} wordings", hint=f"use 1 to {MAX_WORDINGS}")


@dataclass(frozen=True, slots=True)
class MemorySource:
    """One memory that is searched.

    Attributes:
        store: The store, open for reading.
        memory: Name of the memory.
        embedder: Turns questions into vectors of the store's model; None to search by keywords only.
        without_embedder: Why ``embedder`` is None, for a note.
        notes: Notes about this memory, shown with every result.
    """

    store: Store
    memory: Memory = "local"
    embedder: Embedder | None = None
    without_embedder: str = "no embedding model is configured"
    notes: tuple[str, ...] = ()

    def public_id(self, chunk: int) -> int:
        """Return the id of a chunk that the user sees."""
        return chunk + MIRROR_IDS if self.memory == "mirror" else chunk


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to a question.

    Attributes:
        query: The question, as valid Unicode.
        mode: The engines that answered; ``keywords`` if vectors or a model for the question are missing.
        hits: The hits, best first.
        notes: Notes for the user: what is missing, what was relaxed, why nothing was found.
        explained: Explanation of the result, for ``--explain``.
    """

    query: str
    mode: Mode
    hits: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()
