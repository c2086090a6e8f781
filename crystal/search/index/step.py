"""Do one step of an update of the index: read a snapshot, write files from it, change the list."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, takewhile
from pathlib import Path
from typing import TypeVar

import numpy as np

from crystal.search.index.array_types import Array
from crystal.search.index.index_files import (
    SYMPTOMS,
    IndexDamagedError,
    IndexFileContents,
    files_in,
    path_of,
    remove_file,
    write_file,
)
from crystal.search.index.index_parts import MAX_DOCUMENTS, IndexPart, build_part, merge_parts, open_meanings, open_part
from crystal.search.index.part_vectors import build_arrays
from crystal.search.index.stored_vectors import MAX_STORED, having_arrays
from crystal.store import Store
from crystal.store.search import index_log, index_source
from crystal.store.search.index_log import Change, Log, PartFile, State
from crystal.store.search.tokenizer import tokenizer
from crystal.store.search.vectors import generations

T = TypeVar("T")

FRESH_AT_ONCE = 16_384
MIN_AT_ONCE = 4_096
"""Number of documents that are read before a step checks whether its time is over."""

SMALL_PART = 4_096
WAITING, WAITING_SHARE = 4_096, 16
"""Minimum new vectors for a rewrite of a larger part: ``WAITING``, or one in ``WAITING_SHARE`` of its documents, or all
that it lacks. Until then they are read from the store."""


@dataclass(frozen=True, slots=True)
class _Source:
    """An input of a new part: a part, its file if it has one, and a mask of its valid documents."""

    part: IndexPart
    file: PartFile | None
    kept: Array

    @property
    def size(self) -> int:
        """Return the number of its valid documents."""
        return int(np.count_nonzero(self.kept))

    @property
    def is_changed(self) -> bool:
        """Return True if it has no file yet, or some documents of its file are no longer valid."""
        return self.file is None or self.size < self.part.size


class IndexStep:
    """One step of an update, from one snapshot; call ``take`` once."""

    def __init__(self, store: Store, folder: Path, now: int, is_over: Callable[[], bool]) -> None:
        self._store, self._folder, self._now, self._is_over = store, folder, now, is_over
        self._files: list[PartFile] = []
        self._dimensions: dict[int, int] = {}
        self._added: list[PartFile] = []
        self._removed: list[str] = []
        self._forgets = False

    def take(self) -> bool:
        """Do the most urgent update; return False if nothing is to do, or another process was faster.

        Raises:
            IndexDamagedError: A file to merge differs from what was written.
        """
        with self._store.reading():
            state = index_log.read_state(self._store)
            try:
                what = None if state is None else self._changes(state)
            except FileNotFoundError:  # another process started the index over, and deleted these files
                for file in self._added:
                    remove_file(path_of(self._folder, file.name))
                return False
            except SYMPTOMS as error:
                raise IndexDamagedError(f"it cannot be put together: {error!r}") from error
        if state is None or what is None:
            return False
        leftovers = self._leftovers() if self._forgets else []
        is_changed = index_log.change(self._store, state, what())
        gone = self._removed if is_changed else [file.name for file in self._added]
        for path in [*(path_of(self._folder, name) for name in gone), *(leftovers if is_changed else [])]:
            remove_file(path)
        return is_changed

    def _leftovers(self) -> list[Path]:
        """Return files that are not in the list, left by killed processes or by one whose change comes too late.

        They may contain text that is deleted now. Call this before the list changes; later files are of a later state.
        """
        known = index_log.listed(self._store).union(file.name for file in self._added)
        paths = {path_of(self._folder, name) for name in known}
        return [path for path in files_in(self._folder) if path not in paths]

    def _changes(self, state: State) -> Callable[[], Change] | None:
        self._files = index_log.parts(self._store)
        self._dimensions = {one.id: one.dimension for one in generations(self._store)}
        if state.to_read is not None:
            to_read = self._read_on(state, state.to_read)
            return lambda: Change(self._added, to_read=to_read, generations=state.generations)
        known = index_log.generations(self._store)
        if known != state.generations:
            self._change_generations(state, known)
            return lambda: Change(self._added, self._removed, generations=known)
        log = index_log.read_log(self._store)
        self._forgets = not log.stale.issubset(log.fresh)
        later = frozenset(log.fresh[FRESH_AT_ONCE:])
        waiting = self._take_in(log, later, tuple(known))
        if not (self._added or self._removed or index_log.has_news(self._store)):
            return None
        done = (log.stale | frozenset(log.embedded)) - later if later else None
        return lambda: Change(self._added, self._removed, None, known, log.last, done=done, waiting=waiting)

    def _read_on(self, state: State, newest: int) -> int | None:
        """Build a part of the next chunks, from the newest to the oldest; return the next one to read."""
        rows = _for_a_while(index_source.documents_down_from(self._store, newest), self._is_over)
        contents = build_part(rows, tokenizer(self._store))
        ids, known = contents.arrays["id"], index_log.generations(self._store)
        if not len(ids):
            return None
        self._write(contents, [one for one, model in state.generations.items() if known.get(one) == model])
        return int(ids.min()) - 1

    # ---------------------------------------------------------------------------------------------------- taking in

    def _take_in(self, log: Log, later: frozenset[int], tracked: Sequence[int]) -> frozenset[int]:
        """Rewrite the parts that change; return the chunks whose new vectors stay in the log."""
        sources = self._sources(np.array(sorted(log.stale - later), np.int64))
        fresh = [chunk for chunk in log.fresh if chunk not in later]
        if fresh:
            part = IndexPart(build_part(index_source.documents(self._store, fresh), tokenizer(self._store)))
            sources.append(_Source(part, None, np.ones(part.size, np.bool_)))
        group = merged_next([source.size for source in sources])
        others = set(range(len(sources))).difference(group)
        changed = {at for at in others if sources[at].is_changed}
        for some in [group, *([at] for at in sorted(changed))]:
            self._put_together([sources[at] for at in some], tracked)
        unchanged = [sources[at] for at in sorted(others - changed)]
        return frozenset(chunk for source in unchanged for chunk in self._unwritten(source, log.embedded, tracked))

    def _unwritten(self, source: _Source, embedded: Sequence[int], tracked: Sequence[int]) -> Iterable[int]:
        """Put new vectors into a part that does not change; return its chunks whose vectors stay in the log."""
        assert source.file is not None
        ids = np.array(embedded, np.int64)
        own = _places(ids, source.part.places(ids))
        return own if own and not self._embed(source.file, own, tracked) else ()

    def _sources(self, stale: Array) -> list[_Source]:
        """Return the parts in use, each with the documents that are still valid."""
        parts = [(open_part(self._folder, file), file) for file in self._files if file.kind == "words"]
        return [_Source(part, file, ~part.holding(stale)) for part, file in parts]

    def _put_together(self, sources: Sequence[_Source], tracked: Sequence[int]) -> None:
        """Merge some parts into one."""
        for source in sources:
            if source.file is not None:
                self._removed += [one.name for one in self._files if source.file.name in (one.name, one.of)]
        if not any(source.kept.any() for source in sources):
            return
        merged = merge_parts([source.part for source in sources], [source.kept for source in sources])
        self._write(merged, tracked)

    def _embed(self, file: PartFile, own: dict[int, int], tracked: Sequence[int]) -> bool:
        """Write a part's vectors again with the new ones; return False if they are too few for that."""
        for generation in tracked:
            known = self._vectors_of(file, generation)
            missing = file.documents - (0 if known is None else open_meanings(self._folder, known).count)
            enough = min(WAITING, file.documents // WAITING_SHARE, max(1, missing))
            if file.documents > SMALL_PART and len(own) < enough:
                return False
        for generation in tracked:
            known = self._vectors_of(file, generation)
            self._write_vectors(file.name, open_part(self._folder, file).arrays["id"], generation)
            if known is not None:
                self._removed.append(known.name)
        return True

    # -------------------------------------------------------------------------------------------------- generations

    def _vectors_of(self, words: PartFile, generation: int) -> PartFile | None:
        found = (one for one in self._files if one.of == words.name and one.generation == generation)
        return next(found, None)

    def _change_generations(self, state: State, known: dict[int, str]) -> None:
        """Drop the vectors of models that are no longer used, and write the existing vectors of a new model."""
        current = {one for one, model in known.items() if state.generations.get(one) == model}
        for file in self._files:
            is_void = file.generation not in known or file.generation in state.generations
            if file.kind == "vectors" and file.generation not in current and is_void:
                self._removed.append(file.name)
        self._files = [file for file in self._files if file.name not in self._removed]
        for generation in known.keys() - current:
            for file in [one for one in self._files if one.kind == "words"]:
                if self._vectors_of(file, generation) is None:
                    self._write_vectors(file.name, open_part(self._folder, file).arrays["id"], generation)

    # ------------------------------------------------------------------------------------------------------ writing

    def _write(self, contents: IndexFileContents, tracked: Sequence[int]) -> None:
        """Write documents with their words, and their vectors of some generations."""
        ids = contents.arrays["id"]
        name = self._add_file("words", None, None, len(ids), contents)
        for generation in tracked:
            self._write_vectors(name, ids, generation)

    def _write_vectors(self, of: str, ids: Array, generation: int) -> None:
        """Write the vectors of a part's documents, if there are any."""
        places = _places(ids)
        found = index_source.vectors(self._store, generation, ids.tolist())
        rows = ((places[ident], vector) for ident, vector in found)
        first = next(rows, None)
        if first is not None:
            is_small = index_log.count_chunks(self._store) <= MAX_STORED
            build = having_arrays if is_small else build_arrays
            arrays = build(chain([first], rows), len(ids), self._dimensions[generation])
            self._add_file("vectors", of, generation, len(ids), IndexFileContents({}, arrays))

    def _add_file(
        self, kind: str, of: str | None, generation: int | None, size: int, contents: IndexFileContents
    ) -> str:
        name = f"{kind}-{secrets.token_hex(8)}"
        written = write_file(path_of(self._folder, name), contents.meta, contents.arrays)
        self._added.append(PartFile(name, kind, of, generation, size, *written, self._now))
        return name


def _places(ids: Array, places: Array | None = None) -> dict[int, int]:
    """Map chunks to their ordinals, without those that have none; by default the ordinals are those of ``ids``."""
    listed = range(len(ids)) if places is None else places.tolist()
    return {ident: place for ident, place in zip(ids.tolist(), listed, strict=True) if place >= 0}


def _for_a_while(items: Iterator[T], is_over: Callable[[], bool]) -> Iterator[T]:
    """Yield at least ``MIN_AT_ONCE`` items, and more while time is left."""
    for count, item in enumerate(items, 1):
        yield item
        if count % MIN_AT_ONCE == 0 and is_over():
            return


SMALL = 512
"""Parts with fewer documents are merged as soon as there are two, which takes a few milliseconds."""

FAN_OUT = 8


def merged_next(sizes: Sequence[int], *, most: int = MAX_DOCUMENTS) -> list[int]:
    """Return the parts to merge next, as indexes in ``sizes``; empty if no level has enough parts.

    They are the smallest parts of the first level with enough, as many as fit into one part of ``most`` documents.
    """
    levels: dict[int, list[int]] = {}
    for at in sorted((at for at, size in enumerate(sizes) if size), key=lambda at: (sizes[at], at)):
        levels.setdefault(_level(sizes[at]), []).append(at)
    for level, members in sorted(levels.items()):
        together = accumulate(sizes[at] for at in members[:FAN_OUT])
        fitting = sum(1 for _ in takewhile(most.__ge__, together))
        if fitting > 1 and len(members) >= (FAN_OUT if level else 2):
            return members[:fitting]
    return []


def _level(documents: int) -> int:
    level = 0
    while documents >= SMALL:
        documents //= FAN_OUT
        level += 1
    return level
