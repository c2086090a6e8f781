"""Leave out what was in a transcript before crystal first read it, also when the file is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from crystal.capture import tail
from crystal.model.capture import Watermark
from crystal.store.capture import ledger
from crystal.transcript.framing import end_of_lines, read_segment
from crystal.transcript.reader import TranscriptReader, reader_of

if TYPE_CHECKING:
    from crystal.capture.engine import Capture
    from crystal.capture.finder import TranscriptFile


def leave_out_again(
    capture: Capture, file: BinaryIO, found: TranscriptFile, state: ledger.TranscriptState, mark: Watermark
) -> bool:
    """Leave out the old lines of a file if it was replaced, or if only its archive was known, as they were before.

    Args:
        capture: The machine's capture.
        file: The file as it is now.
        found: What the system says of it.
        state: What was known of the file before it.
        mark: The watermark to read on from.

    Returns:
        Whether there are such lines: the watermark is after them now, or another process has moved it.
    """
    if mark.generation == state.mark.generation:
        return False
    if state.mark.counts_records and capture.resume(capture, state, found):
        return True
    old = ledger.left_out(capture.store, state)
    end = 0 if old is None else end_of_old_lines(file, found.size, reader_of(state.origin.harness), old)
    if old is None or not end:
        return False
    after = mark._replace(offset=end, tail_hash=tail.tail_hash(file, end, capture.cleaner))
    with capture.store.transaction():
        if ledger.state_of(capture.store, capture.device, after.transcript) == state:
            ledger.move_mark(capture.store, state.id, state.path, after, capture.clock())
            ledger.add_row(capture.store, state.id, after.generation, 0, end, "skipped", old.rule, old.at)
    return True


def end_of_old_lines(file: BinaryIO, size: int, reader: TranscriptReader, old: ledger.LeftOut) -> int:
    """Return where the lines end that are older than what was left out, or as many bytes if no line has a time."""
    end, is_dated = 0, False
    while raw := read_segment(file, end).raw:
        for line in raw[:-1].split(b"\n"):
            at = reader.facts(line).timestamp_ms
            is_dated = is_dated or at is not None
            if at is not None and at >= old.at:
                return end
            end += len(line) + 1
    return end if is_dated else min(end, end_of_lines(file, min(size, old.stop)))
