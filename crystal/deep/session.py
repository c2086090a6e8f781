"""One deep search: who is asked, how long is waited, and why nothing came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from crystal.deep.asker import Asker
from crystal.deep.expansion import expand
from crystal.deep.reranking import rerank

EXPANSION_SECONDS = 8.0
RERANKING_SECONDS = 12.0


@dataclass(slots=True)
class Deep:
    """What a search asks a model, if it may ask one.

    Attributes:
        asker: Gives who is asked, with so many seconds for it; None when nobody is.
        now: The time, ms.
        reasons: Why a step was done without a model, for ``--explain``.
    """

    asker: Callable[[float], Asker] | None
    now: int
    reasons: list[str] = field(default_factory=list)

    def expand(self, question: str) -> tuple[str, ...]:
        """See ``crystal.deep.expand``; at most eight seconds."""
        if self.asker is None:
            return (question,)
        return expand(self.asker(EXPANSION_SECONDS), question, now=self.now, note=self.reasons.append)

    def rerank(self, question: str, passages: Sequence[str]) -> list[int] | None:
        """See ``crystal.deep.rerank``; at most twelve seconds."""
        if self.asker is None:
            return None
        return rerank(self.asker(RERANKING_SECONDS), question, passages, note=self.reasons.append)
