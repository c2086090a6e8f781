"""Read ranked answers from the stores, and turn them into hits with the text around them.

A turn that is in both memories is one answer, shown as this machine's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

from crystal.model.quick_dataclass import dataclass
from crystal.model.recall import Filters, Hit, Neighbour
from crystal.model.sources import shown_text
from crystal.search.candidates import QuestionVector
from crystal.search.request import MemorySource, SearchRequest
from crystal.store.memories.memories import key_prefix
from crystal.store.search.candidates import (
    Candidate,
    Said,
    around,
    candidates,
    count_copies,
    latest_chunks,
    own_chunk,
    places_of_text,
    texts_of,
)
from crystal.store.search.scope import SearchScope

DAY_MS = 86_400_000
NEIGHBOUR_CHARACTERS = 240
READ_AT_ONCE = 20
"""Number of texts that are read together: a few more than late interaction compares."""

_OWN_TOOL = re.compile(
    r"mcp__.*__crystal_(?:search|get|recent|timeline|status|remember|forget)"
    r"|mcp__.*crystal.*__(?:search_memory|get_recent_conversations|save_memory|memory_search)"
)
"""The tools of ``crystal mcp``, as clients name them."""

Ref = tuple[int, int]
"""A chunk: the number of its memory in the search, and its id there."""

Unit = tuple[str, str]
"""Key of an answer: a turn or a memory, by its id on every machine, or a chunk that belongs to neither."""


@dataclass(frozen=True, slots=True)
class SearchedStore:
    """One memory in a search.

    Attributes:
        source: The memory.
        scope: The filter for it.
        vector: The question's vector for its model, if it can be used in the present state.
    """

    source: MemorySource
    scope: SearchScope
    vector: QuestionVector


@dataclass(slots=True)
class RankedAnswer:
    """An answer: its best chunk, its score, and the rank and score of each engine by name.

    ``text`` is empty until ``read_texts`` has read it. ``similar`` counts near-duplicates that are not shown. Only the
    ranking uses ``row``, ``tokens``, ``assisted`` (certainty that a person speaks with an assistant, 0 to 1) and
    ``among_people``.
    """

    ref: Ref
    chunk: Candidate
    score: float
    ranks: dict[str, int] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    text: str = ""
    similar: int = 0
    row: int = -1
    tokens: frozenset[int] = frozenset()
    assisted: float = 0.0
    among_people: bool = False

    @property
    def unit(self) -> Unit:
        """Return the key of the answer that the chunk belongs to."""
        if self.chunk.memory is not None:
            return ("memory", self.chunk.memory)
        if self.chunk.turn is not None:
            return ("turn", f"{self.chunk.uuid} {self.chunk.part}")
        return ("chunk", f"{self.ref[0]} {self.ref[1]}")

    @property
    def by_time(self) -> tuple[float, int, int]:
        """Return a sort key: newest first, then the later stored; chunks without a time come last."""
        ts = self.chunk.ts
        return (float("inf") if ts is None else -ts, -self.ref[1], self.ref[0])

    @property
    def is_look_up(self) -> bool:
        """Return True if it is a call of one of crystal's own tools, or its result."""
        chunk = self.chunk
        return chunk.role in ("tool_call", "tool_result") and _OWN_TOOL.fullmatch(chunk.tool or "") is not None


def read_chunks(places: Sequence[SearchedStore], refs: Iterable[Ref]) -> dict[Ref, Candidate]:
    """Read some chunks without their texts; deleted ones are left out."""
    wanted = list(refs)
    found: dict[Ref, Candidate] = {}
    for at, place in enumerate(places):
        ids = [ident for where, ident in wanted if where == at]
        found.update(((at, ident), chunk) for ident, chunk in candidates(place.source.store, ids).items())
    return found


def read_texts(places: Sequence[SearchedStore], answers: Sequence[RankedAnswer]) -> None:
    """Read the missing texts of answers together, because those of one block are decompressed at once."""
    for at, place in enumerate(places):
        unread = {one.ref[1]: one for one in answers if one.ref[0] == at and not one.text}
        for ident, text in texts_of(place.source.store, list(unread)):
            unread[ident].text = text


def text_lengths(places: Sequence[SearchedStore], answers: Sequence[RankedAnswer]) -> Iterator[int]:
    """Yield the length of the text of each answer; the texts are read when needed."""
    for at in range(0, len(answers), READ_AT_ONCE):
        page = answers[at : at + READ_AT_ONCE]
        read_texts(places, page)
        yield from (len(one.text) for one in page)


