"""Late interaction: compare each token of the question with the nearest token of a text, by token vectors.

It finds similarities that a bag of words misses: that "moved abroad" answers "emigrate". It reads texts, so it is
applied to the best candidates only. The measure is a weighted mean of each question token's best cosine (MaxSim).

Source: Khattab, Zaharia: ColBERT (SIGIR 2020), here with static token vectors and weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice, takewhile
from typing import TYPE_CHECKING

from crystal.model.quick_dataclass import dataclass

if TYPE_CHECKING:
    from crystal.embedding.late import Comparer, Likeness


LATE_TOGETHER = 24_000
"""Maximum characters of all answers that are compared: some fifteen full chunks, or forty turns of a chat."""
LATE_CHARACTERS = 4000
"""Maximum characters of one answer's text; a chunk is shorter."""
NEAR = 0.9
"""Minimum share of all tokens of two near-duplicates that is in both;"""
NEAR_TOKENS = 4
"""and minimum number of their tokens."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of late interaction, added to a score whose maximum is 1. Measured in docs/adr/0018-ranking.md.

    Attributes:
        most: Maximum number of answers that are compared.
        meaning: Weight of the whole comparison.
        neighbour: Within it, weight of the better of the neighbouring answers, because an answer follows its question.
        together: Within it, weight of how well the text and its neighbours together match the question.
        length: Within it, penalty for the natural logarithm of the number of tokens, because a long text matches any
            word somewhere.
        session: Weight of the session's score, which is added again.
        literal: Bonus if all names of the question (``foo_bar``, ``src/x.py``) are in the text as written.
        in_order: Number of answers that keep their order before sessions are mixed.
    """

    most: int
    meaning: float
    neighbour: float
    together: float
    length: float
    session: float
    literal: float
    in_order: int


BY_TABLE = Weights(
    most=40, meaning=0.8, neighbour=0.25, together=0.0, length=0.03, session=0.0, literal=0.2, in_order=0
)
BY_CONTEXT = Weights(
    most=50, meaning=1.4, neighbour=0.3, together=0.8, length=0.02, session=0.4, literal=0.3, in_order=5
)
"""Weights for token vectors that depend on the surrounding words, which are more precise."""


def weights_of(model: Comparer | None) -> Weights:
    """Return the weights that fit a model."""
    return BY_CONTEXT if model is not None and model.knows_context else BY_TABLE


def looked_at(lengths: Iterable[int], most: int) -> int:
    """Return how many of the first texts, given their lengths in characters, are compared; at most ``most``."""
    together = accumulate(min(length, LATE_CHARACTERS) for length in islice(lengths, most))
    return sum(1 for _ in takewhile(LATE_TOGETHER.__ge__, together))


def late_scores(
    base: Sequence[float],
    sessions: Sequence[float],
    like: Sequence[Likeness],
    beside: Sequence[Sequence[int]],
    names: Sequence[str],
    texts: Sequence[str],
    weights: Weights,
) -> list[float]:
    """Return the scores after late interaction.

    Args:
        base: The scores so far; the maximum of all answers is 1.
        sessions: The score of each answer's session; the maximum is 1.
        like: The similarity of each text to the question.
        beside: For each text the indexes of its direct neighbours; a missing neighbour counts as the least similar.
        names: Compound words of the question.
        texts: The texts.
        weights: The weights.
    """
    folded = [name.casefold() for name in names]
    least = min((one.similarity for one in like), default=0.0)
    scores = []
    for score, session, one, around, text in zip(base, sessions, like, beside, texts, strict=True):
        near = max((like[at].similarity for at in around), default=least)
        lengthy = weights.length * math.log(max(1, len(one.tokens)))
        seen = one.similarity + weights.neighbour * near + weights.together * one.together - lengthy
        named = weights.literal * sum(name in text.casefold() for name in folded) / max(1, len(folded))
        scores.append(score + weights.meaning * seen + weights.session * session + named)
    return scores


def is_near(one: frozenset[int], other: frozenset[int]) -> bool:
    """Return True if two texts are near-duplicates, by the sets of their tokens."""
    small, large = len(one), len(other)
    if small > large:
        small, large = large, small
    if small < NEAR_TOKENS or small < NEAR * large:
        return False
    both = len(one & other)
    return both >= NEAR * (small + large - both)
