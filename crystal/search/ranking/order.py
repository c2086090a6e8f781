"""The order of the answers, by the index: candidates, their scores, late interaction, and the list that is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from crystal.search.candidates import QuestionVector, Ranked, exact_chunks, naming_chunks
from crystal.search.index.reader import Index
from crystal.search.index.terms import query_terms
from crystal.search.ranking.late import LateModel, is_near, late_scores, likenesses, looked_at, weights_of
from crystal.search.ranking.listing import collapsed, mixed
from crystal.search.ranking.pool import Field, Floats, Pool, WeightedTerm, frequency, pool_of, rarity, sought_words
from crystal.search.ranking.scoring import (
    Preferences,
    base_scores,
    best_first,
    one_a_turn,
    rank_numbers,
    session_scores,
)
from crystal.search.results import MemorySource, Order, Proposal, Ref, Unit, unit_of
from crystal.search.rrf import Fused
from crystal.store import Store
from crystal.store.search.candidates import Candidate, candidates
from crystal.store.search.scope import Scope
from crystal.store.search.words import tokenizer
from crystal.text.query import Query, completions, in_short

EXACT = 10.0
"""What is added to the score of an answer that has the very thing looked for; less for each tier below."""
MAX_NAMED = 1000
"""A name of the question that as many chunks have is no better than its words."""
MIN_LENGTH = 3
"""So many letters of a word are enough for a beginning."""
MAX_CANDIDATES = 100_000
"""Where looking for more answers ends when copies of few texts fill the list."""
OTHER_WORDS = 0.4
"""What a word counts that only another wording of the question has."""


@dataclass(frozen=True, slots=True)
class Place:
    """One memory that is asked: its index, what may be returned of it, and the question as a vector of its model."""

    side: MemorySource
    scope: Scope
    narrowed: Scope
    index: Index
    vector: QuestionVector
    space: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: the question taken apart, how many answers, and what is preferred.

    ``wordings`` are other ways to put the question; ``reorder`` may put the best answers into another order: it is
    given the question and texts, and gives places in their list, or None.
    """

    text: str
    asked: Query
    limit: int
    preferences: Preferences
    wordings: tuple[str, ...] = ()
    reorder: Callable[[str, Sequence[str]], Sequence[int] | None] | None = None


@dataclass(slots=True)
class Answer:
    """One answer on its way: the chunk that stands for it, its score, and what it was given."""

    unit: Unit
    ref: Ref
    row: int
    one: Candidate
    score: float
    tokens: frozenset[int] = frozenset()
    scores: dict[str, float] = field(default_factory=dict)


def ranked_order(places: Sequence[Place], wanted: Wanted, model: LateModel | None) -> tuple[Order, tuple[str, ...]]:
    """Order the answers of one or two memories; give also what the reader should know of the words.

    Raises:
        IndexDamaged: Search the stores themselves.
    """
    asked = wanted.asked
    words, begun, stems = _words(places, wanted)
    exact = [exact_chunks(place.side.store, asked, place.narrowed, 4 * wanted.limit) for place in places]
    fields = [_field(place, found, _named(place, wanted)) for place, found in zip(places, exact, strict=True)]
    weight_of = word_weights(places[0].side.store, [place.index for place in places])
    weights = weights_of(model)
    depth, most = 4 * wanted.limit, max(2 * weights.most, 3 * wanted.limit)
    while True:
        # An identifier is there or not: nothing is near to it in meaning.
        pool = pool_of(fields, words, wanted.preferences.spans, depth, by_meaning=asked.has_meaning)
        answers = _answers(places, pool, base_scores(pool, wanted.preferences), most)
        _score(answers, fields, pool, wanted, model, weight_of)
        kept = collapsed(answers, lambda one: (one.one.role, one.one.text_sha256), _nearly_same, weights.most)
        has_all = len(pool) < depth and len(answers) < most
        if len(kept) >= wanted.limit or has_all or depth > MAX_CANDIDATES:
            break
        depth, most = 8 * depth, 8 * most  # copies of few texts, or turns of many chunks, fill the list
    order = [one for one, _ in kept]
    if all(place.scope.session is None for place in places):
        order = mixed(order, lambda one: one.one.session_id, weights.in_order)
    _reorder(order, wanted)
    similar = {one.unit: len(others) for one, others in kept}
    return _order_of(places, pool, order, similar), _notes(
        asked, stems, begun, is_exact=any(exact), has_words=bool((pool.own > 0).any())
    )


