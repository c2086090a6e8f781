"""Capture files that are rewritten, and databases: compare their records with those seen before, keep what is new.

What is new becomes lines of a transcript that no file holds: its watermark counts the bytes of these lines. A record
that changed comes once more, marked as revised; one that disappeared stays. A record is noted as seen in the
transaction that stores it, so a process may die anywhere here.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from crystal.capture import finder, tail
from crystal.capture.damage import damage_of, noting_damage, refuse_damaged, stamp_of_damaged
from crystal.capture.engine import MAX_RACES, Capture, Tally, WholeFiles
from crystal.capture.meeting import is_below
from crystal.capture.said_again import Said, gists, is_wanted, known_ids, said_again, says_less
from crystal.capture.source import DatabaseChangedError, opened_source
from crystal.config.harnesses import Root
from crystal.errors import CrystalError, WatermarkMovedError
from crystal.model.capture import Origin, RawSegment, Watermark
from crystal.model.named_tuple import NamedTuple
from crystal.store.capture import ledger
from crystal.store.capture import snapshots as seen
from crystal.store.capture.snapshots import SeenRecord, claim_records
from crystal.store.capture.turns import is_of_another_session
from crystal.store.sessions.conversations import turns_of_lines
from crystal.transcript.line import clean_text
from crystal.transcript.line_context import complete
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader
from crystal.transcript.reader import identify, reader_of, split_key
from crystal.transcript.snapshot import Snapshot, SourceError

T = TypeVar("T")

REST_SECONDS = 60
"""A file that was not written for so long is not in the middle of a write."""


class Container(NamedTuple):
    """A file with conversations, and the folder that it was found in."""

    found: finder.TranscriptFile
    root: Root


def containers(
    capture: Capture, roots: Sequence[Root] | None = None, refusal: finder.Refusal = lambda *_: None
) -> Iterator[Container]:
    """Yield every file of conversations that is rewritten, and every database, in all folders or in some, once.

    ``refusal`` is told of what is unreadable.
    """
    among = capture.roots if roots is None else roots
    seen = set[str]()
    for root in finder.existing(root for root in among if root.place.form != "lines"):
        for found in finder.in_root(root, capture.folders, refusal):
            if found.name not in seen:
                seen.add(found.name)
                yield Container(found, root)


def _sweep(capture: Capture, roots: Sequence[Root], tally: Tally) -> None:
    """Capture what is new in every such file in some folders."""
    for container in changed(capture, containers(capture, roots, tally.fail)):
        capture.attempt(container.found.path, tally, partial(_capture_at, capture, container))


def changed(capture: Capture, among: Iterable[Container]) -> Iterator[Container]:
    """Yield the files that are not as they were when they were read."""
    stamps = seen.file_stamps(capture.store)
    return (container for container in among if stamps.get(container.found.name) != container.found.stamp)


def _capture_at(capture: Capture, container: Container, _: Path, tally: Tally) -> None:
    if not _may_be_early(capture, container):
        capture_file(capture, container, tally)


def _may_be_early(capture: Capture, container: Container) -> bool:
    """Return whether a file of copies was just written, and there are files that may have its conversation later."""
    if capture.clock() - container.found.modified >= 1000 * container.root.place.rest_seconds:
        return False
    others = [root for root in capture.roots if root.harness == container.root.harness and not root.place.are_copies]
    return any(True for _ in containers(capture, others))


def is_elsewhere(capture: Capture, container: Container, key: str) -> bool:
    """Return whether a conversation in a file of copies is in another file that has more of it."""
    return container.root.place.are_copies and _is_in_file(capture, key, of_copies=False)


def _is_in_file(capture: Capture, key: str, *, of_copies: bool) -> bool:
    roots = [capture.folders.root_of(path) for path in seen.paths_with(capture.store, key)]
    return any(root is not None and root.place.are_copies is of_copies for root in roots)


def _meet(capture: Capture, root: Root, only: Collection[str] | None) -> set[str]:
    """Note what is in a folder, or in some of its files, as there before crystal; return what cannot be read."""
    unread: set[str] = set()
    for container in containers(capture, [root], lambda path, _: unread.add(str(path))):
        if only is None or is_below(container.found.path, only):
            try:
                capture_file(capture, container, Tally(), meeting=True)
            except (CrystalError, OSError):
                unread.add(container.found.name)
    return unread


WHOLE_FILES = WholeFiles(_meet, _sweep)


def capture_file(
    capture: Capture, container: Container, tally: Tally, *, only: Collection[str] | None = None, meeting: bool = False
) -> None:
    """Capture what is new in one file.

    Args:
        capture: The machine's capture.
        container: The file.
        tally: Counts what came.
        only: The keys of some conversations, which are captured with what was there before crystal.
        meeting: Only note what is there, as there before crystal.

    Raises:
        SourceError: It has another form than its reader knows.
        TranscriptRefusedError, TranscriptBlockedError, UnavailableError: It cannot be read now.
    """
    retried(lambda: _capture_file(capture, container, tally, only=only, meeting=meeting))


def retried(step: Callable[[], T], race: type[CrystalError] = DatabaseChangedError) -> T:
    """Run a step, again if another program was faster: by default, if a database's owner wrote to it meanwhile."""
    for _ in range(MAX_RACES):  # what was captured before stays, so each try gets further
        with contextlib.suppress(race):
            return step()
    return step()


