"""Import past transcripts: bytes from before crystal was installed, and files that the user names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from crystal.capture import finder, snapshots, tail
from crystal.capture.before_crystal import leave_out_again
from crystal.capture.engine import MAX_RACES, Capture, Tally
from crystal.capture.privacy import BY_ECHO
from crystal.capture.safe_open import ANYWHERE, Folders
from crystal.capture.unread import count_new
from crystal.config.harnesses import HARNESSES, Root
from crystal.errors import CrystalError, WatermarkMovedError
from crystal.model.capture import BEFORE_CRYSTAL, Origin
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.capture.snapshots import has_skipped
from crystal.store.capture.turns import harness_of
from crystal.store.forget.forgetting import is_session_forgotten
from crystal.transcript.framing import end_of_lines, read_segment


@dataclass(frozen=True, slots=True)
class PastFile:
    """A conversation with bytes that backfill would read.

    Attributes:
        found: Its file.
        key: The key of its transcript.
        origin: Its origin.
        todo: The bytes that backfill would read.
        named: Whether a person gave its path, which may be anywhere.
        root: Where it was found, if its file is not written by lines.
    """

    found: finder.TranscriptFile
    key: str
    origin: Origin
    todo: int
    named: bool = False
    root: Root | None = None


def plan_past(capture: Capture, paths: Sequence[Path], since: int | None, tally: Tally | None = None) -> list[PastFile]:
    """Return the transcripts with bytes that were never read, newest first.

    Args:
        capture: The machine's capture.
        paths: Files or folders; empty for all of the agents'.
        since: Only files changed at or after this time, ms.
        tally: Gets the files that cannot be read.
    """
    tally = Tally() if tally is None else tally
    skipped = ledger.transcripts_with_skipped(capture.store)
    found = {one.path: one for one in _files_of(capture, paths) if since is None or one.modified >= since}
    capture, is_named = capture._replace(anywhere=bool(paths)), bool(paths)
    past = list[PastFile]()
    for one in found.values():
        root = finder.root_of(one.path, capture.folders)
        if root.place.form == "lines":
            past += _plan_lines(capture, one, skipped, is_named=is_named)
            continue
        try:
            past += plan_file(capture, snapshots.Container(one, root), named=is_named, tally=tally)
        except FileNotFoundError:
            continue
        except (CrystalError, OSError) as error:
            tally.fail(one.path, error)
    return sorted(past, key=lambda one: (-one.found.modified, str(one.found.path)))


def _files_of(capture: Capture, paths: Sequence[Path]) -> Iterator[finder.TranscriptFile]:
    """Yield the transcripts below paths, or all of the agents' if none is given."""
    for path in paths:
        yield from finder.under(path)
    if not paths:
        yield from finder.all_transcripts(capture.roots, folders=capture.folders)
        yield from (container.found for container in snapshots.containers(capture))


def _plan_lines(
    capture: Capture, found: finder.TranscriptFile, skipped: Mapping[int, int], *, is_named: bool
) -> Iterator[PastFile]:
    """Yield a file that is written line by line, if it has bytes that were never read."""
    state = capture.state_for(found)
    if state is None:
        key, origin, todo = *capture.origin_of(found.path), found.size
    else:
        key, origin = state.mark.transcript, state.origin
        todo = skipped.get(state.id, 0) + bytes_of_lines(found, state.mark.offset, capture.folders)
    if todo:
        yield PastFile(found, key, origin, todo, named=is_named)


def bytes_of_lines(found: finder.TranscriptFile, offset: int, folders: Folders = ANYWHERE) -> int:
    """Return the bytes of the complete lines after an offset; a line that was never finished does not count."""
    with contextlib.suppress(OSError, CrystalError):
        if found.size > offset:
            with finder.opened(found.path, folders) as file:
                return max(0, end_of_lines(file, found.size) - offset)
    return 0


def plan_file(
    capture: Capture, container: snapshots.Container, *, named: bool, tally: Tally | None = None
) -> list[PastFile]:
    """Return the conversations in a file that is read as a whole with records that were not captured.

    ``tally`` gets the file if something in it cannot be read, although the rest can.

    Raises:
        CrystalError: It cannot be read.
        OSError: It cannot be read.
    """
    counted, damage = count_new(capture, container, skipped_too=True)
    if damage is not None and tally is not None:
        tally.fail(container.found.path, damage)
    found = [PastFile(container.found, key, origin, size, named, container.root) for key, origin, size in counted]
    store = capture.store
    tests = (is_all_known, has_transcript, repeats_withheld)
    return [one for one in found if not any(test(store, one.origin) for test in tests)]


