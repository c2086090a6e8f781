"""Open the index for a search: one state of the store, from the files and from later changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from crystal.model.quick_dataclass import dataclass
from crystal.search.index import why_unready
from crystal.search.index.array_types import Array, Floats, Mask, Ordinals
from crystal.search.index.attributes import NAMES, distinct, within
from crystal.search.index.bm25 import Best, Scorer, scorer_of
from crystal.search.index.filtering import allowed
from crystal.search.index.index_files import SYMPTOMS, IndexDamagedError, path_of, proven, raises_index_damaged
from crystal.search.index.index_parts import (
    IndexPart,
    Tail,
    forget_others,
    open_meanings,
    open_part,
    read_tail,
    spare_memory,
    tail_of,
)
from crystal.search.index.part_vectors import VectorPiece, best, likely, measured, nearly
from crystal.search.index.word_pairs import having_in_a_row
from crystal.store import Store
from crystal.store.isolation import hidden_rows
from crystal.store.search import index_log, index_source
from crystal.store.search.index_log import Log, PartFile, State
from crystal.store.search.scope import SearchScope
from crystal.store.vector_bytes import turned

MIN_BEGINNINGS, MAX_BEGINNINGS = 512, 20_000
"""Numbers of words with a prefix that are counted: at least in each part, and if a reader may not see all documents."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The index cannot be used at the moment: search the store itself."""

    reason: str


def open_index(store: Store, folder: Path) -> Index | Absent:
    """Open the index as the store's present snapshot lists it. Call it inside ``store.reading()``."""
    state = index_log.read_state(store)
    reason = why_unready(store, state)
    if reason is not None or state is None:
        return Absent(reason or "it is not made yet")
    tail = read_tail(store, state)
    spare_memory()
    try:
        files = [proven(path_of(folder, file.name), file) for file in index_log.parts(store)]
        parts = [open_part(folder, file) for file in files if file.kind == "words"]
        forget_others(folder, [file.name for file in files])
        return Index(store, folder, state, files, parts, tail)
    except IndexDamagedError as error:
        return Absent(str(error))
    except SYMPTOMS as error:
        return Absent(f"it is damaged: {error}")


def index_of_chunks(store: Store, ids: Sequence[int]) -> Index:
    """Build an index of some chunks in memory, for searches that cannot use the files."""
    state = State(index_log.FORMAT, 0, None, index_log.generations(store))
    tail = tail_of(store, Log(0, tuple(ids), frozenset(), ()))
    index = Index(store, Path(), state, [], [], tail)
    index.documents = index_log.count_chunks(store)
    return index