def _capture_file(
    capture: Capture, container: Container, tally: Tally, *, only: Collection[str] | None, meeting: bool
) -> None:
    path, stamp, now = container.found.path, container.found.stamp, capture.clock()
    stamps = seen.stamps(capture.store, path)
    if only is None:
        if stamps.get("") == stamp:
            return
        refuse_damaged(stamps.get(""), stamp, now)
    try:
        is_whole = _capture_new(capture, container, tally, stamps, only=only, meeting=meeting)
    except SourceError as error:
        if only is None and not meeting and _is_at_rest(capture, container):
            _stamp(capture, path, "", stamp_of_damaged(stamp, error, now))
        raise
    if only is None and is_whole:
        _stamp(capture, path, "", stamp)


def _capture_new(
    capture: Capture,
    container: Container,
    tally: Tally,
    stamps: Mapping[str, str],
    *,
    only: Collection[str] | None,
    meeting: bool,
) -> bool:
    """Capture the conversations of a file that are new or wanted. Return whether all of it was there to be read."""
    try:
        with opened_container(capture, container) as (reader, source):
            for conversation in reader.conversations(source):
                one = ConversationCapture(capture, container, reader, source, conversation, tally)
                is_wanted = one.key in only if only is not None else stamps.get(one.key) != conversation.stamp
                if is_wanted and not is_elsewhere(capture, container, one.key):
                    with noting_damage(source) as is_whole:
                        one.note() if meeting else one.capture(skipped_too=only is not None)
                    if is_whole():
                        _stamp(capture, container.found.path, one.key, conversation.stamp)
    except FileNotFoundError:
        return False
    if (damage := damage_of(source)) is not None:
        raise damage
    return not source.is_unfinished


@contextlib.contextmanager
def opened_container(capture: Capture, container: Container) -> Iterator[tuple[SnapshotReader, Snapshot]]:
    """Open a file for its reader, and give both."""
    path, reader = container.found.path, _reader_of(container)
    form, sides = container.root.place.form, capture.sides_of(path, reader)
    with opened_source(path, form, capture.folders, sides) as source:
        source.sessions = [split_key(key)[1:] for key in seen.stamps(capture.store, path) if key]
        source.known = partial(_known_records, capture, container)
        source.modified = container.found.modified
        source.is_at_rest = _is_at_rest(capture, container)
        yield reader, source


def _is_at_rest(capture: Capture, container: Container) -> bool:
    return capture.clock() - container.found.modified >= 1000 * REST_SECONDS


def _reader_of(container: Container) -> SnapshotReader:
    reader = reader_of(container.root.harness)
    if not isinstance(reader, SnapshotReader):
        raise CrystalError(f"{container.root.harness} has no reader for {container.found.path}")
    return reader


