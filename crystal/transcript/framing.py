"""Split the bytes of a transcript into complete lines.

A last line without a newline is complete if it is a JSON object: nothing that could follow would be a part of it. It
is read as if its newline were there, so that it ends a byte after the end of the file, and the newline is no new
byte when it comes. A record after one that was never finished, in the same line, is a line of its own.

Source: docs/reference/transcript-format.md, section 2.
"""

from __future__ import annotations

from typing import BinaryIO

from crystal.model.capture import RawSegment
from crystal.transcript.line import parse_line

SEGMENT_BYTES = 4 * 1024 * 1024
_BLOCK = 256 * 1024


def read_segment(file: BinaryIO, start: int, *, limit: int = SEGMENT_BYTES) -> RawSegment:
    """Read the complete lines that begin at ``start``, about ``limit`` bytes of them.

    At least one whole line is read if there is one, however long; only then is more than ``limit`` bytes returned.
    A line still being written is left for the next call. Lines end at the byte 0x0A and nowhere else.
    Memory holds the segment once; a long line is searched for its end in blocks, then read.

    Args:
        file: The transcript, opened in binary mode. Its position is moved.
        start: Bytes from the beginning of the file, just after a newline or 0.
        limit: Bytes.

    Returns:
        The segment; empty when no complete line is there, also when ``start`` is beyond the end.

    Source: docs/reference/transcript-format.md, section 2.
    """
    raw = _read_exactly(file, start, max(1, limit))
    last = raw.rfind(b"\n") + 1
    if len(raw) < limit and _lacks_newline(file, start + last, raw[last:]):
        raw += b"\n"
    cut = raw.rfind(b"\n") + 1
    if not cut and len(raw) >= limit:
        end = _next_newline(file, start + len(raw))
        if end is not None:
            raw = b""
            raw = _read_exactly(file, start, end - start)
            cut = raw.rfind(b"\n") + 1
    return RawSegment(start, raw if cut == len(raw) else raw[:cut])


def read_lines(file: BinaryIO, start: int, end: int) -> bytes:
    """Read the bytes of complete lines, with the newline that the last line of the file may lack."""
    raw = _read_exactly(file, start, end - start)
    return raw + b"\n" if len(raw) == end - start - 1 else raw


def end_of_lines(file: BinaryIO, size: int) -> int:
    """Return where the last complete line ends in a file of ``size`` bytes, with its newline; 0 if there is none."""
    end = _last_newline(file, size)
    tail = _read_exactly(file, end, size - end) if size - end < SEGMENT_BYTES else b""
    return size + 1 if _lacks_newline(file, end, tail) else end


def _lacks_newline(file: BinaryIO, start: int, tail: bytes) -> bool:
    """Return True if what follows the last newline is a whole line; not where lines end in CR LF, if CR may follow."""
    if not tail.rstrip().endswith(b"}") or parse_line(tail) is None:
        return False
    return tail.endswith(b"\r") or _read_exactly(file, max(0, start - 2), 2) != b"\r\n"


def _last_newline(file: BinaryIO, size: int) -> int:
    """Return the offset just after the last newline in the first ``size`` bytes, or 0.

    Reads backwards in blocks: the cost is the length of the last line, not of the file.
    """
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = _read_exactly(file, start, end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _read_exactly(file: BinaryIO, start: int, count: int) -> bytes:
    """Read ``count`` bytes from ``start``, fewer only at the end of the file, whatever size the reads come in."""
    file.seek(start)
    first = file.read(count)
    if len(first) == count or not first:
        return first
    blocks, missing = [first], count - len(first)
    while missing and (block := file.read(missing)):
        blocks.append(block)
        missing -= len(block)
    return b"".join(blocks)


def _next_newline(file: BinaryIO, start: int) -> int | None:
    """Return the offset just after the first newline at or after ``start``, or None."""
    file.seek(start)
    place = start
    while block := file.read(_BLOCK):
        found = block.find(b"\n")
        if found >= 0:
            return place + found + 1
        place += len(block)
    return None