@raises_index_damaged
class Index:
    """One state of the index. Use it inside the ``store.reading()`` in which it was opened.

    Every method may raise ``IndexDamagedError``; search without the files then. Ordinals number all documents; stale
    ones are void and never returned.

    Attributes:
        size: The number of ordinals.
        documents: The number of documents that are not void, for the weight of words.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        state: State,
        files: Sequence[PartFile],
        parts: Sequence[IndexPart],
        tail: Tail,
    ) -> None:
        self._store, self._folder, self._tail = store, folder, tail
        self._files = [file for file in files if file.kind == "words"]
        self._vectors = {(file.of, file.generation): file for file in files if file.kind == "vectors"}
        known = index_log.generations(store)
        self._generations = {one for one, model in state.generations.items() if known.get(one) == model}
        self._parts = [*parts, *([] if tail.part is None else [tail.part])]
        self._starts = np.cumsum([0, *(part.size for part in self._parts)])
        self._read: dict[int, dict[int, bytes | None]] = {}
        self._within: dict[Sequence[tuple[int, int]], Mask] = {}
        self.size = int(self._starts[-1])
        self._void = self._stale_places()
        if store.hidden:
            self._void = distinct(np.concatenate([self._void, self._hidden_places()]))
        self._shown: Mask | None = None
        if len(self._void):
            self._shown = np.ones(self.size, np.bool_)
            self._shown[self._void] = False
        self._seen = self._shown if store.hidden else None
        self.documents = self.size - len(self._void)

    # --------------------------------------------------------------------------------------------------- documents

    def take(self, name: str, ordinals: Array) -> Array:
        """Return an attribute of documents.

        id, session, turn, project, offset, part, start, ts and length are numbers, 0 if missing (``NO_TIME`` for ts);
        role, source, agent, device, branch and subagent are strings, "" if missing; first is 1 for the first document
        of a conversation, is_user and is_assistant are 1 for documents of that role.
        """
        return self.columns((name,), ordinals)[name]

    def columns(self, names: Sequence[str], ordinals: Array) -> dict[str, Array]:
        """Return several attributes of documents, as ``take`` does."""
        ordinals = np.asarray(ordinals, np.int64)
        found = {name: np.empty(len(ordinals), object if name in NAMES else np.int64) for name in names}
        order = None if (ordinals[1:] >= ordinals[:-1]).all() else np.argsort(ordinals)
        ascending = ordinals if order is None else ordinals[order]
        for part, start, cut in self._by_part(ascending):
            here = cut if order is None else order[cut]
            for name, values in found.items():
                values[here] = part.attribute(name, ascending[cut] - start)
        return found

    def _by_part(self, ascending: Ordinals) -> Iterator[tuple[IndexPart, int, slice]]:
        """Yield each part with some of these documents, its first ordinal, and the slice of its documents."""
        cuts = pairwise(np.searchsorted(ascending, self._starts).tolist())
        for part, start, cut in zip(self._parts, self._starts.tolist(), cuts, strict=False):
            if cut[0] < cut[1]:
                yield part, start, slice(*cut)

    def conversation(self, ordinal: int) -> tuple[int, int]:
        """Return the range of ordinals of a document's conversation within its part."""
        number = int(np.searchsorted(self._starts, ordinal, side="right")) - 1
        part, start = self._parts[number], int(self._starts[number])
        at = int(np.searchsorted(part.begins, ordinal - start, side="right"))
        end = int(part.begins[at]) if at < len(part.begins) else part.size
        return start + int(part.begins[at - 1]), start + end

    def find(self, ids: Array | Sequence[int]) -> Ordinals:
        """Return the ordinals of chunks, -1 for those that are not in the index."""
        wanted = np.asarray(ids, np.int64)
        found = np.full(len(wanted), -1, np.int64)
        for part, start in zip(self._parts, self._starts.tolist(), strict=False):
            places = part.places(wanted)
            found = np.where(places >= 0, places + start, found)
        found[np.isin(found, self._void)] = -1
        return found

    def having(self, ids: Iterable[int]) -> Mask:
        """Return a mask of the documents with these chunks."""
        mask, places = np.zeros(self.size, np.bool_), self.find(list(ids))
        mask[places[places >= 0]] = True
        return mask

    def mask(self, scope: SearchScope) -> Mask | None:
        """Return a mask of the documents that a filter allows; None for all."""
        if not scope.conditions:
            return self._shown
        mask = np.concatenate([np.empty(0, np.bool_), *allowed(self._store, self._parts, scope.conditions)])
        mask[self._void] = False
        return mask

    def within(self, spans: Sequence[tuple[int, int]]) -> Mask:
        """Return a mask of the documents inside any of the spans of time; cached."""
        if spans not in self._within:
            inside = [within(part.arrays["ts"], spans) for part in self._parts]
            self._within[spans] = np.concatenate([np.empty(0, np.bool_), *inside])
        return self._within[spans]

    def _stale_places(self) -> Ordinals:
        stale = np.array(sorted(self._tail.log.stale), np.int64)
        found = [np.empty(0, np.int64)]
        if len(stale):
            for part, start in zip(self._parts[: len(self._files)], self._starts.tolist(), strict=False):
                places = part.places(stale)
                found.append(places[places >= 0] + start)
        return np.concatenate(found)

    def _hidden_places(self) -> Ordinals:
        """Return the documents that the store hides from its reader."""
        sessions, chunks = hidden_rows(self._store)
        others = self.find(chunks)
        said = [np.isin(part.arrays["session"], np.array(sessions, np.int64)) for part in self._parts]
        return np.concatenate([np.flatnonzero(np.concatenate([np.empty(0, np.bool_), *said])), others[others >= 0]])

    # ------------------------------------------------------------------------------------------------------- words

    def frequency(self, term: str) -> int:
        """Return the number of documents with a word; stale ones count until the files are rewritten."""
        return self._count(_bytes(term))

    def _count(self, word: bytes) -> int:
        spans = [part.words.find(word) for part in self._parts]
        if self._seen is None:
            return sum(end - start for start, end in spans)
        return sum(len(self._documents(number, *span)) for number, span in enumerate(spans))

    def _documents(self, number: int, start: int, end: int) -> Array:
        """Return the documents of a range of postings of a part, without those that the reader may not see."""
        found = self._parts[number].words.documents(start, end)
        return found if self._seen is None else found[self._seen[found + self._starts[number]]]

    def with_all(self, terms: Sequence[str], mask: Mask | None) -> Ordinals:
        """Return the documents that have all of some words, ascending; all documents if there are no words."""
        mask = self._shown if mask is None else mask
        words = [_bytes(term) for term in dict.fromkeys(terms)]
        found = [np.empty(0, np.int64)]
        for part, start in zip(self._parts, self._starts.tolist(), strict=False):
            places = part.words.with_all(words) if words else np.arange(part.size)
            found.append(places[mask[start + places]] + start if mask is not None else places + start)
        return np.concatenate(found)

    def with_row(self, terms: Sequence[str], ordinals: Ordinals) -> Ordinals:
        """Return the documents, of some in ascending order, that may have these words in a row."""
        found = [np.empty(0, np.int64)]
        for part, start, cut in self._by_part(ordinals):
            some = ordinals[cut]
            found.append(some[having_in_a_row(part.arrays, part.filters, some - start, terms)])
        return np.concatenate(found)

    def turns_with(self, term: str) -> Ordinals:
        """Return the turns of the documents with a word, in ascending order; 0 for documents without a turn."""
        return self._turns(lambda part: [part.words.find(_bytes(term))])

    def turns_with_part(self, part_of_term: str) -> Ordinals:
        """Return the turns of the documents that have a word containing some characters, ascending."""
        return self._turns(lambda part: part.words.containing(_bytes(part_of_term)))

    def _turns(self, spans_of: Callable[[IndexPart], list[tuple[int, int]]]) -> Ordinals:
        found = [np.empty(0, np.int64)]
        for number, part in enumerate(self._parts):
            turns = part.arrays["turn"]
            found += [turns[self._documents(number, *span)].astype(np.int64) for span in spans_of(part)]
        return distinct(np.concatenate(found))

    def beginning(self, prefix: str, most: int) -> list[tuple[str, int]]:
        """Return the words with a prefix and the number of documents with each, most frequent first."""
        enough = max(MIN_BEGINNINGS, 4 * most) if self._seen is None else MAX_BEGINNINGS
        found = [part.words.beginning(_bytes(prefix), enough) for part in self._parts]
        counts = Counter[bytes]()
        for number, (spans, _) in enumerate(found):
            for word, span in spans.items():
                counts[word] += span[1] - span[0] if self._seen is None else len(self._documents(number, *span))
        if not all(is_all for _, is_all in found):  # a word may be among the frequent ones of one part alone
            counts = Counter({word: self._count(word) for word, _ in _most_frequent(counts, 2 * most)})
        else:
            chosen = [word for word, _ in _most_frequent(counts, most)]
            for part, (spans, _) in zip(self._parts, found, strict=True):
                part.words.remember({word: spans.get(word, (0, 0)) for word in chosen})
        return [(word.decode("utf-8", "replace"), count) for word, count in _most_frequent(counts, most) if count]

    def scores(
        self,
        terms: Sequence[tuple[Sequence[str], float]],
        mask: Mask | None = None,
        best: Best | None = None,
    ) -> tuple[Floats, Floats]:
        """Return BM25 of every document, alone and with its neighbours; 0 for documents outside of the mask.

        Args:
            terms: The words of the question, each with its alternatives, counted together, and its weight.
            mask: As returned by ``mask``.
            best: Chooses the documents in which frequent words are counted.
        """
        own, padded = np.zeros((2, self.size), np.float32)
        mask = self._shown if mask is None else mask
        words = [([_bytes(word) for word in alternatives], weight) for alternatives, weight in terms]
        for start, scorer in self._scorers() if words else ():
            here, chosen = slice(start, start + scorer.size), None if start else best
            scorer.add(words, None if mask is None else mask[here], own[here], padded[here], chosen)
        return own, padded

    def own_scores(self, terms: Sequence[tuple[Sequence[str], float]], ordinals: Ordinals) -> Floats:
        """Return BM25 of some documents, in ascending order, without their neighbours; terms as for ``scores``."""
        words = [([_bytes(word) for word in alternatives], weight) for alternatives, weight in terms]
        found = [np.empty(0, np.float32)]
        for start, scorer in self._scorers():
            first, last = np.searchsorted(ordinals, [start, start + scorer.size]).tolist()
            if first < last:
                found.append(scorer.own(ordinals[first:last] - start, words))
        return np.concatenate(found)

    def _scorers(self) -> Iterator[tuple[int, Scorer]]:
        """Yield the scorer of all files and that of later changes, each with its first ordinal."""
        count = len(self._files)
        for parts, start in ((self._parts[:count], 0), (self._parts[count:], int(self._starts[count]))):
            if parts:
                yield start, scorer_of(parts)

    # ----------------------------------------------------------------------------------------------------- vectors

    def has_vectors(self, generation: int) -> bool:
        """Return True if the index has every vector of a generation; if not, search without its files."""
        return generation in self._generations

    def nearest(self, generation: int, query: Floats, k: int, mask: Mask | None = None) -> tuple[Ordinals, Floats]:
        """Return the documents nearest to a vector, best first, with their cosines."""
        mask = self._shown if mask is None else mask
        pieces = self._meanings(generation)
        rows = likely(
            [one.meanings for one in pieces], turned(query).astype(np.float32), k, [one.mask(mask) for one in pieces]
        )
        starts = np.cumsum([0, *(piece.meanings.size for piece in pieces)])
        which = np.searchsorted(starts, rows, side="right") - 1
        for number, piece in enumerate(pieces):
            here = which == number
            rows[here] = piece.ordinals(rows[here] - starts[number])
        rows.sort()
        cosines = self.cosines(generation, query, rows)
        is_known = ~np.isnan(cosines)
        return best(rows[is_known], cosines[is_known], k)

    def cosines(self, generation: int, query: Floats, ordinals: Array) -> Floats:
        """Return the cosines of documents; nan for documents without a vector."""
        ids = self.take("id", ordinals).tolist()
        known = self._read.setdefault(generation, {})
        missing = sorted(set(ids).difference(known))
        known.update(dict.fromkeys(missing))
        known.update(index_source.vectors(self._store, generation, missing))
        return measured(turned(query).astype(np.float32), [known[ident] for ident in ids])

    def cosines_nearly(self, generation: int, query: Floats, ordinals: Ordinals) -> Floats:
        """Return approximate cosines of documents, exact ones of later changes; nan without a vector."""
        found, whole = np.full(len(ordinals), np.nan, np.float32), turned(query).astype(np.float32)
        pieces = [piece for piece in self._meanings(generation) if piece.places is None]
        here = [(ordinals >= one.start) & (ordinals < one.start + one.meanings.size) for one in pieces]
        rows = [(one.meanings, ordinals[some] - one.start) for one, some in zip(pieces, here, strict=True)]
        for one, some, (_, own), cosines in zip(pieces, here, rows, nearly(whole, rows), strict=True):
            found[some] = np.where(np.isin(own, one.void), np.nan, cosines)
        unknown = np.isnan(found)
        found[unknown] = self.cosines(generation, query, ordinals[unknown])
        return found

    def _meanings(self, generation: int) -> list[VectorPiece]:
        tail = self._tail.meanings(self._store, generation)
        newer = np.empty(0, np.int64)
        if tail is not None:
            newer = self.find(tail[0])
        pieces = []
        for file, part, start in zip(self._files, self._parts, self._starts.tolist(), strict=False):
            listed = self._vectors.get((file.name, generation))
            if listed is not None:
                void = newer[(newer >= start) & (newer < start + file.documents)] - start
                meanings = open_meanings(self._folder, listed)
                meanings.read(self._store, generation, part.arrays["id"])
                pieces.append(VectorPiece(meanings, start, None, void))
        if tail is not None:
            pieces.append(VectorPiece(tail[1], 0, newer, np.flatnonzero(newer < 0)))
        return pieces


def _most_frequent(counts: Counter[bytes], most: int) -> list[tuple[bytes, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:most]


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", "replace")
