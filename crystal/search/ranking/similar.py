"""Search by vectors alone: return the chunks nearest to the question, each with its cosine.

Words, sessions, times and late interaction do not change the order, so a score means the same in every search: 1 for a
text equal to the question, 0 for an unrelated one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crystal.search.ranking.late import looked_at, weights_of
from crystal.search.ranking.order import read_answers
from crystal.search.ranking.pool import Field, pool_of
from crystal.search.ranking.shown_list import collapsed
from crystal.search.results import RankedAnswer, SearchedStore, text_lengths

if TYPE_CHECKING:
    from crystal.embedding.late import TokenComparer

MAX_DEPTH = 100_000


def rank_by_similarity(
    places: Sequence[SearchedStore], fields: Sequence[Field], limit: int, model: TokenComparer | None
) -> list[RankedAnswer]:
    """Rank the answers of one or two memories by their cosines; of nearly equal texts only the nearest is returned."""
    compared = weights_of(model).most
    depth = 4 * limit
    while True:
        pool = pool_of(fields, [], [], depth, by_meaning=True)
        answers = read_answers(places, pool, pool.cosine, len(pool))
        answers.sort(key=lambda one: (-one.score, *one.by_time))
        for number, one in enumerate(answers, 1):
            one.score = min(1.0, one.score)
            one.ranks, one.scores = {"vectors": number}, {"vectors": one.score}
        if model is not None:
            near = answers[: looked_at(text_lengths(places, answers), compared)]
            for one, tokens in zip(near, model.tokens([one.text for one in near]), strict=True):
                one.tokens = frozenset(tokens)
        kept = collapsed(answers, compared)
        if len(kept) >= limit or len(pool) < depth or depth > MAX_DEPTH:
            return kept
        depth *= 8  # turns of many chunks, or copies of few texts, fill the list
