"""What crystal is compared with: plain keywords, plain vectors, and two peers' pipelines as they describe them.

All get the words that crystal gets, the vectors of the same model, the same filter, and 50 answers. Calls of tools are
left out, as the peers do: with them each baseline was worse.

memory-crystal's is read from its documentation and from what was measured of it. FTS5 (Porter) is asked for chunks that
have a word beginning with each word of the question; BM25 orders them. sqlite-vec is asked for the nearest vectors, and
their rows are then fetched in a second query, which gives them in the order of the table: oldest first, not nearest
first (``as it is``). Both lists are 3 times as long as what is returned (our reading) and are fused by
``1 / (60 + rank)``, rank from 1; the first of a list gets 0.05 more, the second and third 0.02. Then age:
``max(0.5, 1 - 0.01 * days)`` is multiplied on, days counted from the question. Repaired: rows in their order, and
words joined by OR without stop words; and the same again as it answers long after, when all is old alike.

OpenClaw's, from its documentation: chunks of 400 tokens with 80 of the one before (a token is 4 characters here), four
times as many candidates from each engine as are returned, ``0.7 * cosine + 0.3 / (1 + rank)``, rank from 0, what an
engine lacks counts 0; MMR and decay are off. All words must be there in the first form, in the others any of them but
stop words, and in the last a chunk is a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import apsw
import numpy as np
import numpy.typing as npt
from retrieval_data import DataSet, Message, Question

DAY = 86_400_000
NEVER = 2**62
RRF_K = 60
WINDOW, OVERLAP = 1600, 320
"""Characters: 400 and 80 tokens."""

STOP_WORDS = frozenset(
    """
    a an the and or of in on at to for from by with as about into than that this these those there here it its is are
    was were be been being am do does did done have has had having will would can could should may might must i you he
    she we they me him her us them my your his our their what which who whom whose when where why how if not no so
    s t d ll m re ve
    """.split()
)
"""Words that mean nothing alone. A list twice as long made the keywords worse on every set that was tried."""

_WORD = re.compile(r"\w+")
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Chunk:
    """A text and the messages in it, by their places in the set."""

    text: str
    messages: tuple[int, ...]


class Index:
    """Chunks with their keyword index and their vectors, conversation after conversation."""

    def __init__(self, chunks: Sequence[Chunk], messages: Sequence[Message], vectors: Vectors) -> None:
        self.chunks, self.messages, self.matrix = chunks, messages, vectors
        self.convs = _spans([messages[chunk.messages[0]].conv for chunk in chunks])
        self.said = np.array([messages[chunk.messages[-1]].when for chunk in chunks], np.int64)
        self._db = apsw.Connection(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='porter unicode61', content='')")
        with self._db:
            rows = enumerate((chunk.text for chunk in chunks), 1)
            self._db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", rows)

    def span(self, conv: str | None) -> tuple[int, int]:
        """The places of a conversation's chunks, all for None."""
        return (0, len(self.chunks)) if conv is None else self.convs.get(conv, (0, 0))

    def keywords(self, one: Asked, expression: str, count: int) -> list[int]:
        """Places of the chunks that match, best BM25 first."""
        if not expression:
            return []
        found = self._db.execute(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid > ? AND rowid <= ? ORDER BY bm25(words), rowid",
            (expression, *self.span(one.conv)),
        )
        return list(islice((row - 1 for (row,) in found if self.said[row - 1] <= one.until), count))

    def nearest(self, one: Asked, count: int) -> list[tuple[int, float]]:
        """Places of the nearest chunks with their cosine, nearest first."""
        start, end = self.span(one.conv)
        scores = np.where(self.said[start:end] <= one.until, self.matrix[start:end] @ one.vector, -np.inf)
        order = np.argsort(-scores, kind="stable")[:count]
        return [(start + int(place), float(scores[place])) for place in order if np.isfinite(scores[place])]


@dataclass(frozen=True)
class Asked:
    """A question with its vector and where it is asked. What was said after ``until`` (ms) is not there yet."""

    question: Question
    vector: Vectors
    conv: str | None
    limit: int
    until: int = NEVER

    def any_word(self) -> str:
        """Its words joined by OR, without stop words unless there are no others."""
        words = self._words()
        kept = [word for word in words if word not in STOP_WORDS] or words
        return " OR ".join(f'"{word}"' for word in kept)

    def every_word(self) -> str:
        """All its words."""
        return " ".join(f'"{word}"' for word in self._words())

    def every_beginning(self) -> str:
        """A word that begins with each of its words."""
        return " ".join(f'"{word}"*' for word in self._words())

    def _words(self) -> list[str]:
        return list(dict.fromkeys(_WORD.findall(self.question.text.lower().replace("_", " "))))


System = Callable[[Asked], list[int]]
"""Gives places of chunks, best first."""


def one_chunk_a_turn(messages: Sequence[Message]) -> list[Chunk]:
    return [Chunk(message.said, (place,)) for place, message in enumerate(messages) if message.said.strip()]


