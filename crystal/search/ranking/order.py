"""Rank answers: select candidates, score them, apply late interaction, and return the shown list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from crystal.embedding.late import LiteralComparer
from crystal.model.named_tuple import NamedTuple
from crystal.model.quick_dataclass import dataclass, replace
from crystal.search.index.array_types import Floats, Mask
from crystal.search.index.open_index import Index
from crystal.search.index.terms import query_terms
from crystal.search.ranking.late import LATE_CHARACTERS, late_scores, looked_at, weights_of
from crystal.search.ranking.pool import Field, Pool, WeightedTerm, frequency, pool_of, rarity, sought_words
from crystal.search.ranking.scoring import (
    base_scores,
    best_first,
    one_a_turn,
    rank_numbers,
    session_scores,
)
from crystal.search.ranking.shown_list import collapsed, mixed
from crystal.search.ranking.speakers import PERSON_BONUS, note_speakers, with_speakers
from crystal.search.ranking.verbatim import MAX_READ, exact_chunks, naming_chunks, with_phrases
from crystal.search.request import SearchRequest
from crystal.search.results import RankedAnswer, SearchedStore, Unit, read_chunks, text_lengths
from crystal.store import Store
from crystal.store.search.tokenizer import tokenizer
from crystal.text.query import Query, completions, in_short, without_phrases

if TYPE_CHECKING:
    from crystal.embedding.late import Comparer

EXACT = 10.0
"""Bonus to the score of an exact match; one less for each further tier."""
MAX_NAMED = 1000
"""Number of chunks from which a name in the question counts no more than its words."""
MIN_LENGTH = 3
"""Minimum number of letters of the beginning of a word."""
MAX_CANDIDATES = 100_000
"""Maximum number of candidates that are examined if copies of few texts fill the list."""
OTHER_WORDS = 0.4
"""Weight of a word that occurs only in another wording of the question."""


@dataclass(frozen=True, slots=True)
class RankingRequest:
    """A question to rank for.

    Attributes:
        request: The question as it was asked; ``verbatim`` only if it is an identifier.
        asked: The parsed question.
        spans: The times that it names: start and end, ms.
        wordings: Other wordings of the question.
        reorder: Given the question and the answers, returns the indexes of some answers in a new order, or None.
    """

    request: SearchRequest
    asked: Query
    spans: Sequence[tuple[int, int]]
    wordings: tuple[str, ...]
    reorder: Callable[[str, Sequence[RankedAnswer]], Sequence[int] | None] | None


def fields_of(
    places: Sequence[SearchedStore], indexes: Sequence[Index], asked: Query, limit: int
) -> tuple[list[Field], Query, tuple[str, ...]]:
    """Return the memories prepared for ranking, the question, and notes for the user.

    Only texts with all quoted phrases can be answers; if no text has them, their words are searched for instead.
    """
    said: tuple[str, ...] = ()
    masks = [index.mask(place.scope) for place, index in zip(places, indexes, strict=True)]
    written: list[dict[int, int]] = [{} for _ in places]
    if asked.phrases:
        stems = query_terms(places[0].source.store, " ".join((*asked.phrases, *asked.terms)))
        terms = sought_words(indexes, stems)[0]
        phrased = [
            with_phrases(place.source.store, index, asked.phrases, mask, terms, 4 * limit)
            for place, index, mask in zip(places, indexes, masks, strict=True)
        ]
        if any(mask.any() for mask, _, _ in phrased):
            masks, written = [mask for mask, _, _ in phrased], [exact for _, exact, _ in phrased]
        else:
            words = " and ".join(f'"{in_short(phrase)}"' for phrase in asked.phrases[:3])
            read = f"none of the {MAX_READ:,} best texts" if any(unread for _, _, unread in phrased) else "no text"
            asked, said = without_phrases(asked), (f"{read} contains {words} word for word",)
    return [_field(*one, asked, limit) for one in zip(places, indexes, masks, written, strict=True)], asked, said


def _field(
    place: SearchedStore, index: Index, mask: Mask | None, written: dict[int, int], asked: Query, limit: int
) -> Field:
    store, vector = place.source.store, place.vector
    named: dict[int, float] = {}
    for name in asked.names:
        found = naming_chunks(store, index, name, mask, MAX_NAMED)
        weight = rarity(len(found), index.documents) if len(found) < MAX_NAMED else 0.0
        for ident in found:  # each name is one rare word
            named[ident] = named.get(ident, 0.0) + weight
    exact = written or exact_chunks(store, index, asked, mask, 2 * limit)
    # An identifier occurs in a text or does not: if it does, its meaning adds nothing.
    meant = np.frombuffer(vector.data, "<f4") if vector.data and not (asked.is_literal and exact) else None
    return Field(index, mask, vector.generation, meant, vector.floor, exact, named)


def rank(
    places: Sequence[SearchedStore], fields: Sequence[Field], wanted: RankingRequest, model: Comparer | None
) -> tuple[list[RankedAnswer], tuple[str, ...]]:
    """Return the ranked answers of one or two memories, and notes for the user.

    Raises:
        IndexDamagedError: A file of the index is damaged; rank without the files.
    """
    enough = 1 if wanted.request.verbatim else wanted.request.enough
    said = _words(places[0].source.store, [field.index for field in fields], wanted)
    for some, comparer in _ways(fields, wanted.asked, enough, said, model):
        answers, pool = _best(places, some, wanted, said, comparer)
        if len(answers) >= enough:
            break
    if all(place.scope.session is None for place in places):
        answers = mixed(answers, lambda one: one.chunk.session_id, weights_of(comparer).in_order)
    _reorder(answers, wanted)
    _describe(answers, pool)
    is_exact, has_words = any(field.exact for field in fields), bool((pool.own > 0).any())
    return answers, _notes(wanted.asked, said, is_exact=is_exact, has_words=has_words)


def _ways(
    fields: Sequence[Field], asked: Query, enough: int, said: _Words, model: Comparer | None
) -> Iterator[tuple[Sequence[Field], Comparer | None]]:
    """Yield ways to rank, the fastest first: the memories and a comparer. The next is used if one finds too little."""
    by_words = None if model is None else LiteralComparer()
    exact = sum(len(one.exact) for one in fields) if asked.is_literal else 0
    if exact >= enough:
        yield [replace(one, mask=one.index.having(one.exact)) for one in fields], by_words
    if exact:  # an identifier occurs in a text or does not: if it does, its meaning adds nothing
        yield fields, by_words
        return
    if len(said.begun) == len(set(said.stems)) == 1:  # the beginning of a word has no meaning of its own
        yield [replace(one, vector=None) for one in fields], by_words
    yield fields, model


def _best(
    places: Sequence[SearchedStore],
    fields: Sequence[Field],
    wanted: RankingRequest,
    said: _Words,
    model: Comparer | None,
) -> tuple[list[RankedAnswer], Pool]:
    """Return the best different answers in order, and the pool of candidates."""
    asked, request, weights = wanted.asked, wanted.request, weights_of(model)
    weight_of = word_weights(places[0].source.store, [field.index for field in fields])
    look = None if model is None else _SecondLook(model, places, fields, asked, weight_of)
    depth, most = 4 * request.limit, max(2 * weights.most, 3 * request.limit)
    if request.verbatim:
        depth = most = max(depth + 1, most)  # more than have it
    while True:
        # For an identifier, no other text is close in meaning.
        pool = pool_of(fields, said.words, wanted.spans, depth, by_meaning=asked.has_meaning)
        answers = _scored(places, fields, pool, base_scores(pool, request, wanted.spans), most, look)
        kept = collapsed(answers, weights.most)
        has_all = len(pool) < depth and len(answers) < most
        if len(kept) >= request.enough or has_all or depth > MAX_CANDIDATES:
            return kept, pool
        depth, most = 8 * depth, 8 * most  # copies of few texts, or turns of many chunks, fill the list


def _scored(
    places: Sequence[SearchedStore],
    fields: Sequence[Field],
    pool: Pool,
    scores: Floats,
    most: int,
    look: _SecondLook | None,
) -> list[RankedAnswer]:
    """Return the best answers in order: exact matches first, then by score after late interaction."""
    answers = read_answers(places, pool, scores, most)
    _prefer_persons(answers, fields, pool)
    best, sessions = max((one.score for one in answers), default=1.0) or 1.0, session_scores(pool, scores)
    for one in answers:
        one.score /= best
        one.scores["session"] = float(sessions[one.row])
    if look is not None:
        look.rescore(answers, pool)
    for one in answers:
        tier = int(pool.exact[one.row])
        one.score += EXACT - tier if tier >= 0 else 0.0
    return sorted(answers, key=lambda one: (-one.score, *one.by_time))


def _prefer_persons(answers: list[RankedAnswer], fields: Sequence[Field], pool: Pool) -> None:
    """Record who speaks around each answer, raise answers of a person to an assistant, and sort again."""
    note_speakers(answers, [(fields[int(pool.field[one.row])].index, int(pool.ordinal[one.row])) for one in answers])
    for one in answers:
        if one.chunk.role == "user":
            one.score *= 1 + PERSON_BONUS * one.assisted
    answers.sort(key=lambda one: -one.score)


class _Words(NamedTuple):
    """The words of a question with their weights, their stems, and the stems that only begin other words."""

    words: list[WeightedTerm]
    stems: list[str]
    begun: list[str]


def _words(store: Store, indexes: Sequence[Index], wanted: RankingRequest) -> _Words:
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
    return _Words(words, stems, begun)


def word_weights(store: Store, indexes: Sequence[Index]) -> Callable[[str], float]:
    """Return the weight function of question words in late interaction: the mean rarity of a word's stems."""
    documents = sum(index.documents for index in indexes)

    @cache
    def weight_of(word: str) -> float:
        counts = [frequency(indexes, stem) for stem in query_terms(store, word)]
        return sum(rarity(count, documents) for count in counts) / max(1, len(counts))

    return weight_of


