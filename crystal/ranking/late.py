"""Late interaction: how well each word of the question is met by some word of a text, by the vectors of their tokens.

It sees what a bag of words does not: that "moved abroad" answers "emigrate". It reads texts, so only the best
candidates are looked at. The measure is a weighted mean of each question token's best cosine (MaxSim).

Source: Khattab, Zaharia: ColBERT (SIGIR 2020), here with static token vectors and weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

LATE = 40
"""How many answers are looked at."""
LATE_TOGETHER = 24_000
"""How many characters of all of them: some fifteen full chunks, or forty turns of a chat."""
LATE_CHARACTERS = 4000
"""How much of an answer's text is: a chunk is shorter."""
WEIGHT = 0.8
"""What the words' meaning counts beside the score so far, whose best is 1."""
LENGTH = 0.03
"""A long text meets any word somewhere: so much is taken off for each natural logarithm of its tokens."""
NEIGHBOUR = 0.25
"""What the better of its neighbours among them counts beside the text itself: an answer stands beside its question."""
LITERAL = 0.2
"""What is added when all names of the question (``foo_bar``, ``src/x.py``) stand in the text as they were written."""
NEAR = 0.9
"""Two texts are near-duplicates when so much of all their tokens is in both, and"""
NEAR_TOKENS = 4
"""when they have at least so many."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How a text is like the question: 0 to 1 or so, and the tokens of the text."""

    similarity: float
    tokens: Sequence[int]


def looked_at(lengths: Sequence[int]) -> int:
    """How many of the first texts, of some lengths in characters, are looked at."""
    together = accumulate(min(length, LATE_CHARACTERS) for length in lengths[:LATE])
    return sum(1 for total in together if total <= LATE_TOGETHER)


class LateModel(Protocol):
    """Compares a question with texts token by token."""

    def late(
        self, question: str, texts: Sequence[str], weight_of: Callable[[str], float]
    ) -> list[tuple[float, Sequence[int]]]:
        """For each text the mean of the best cosines of the question's tokens, weighed, and the text's tokens.

        ``weight_of`` tells what a word of the question weighs.
        """

    def tokens(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """The tokens of texts, by which they are told from nearly equal ones."""


def likenesses(
    model: LateModel, question: str, texts: Sequence[str], weight_of: Callable[[str], float]
) -> list[Likeness]:
    """Compare the question with texts; see ``LateModel``."""
    cut = [text[:LATE_CHARACTERS] for text in texts]
    return [Likeness(similarity, tokens) for similarity, tokens in model.late(question, cut, weight_of)]


def late_scores(
    base: Sequence[float],
    like: Sequence[Likeness],
    beside: Sequence[Sequence[int]],
    names: Sequence[str],
    texts: Sequence[str],
) -> list[float]:
    """The scores after late interaction.

    Args:
        base: The scores so far, the best of all answers being 1.
        like: How each text is like the question.
        beside: For each text the places of those that stand just before and after it; what is not there is taken to
            be as the least like one.
        names: Compound words of the question.
        texts: The texts.
    """
    folded = [name.casefold() for name in names]
    least = min((one.similarity for one in like), default=0.0)
    scores = []
    for score, one, around, text in zip(base, like, beside, texts, strict=True):
        near = max((like[at].similarity for at in around), default=least)
        lengthy = LENGTH * math.log(max(1, len(one.tokens)))
        seen = one.similarity + NEIGHBOUR * near - lengthy
        scores.append(score + WEIGHT * seen + LITERAL * _share_of(folded, text))
    return scores


def _share_of(names: Sequence[str], text: str) -> float:
    if not names:
        return 0.0
    folded = text.casefold()
    return sum(name in folded for name in names) / len(names)


def is_near(one: frozenset[int], other: frozenset[int]) -> bool:
    """Whether two texts say nearly the same, by the sets of their tokens."""
    small, large = sorted((len(one), len(other)))
    if small < NEAR_TOKENS or small < NEAR * large:
        return False
    both = len(one & other)
    return both >= NEAR * (small + large - both)