def _score(
    answers: list[Answer],
    fields: Sequence[Field],
    pool: Pool,
    wanted: Wanted,
    model: LateModel | None,
    weight_of: Callable[[str], float],
) -> None:
    """Score answers by their texts, what has the very thing looked for before all others, and put them in order."""
    best = max((one.score for one in answers), default=1.0) or 1.0
    for one in answers:
        one.score /= best
    _look_closer(answers, fields, pool, wanted, model, weight_of)
    for one in answers:
        tier = int(pool.exact[one.row])
        one.score += EXACT - tier if tier >= 0 else 0.0
    answers.sort(key=lambda one: (-one.score, *_by_time(one)))


def _words(places: Sequence[Place], wanted: Wanted) -> tuple[list[WeightedTerm], list[str], list[str]]:
    indexes = [place.index for place in places]
    store = places[0].side.store
    asked = wanted.asked
    stems = query_terms(store, " ".join((*asked.phrases, *asked.terms)))
    stems += [stem for name in asked.compounds for stem in query_terms(store, name) if stem not in stems]
    tokenize = tokenizer(store)
    # The beginning of a word may look like an English ending, and lose too much: ``res`` becomes ``re``.
    short = [term.lower() for term in asked.terms if term.isascii() and len(term) == MIN_LENGTH]
    stems += [term for term in short if term not in stems and len("".join(tokenize(term))) < MIN_LENGTH]
    words, begun = sought_words(indexes, stems, lambda word: tokenize(" ".join(completions(word))))
    for wording in wanted.wordings:
        more = [stem for stem in query_terms(store, wording) if stem not in stems]
        words += [WeightedTerm(word.stems, OTHER_WORDS * word.weight) for word in sought_words(indexes, more)[0]]
    return words, begun, stems


def word_weights(store: Store, indexes: Sequence[Index]) -> Callable[[str], float]:
    """Return the weight function of question words in late interaction: rarity, averaged over a word's stems."""
    documents = sum(index.documents for index in indexes)

    @cache
    def weight_of(word: str) -> float:
        counts = [frequency(indexes, stem) for stem in query_terms(store, word)]
        return sum(rarity(count, documents) for count in counts) / max(1, len(counts))

    return weight_of


def _named(place: Place, wanted: Wanted) -> dict[int, float]:
    """Return the weight of the question's names for the chunks that have them verbatim: each is one rare word."""
    weights: dict[int, float] = {}
    for name in wanted.asked.names:
        found = naming_chunks(place.side.store, name, place.narrowed, MAX_NAMED)
        weight = rarity(len(found), place.index.documents) if len(found) < MAX_NAMED else 0.0
        for ident in found:
            weights[ident] = weights.get(ident, 0.0) + weight
    return weights


def _field(place: Place, exact: dict[int, int], named: dict[int, float]) -> Field:
    index, vector = place.index, place.vector
    data = np.frombuffer(vector.data, "<f4") if vector.data and index.has_vectors(vector.generation) else None
    return Field(index, index.mask(place.narrowed), vector.generation, data, vector.floor, exact, named)


def _answers(places: Sequence[Place], pool: Pool, scores: Floats, most: int) -> list[Answer]:
    """Return the best answers with their texts; a turn in both memories is one answer, this machine's."""
    rows = one_a_turn(pool, best_first(pool, scores))[:most].tolist()
    refs = {row: (int(pool.field[row]), int(pool.id[row])) for row in rows}
    found: dict[Ref, Candidate] = {}
    for at, place in enumerate(places):
        ids = [ident for where, ident in refs.values() if where == at]
        found.update(((at, ident), one) for ident, one in candidates(place.side.store, ids).items())
    answers: dict[Unit, Answer] = {}
    sessions = session_scores(pool, scores)
    for row in rows:
        ref = refs[row]
        one = found.get(ref)
        if one is None:
            continue
        unit = unit_of(ref, one)
        known = answers.get(unit)
        if known is None:
            named = {"context": float(pool.padded[row]), "session": float(sessions[row])}
            answers[unit] = Answer(unit, ref, row, one, float(scores[row]), scores=named)
        elif known.ref[0] > ref[0]:
            known.ref, known.one, known.row = ref, one, row
    return list(answers.values())