def read_answers(places: Sequence[SearchedStore], pool: Pool, scores: Floats, most: int) -> list[RankedAnswer]:
    """Return the best answers without their texts; a turn in both memories is one answer, this machine's."""
    rows = one_a_turn(pool, best_first(pool, scores))[:most].tolist()
    refs = {row: (int(pool.field[row]), int(pool.id[row])) for row in rows}
    chunks = read_chunks(places, refs.values())
    answers: dict[Unit, RankedAnswer] = {}
    for row, ref in refs.items():
        if ref not in chunks:
            continue
        one = RankedAnswer(ref, chunks[ref], float(scores[row]), row=row)
        known = answers.setdefault(one.unit, one)
        if known.ref[0] > ref[0]:
            known.ref, known.chunk, known.row = ref, one.chunk, row
    return list(answers.values())


@dataclass(frozen=True, slots=True)
class _SecondLook:
    """Applies late interaction to the best answers."""

    model: Comparer
    places: Sequence[SearchedStore]
    fields: Sequence[Field]
    asked: Query
    weight_of: Callable[[str], float]

    def rescore(self, answers: list[RankedAnswer], pool: Pool) -> None:
        """Rescore the best answers by their texts; all others come after them."""
        weights = weights_of(self.model)
        seen = looked_at(text_lengths(self.places, answers), weights.most)
        near, far = answers[:seen], answers[seen:]
        if not near:
            return
        texts, beside = [one.text for one in near], self._beside(near, pool)
        like = self.model.late(self.asked.text, [text[:LATE_CHARACTERS] for text in texts], self.weight_of, beside)
        base, sessions = [one.score for one in near], [one.scores["session"] for one in near]
        scores = late_scores(base, sessions, like, beside, self.asked.compounds, texts, weights)
        ordinals = [int(pool.ordinal[one.row]) for one in near]
        before = [
            next((place for place in around if ordinals[place] < own), None)
            for own, around in zip(ordinals, beside, strict=True)
        ]
        scores = with_speakers(scores, near, before, self.asked.text)
        lowest = min(scores)
        shift = 0.01 - lowest if lowest < 0.01 else 0.0  # a score is above zero, and means only the order
        for one, score, found in zip(near, scores, like, strict=True):
            one.score, one.tokens = score + shift, frozenset(found.tokens)
            one.scores["late"] = found.similarity
        behind = (lowest + shift) / max((one.score for one in far), default=1.0)
        for one in far:
            one.score *= min(1.0, behind) * 0.999

    def _beside(self, answers: Sequence[RankedAnswer], pool: Pool) -> list[list[int]]:
        """Return for each answer the indexes of its direct neighbours in the conversation."""
        places = {(int(pool.field[one.row]), int(pool.ordinal[one.row])): at for at, one in enumerate(answers)}
        found: list[list[int]] = [[] for _ in answers]
        for number, one in enumerate(self.fields):
            here = [(ordinal, at) for (where, ordinal), at in places.items() if where == number]
            is_first = one.index.take("first", np.array([ordinal for ordinal, _ in here], np.int64)).tolist()
            for (ordinal, at), begins in zip(here, is_first, strict=True):
                other = places.get((number, ordinal - 1))
                if other is not None and not begins:
                    found[at].append(other)
                    found[other].append(at)
        return found


