"""Build and open parts of the index: documents and their words, from the store or from other parts.

Chunks that are not in the files yet are a part and vectors in memory, kept until the store changes.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from crystal.model.quick_dataclass import dataclass
from crystal.search.index.array_types import Array
from crystal.search.index.attributes import NAMES, ROLES, Documents, documents_of, merge_documents
from crystal.search.index.index_files import IndexDamagedError, IndexFileContents, open_file, path_of, resident_bytes
from crystal.search.index.part_vectors import PartVectors, build_arrays
from crystal.search.index.stored_vectors import StoredVectors
from crystal.search.index.terms import Tokenize, document_words, joint_words
from crystal.search.index.word_pairs import Filters, PairCollector, filters_of, merge_pairs
from crystal.search.index.words import PartWords, WordCollector, merge_words
from crystal.store import Store
from crystal.store.connection import Row
from crystal.store.hidden import Hidden
from crystal.store.search import index_log, index_source
from crystal.store.search.index_log import Log, PartFile, State
from crystal.store.search.index_source import DocumentRow
from crystal.store.search.tokenizer import tokenizer

Opened = TypeVar("Opened")

MAX_DOCUMENTS = 49_152
"""Maximum documents of one part, which limits the memory for building and merging."""


class IndexPart:
    """Documents with their words, over a file or over arrays in memory."""

    def __init__(self, contents: IndexFileContents) -> None:
        self.names: dict[str, list[str]] = contents.meta["names"]
        self.arrays = contents.arrays
        self.words = PartWords(self.arrays)
        self.size = len(self.arrays["id"])
        self.scorer: object | None = None  # what a search has worked out of it and the parts after it

    @cached_property
    def joined(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the documents (without the last) whose successor is in the same conversation."""
        return np.asarray(self.arrays["first"][1:] == 0)

    @cached_property
    def begins(self) -> npt.NDArray[np.int64]:
        """Return the indexes of the first documents of conversations."""
        return np.flatnonzero(self.arrays["first"])

    @cached_property
    def filters(self) -> Filters:
        """Return the offset and the size, in bytes, of each document's filter of word pairs."""
        return filters_of(self.arrays["length"])

    def places(self, ids: Array) -> Array:
        """Return the ordinals of chunks, -1 for those that are not in this part."""
        if not self.size or not len(ids):
            return np.full(len(ids), -1, np.int64)
        known, order = self.arrays["id"], self.arrays["by_id"]
        wanted = ids.astype(known.dtype)  # for another type all known ones are copied
        at = np.minimum(np.searchsorted(known, wanted, sorter=order), self.size - 1)
        found = order[at].astype(np.int64)
        return np.where(known[found] == ids, found, -1)

    def attribute(self, name: str, places: Array) -> Array:
        """Return an attribute of documents, see ``Index.take``."""
        if name in ROLES:
            is_it = np.array([role == ROLES[name] for role in self.names["role"]], np.bool_)
            return is_it[self.arrays["role"][places]]
        if name in NAMES:
            return np.array(self.names[name], object)[self.arrays[name][places]]
        return self.arrays[name][places]

    def holding(self, ids: Array) -> npt.NDArray[np.bool_]:
        """Return a mask of the documents whose chunk is among ``ids``."""
        places = self.places(ids)
        mask = np.zeros(self.size, np.bool_)
        mask[places[places >= 0]] = True
        return mask


def build_part(rows: Iterable[tuple[DocumentRow, str]], tokenize: Tokenize) -> IndexFileContents:
    """Build a part of the next documents, at most ``MAX_DOCUMENTS``; their texts are not kept."""
    gathering, pairs = WordCollector(), PairCollector()
    documents: list[DocumentRow] = []
    lengths: list[int] = []
    for row, text in islice(rows, MAX_DOCUMENTS):
        words = document_words(tokenize, text, row.ts)
        gathering.add([*words.header, *words.text, *words.parts, *joint_words(text)])
        pairs.add(words.text)
        documents.append(row)
        lengths.append(len(words.text))
    arranged = documents_of(documents, lengths)
    return _contents(
        arranged, {**gathering.arrays(arranged.order), **pairs.arrays(arranged.order, arranged.arrays["length"])}
    )


def merge_parts(parts: Sequence[IndexPart], kept: Sequence[Array]) -> IndexFileContents:
    """Make one part of several, with the documents that are kept."""
    arranged, orders = merge_documents([(part.names, part.arrays) for part in parts], kept)
    words = merge_words([part.words for part in parts], orders)
    pairs = merge_pairs([part.arrays for part in parts], orders, arranged.arrays["length"])
    return _contents(arranged, {**words, **pairs})