def windows(messages: Sequence[Message]) -> list[Chunk]:
    """Pieces of sessions of up to 400 tokens that repeat up to 80 of the one before."""
    chunks: list[Chunk] = []
    for start, end in _spans([(one.conv, one.session) for one in messages]).values():
        held: list[tuple[str, int]] = []
        fresh = False
        for place in range(start, end):
            for piece in _pieces(messages[place].said):
                if held and sum(len(text) + 1 for text, _ in held) + len(piece) > WINDOW:
                    chunks.append(_joined(held))
                    held, fresh = _tail(held, WINDOW - len(piece)), False
                held.append((piece, place))
                fresh = True
        if held and fresh:
            chunks.append(_joined(held))
    return chunks


def plain_systems(turns: Index) -> dict[str, System]:
    """Keywords alone and vectors alone, one chunk a turn."""
    return {
        "FTS5, any word": lambda one: turns.keywords(one, one.any_word(), one.limit),
        "FTS5, all words": lambda one: turns.keywords(one, one.every_word(), one.limit),
        "vectors alone": lambda one: [place for place, _ in turns.nearest(one, one.limit)],
    }


def memory_crystal_systems(turns: Index) -> dict[str, System]:
    """memory-crystal's pipeline, see the top of this file."""

    def system(one: Asked, *, is_repaired: bool, now: int) -> list[int]:
        depth = 3 * one.limit
        words = one.any_word() if is_repaired else one.every_beginning()
        near = [place for place, _ in turns.nearest(one, depth)]
        lists = [turns.keywords(one, words, depth), near if is_repaired else sorted(near)]
        scores: dict[int, float] = {}
        for places in lists:
            for rank, place in enumerate(places, 1):
                bonus = 0.05 if rank == 1 else 0.02 if rank <= 3 else 0.0
                scores[place] = scores.get(place, 0.0) + 1 / (RRF_K + rank) + bonus
        for place in scores:
            days = (now - turns.messages[turns.chunks[place].messages[0]].when) / DAY
            scores[place] *= max(0.5, 1 - 0.01 * max(0.0, days))
        return _best(scores, one.limit)

    return {
        "memory-crystal": lambda one: system(one, is_repaired=False, now=one.question.now),
        "memory-crystal, repaired": lambda one: system(one, is_repaired=True, now=one.question.now),
        "memory-crystal, repaired, later": lambda one: system(one, is_repaired=True, now=one.question.now + 9999 * DAY),
    }


def openclaw_systems(turns: Index, pieces: Index) -> dict[str, System]:
    """OpenClaw's blend, see the top of this file."""

    def system(one: Asked, index: Index, words: str) -> list[int]:
        depth = 4 * one.limit
        scores = {place: 0.7 * cosine for place, cosine in index.nearest(one, depth)}
        for rank, place in enumerate(index.keywords(one, words, depth)):
            scores[place] = scores.get(place, 0.0) + 0.3 / (1 + rank)
        return _best(scores, one.limit)

    return {
        "OpenClaw blend": lambda one: system(one, pieces, one.every_word()),
        "OpenClaw blend, any word": lambda one: system(one, pieces, one.any_word()),
        "OpenClaw blend, any word, turns": lambda one: system(one, turns, one.any_word()),
    }


def all_systems(turns: Index, pieces: Index) -> dict[str, tuple[System, Index]]:
    """Every baseline by name, with the index whose chunks it gives."""
    of_turns = {**plain_systems(turns), **memory_crystal_systems(turns)}
    blends = openclaw_systems(turns, pieces)
    return {name: (system, turns) for name, system in of_turns.items()} | {
        name: (system, turns if name.endswith("turns") else pieces) for name, system in blends.items()
    }


def answered(system: System, index: Index, one: Asked) -> tuple[list[str], list[str]]:
    """The ids of messages and of sessions that a system gives, best first, with repeats."""
    found = [index.messages[place] for chunk in system(one) for place in index.chunks[chunk].messages]
    return [message.ident for message in found], [message.session for message in found]


def asked(dataset: DataSet, vectors: Vectors, limit: int, *, everywhere: bool, today: bool = False) -> Iterable[Asked]:
    """The questions as crystal is asked them: ``today`` when all has been said, else just after what is known then."""
    for question, vector in zip(dataset.questions, vectors, strict=True):
        until = NEVER if today else question.now + 1000
        yield Asked(question, vector, None if everywhere else question.conv, limit, until)


def _best(scores: dict[int, float], count: int) -> list[int]:
    return sorted(scores, key=lambda place: (-scores[place], place))[:count]


def _spans(keys: Sequence[object]) -> dict[object, tuple[int, int]]:
    """Where each key's run begins and ends."""
    spans: dict[object, tuple[int, int]] = {}
    for place, key in enumerate(keys):
        spans[key] = (spans.get(key, (place, place))[0], place + 1)
    return spans


def _pieces(text: str) -> list[str]:
    return [text[start : start + WINDOW] for start in range(0, len(text), WINDOW)]


def _tail(held: list[tuple[str, int]], room: int) -> list[tuple[str, int]]:
    """The last pieces, as many as fit into the overlap and leave room for what comes."""
    kept: list[tuple[str, int]] = []
    for text, place in reversed(held):
        if sum(len(one) + 1 for one, _ in kept) + len(text) > min(OVERLAP, room):
            break
        kept.insert(0, (text, place))
    return kept


def _joined(held: list[tuple[str, int]]) -> Chunk:
    return Chunk("\n".join(text for text, _ in held), tuple(dict.fromkeys(place for _, place in held)))