def _beside(answers: Sequence[Answer], fields: Sequence[Field], pool: Pool) -> list[list[int]]:
    """Return for each answer the indexes of its direct neighbours in the conversation."""
    places = {(int(pool.field[one.row]), int(pool.ordinal[one.row])): at for at, one in enumerate(answers)}
    found: list[list[int]] = [[] for _ in answers]
    for name in ("prev", "next"):
        for number, one_field in enumerate(fields):
            here = [(ordinal, at) for (where, ordinal), at in places.items() if where == number]
            others = one_field.index.take(name, np.array([ordinal for ordinal, _ in here], np.int64)).tolist()
            for (_, at), other in zip(here, others, strict=True):
                if (number, other) in places:
                    found[at].append(places[number, other])
    return found


def _look_closer(
    answers: list[Answer],
    fields: Sequence[Field],
    pool: Pool,
    wanted: Wanted,
    model: LateModel | None,
    weight_of: Callable[[str], float],
) -> None:
    """Rescore the best answers by their texts; all others come behind them."""
    weights = weights_of(model)
    seen = looked_at([len(one.one.text) for one in answers], weights.most)
    near, far = answers[:seen], answers[seen:]
    if model is not None and near:
        texts = [one.one.text for one in near]
        beside = _beside(near, fields, pool)
        like = likenesses(model, wanted.asked.text, texts, weight_of, beside)
        base, sessions = [one.score for one in near], [one.scores["session"] for one in near]
        scores = late_scores(base, sessions, like, beside, wanted.asked.compounds, texts, weights)
        lowest = min(scores)
        shift = 0.01 - lowest if lowest < 0.01 else 0.0  # a score is above zero, and says nothing but the order
        for one, score, found in zip(near, scores, like, strict=True):
            one.score, one.tokens = score + shift, frozenset(found.tokens)
            one.scores["late"] = found.similarity
        behind = (lowest + shift) / max((one.score for one in far), default=1.0)
        for one in far:
            one.score *= min(1.0, behind) * 0.999


def _nearly_same(one: Answer, other: Answer) -> bool:
    return one.one.role == other.one.role and is_near(one.tokens, other.tokens)


def _by_time(one: Answer) -> tuple[float, ...]:
    ts = one.one.ts
    return (float("inf") if ts is None else -ts, -one.ref[1], one.ref[0])


def _reorder(order: list[Answer], wanted: Wanted) -> None:
    """Let a model put the best answers into order, if one was asked to."""
    if wanted.reorder is None:
        return
    places = wanted.reorder(wanted.text, [one.one.text for one in order])
    if places is None:
        return
    scores = sorted((order[at].score for at in places), reverse=True)
    moved = [order[at] for at in places]
    order[: len(moved)] = moved
    for place, (one, score) in enumerate(zip(moved, scores, strict=True), 1):
        one.score = score
        one.scores["model"] = float(place)


def _order_of(places: Sequence[Place], pool: Pool, answers: Sequence[Answer], similar: dict[Unit, int]) -> Order:
    engines = {"keywords": pool.own, "context": pool.padded, "vectors": pool.cosine}
    ranks = {name: rank_numbers(scores) for name, scores in engines.items()}
    fused = []
    for one in answers:
        of_one = {name: int(numbers[one.row]) for name, numbers in ranks.items() if numbers[one.row]}
        if pool.exact[one.row] >= 0:
            of_one["exact"] = int(pool.exact[one.row]) + 1
        fused.append(Fused(one.unit, one.score, of_one))
    proposals = [
        Proposal(place.side, place.scope, _ranked(pool, at, pool.own), _ranked(pool, at, pool.cosine), place.space)
        for at, place in enumerate(places)
    ]
    return Order(
        proposals, fused, {one.unit: one.ref for one in answers}, {one.ref: one.one for one in answers},
        {one.unit: one.scores for one in answers}, similar,
    )  # fmt: skip


def _ranked(pool: Pool, at: int, scores: np.ndarray[Any, np.dtype[np.float32]]) -> Ranked:
    rows = np.flatnonzero((pool.field == at) & (scores > 0))
    return Ranked(dict(zip(pool.id[rows].tolist(), scores[rows].tolist(), strict=True)))


def _notes(asked: Query, stems: list[str], begun: list[str], *, is_exact: bool, has_words: bool) -> tuple[str, ...]:
    if asked.is_literal and not is_exact:
        return (f"nothing has {in_short(asked.compounds[0])} itself; these have parts of it",) if has_words else ()
    if begun and len(begun) == len(set(stems)) and has_words:
        return ("nothing has these words; some words begin with them",)
    return ()
