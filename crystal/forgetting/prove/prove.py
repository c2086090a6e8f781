"""Prove that something is forgotten on this machine: check every byte of every file of crystal.

Rows are counted by their ids, tables are read value by value, the keyword index is queried for the words, archives and
sealed blobs are opened, and all files are read raw to their last byte, including free pages, logs and leftovers. If
something cannot be read, it is reported and nothing is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crystal import transcript
from crystal.errors import CrystalError, Damaged
from crystal.forgetting.match.multi_pattern import PIECE
from crystal.forgetting.match.needles import Needles
from crystal.forgetting.match.redacted_line import is_shell
from crystal.forgetting.prove import files as places
from crystal.forgetting.prove.open_database import Readable, opened
from crystal.forgetting.request import ForgetContext
from crystal.store import Store
from crystal.store.forget import traces

MAX_TRACES = 10_000
MAX_TRANSCRIPTS = 10_000


class NotProved(Damaged):
    """Forgotten text is still in a file, or a file could not be read completely."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Location of leftover data. Holds no text of it.

    ``kind`` is text, word, line (an archived line, known by its id), row (of a table), index (a word of the keyword
    index, or an entry without a text), name (the file's own), outbox. ``offset`` counts bytes to the first of
    ``times`` places; of what is decompressed, in the decompressed text.
    """

    file: str
    offset: int
    kind: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Unread:
    """Item that could not be read, and the reason."""

    file: str
    why: str


@dataclass(frozen=True, slots=True)
class ForgetProof:
    """Result of a proof.

    Attributes:
        files, bytes: Number of files and bytes read.
        texts: Number of forgotten texts.
        by_rows_only: Number of texts without unique words: too short, or also occurring elsewhere.
        traces: Locations of leftover data.
        unread: Items that could not be read.
        transcripts: Claude Code's files that hold it. They do not belong to crystal and do not count.
    """

    files: int
    bytes: int
    texts: int
    by_rows_only: int
    traces: tuple[Trace, ...]
    unread: tuple[Unread, ...]
    transcripts: tuple[str, ...]

    @property
    def proved(self) -> bool:
        """True if everything was read and nothing was found."""
        return not self.traces and not self.unread

    def as_dict(self) -> dict[str, Any]:
        """Return the keys that ``--json`` prints."""
        return {
            "proved": self.proved,
            "files": self.files,
            "bytes": self.bytes,
            "texts": self.texts,
            "by_rows_only": self.by_rows_only,
            "findings": [asdict(one) for one in self.traces],
            "unread": [asdict(one) for one in self.unread],
            "transcripts": list(self.transcripts),
        }


def prove(grounds: ForgetContext, needles: Needles) -> ForgetProof:
    """Search every file of crystal on this machine for what was forgotten. Changes nothing.

    Args:
        grounds: This machine.
        needles: The patterns, built before the text was forgotten.
    """
    with grounds.open_mirror() as mirror:
        stores = [grounds.store, *([mirror] if mirror is not None else [])]
        search = _Search(grounds, needles, stores)
        for store in stores:
            search.look_into_store(store)
        for one in places.files_of((grounds.ldm_home, grounds.data_dir), grounds.ldm_home / "models", grounds.roots):
            if isinstance(one, tuple):
                search.unread.append(Unread(*one))
            else:
                search.look_into_file(one)
        search.look_into_outbox()
        found = tuple(search.transcripts())
    return ForgetProof(
        search.files,
        search.size,
        needles.asked,
        needles.by_rows_only,
        tuple(search.seen.values()),
        tuple(search.unread),
        found,
    )


@dataclass
class _Search:
    """State of one proof."""

    grounds: ForgetContext
    needles: Needles
    stores: Sequence[Store]
    seen: dict[tuple[str, str], Trace] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)
    files: int = 0
    size: int = 0

    def add(self, file: str, offset: int, kind: str) -> None:
        before = self.seen.get((file, kind))
        if before is not None:
            self.seen[file, kind] = Trace(file, min(offset, before.offset), kind, before.times + 1)
        elif len(self.seen) < MAX_TRACES:
            self.seen[file, kind] = Trace(file, offset, kind)

    # -- databases ---------------------------------------------------------------------------------------------------

    def look_into_store(self, store: Store) -> None:
        """Check an open database for rows, values and words."""
        name = places.name_of(store.path, self.grounds.ldm_home)
        try:
            if traces.rows_left(store, self.needles.lines, self.needles.memories):
                self.add(name, 0, "row")
            for table, batch in _batches(traces.values(store)):
                if any(True for _ in self.needles.seeker.find(batch)):
                    self.add(f"{name}: {table}", 0, "row")
            for _ in range(traces.entries_alone(store) + len(traces.indexed_words(store, self.needles.stems))):
                self.add(name, 0, "index")
            if sealed := traces.blobs_aside(store):
                self.unread.append(Unread(f"{name}: quarantine", f"{sealed} refused blobs that cannot be opened"))
        except CrystalError as error:
            self.unread.append(Unread(name, error.message))

    def _look_into_copy(self, found: places.Found) -> None:
        if any(found.path == store.path for store in self.stores):
            return
        try:
            with traces.opened_copy(found.path) as store:
                self.look_into_store(store)
        except CrystalError as error:
            self.unread.append(Unread(found.name, error.message))

    # -- files -------------------------------------------------------------------------------------------------------

    def look_into_file(self, found: places.Found) -> None:
        """Check a file to its last byte, and its decompressed content."""
        for _ in self.needles.seeker.find(found.name.encode("utf-8", "surrogateescape")):
            self.add(found.name, 0, "name")
        try:
            with opened(found.path) as file:
                head = file.read(places.HEAD) or b""
            self.files += 1
            if places.is_compressed(head):
                self._look_at_lines(found.name, places.decompressed(found.path, head))
                self._counts(found.size)
            else:
                self._look_at_bytes(found, head)
        except FileNotFoundError:
            return
        except OSError as error:
            self.unread.append(Unread(found.name, error.strerror or str(error)))
        except places.Unreadable as error:
            self.unread.append(Unread(found.name, str(error)))
        if traces.is_database(head):
            self._look_into_copy(found)

    def _look_at_bytes(self, found: places.Found, head: bytes) -> None:
        words = places.word_list(found.path) if head.startswith(places.INDEX_MAGIC) else None
        with opened(found.path) as file:
            for offset, number in self.needles.seeker.find_in(_read(file, self._counts)):
                stop = offset + len(self.needles.seeker.strings[number])
                if self.needles.is_text(number):
                    self.add(found.name, offset, "text")
                elif words is None or not words.joins(offset, stop):
                    self.add(found.name, offset, "word")

    def _counts(self, size: int) -> None:
        self.size += size
        self.grounds.progress("looking at every byte", self.size, 0)

    def _look_at_lines(self, name: str, texts: Iterator[bytes]) -> None:
        """Check the decompressed lines of an archive. Lines that stay may contain the text."""
        at = 0
        for text in places.lines_of(texts):
            for offset, kind in self._in_lines(text):
                self.add(name, at + offset, kind)
            at += len(text)

    def _in_lines(self, text: bytes) -> Iterator[tuple[int, str]]:
        if self.needles.lines:
            at = 0
            for line in text.split(b"\n"):
                if transcript.line_facts(line).uuid in self.needles.lines and not is_shell(line):
                    yield at, "line"
                at += len(line) + 1
        for offset, number in self.needles.find_in_lines(text):
            start, stop = text.rfind(b"\n", 0, offset) + 1, text.find(b"\n", offset)
            if not self._stays(text[start : stop if stop >= 0 else len(text)]):
                yield offset, "text" if self.needles.is_text(number) else "word"

    def _stays(self, line: bytes) -> bool:
        """Return True if the line is still in the memory: then it may contain the text."""
        uuid = transcript.line_facts(line).uuid
        if uuid is None or uuid in self.needles.lines:
            return False
        return any(traces.has_line(store, uuid) for store in self.stores)

    # -- elsewhere ---------------------------------------------------------------------------------------------------

    def look_into_outbox(self) -> None:
        """Check the sealed blobs that wait for other machines."""
        if self.grounds.outbox is None:
            return
        try:
            for place in self.grounds.outbox.find(lambda payload: any(True for _ in self._in_lines(payload))):
                self.add(f"outbox: {place}", 0, "outbox")
            if unopened := self.grounds.outbox.unopened():
                self.unread.append(Unread("outbox", f"{unopened} blobs that no key here opens"))
        except CrystalError as error:
            self.unread.append(Unread("outbox", error.message))

    def transcripts(self) -> Iterator[str]:
        """Return the files of Claude Code that hold one of the texts."""
        count = 0
        for root in self.grounds.roots:
            for path in sorted(root.rglob("*.jsonl")):
                count += 1
                if count > MAX_TRANSCRIPTS:
                    return
                if self._holds(path):
                    yield str(path)

    def _holds(self, path: Path) -> bool:
        try:
            with path.open("rb", buffering=0) as file:
                return any(self.needles.is_text(number) for _, number in self.needles.seeker.find_in(_read(file)))
        except OSError:
            return False


def _read(file: Readable, tell: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """Yield a file in pieces, and report the length of each."""
    while piece := file.read(PIECE):
        tell(len(piece))
        yield piece


def _batches(values: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Join many small values of one table into byte strings."""
    batch: list[bytes] = []
    size, of = 0, ""
    for table, value in values:
        if batch and (table != of or size > PIECE):
            yield of, b"\0".join(batch)
            batch, size = [], 0
        of = table
        batch.append(value)
        size += len(value)
    if batch:
        yield of, b"\0".join(batch)