def latest_answers(places: Sequence[SearchedStore], spans: Sequence[tuple[int, int]], limit: int) -> list[RankedAnswer]:
    """Return the latest turns of users and assistants within spans of time, latest first."""
    depth = 4 * limit
    while True:
        latest = [latest_chunks(place.source.store, place.scope, spans, depth) for place in places]
        found = read_chunks(places, ((at, ident) for at, ids in enumerate(latest) for ident in ids))
        answers: dict[Unit, RankedAnswer] = {}
        for ref, chunk in sorted(found.items(), key=lambda one: (-(one[1].ts or 0), one[0][1], one[0][0])):
            one = RankedAnswer(ref, chunk, 0.0)
            answers.setdefault(one.unit, one)
        if len(answers) >= limit or all(len(ids) < depth for ids in latest):
            return list(answers.values())[:limit]
        depth *= 8  # turns of many chunks fill the list


# ------------------------------------------------------------------------------------------------------------ hits


def hits_of(
    places: Sequence[SearchedStore], answers: Sequence[RankedAnswer], request: SearchRequest, filters: Filters
) -> list[Hit]:
    """Return the first answers as hits, with the turns around them, to which the time filters apply too.

    Calls of crystal's own tools come last, because such a call only repeats a question.
    """
    ordered = sorted(answers, key=lambda one: one.is_look_up)[: request.limit]
    read_texts(places, ordered)
    around = [filters if at < request.surrounded else None for at in range(len(ordered))]
    return [_hit(places, one, request.now, within) for one, within in zip(ordered, around, strict=True)]


def _hit(places: Sequence[SearchedStore], answer: RankedAnswer, now: int, filters: Filters | None) -> Hit:
    chunk, ref = answer.chunk, _own_ref(places, answer)
    place = places[ref[0]]
    session = place.scope.session
    before, after = (None, None) if filters is None else _neighbours(places, answer, filters)
    return Hit(
        id=place.source.public_id(ref[1]),
        score=round(answer.score, 6),
        text=_shown_text(chunk, answer.text),
        role=chunk.role,
        session_id=chunk.session_id or "" if session is None else session[1],
        uuid=chunk.uuid or "",
        project=chunk.project,
        cwd=chunk.cwd,
        branch=chunk.branch,
        agent=chunk.agent,
        device=chunk.device,
        timestamp=chunk.ts,
        freshness=freshness(chunk.ts, now),
        source=chunk.source,
        ranks=answer.ranks,
        scores={name: round(score, 4) for name, score in answer.scores.items()},
        subagent=chunk.subagent,
        tool=chunk.tool,
        copies=_count_copies(places, chunk.text_sha256),
        similar=answer.similar,
        memory=place.source.memory,
        category=chunk.category,
        key=chunk.key,
        harness=chunk.harness,
        file=chunk.file,
        before=before,
        after=after,
    )


def _own_ref(places: Sequence[SearchedStore], answer: RankedAnswer) -> Ref:
    """Return this machine's copy of a chunk, if only the mirror's was found; otherwise the chunk itself."""
    own = places[0]
    same = None if answer.ref[0] == 0 else own_chunk(own.source.store, answer.chunk, own.scope)
    return answer.ref if same is None else (0, same)


def _count_copies(places: Sequence[SearchedStore], text_sha256: bytes) -> int:
    """Return the number of places with exactly this text; a place in both memories counts once."""
    counts = [count_copies(place.source.store, text_sha256, place.scope) for place in places]
    if sum(count > 0 for count in counts) < 2:
        return sum(counts)
    found = [places_of_text(place.source.store, text_sha256, place.scope) for place in places]
    return sum(counts) - sum(map(len, found)) + len(set[tuple[str, int]]().union(*found))


def _shown_text(chunk: Candidate, text: str) -> str:
    """Return a chunk's text without the memory key or the title before it, which only the engines use."""
    if chunk.memory is not None and chunk.key is not None and chunk.start == 0:
        return text.removeprefix(key_prefix(chunk.key)) or text
    return shown_text(chunk.file, text)


def freshness(ts: int | None, now: int) -> str:
    """Name an age: ``fresh`` under 3 days, ``recent`` under 7, ``aging`` under 14, else ``stale``, also if unknown."""
    days = float("inf") if ts is None else (now - ts) / DAY_MS
    return next((name for limit, name in ((3, "fresh"), (7, "recent"), (14, "aging")) if days < limit), "stale")


def _neighbours(
    places: Sequence[SearchedStore], answer: RankedAnswer, filters: Filters
) -> tuple[Neighbour | None, Neighbour | None]:
    if answer.chunk.turn is None:
        return None, None
    store = places[answer.ref[0]].source.store
    before, after = around(store, answer.chunk.turn, since=filters.since, before=filters.before)
    return _neighbour(before, at_end=True), _neighbour(after, at_end=False)


def _neighbour(said: Said | None, *, at_end: bool) -> Neighbour | None:
    """Return the end of the text before a hit, or the beginning of the text after it, as one line."""
    if said is None:
        return None
    role, text, uuid, ts = said
    most = NEIGHBOUR_CHARACTERS
    line = " ".join((text[-2 * most :] if at_end else text[: 2 * most]).split())
    if len(line) > most:
        line = f"... {line[-most:]}" if at_end else f"{line[:most]} ..."
    return Neighbour(role, line, uuid, ts)