def is_all_known(store: Store, origin: Origin) -> bool:
    """Return whether the memory has all that an export or a store may have of a session.

    So it is if another export gave it, and for a store, which has what its agent's transcript has, if all of this was
    captured. What else an export repeats is found by its words.
    """
    own = HARNESSES[origin.harness]
    if not own.is_export or origin.subagent is not None:
        return False
    known = HARNESSES.get(harness_of(store, origin.session_id) or "")
    if known is None or known is own:
        return False
    if known.is_export:
        return not (known.is_store and own.is_store)
    return own.is_store and not has_skipped(store, origin.session_id)


def has_transcript(store: Store, origin: Origin) -> bool:
    """Return whether a store's session has a transcript of its agent on this disk, which says more."""
    if not HARNESSES[origin.harness].is_store or origin.subagent is not None:
        return False
    return any(path.exists() for path in _transcripts(store, origin))


def repeats_withheld(store: Store, origin: Origin) -> bool:
    """Return whether an export's session was captured from its agent, and something of it is forgotten or private.

    The export has that with other ids, and may have it at other times.
    """
    if not HARNESSES[origin.harness].is_export or not _transcripts(store, origin):
        return False
    session = origin.session_id
    return is_session_forgotten(store, session) or ledger.has_private(store, session, except_for=BY_ECHO)


def _transcripts(store: Store, origin: Origin) -> list[Path]:
    seen = ledger.paths_of_session(store, origin.session_id)
    return [Path(path) for harness, path in seen if harness in HARNESSES and not HARNESSES[harness].is_export]


def import_file(capture: Capture, wanted: Sequence[PastFile], tally: Tally, progress: Callable[[int], None]) -> None:
    """Import one file: a transcript, or the conversations in a file that is read as a whole."""
    first = wanted[0]
    if first.root is None:
        import_past(capture, first, tally, progress)
        return
    capture, container = capture._replace(anywhere=first.named), snapshots.Container(first.found, first.root)
    snapshots.capture_file(capture, container, tally, only=frozenset(past.key for past in wanted))
    progress(sum(past.todo for past in wanted))


def import_past(capture: Capture, past: PastFile, tally: Tally, progress: Callable[[int], None]) -> None:
    """Import one transcript: the bytes skipped when crystal met the machine, then what came after the watermark.

    Can be stopped anywhere and run again; the ledger knows what is left. ``progress`` is told the bytes done.
    """
    capture = capture._replace(anywhere=past.named)
    import_skipped(capture, past, tally, progress)
    before = tally.bytes_captured + tally.bytes_private
    capture.capture_tail(past.found.path, tally)
    progress(tally.bytes_captured + tally.bytes_private - before)


def import_skipped(
    capture: Capture, past: PastFile, tally: Tally, progress: Callable[[int], None], rule: str = BEFORE_CRYSTAL
) -> None:
    """Import the bytes of one transcript that were skipped under ``rule``, as ``import_past`` does."""
    races = 0
    while races < MAX_RACES:
        try:
            done = _import_piece(capture, past, tally, rule)
        except WatermarkMovedError:
            races += 1
            continue
        if not done:
            break
        progress(done)


def _import_piece(capture: Capture, past: PastFile, tally: Tally, rule: str) -> int:
    """Import at most one segment of a skipped range. Return its bytes, 0 if nothing is left."""
    state = ledger.state_of(capture.store, capture.device, past.key)
    ranges = ledger.skipped_ranges(capture.store, state, rule) if state else []
    if state is None or not ranges:
        return 0
    start, stop = ranges[0]
    path = past.found.path
    with finder.opened(path, capture.folders) as file:
        found = finder.look_into(path, file)
        mark = tail.recognise(file, found, state.mark, capture.cleaner)
        if mark.generation != state.mark.generation:
            if leave_out_again(capture, file, found, state, mark):
                raise WatermarkMovedError(f"{path}: it was replaced")
            return 0
        raw = tail.cut_at(read_segment(file, start, limit=min(tail.SEGMENT_BYTES, stop - start)), stop)
        context = capture.context_at(path, file, start, state.origin)
    if not raw.raw:
        return 0
    policy = capture.policy()
    tainted = capture.is_tainted(policy, state.origin.session_id)
    reading = tail.Reading(
        state.origin, str(path), state.mark, policy, capture.cleaner, tainted=tainted, context=context
    )
    segment, done = tail.make_segment(raw, reading, state.mark), len(raw.raw)
    del raw  # a line may be huge
    tally.add(capture.sink(segment, partial(ledger.claim_skipped, rule=rule)))
    return done
