"""One deep search: the model, its deadlines, and the reasons of failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from crystal.errors import CrystalError, Unavailable
from crystal.search.deep.asker import Asker
from crystal.search.deep.expansion import expand
from crystal.search.deep.reranking import MAX_PASSAGES, rerank

EXPANSION_SECONDS = 8.0
RERANKING_SECONDS = 12.0


@dataclass(slots=True)
class Deep:
    """What a search asks a model, if it may ask one.

    Attributes:
        asker: Gives who is asked, with so many seconds for it; None when nobody is.
        now: The time, ms.
        reasons: Why a step was done without a model, for ``--explain``.
        is_lost: The model could not be reached, and is not asked again.
    """

    asker: Callable[[float], Asker] | None
    now: int
    reasons: list[str] = field(default_factory=list)
    is_lost: bool = False

    def expand(self, question: str) -> tuple[str, ...]:
        """Run ``crystal.search.deep.expand`` within at most eight seconds."""
        if self.asker is None:
            return (question,)
        asker = _Watched(self.asker(EXPANSION_SECONDS), self)
        return expand(asker, question, now=self.now, note=self.reasons.append)

    def rerank(self, question: str, passages: Sequence[str]) -> list[int] | None:
        """Run ``crystal.search.deep.rerank`` within at most twelve seconds, on the passages that are shown."""
        if self.asker is None or self.is_lost:
            return None
        asker = _Watched(self.asker(RERANKING_SECONDS), self)
        return rerank(asker, question, passages[:MAX_PASSAGES], note=self.reasons.append)


@dataclass(frozen=True, slots=True)
class _Watched:
    """Asks, and records that the model is unavailable."""

    asker: Asker
    deep: Deep

    def ask(self, prompt: str, *, most_tokens: int) -> str:
        """Ask, see ``Asker``; record if the model is unavailable."""
        try:
            return self.asker.ask(prompt, most_tokens=most_tokens)
        except CrystalError as error:
            self.deep.is_lost = isinstance(error, Unavailable)
            raise