def _known_records(capture: Capture, container: Container, session: str) -> Collection[str]:
    """Return the ids of the records of a session that were captured before; those that were only noted are not."""
    state = ledger.state_of(capture.store, capture.device, f"{container.root.harness}/{session}")
    records = {} if state is None else seen.seen_records(capture.store, state.id)
    return {ident for ident, one in records.items() if one.state != "skipped"}


def _stamp(capture: Capture, path: Path, key: str, stamp: str) -> None:
    with capture.store.transaction():
        seen.put_stamp(capture.store, path, key, stamp)


@dataclass(frozen=True)
class ConversationCapture:
    """One conversation of a file, being captured by ``by``."""

    by: Capture
    container: Container
    reader: SnapshotReader
    source: Snapshot
    conversation: SessionStamp
    tally: Tally

    @cached_property
    def origin(self) -> Origin:
        """Return its origin."""
        told = self.conversation
        return Origin(self.by.agent, self.by.device, told.session, told.subagent, self.container.root.harness)

    @cached_property
    def key(self) -> str:
        """Return the key of its transcript."""
        told = self.conversation
        name = told.session if told.subagent is None else f"{told.session}/{told.subagent}"
        return f"{self.container.root.harness}/{name}"

    def capture(self, *, skipped_too: bool) -> None:
        """Store every new record."""
        retried(lambda: self._capture(skipped_too=skipped_too), WatermarkMovedError)

    def note(self) -> None:
        """Note every record as there before crystal."""
        store = self.by.store
        records = [
            SeenRecord(record.id, "skipped", digest, record.size)
            for record, digest, old in self.new_records()
            if old is None
        ]
        with store.transaction():
            ledger.mark_seen(store, self.origin, self.container.found.name, Watermark(self.key), self.by.clock())
            state = self._state()
            if state is not None:
                seen.put_records(store, state.id, records)

    def new_records(self, *, skipped_too: bool = False) -> Iterator[tuple[Record, bytes, SeenRecord | None]]:
        """Yield each record that is new or changed, with the hash of its content and what was seen of it before."""
        state = self._state()
        known = {} if state is None else seen.seen_records(self.by.store, state.id)
        read, skipped = self._read_as_lines()
        for start, record, digest in self._as_known(known):
            is_wanted_now = skipped_too and any(first <= start < last for first, last in skipped)
            if start + record.size <= read and not is_wanted_now:
                continue
            old = known.get(record.id)
            if is_wanted(old, digest, skipped_too=skipped_too) and not self._says_less(record, old):
                yield record, digest, old

    def _as_known(self, known: Mapping[str, SeenRecord]) -> Iterator[tuple[int, Record, bytes]]:
        """Yield each record once, under the id that it was seen with: (first byte, record, hash of its content)."""
        hashed = self._hashed()
        if not known:
            yield from hashed
            return
        records = list(hashed)
        hashes = {ident: one.hash for ident, one in known.items()}
        ids = known_ids([(record.id, digest) for _, record, digest in records], hashes, self.reader.lasting_id)
        for ident, (start, record, digest) in zip(ids, records, strict=True):
            yield start, record._replace(id=ident), digest

    def _hashed(self) -> Iterator[tuple[int, Record, bytes]]:
        given: set[str] = set()
        start = 0
        for record in self.reader.records(self.source, self.conversation):
            ident = clean_text(record.id)  # a file may hold half of a character, which no database stores
            if ident not in given:
                given.add(ident)
                yield start, record._replace(id=ident), self.by.cleaner.hash(record.line)
            start += record.size

    def _read_as_lines(self) -> tuple[int, list[tuple[int, int]]]:
        """Return how much was read before a file of lines was compressed to this one, and what of it was skipped."""
        store, harness = self.by.store, self.container.root.harness
        key = identify(self.container.found.path, harness).key
        state = ledger.state_of(store, self.origin.device, key)
        if state is None or not state.mark.tail_hash:
            return 0, []
        lines = b"".join(record.line + b"\n" for record in self.reader.records(self.source, self.conversation))
        end = state.mark.offset
        is_same = end <= len(lines) and tail.tail_hash(io.BytesIO(lines), end, self.by.cleaner) == state.mark.tail_hash
        return (end, ledger.skipped_ranges(store, state)) if is_same else (0, [])

    def _state(self) -> ledger.TranscriptState | None:
        return ledger.state_of(self.by.store, self.origin.device, self.key)

    def _capture(self, *, skipped_too: bool) -> None:
        state = self._state()
        mark = state.mark if state is not None else Watermark(self.key)
        lines, length, noted, adopted = list[bytes](), 0, list[tuple[int, SeenRecord]](), list[SeenRecord]()
        replaced = self._replaced()
        for record, digest, old in self.new_records(skipped_too=skipped_too):
            size = record.size
            if old is not None and old.state == "recovered":
                adopted.append(SeenRecord(record.id, "captured", digest, size))
                continue
            superseded = old.size if old is not None and old.state == "captured" else 0
            is_revised = superseded > 0 and not self._is_said_in_original(record)
            noted.append((mark.offset + length, SeenRecord(record.id, "captured", digest, size, superseded)))
            lines.append(self._line_of(record, revised=is_revised, replaces=replaced.get(record.id, ())))
            length += len(lines[-1]) + 1
            if length >= tail.SEGMENT_BYTES:
                mark = self._store(mark, lines, noted)
                lines, length, noted = [], 0, []
        if lines:
            self._store(mark, lines, noted)
        if adopted and state is not None:
            with self.by.store.transaction():
                seen.put_records(self.by.store, state.id, adopted)

    def _replaced(self) -> dict[str, tuple[str, ...]]:
        """Return what each record of this file says again of those that came from a copy with less in it.

        A record of the copy is replaced if all that it says is said here, as often. The others stay.
        """
        if self.container.root.place.are_copies or not _is_in_file(self.by, self.key, of_copies=True):
            return {}
        state = self._state()
        earlier = {} if state is None else seen.seen_records(self.by.store, state.id)
        here = list(self.reader.records(self.source, self.conversation))
        own = {record.id for record in here}
        names = [self._name(ident) for ident, one in earlier.items() if one.state == "captured" and ident not in own]
        said = {name: gists(turns) for name, turns in turns_of_lines(self.by.store, names).items()}
        return said_again(said, {record.id: gists(self._turns(record)) for record in here} if said else {})

    def _is_said_in_original(self, record: Record) -> bool:
        """Return whether a record of a fork has only caught up with the original: then it replaces nothing."""
        store, name = self.by.store, self._name(record.id)
        if not is_of_another_session(store, name, self.origin.session_id):
            return False
        said = turns_of_lines(store, [name]).get(name, [])
        return gists(said) == gists(self._turns(record))

    def _says_less(self, record: Record, old: SeenRecord | None) -> bool:
        """Return whether a record only lost a part of its text: the longer text is kept."""
        if old is None or old.state != "captured":
            return False
        name = self._name(record.id)
        return says_less(self._turns(record), turns_of_lines(self.by.store, [name]).get(name, []))

    def _turns(self, record: Record) -> list[Said]:
        """Return what a record says, as it is stored."""
        clean, _ = self.by.cleaner.clean_line(self._line_of(record, revised=False))
        turns = self.reader.turns([(0, clean)], self.key, subagent=self.origin.subagent is not None)
        return [(turn.role, turn.text, turn.tool) for turn in turns]

    def _name(self, ident: str) -> str:
        return f"{self.reader.ids_of or self.origin.harness}:{ident}"

    def _line_of(self, record: Record, *, revised: bool, replaces: tuple[str, ...] = ()) -> bytes:
        session, subagent, ident = self.origin.session_id, self.origin.subagent, self._name(record.id)
        context = record.context._replace(session=session, subagent=subagent, id=ident)
        return complete(record.line, context._replace(revised=revised, replaces=replaces))

    def _store(self, before: Watermark, lines: list[bytes], noted: list[tuple[int, SeenRecord]]) -> Watermark:
        raw = RawSegment(before.offset, b"\n".join([*lines, b""]))
        lines.clear()
        found = self.container.found
        after = before._replace(offset=raw.end, dev=found.dev, inode=found.inode, tail_hash=b"")
        reading = self.by.reading(self.origin, self.container.found.name, before, self._state())
        self.tally.add(self.by.sink(tail.make_segment(raw, reading, after), partial(claim_records, records=noted)))
        return after