def _reorder(order: list[RankedAnswer], wanted: RankingRequest) -> None:
    """Let a model order the best answers, if requested."""
    if wanted.reorder is None:
        return
    places = wanted.reorder(wanted.request.query, order)
    if places is None:
        return
    scores = sorted((order[at].score for at in places), reverse=True)
    moved = [order[at] for at in places]
    for place, (at, one, score) in enumerate(zip(sorted(places), moved, scores, strict=True), 1):
        order[at] = one
        one.score = score
        one.scores["model"] = float(place)


def _describe(answers: Sequence[RankedAnswer], pool: Pool) -> None:
    """Add each engine's rank and score to answers."""
    for name, scores in (("keywords", pool.own), ("context", pool.padded), ("vectors", pool.cosine)):
        ranks = rank_numbers(scores)
        for one in answers:
            if ranks[one.row]:
                one.ranks[name] = int(ranks[one.row])
                one.scores[name] = float(scores[one.row])
    for one in answers:
        if pool.exact[one.row] >= 0:
            one.ranks["exact"] = int(pool.exact[one.row]) + 1


def _notes(asked: Query, said: _Words, *, is_exact: bool, has_words: bool) -> tuple[str, ...]:
    if asked.is_literal and not is_exact:
        return (f"no text contains {in_short(asked.compounds[0])}; these contain parts of it",) if has_words else ()
    if said.begun and len(said.begun) == len(set(said.stems)) and has_words:
        return ("no text contains these words; these contain words that begin with them",)
    return ()
