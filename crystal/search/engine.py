"""Search one or more memories for a question, and return hits.

This package guarantees that no question and no filter raises an error, that no filtered text is returned, that the same
store gives the same order each time, and that keyword search works without vectors and without the index.

The derived index ranks (docs/adr/0018-ranking.md). If it is missing, stale or damaged, an index in memory of the most
promising chunks replaces it. A mirror of home's memory is searched together with the own memory
(docs/adr/0014-mirror.md).
"""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from crystal.model.quick_dataclass import dataclass, replace
from crystal.model.recall import Filters, Hit
from crystal.search.candidates import QuestionVector, by_meaning_alone, note_of_unread, propose_chunks
from crystal.search.index import folder_of
from crystal.search.ranking.shown_list import (
    dates_in_digits,
    is_time_alone,
    list_latest,
    list_showing,
    without_times,
)
from crystal.search.request import MemorySource, Mode, SearchRequest, SearchResult
from crystal.search.results import RankedAnswer, Ref, SearchedStore, hits_of, read_texts
from crystal.store.memories.memories import superseded
from crystal.store.search.scope import SearchScope, scope_of, without_memories
from crystal.text.query import Query, parse_query
from crystal.timewords import TimeSpan, find_times
from crystal.timewords.parse import clock

if TYPE_CHECKING:
    from crystal.search.deep import Deep
    from crystal.search.index.open_index import Index
    from crystal.search.ranking.pool import Field

Notes = tuple[str, ...]
Ranked = TypeVar("Ranked")

FUSED = 50
"""Minimum number of answers to each wording that are combined."""
CANDIDATES = 250
"""Minimum number of answers that each engine of the store proposes if there is no index."""


def search(sources: Sequence[MemorySource], request: SearchRequest) -> SearchResult:
    """Search one or two memories.

    Args:
        sources: This machine's own memory, then the mirror of home's, if it is searched too.
        request: The question.
    """
    if request.wordings:
        return _search_each_wording(sources, request)
    return _Question.of(sources, request).answer(request.filters)


def _search_each_wording(sources: Sequence[MemorySource], request: SearchRequest) -> SearchResult:
    """Search each wording, and score each answer by the mean of its scores, or by its highest cosine."""
    alone = replace(request, wordings=(), limit=max(request.limit, FUSED))
    others = [replace(alone, query=text, how=replace(request.how, deep=None)) for text in request.wordings]
    results = [search(sources, one) for one in (alone, *others)]
    found: dict[int, Hit] = {}
    points: dict[int, float] = {}
    for result in results:
        for hit in result.hits:
            found.setdefault(hit.id, hit)
            if request.how.fusion == "similarity":
                points[hit.id] = max(hit.score, points.get(hit.id, hit.score))
            else:
                points[hit.id] = points.get(hit.id, 0.0) + hit.score / len(results)
    hits = [replace(found[best], score=round(points[best], 6)) for best in sorted(found, key=lambda one: -points[one])]
    told = [result for result in results if result.hits] or results
    notes = dict.fromkeys(note for result in told for note in result.notes)
    explained = dict.fromkeys(line for result in told for line in result.explained)
    return replace(results[0], hits=tuple(hits[: request.limit]), notes=tuple(notes), explained=tuple(explained))


def search_project_first(
    sources: Sequence[MemorySource], request: SearchRequest, project: str
) -> tuple[SearchResult, bool]:
    """Search one project; if it has no word of the question, search everything, and take the better result.

    Args:
        sources: As for ``search``.
        request: The question; the project of its filters is ignored.
        project: The project, as a name or a folder.

    Returns:
        The result, and True if it is only of the project.
    """
    question = _Question.of(sources, request)  # embedded only once
    inside = question.answer(replace(request.filters, project=project, general=True))
    if any("keywords" in hit.ranks for hit in inside.hits if hit.source == "conversation" or hit.project is not None):
        return inside, True
    everywhere = question.answer(replace(request.filters, project=None, general=False))
    has_words = any("keywords" in hit.ranks for hit in everywhere.hits)
    return (inside, True) if inside.hits and not has_words else (everywhere, False)


def _reorder(
    deep: Deep, places: Sequence[SearchedStore], question: str, answers: Sequence[RankedAnswer]
) -> list[int] | None:
    """Let the model order the answers that may be sent to it."""
    allowed: set[Ref] = set()
    for number, place in enumerate(places):
        idents = [one.ref[1] for one in answers if one.ref[0] == number]
        allowed |= {(number, ident) for ident in deep.may_send(idents, place.source.store)}
    shown = [at for at, one in enumerate(answers) if one.ref in allowed]
    read_texts(places, [answers[at] for at in shown])
    order = deep.rerank(question, [answers[at].text for at in shown])
    return None if order is None else [shown[at] for at in order]


@dataclass(frozen=True, slots=True)
class _Found:
    """The ranked answers, and the notes about them."""

    answers: Sequence[RankedAnswer]
    notes: Notes = ()
    explained: Notes = ()
    mode: Mode = "keywords"