def _contents(documents: Documents, words: dict[str, Array]) -> IndexFileContents:
    return IndexFileContents({"names": documents.names}, {**documents.arrays, **words})


# ----------------------------------------------------------------------------------------------------------- opened


MAX_RESIDENT = 320_000_000
"""If more bytes of mapped files than this are in memory, a search releases them before it begins."""

MAX_KEPT = 32 << 20
"""Freed memory that is kept for the next array, and size from which an array's memory is always returned."""
_MALLOC_OPTIONS = (-1, -3)
"""``M_TRIM_THRESHOLD`` and ``M_MMAP_THRESHOLD`` of the GNU C library."""

_opened: dict[Path, tuple[IndexFileContents, Any]] = {}


def open_part(folder: Path, file: PartFile) -> IndexPart:
    """Return the part in a file; a process opens each once.

    Raises:
        IndexDamagedError: The file is missing, or not the one that was written.
    """
    return _open(folder, file, IndexPart)


def open_meanings(folder: Path, file: PartFile) -> PartVectors:
    """Return the vectors in a file, as ``open_part``; ``StoredVectors`` are to be read before they are compared."""
    return _open(folder, file, _meanings_in)


def _meanings_in(contents: IndexFileContents) -> PartVectors:
    kind = StoredVectors if "has" in contents.arrays else PartVectors
    return kind(contents.arrays)


def spare_memory() -> None:
    """Release the mapped files' memory if it is large, because the pages of many searches add up."""
    _keep_freed()
    if _opened and resident_bytes() > MAX_RESIDENT:
        for contents, _ in list(_opened.values()):
            contents.let_go()


@cache
def _keep_freed() -> None:
    """Make the C library keep freed memory for the next array.

    By default it returns a large array to the system, which clears the memory of the next one page by page: a tenth of
    a search. Only the GNU library on Linux can be told.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        for option in _MALLOC_OPTIONS:
            ctypes.CDLL(None).mallopt(option, MAX_KEPT)


def forget_others(folder: Path, names: Iterable[str]) -> None:
    """Close all files of a folder except some."""
    kept = {path_of(folder, name) for name in names}
    if _opened.keys() <= kept:
        return
    for path in [path for path in list(_opened) if path.parent == folder and path not in kept]:
        _opened.pop(path, None)


def _open(folder: Path, file: PartFile, make: Callable[[IndexFileContents], Opened]) -> Opened:
    path = path_of(folder, file.name)
    found = _opened.get(path)
    if found is None:
        try:
            contents = open_file(path, file)
            found = _opened[path] = contents, make(contents)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise IndexDamagedError(f"{path.name}: {error}") from error
    return cast("Opened", found[1])


@dataclass(slots=True)
class Tail:
    """The chunks that changed since the files were written.

    Attributes:
        part: Those that were read from the store; None if there are none.
        log: The chunks that are stale in the files, and those with a new vector.
        vectors: By generation, if requested: the chunks in ascending order, with their vectors.
    """

    part: IndexPart | None
    log: Log
    vectors: dict[int, tuple[Array, PartVectors] | None] = field(default_factory=dict)

    def meanings(self, store: Store, generation: int) -> tuple[Array, PartVectors] | None:
        """Return the vectors that a generation has of these chunks; None if it has none."""
        if generation not in self.vectors:
            self.vectors[generation] = vectors_of(store, generation, (*self.log.fresh, *self.log.embedded))
        return self.vectors[generation]


_kept: dict[tuple[Path, Hidden | None], tuple[State, Row, Tail]] = {}


def read_tail(store: Store, state: State) -> Tail:
    """Return the changes of the present snapshot, cached until the store changes."""
    counted = index_log.count_log(store)
    reader = store.path, store.hidden
    known = _kept.get(reader)
    if known is not None and known[:2] == (state, counted):
        return known[2]
    tail = tail_of(store, index_log.read_log(store))
    _kept[reader] = (state, counted, tail)
    return tail


def tail_of(store: Store, log: Log) -> Tail:
    """Read the chunks that a log calls fresh."""
    if not log.fresh:
        return Tail(None, log)
    return Tail(IndexPart(build_part(index_source.documents(store, log.fresh), tokenizer(store))), log)


def vectors_of(store: Store, generation: int, ids: tuple[int, ...]) -> tuple[Array, PartVectors] | None:
    """Return the vectors that a generation has of some chunks, ascending by chunk."""
    rows = sorted(index_source.vectors(store, generation, ids))
    if not rows:
        return None
    dimension = len(rows[0][1])
    arrays = build_arrays(((at, vector) for at, (_, vector) in enumerate(rows)), len(rows), dimension)
    return np.array([ident for ident, _ in rows], np.int64), PartVectors(arrays)
