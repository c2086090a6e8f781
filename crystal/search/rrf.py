"""Reciprocal Rank Fusion: one order out of several engines' orders. Pure.

Each engine votes for its answers with ``sureness / (k + rank)``. Plain Reciprocal Rank Fusion has a sureness of 1
everywhere; then the tenth vague resemblance counts nearly as much as the first word-for-word hit, which cost quality on
every set that was measured (docs/adr/0008-search.md).

Source: Cormack, Clarke, Büttcher: Reciprocal Rank Fusion outperforms Condorcet and individual rank learning methods
(SIGIR 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

RRF_K = 60

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Fused(Generic[Key]):
    """One answer after fusion: its score (higher is better) and its rank in each engine that has it, from 1."""

    key: Key
    score: float
    ranks: dict[str, int]


def fuse(
    lists: Mapping[str, Sequence[tuple[Key, float]]],
    tie: Callable[[Key], tuple[float, ...]],
    *,
    first: Mapping[Key, int] | None = None,
    k: int = RRF_K,
) -> list[Fused[Key]]:
    """Fuse ranked lists: the sums of the engines' votes decide.

    Args:
        lists: Each engine's answers with how sure it is of them (0 to 1), best first, without repeats.
        tie: Decides between equal sums, the smaller first. It must tell all answers apart.
        first: Answers that come before all others, each with what it gets on top: of more, it comes before these too.
        k: How little the first ranks differ.
    """
    ranks: dict[Key, dict[str, int]] = {}
    scores: dict[Key, float] = {}
    for engine, answers in lists.items():
        for rank, (key, sureness) in enumerate(answers, 1):
            ranks.setdefault(key, {})[engine] = rank
            scores[key] = scores.get(key, float(first.get(key, 0) if first else 0)) + sureness / (k + rank)
    order = sorted(scores, key=lambda key: (-scores[key], *tie(key)))
    return [Fused(key, scores[key], ranks[key]) for key in order]


def sureness(scores: Sequence[float], best: float) -> list[float]:
    """Return scores relative to the best one, 0 to 1, none less than one after it; all 1 if there is no scale.

    An engine may have reasons for its order beside its scores (all words before some words): the order is right.
    """
    if best <= 0:
        return [1.0] * len(scores)
    parts = [min(1.0, max(0.0, score / best)) for score in scores]
    return list(accumulate(reversed(parts), max))[::-1]