@dataclass(frozen=True, slots=True)
class _Question:
    """A prepared question: parsed and embedded once, even if it is searched several times.

    ``wordings`` are other wordings, ``dates`` its dates in digits; both count less than the words in ``asked``.
    """

    sources: Sequence[MemorySource]
    request: SearchRequest
    asked: Query
    vectors: Sequence[QuestionVector]
    times: tuple[TimeSpan, ...]
    is_time_alone: bool
    dates: tuple[str, ...]
    wordings: tuple[str, ...]

    @classmethod
    def of(cls, sources: Sequence[MemorySource], request: SearchRequest) -> _Question:
        asked, deep = parse_query(request.query), request.how.deep
        times = find_times(asked.text, now=request.now, tz=request.how.tz)
        is_alone, dates = is_time_alone(asked, times), dates_in_digits(times)
        if dates and not is_alone:
            asked = parse_query(without_times(asked.text, dates))
        known: dict[str, bytes] = {}
        vectors = [
            QuestionVector.of(source.store, source.embedder, source.without_embedder, asked.text, known)
            for source in sources
        ]
        wordings = deep.expand(asked.text)[1:] if deep is not None and asked.text else ()
        words = tuple(dict.fromkeys(date.words for date in dates))
        return cls(sources, request, asked, vectors, times, is_alone, words, wordings)

    def answer(self, filters: Filters) -> SearchResult:
        """Search within filters, in one state of each memory."""
        request, text = self.request, self.request.query.encode("utf-8", "replace").decode()
        notes = tuple(note for source in self.sources for note in source.notes)
        with contextlib.ExitStack() as states:
            for source in self.sources:
                states.enter_context(source.store.reading())
            scopes = [self._scope(source, filters) for source in self.sources]
            why_not = self._why_unanswerable(scopes)
            if why_not:
                return SearchResult(text, "keywords", (), (*why_not, *notes))
            places = [
                SearchedStore(source, scope, vector.checked(source.store))
                for source, scope, vector in zip(self.sources, scopes, self.vectors, strict=True)
                if not scope.is_empty
            ]
            found = self._find(places)
            hits = hits_of(places, found.answers, request, filters)
        deep = request.how.deep
        if deep is not None and deep.asker is None:  # similarity was requested: say what it needs
            notes = (*notes, *deep.reasons)
        explained = (*dict.fromkeys(map(self._explain_time, self.times)), *found.explained)
        return SearchResult(text, found.mode, tuple(hits), (*found.notes, *notes), explained)

    def _scope(self, source: MemorySource, filters: Filters) -> SearchScope:
        """Return the filter for a memory; in the mirror it excludes memories that are newer on this machine."""
        own = self.sources[0].store
        hidden = () if source.store is own else superseded(own, source.store)
        return scope_of(source.store, filters) & without_memories(hidden)

    def _why_unanswerable(self, scopes: Sequence[SearchScope]) -> Notes:
        if not any(map(_means_something, self.asked.text)):
            return (f"the question {'has no words' if self.asked.text else 'is empty'}",)
        if all(scope.is_empty for scope in scopes):
            return _joined(zip(self.sources, (scope.notes for scope in scopes), strict=True))
        return ()

    # ------------------------------------------------------------------------------------------------ how it is found

    def _find(self, places: Sequence[SearchedStore]) -> _Found:
        if self.request.how.fusion == "similarity":
            return self._nearest(places)
        if self.is_time_alone:
            return self._latest(places)
        if not self.asked.has_words:  # only symbols, such as emoji
            answers = list_showing(places, self.asked.text, self.request.limit)
            if answers:
                return _Found(answers, ("the latest that have it",))
        return self._best(places)

    def _best(self, places: Sequence[SearchedStore]) -> _Found:
        """Return the best answers by words and meaning."""
        from crystal.search.ranking.order import RankingRequest, rank

        request, how = self.request, self.request.how
        spans = tuple((span.start, span.end) for span in self.times)
        reorder = None if how.deep is None else partial(_reorder, how.deep, places)
        model = None if how.late is None else how.late()

        def ranked(fields: Sequence[Field], asked: Query) -> tuple[Sequence[RankedAnswer], Notes]:
            enough, is_verbatim = min(request.limit, request.enough), request.verbatim and asked.is_literal
            one = replace(request, enough=enough, verbatim=is_verbatim)
            wanted = RankingRequest(one, asked, spans, (*self.wordings, *self.dates), reorder)
            return rank(places, fields, wanted, model)

        (answers, said), asked, relaxed, why_not = self._with_indexes(places, ranked)
        is_meant = any(place.vector.data for place in places)
        mode: Mode = "keywords" if not is_meant else "hybrid" if asked.has_words else "vectors"
        is_vague = mode == "hybrid" and answers and not any("keywords" in one.scores for one in answers)
        vague = ("no word of the question was found; these are close in meaning",) if is_vague else ()
        nothing = () if answers else (_nothing(mode, asked),)
        meant = _joined((place.source, (place.vector.note or "",)) for place in places)
        return _Found(answers, (*relaxed, *said, *meant, *vague, *nothing), (*why_not, *self._explain(answers)), mode)

    def _nearest(self, places: Sequence[SearchedStore]) -> _Found:
        """Return the nearest chunks by vectors, from the memories that have vectors."""
        from crystal.search.ranking.similar import rank_by_similarity

        meant = _joined((place.source, (by_meaning_alone(place.vector.note or ""),)) for place in places)
        if not any(place.vector.data for place in places):
            return _Found((), meant, (), "vectors")
        how = self.request.how
        model = None if how.late is None else how.late()
        answers, _, relaxed, why_not = self._with_indexes(
            places, lambda fields, _: rank_by_similarity(places, fields, self.request.limit, model)
        )
        nothing = () if answers else ("no text is close to it in meaning",)
        return _Found(answers, (*relaxed, *meant, *nothing), why_not, "vectors")

    def _with_indexes(
        self, places: Sequence[SearchedStore], ranked: Callable[[Sequence[Field], Query], Ranked]
    ) -> tuple[Ranked, Query, Notes, Notes]:
        """Rank with the index of each memory, or with an index in memory if its files cannot be used.

        Returns:
            The ranking, the question without phrases that no text contains, the note about those, and why the files of
            the index were not used.
        """
        from crystal.search.index.index_files import IndexDamagedError
        from crystal.search.ranking.order import fields_of

        def found(opened: Sequence[tuple[Index, str]]) -> tuple[Ranked, Query, Notes, Notes]:
            fields, asked, relaxed = fields_of(places, [index for index, _ in opened], self.asked, self.request.limit)
            missing = [place.source for place, (_, reason) in zip(places, opened, strict=True) if reason]
            unread = _joined((source, note_of_unread(source.store)) for source in missing)
            reasons = "; ".join(dict.fromkeys(reason for _, reason in opened if reason))
            why_not = (f"the index did not rank this: {reasons}",) if reasons else ()
            return ranked(fields, asked), asked, (*relaxed, *unread), why_not

        try:
            return found([self._open_index(place) for place in places])
        except IndexDamagedError as error:
            return found([(self._index_in_memory(place), str(error)) for place in places])

    def _open_index(self, place: SearchedStore) -> tuple[Index, str]:
        from crystal.search.index.open_index import Absent, open_index

        store, vector = place.source.store, place.vector
        index = open_index(store, folder_of(store.path))
        if isinstance(index, Absent):
            return self._index_in_memory(place), index.reason
        if vector.data and not index.has_vectors(vector.generation):
            return self._index_in_memory(place), "its vectors are being made"
        return index, ""

    def _index_in_memory(self, place: SearchedStore) -> Index:
        from crystal.search.index.open_index import index_of_chunks

        most = max(CANDIDATES, 4 * self.request.limit)
        store = place.source.store
        ids = propose_chunks(store, self.asked, (*self.wordings, *self.dates), place.scope, place.vector, most)
        return index_of_chunks(store, ids)

    def _latest(self, places: Sequence[SearchedStore]) -> _Found:
        """Return the latest turns in the requested times; if there are none, from up to two spans before and after."""
        words = ", ".join(dict.fromkeys(f'"{span.words}"' for span in self.times))
        spans = [(span.start, span.end) for span in self.times]
        answers = list_latest(places, spans, self.request.limit)
        if answers:
            return _Found(answers, (f"you asked only for a time: the newest from {words}",))
        wider = [(3 * start - 2 * end, 3 * end - 2 * start) for start, end in spans]
        answers = list_latest(places, wider, self.request.limit)
        around = ("these are the newest from around then",) if answers else ()
        return _Found(answers, (f"nothing is from {words}", *around))

    # -------------------------------------------------------------------------------------------------------- --explain

    def _explain_time(self, span: TimeSpan) -> str:
        start, end = (clock(moment, self.request.now, self.request.how.tz) for moment in (span.start, span.end))
        return f'preferred, for "{span.words}": {start} to {end}'

    def _explain(self, answers: Sequence[RankedAnswer]) -> Notes:
        recency, deep = self.request.how.recency, self.request.how.deep
        lines = [f"other words: {', '.join(self.wordings)}"] if self.wordings else []
        if deep is not None and deep.asker is not None:
            by_model = sum("model" in one.scores for one in answers)
            lines += deep.reasons
            lines += [f"the first {by_model} ranked by the model"] if by_model else []
        return (*lines, *([] if recency == "light" else [f"recency: {recency}"]))


def _means_something(character: str) -> bool:
    """Return True for a letter, a digit, or a symbol such as an emoji, which a model may know."""
    return character.isalnum() or unicodedata.category(character) == "So"


def _nothing(mode: Mode, asked: Query) -> str:
    """Return the note that says why the result is empty."""
    what = ["contains a word of the question"] if asked.has_words else []
    what += ["is close to it in meaning"] if mode != "keywords" and asked.has_meaning else []
    return f"no text {' or '.join(what) or 'contains this'}"


def _joined(notes: Iterable[tuple[MemorySource, Notes]]) -> Notes:
    """Return the notes of each memory; notes that only the mirror has begin with ``mirror:``."""
    found: list[str] = []
    for source, said in notes:
        new = [note for note in said if note and note not in found]
        found += [f"mirror: {note}" for note in new] if source.memory == "mirror" else new
    return tuple(found)
