"""One deep search: the model, its deadlines, and the reasons of failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from crystal.errors import CrystalError, UnavailableError
from crystal.search.deep.asker import Asker
from crystal.search.deep.prompts import (
    EXPANSION_TOKENS,
    MAX_PASSAGES,
    RERANKING_TOKENS,
    expansion_prompt,
    order_in,
    reranking_prompt,
    variants_in,
)

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
        """Return the question and up to four other wordings; the question alone when there is no answer."""
        if not any(character.isalnum() for character in question):
            return (question,)
        failed = "no other wordings"
        answer = self._ask(EXPANSION_SECONDS, expansion_prompt(question, self.now), EXPANSION_TOKENS, failed)
        variants = () if answer is None else variants_in(answer, question)
        if answer is not None and not variants:
            self.reasons.append(f"{failed}: the model's answer holds none")
        return (question, *variants)

    def rerank(self, question: str, passages: Sequence[str]) -> list[int] | None:
        """Return the order of the first twenty passages, those that the answer names first; None when there is none."""
        shown = passages[:MAX_PASSAGES]
        if len(shown) < 2:
            return list(range(len(shown)))
        failed = "not put into order by a model"
        answer = self._ask(RERANKING_SECONDS, reranking_prompt(question, shown), RERANKING_TOKENS, failed)
        if answer is None:
            return None
        order = order_in(answer, len(shown))
        if not order:
            self.reasons.append(f"{failed}: its answer holds no numbers of passages")
            return None
        return order + [at for at in range(len(shown)) if at not in order]

    def _ask(self, seconds: float, prompt: str, most_tokens: int, failed: str) -> str | None:
        """Return the model's answer; None without one, with the reason noted."""
        if self.asker is None or self.is_lost:
            return None
        try:
            return self.asker(seconds).ask(prompt, most_tokens=most_tokens)
        except CrystalError as error:
            self.is_lost = isinstance(error, UnavailableError)
            self.reasons.append(f"{failed}: {error.message}")
            return None
