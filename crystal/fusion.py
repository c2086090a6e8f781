"""Reciprocal Rank Fusion: one order out of several engines' orders. Pure.

Source: Cormack, Clarke, Büttcher: Reciprocal Rank Fusion outperforms Condorcet and individual rank learning methods
(SIGIR 2009). What was measured here: docs/adr/0008-search.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
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
    lists: Mapping[str, Sequence[Key]],
    weights: Mapping[str, float],
    tie: Callable[[Key], tuple[float, ...]],
    *,
    first: frozenset[Key] = frozenset(),
    k: int = RRF_K,
) -> list[Fused[Key]]:
    """Fuse ranked lists: each adds ``weight / (k + rank)`` to its answers, and the sums decide.

    Args:
        lists: Each engine's answers, best first, without repeats.
        weights: What each engine counts; 1 when it is not named.
        tie: Decides between equal sums, the smaller first. It must tell all answers apart.
        first: Answers that come before all others, in the order of their sums; they get 1 on top.
        k: How little the first ranks differ.
    """
    ranks: dict[Key, dict[str, int]] = {}
    scores: dict[Key, float] = {}
    for engine, keys in lists.items():
        weight = weights.get(engine, 1.0)
        for rank, key in enumerate(keys, 1):
            ranks.setdefault(key, {})[engine] = rank
            scores[key] = scores.get(key, float(key in first)) + weight / (k + rank)
    order = sorted(scores, key=lambda key: (-scores[key], *tie(key)))
    return [Fused(key, scores[key], ranks[key]) for key in order]
