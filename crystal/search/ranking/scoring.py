"""Score candidates by their words, their neighbours' words, vectors, session, and small preferences.

Preferences only decide between answers of nearly the same score: messages of the user, the time that a question names,
and (if the user chooses) recency. An old answer that matches better still comes first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crystal.search.index.array_types import Floats, Ints
from crystal.search.index.attributes import NO_TIME, within
from crystal.search.ranking.pool import PADDED, Pool
from crystal.search.request import SearchRequest

RRF_K = 60
"""Constant of reciprocal rank fusion: the larger it is, the less the first ranks differ."""

RECENCY: dict[str, float] = {"off": 0.0, "light": 0.01, "strong": 0.1}
"""Bonus of the newest answers over old ones, as a share of the score."""
RECENT_MS = 30 * 86_400_000
"""Age at which the bonus for recency has fallen to about a third (1/e)."""

SESSION = 1.0
"""Bonus for each chunk of the best session; the best chunk's own words count 1."""
SESSION_TURNS = 5
"""Number of a session's best turns whose sum is its score."""
USER = 0.05
"""Bonus for messages of the user, as a share of the score."""
IN_TIME = 0.2
"""Bonus for texts within a requested time, as a share of the score."""


def base_scores(pool: Pool, request: SearchRequest, spans: Sequence[tuple[int, int]]) -> Floats:
    """Score the candidates; higher is better, and above zero. ``spans`` are the times that the question names."""
    fused = _rrf(pool) if request.how.fusion == "rrf" else _weighted(pool)
    return np.asarray(fused * preference(pool, request, spans), np.float32)


def _weighted(pool: Pool) -> Floats:
    """Sum the engines' scores, each relative to the best one, and add the session's score."""
    total = pool.cosine.copy()
    if pool.best_own > 0:
        total += pool.own / np.float32(pool.best_own)
    if pool.best_padded > 0:
        total += pool.padded * np.float32(PADDED / pool.best_padded)
    return np.asarray(total + np.float32(SESSION) * session_scores(pool, total), np.float32)


def _rrf(pool: Pool) -> Floats:
    """Fuse the ranks by words and by meaning: Reciprocal Rank Fusion with k = 60."""
    total = np.zeros(len(pool), np.float32)
    for scores in (pool.own, pool.cosine):
        ranks = rank_numbers(scores)
        total += np.where(ranks > 0, 1.0 / (RRF_K + ranks), 0.0).astype(np.float32)
    return np.asarray(total + np.float32(1e-6 / max(pool.best_padded, 1e-9)) * pool.padded, np.float32)


def session_scores(pool: Pool, scores: Floats) -> Floats:
    """Return for each candidate the sum of its session's best turns, relative to the best session's."""
    if not len(pool):
        return scores
    units = _units(pool)
    best_of_turn = np.lexsort((-scores, units))
    keys = units[best_of_turn]
    first = best_of_turn[np.concatenate([[True], keys[1:] != keys[:-1]])]  # the best chunk of each turn
    order = first[np.lexsort((-scores[first], pool.session[first]))]
    session = pool.session[order]
    begins = np.flatnonzero(np.concatenate([[True], session[1:] != session[:-1]]))
    place = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    counted = np.where(place < SESSION_TURNS, scores[order], np.float32(0))
    names = session[begins]
    sums = np.where(names > 1, np.add.reduceat(counted, begins), np.float32(0))  # texts without a session get 0
    best = float(sums.max())
    if best <= 0:
        return np.zeros(len(pool), np.float32)
    return np.asarray(sums[np.searchsorted(names, pool.session)] / np.float32(best), np.float32)


def preference(pool: Pool, request: SearchRequest, spans: Sequence[tuple[int, int]]) -> Floats:
    """Return a factor for each candidate's score, slightly above 1 for preferred ones."""
    factor = 1 + np.float32(USER) * pool.is_user
    if spans:
        factor = factor * (1 + np.float32(IN_TIME) * within(pool.ts, spans))
    share = RECENCY[request.how.recency]
    if share:
        factor = factor * (1 + np.float32(share) * newness(pool.ts, request.now))
    return np.asarray(factor, np.float32)


def newness(ts: Ints, now: int) -> Floats:
    """Return 1 for the present, falling to 0 with age; 0 for rows without a time."""
    age = np.maximum(now - np.where(ts == NO_TIME, 0, ts), 0).astype(np.float64)
    return np.where(ts == NO_TIME, 0.0, np.exp(-age / RECENT_MS)).astype(np.float32)


def rank_numbers(scores: Floats) -> Ints:
    """Return the rank of each candidate by some scores, from 1; ties share the first rank; 0 for a score of 0."""
    return np.where(scores > 0, np.searchsorted(np.sort(-scores), -scores) + 1, 0)


def best_first(pool: Pool, scores: Floats) -> Ints:
    """Return the rows in order: exact identifiers first, then the better, the newer, the later stored one."""
    tier = np.where(pool.exact >= 0, pool.exact, 99)
    return np.lexsort((pool.field, -pool.id, -pool.ts, -scores, tier))


def one_a_turn(pool: Pool, order: Sequence[int] | Ints) -> Ints:
    """Return the best row of each turn, in order; a chunk that belongs to no turn stands for itself."""
    rows = np.asarray(order, np.int64)
    _, first = np.unique(_units(pool)[rows], return_index=True)
    return rows[np.sort(first)]


def _units(pool: Pool) -> Ints:
    """Return the answer that each row belongs to: a number for each turn, and for each chunk without a turn."""
    return np.where(pool.turn > 1, pool.turn, -2 * pool.id - pool.field - 2)
