"""Make the store equal to a folder: read what is new or changed, move what was renamed, delete what is gone.

A file whose stamp (size, times, inode) is unchanged is not read; otherwise the hash of its content decides. Files are
read outside of transactions and written in batches: a killed process leaves whole files, and the next sync continues.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from crystal.sources import split
from crystal.sources.file_content import CleanText, FileContent, read_content, text_of
from crystal.sources.numbered_copies import numbered_copies
from crystal.sources.scan import SkippedFile, scan
from crystal.store.connection import Store
from crystal.store.sources import source_files
from crystal.store.sources.source_files import FileSource, KnownFile, Maker, ReadFile

BATCH_FILES = 64
BATCH_CHUNKS = 500
"""Number of chunks after which a transaction ends, so that other writers do not wait long."""

Progress = Callable[[int, int], None]
"""Called with the number of files done, and the total."""


@dataclass(slots=True)
class SyncReport:
    """Result of a sync.

    Attributes:
        name: The source.
        added, changed, renamed, removed, unchanged: Numbers of files; what cannot be read now is unchanged.
        chunks_new, chunks_kept: Chunks of added and changed files: only the new ones get vectors.
        redacted: Numbers of secrets and private spans that were left out, by kind.
        skipped: Files that are not indexed, with the reason: binary, too large, unreadable.
        is_whole: False if it was stopped; the next sync continues.
    """

    name: str
    added: int = 0
    changed: int = 0
    renamed: int = 0
    removed: int = 0
    unchanged: int = 0
    chunks_new: int = 0
    chunks_kept: int = 0
    redacted: dict[str, int] = field(default_factory=dict)
    skipped: list[SkippedFile] = field(default_factory=list)
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class SourceReader:
    """Settings for reading files on this machine.

    Attributes:
        clean: Leaves out secrets and private spans.
        key: Key of the hashes.
        maker: The agent and device that index.
        barred: Folders and files that are never read.
        read_as: Name of how files are cleaned and split; if it changes, all files are read again.
        now_ns: Returns the time, ns.
        is_vault: True if Markdown files are notes of Obsidian.
    """

    clean: CleanText
    key: bytes
    maker: Maker
    barred: Collection[Path]
    read_as: str
    now_ns: Callable[[], int]
    is_vault: bool = False


class SourceSync:
    """One sync of a source: make its rows equal to its folder. Idempotent; one process at a time.

    Raises:
        UnavailableError: The folder does not exist. Nothing is changed.
    """

    def __init__(self, store: Store, source: FileSource, reader: SourceReader, project: int | None = None) -> None:
        self._store, self._source, self._reader = store, source._replace(project=project), reader
        self._root = Path(source.path)
        self._found = found = scan(self._root, reader.barred, reader.now_ns())
        for path, original in [*numbered_copies(self._root, found.files, reader.now_ns())]:
            del found.files[path]
            found.skipped.append(SkippedFile(path, f"nearly the same as {original}: a copy?"))
        with store.transaction():
            source_files.begin_reading(store, source, project, reader.read_as)
        self._known = source_files.known_files(store, source.id)
        skipped = [*found.skipped, *(SkippedFile(*one) for one in found.unread.items())]
        self.report = SyncReport(source.name, skipped=skipped)
        noted = set(skipped)
        gone = ((path, one) for path, one in self._known.items() if self._is_gone(path))
        self._gone = {path: one for path, one in gone if (path, one.why) not in noted}
        self._by_hash: defaultdict[bytes, list[str]] = defaultdict(list)
        for path, one in self._gone.items():
            self._by_hash[one.sha256].append(path)
        self._overwritten: list[int] = []
        self._moves: list[tuple[int, str, str]] = []
        self._written: list[ReadFile] = []

    def _is_gone(self, path: str) -> bool:
        return path not in self._found.files and not self._found.is_unknown(path)

    def run(self, progress: Progress = lambda *_: None, should_stop: Callable[[], bool] = lambda: False) -> SyncReport:
        """Read every file that may have changed, then delete what is gone."""
        todo = [path for path, stamp in self._found.files.items() if not self._is_unchanged(path, stamp)]
        for path in self._found.files.keys() - set(todo):
            self.report.unchanged += self._is_indexed(self._known[path], path)
        kept = (one for path, one in self._known.items() if self._found.is_unknown(path))
        self.report.unchanged += sum(one.why is None for one in kept)
        for done, path in enumerate(sorted(todo)):
            progress(done, len(todo))
            if should_stop():
                self.report.is_whole = False
                break
            self._look_at(path)
            chunks = sum(len(one.chunks) for one in self._written)
            if len(self._written) + len(self._moves) >= BATCH_FILES or chunks >= BATCH_CHUNKS:
                self._write()
        self._write()
        if self.report.is_whole:
            self._delete_gone()
            self._note_skipped()
            progress(len(todo), len(todo))
            with self._store.transaction():
                source_files.end_reading(self._store, self._source.id, self._reader.now_ns() // 1_000_000)
        return self.report

    def _is_unchanged(self, path: str, stamp: str) -> bool:
        known = self._known.get(path)
        return known is not None and stamp != "" and stamp == known.stamp

    def _look_at(self, path: str) -> None:
        """Read a file and record what to write."""
        known = self._known.get(path)
        try:
            content = read_content(self._root, path, self._reader.now_ns())
        except OSError as error:  # what is known of it stays: it may be readable tomorrow
            self.report.unchanged += known is not None and known.why is None
            self.report.skipped.append(SkippedFile(path, (error.strerror or str(error)).lower()))
            return
        if content is None or self._reader.clean(path)[1]:
            shown = self._reader.clean(path)[0]
            self.report.skipped += [] if content is None else [SkippedFile(shown, "its name has a secret")]
            self._gone |= {} if known is None else {path: known}
            return
        sha = hmac.digest(self._reader.key, content.data, "sha256")
        if known is not None and known.sha256 == sha:
            self.report.unchanged += self._is_indexed(known, path)
            self._moves.append((known.id, path, content.stamp))
        elif self._by_hash[sha]:
            moved = self._gone.pop(self._by_hash[sha].pop(0))
            self._overwritten += [] if known is None else [known.id]
            self.report.renamed += self._is_indexed(moved, path)
            self._moves.append((moved.id, path, content.stamp))
            is_split_anew = self._reader.is_vault or PurePath(path).suffix != PurePath(moved.path).suffix
            if is_split_anew and moved.why is None:  # a note's name is in its titles; a suffix decides where to split
                self._written.append(self._read(path, content, sha, text_of(content)[0]))
        else:
            self._take(path, known, content, sha)

    def _take(self, path: str, known: KnownFile | None, content: FileContent, sha: bytes) -> None:
        text, why = text_of(content)
        if why is not None:
            self.report.skipped.append(SkippedFile(path, why))
        elif known is None or known.why is not None:
            self.report.added += 1
        else:
            self.report.changed += 1
        self._written.append(self._read(path, content, sha, text)._replace(why=why))

    def _read(self, path: str, content: FileContent, sha: bytes, text: str) -> ReadFile:
        clean, found = self._reader.clean(text)
        for kind, number in found.items():
            self.report.redacted[kind] = self.report.redacted.get(kind, 0) + number
        chunks = split.file_chunks(path, clean, is_vault=self._reader.is_vault)
        return ReadFile(path, content.stamp, sha, content.changed_at, chunks)

    def _is_indexed(self, known: KnownFile, path: str) -> bool:
        """Return whether a file whose content is known is indexed; if not, report why."""
        self.report.skipped += [] if known.why is None else [SkippedFile(path, known.why)]
        return known.why is None

    def _write(self) -> None:
        """Write the recorded changes in one transaction."""
        if not (self._moves or self._written):
            return
        with self._store.transaction():
            source_files.delete_files(self._store, self._overwritten)
            for ident, path, stamp in self._moves:
                source_files.move_file(self._store, ident, path, stamp)
            new, kept = source_files.write_files(self._store, self._source, self._written, self._reader.maker)
        self.report.chunks_new += new
        self.report.chunks_kept += kept
        self._moves, self._written, self._overwritten = [], [], []

    def _note_skipped(self) -> None:
        """Store the files that were skipped without being read; they have no stamp and no hash."""
        stored = source_files.known_files(self._store, self._source.id) if self.report.skipped else {}
        self._written = [ReadFile(path, "", b"", 0, (), why) for path, why in self.report.skipped if path not in stored]
        self._write()

    def _delete_gone(self) -> None:
        self.report.removed = sum(one.why is None for one in self._gone.values())
        _delete(self._store, [one.id for one in self._gone.values()])


def _delete(store: Store, files: list[int]) -> None:
    for at in range(0, len(files), BATCH_FILES):
        with store.transaction():
            source_files.delete_files(store, files[at : at + BATCH_FILES])


def remove_rows(store: Store, source: FileSource) -> None:
    """Delete a source with all of its chunks, in short transactions."""
    _delete(store, [one.id for one in source_files.known_files(store, source.id).values()])
    with store.transaction():
        source_files.delete_source(store, source.id)


def hash_key(store_key: bytes) -> bytes:
    """Return the key of the hashes of files."""
    return hashlib.blake2b(b"sources", key=store_key).digest()
