"""Request and result of a search."""

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
"""In how many ways a question may be put at once: each takes the time of a search."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search that the user chooses.

    Attributes:
        recency: How much what is new is preferred among answers that are nearly as good.
        fusion: ``weighted``, or ``rrf``: Reciprocal Rank Fusion with k = 60, or ``similarity``: by meaning alone, each
            score a cosine from 0 to 1; then nothing is preferred.
        deep: The model asked for other wordings and for the order of the best answers; None for none.
        late: What compares a question with texts token by token; None leaves that out.
        tz: The zone in which time words are understood; None for the machine's.

    Raises:
        UsageError: A value that is no choice, or two that exclude each other.
    """

    recency: Recency = "light"
    fusion: Fusion = "weighted"
    deep: Deep | None = None
    late: Callable[[], TokenComparer] | None = None
    tz: tzinfo | None = None

    def __post_init__(self) -> None:
        """Refuse what is no choice."""
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
        query: Any string. Words in quotation marks must stand together in an answer if anything has them.
        now: The moment from which the question is asked, for time words, freshness and recency; ms.
        limit: How many hits at most, 1 to 1,000.
        filters: What may be returned.
        how: The user's choices.
        wordings: Other ways to put the question, each searched like it; an answer that several find comes first.
        enough: So many hits are enough where copies of few texts fill the list: nothing deeper is looked at for more.
        verbatim: If the question is an identifier, only texts that have it are found, if there are any.
        surrounded: So many hits get what was said around them.

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
        """Refuse what is out of range."""
        if not 1 <= self.limit <= MAX_LIMIT:
            raise UsageError(f"the number of hits is {self.limit}", hint=f"use 1 to {MAX_LIMIT}")
        if len(self.wordings) >= MAX_WORDINGS:
            raise UsageError(f"the question has {1 + len(self.wordings)} wordings", hint=f"use 1 to {MAX_WORDINGS}")


@dataclass(frozen=True, slots=True)
class MemorySource:
    """One memory that is searched.

    Attributes:
        store: Open for reading.
        memory: Which one it is.
        embedder: Turns questions into vectors of the store's model; None searches keywords alone.
        without_embedder: Why ``embedder`` is None, for the note that says so.
        notes: What the reader should know of this memory, whatever is found.
    """

    store: Store
    memory: Memory = "local"
    embedder: Embedder | None = None
    without_embedder: str = "no embedding model is configured"
    notes: tuple[str, ...] = ()

    def public_id(self, chunk: int) -> int:
        """Return a chunk's id as the user sees it."""
        return chunk + MIRROR_IDS if self.memory == "mirror" else chunk


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to a question.

    Attributes:
        query: The question, as valid Unicode.
        mode: Which engines answered. ``keywords`` while there are no vectors or no model to ask them with.
        hits: Best first.
        notes: What the reader should know: what is missing, what was relaxed, why nothing was found.
        explained: How the answer came about, for ``--explain``.
    """

    query: str
    mode: Mode
    hits: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()
