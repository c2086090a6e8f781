"""Read the new complete lines of a file into a Segment, without private lines and secrets."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO

from crystal.capture.finder import TranscriptFile
from crystal.capture.privacy import Policy
from crystal.errors import CrystalError, RedactionError
from crystal.model.capture import Finding, LedgerState, Origin, RawSegment, Segment, SegmentPiece, Watermark
from crystal.model.named_tuple import NamedTuple
from crystal.transcript.damaged import last_record_at
from crystal.transcript.framing import read_lines, read_segment
from crystal.transcript.line_context import Context
from crystal.transcript.reader import TranscriptReader, advanced, completed, reader_of

TAIL_BYTES = 4096
SEGMENT_BYTES = 4 << 20
CONTEXT_BYTES = 256 << 10

CleanLine = Callable[[bytes], tuple[bytes, Mapping[str, int]]]
Captured = Callable[[], Iterable[tuple[int, int, bytes]]]
"""Gives the first byte, the end and the hash of each captured stretch of a file."""
CleanedLines = list[tuple[bytes, Mapping[str, int]]]


def _nothing(_: bytes) -> None:
    return None


class Cleaner(NamedTuple):
    """Cleaning and hashing of lines: the redactor's ``clean_line`` and the key of this store's hashes.

    ``cleaned_before`` gives the lines of a stretch that was cleaned already, byte for byte the same, None for others.
    """

    clean_line: CleanLine
    key: bytes
    cleaned_before: Callable[[bytes], CleanedLines | None] = _nothing

    def clean_lines(self, raw: bytes) -> CleanedLines:
        """Clean complete lines: each without its newline, with what was found in it."""
        try:
            return self.cleaned_before(raw) or [self.clean_line(line) for line in raw[:-1].split(b"\n")]
        except CrystalError:
            raise
        except Exception as error:  # whatever it is: what could not be cleaned is neither stored nor sent
            from crystal.config.packages import broken_package  # noqa: PLC0415 - where something is broken alone

            if broken_package(error) is not None:
                raise  # the worker, or the command, says what mends it
            hint = "nothing of it was stored; the next sync tries again"
            raise RedactionError(f"secrets could not be removed ({type(error).__name__})", hint=hint) from error

    def hash(self, data: bytes | memoryview) -> bytes:
        """Return a keyed hash: without the key it confirms no guess about the text."""
        return hashlib.blake2b(data, digest_size=32, key=self.key, person=b"crystal ledger").digest()


def recognise(
    file: BinaryIO, found: TranscriptFile, mark: Watermark, cleaner: Cleaner, captured: Captured = tuple
) -> Watermark:
    """Return the watermark to read on from: the same if the file only grew, a new generation if it was replaced.

    A file moved to another folder or disk keeps its bytes and so its watermark. One that is shorter, or has other
    bytes before the offset, was replaced: it is read again from 0, and the lines' uuids make that harmless. Only of
    one that was written and has not grown are all bytes compared.
    """
    replaced = Watermark(mark.transcript, 0, found.dev, found.inode, mark.generation + 1, b"", found.written)
    is_same = found.size + 1 >= mark.offset and tail_hash(file, mark.offset, cleaner) == mark.tail_hash
    if is_same and found.size <= mark.offset and mark.written not in (0, found.written):
        is_same = all(cleaner.hash(read_lines(file, start, stop)) == old for start, stop, old in captured())
    return mark._replace(dev=found.dev, inode=found.inode, written=found.written) if is_same else replaced


def tail_hash(file: BinaryIO, offset: int, cleaner: Cleaner) -> bytes:
    """Return the keyed hash of the bytes just before ``offset``, empty at 0."""
    if offset == 0:
        return b""
    return cleaner.hash(read_lines(file, max(0, offset - TAIL_BYTES), offset))


def cut_at(raw: RawSegment, until: int | None) -> RawSegment:
    """Keep only the lines that begin before the byte ``until``; all where it is None."""
    if until is None or raw.end <= until:
        return raw
    if until <= raw.start:
        return RawSegment(raw.start, b"")
    newline = raw.raw.find(b"\n", until - raw.start - 1)
    return RawSegment(raw.start, raw.raw[: newline + 1])


class Reading(NamedTuple):
    """Settings for reading a range of raw bytes: its session, and what decides about privacy.

    Attributes:
        origin: Of the transcript.
        path: Its path.
        before: The watermark before it.
        policy: What is private now.
        cleaner: Takes secrets out.
        closed: Why all of it is private whatever the lines say; None to decide line by line.
        inherited: Why the bytes before it are private.
        tainted: Whether anything of the session was ever private or forgotten.
        context: What holds before its first line; None if its lines are complete.
    """

    origin: Origin
    path: str
    before: Watermark
    policy: Policy
    cleaner: Cleaner
    closed: str | None = None
    inherited: str | None = None
    tainted: bool = False
    context: Context | None = None


def make_segment(raw: RawSegment, reading: Reading, after: Watermark) -> Segment:
    """Decide line by line what may be kept, and clean that. Pure."""
    spans, are_lines = _spans(raw, reader_of(reading.origin.harness))
    said = _complete(spans, raw, reading, are_lines=are_lines)
    reasons, private_uuids = _reasons(spans, said, raw, reading)
    pieces: list[SegmentPiece] = []
    counts: Counter[str] = Counter()
    at = 0
    while at < len(spans):
        stop = at + 1
        while stop < len(spans) and reasons[stop] == reasons[at]:
            stop += 1
        own = None if said is None else said[at:stop]
        pieces.append(_piece(raw, spans[at:stop], own, reasons[at], reading.cleaner, counts))
        at = stop
    findings = tuple(Finding(kind, count) for kind, count in sorted(counts.items()))
    return Segment(reading.origin, reading.path, reading.before, after, tuple(pieces), findings, private_uuids)


def _spans(raw: RawSegment, reader: TranscriptReader) -> tuple[list[tuple[int, int]], bool]:
    """Return where each record begins and ends in the bytes of a segment, and whether each one is a whole line."""
    spans, are_lines = [], True
    at = 0
    while at < len(raw.raw):
        stop = raw.raw.index(b"\n", at) + 1
        middle = at + _last_record_at(raw.raw[at : stop - 1], reader)
        if middle > at:
            spans.append((at, middle))
            are_lines = False
        spans.append((middle, stop))
        at = stop
    return spans, are_lines


def _last_record_at(line: bytes, reader: TranscriptReader) -> int:
    """Return the start of a record after an unfinished one, 0 if the reader knows no record there."""
    start = last_record_at(line)
    facts = reader.facts(line[start:]) if start else None
    return start if facts is not None and (facts.uuid is not None or facts.is_conversation) else 0


def _complete(
    spans: list[tuple[int, int]], raw: RawSegment, reading: Reading, *, are_lines: bool
) -> list[bytes] | None:
    """Return the lines with their contexts, without newlines; None if they are those of the file."""
    bare = (raw.raw[at:stop].removesuffix(b"\n").removesuffix(b"\r") for at, stop in spans)
    if reading.context is None:
        return None if are_lines else list(bare)
    reader, origin = reader_of(reading.origin.harness), reading.origin

    def name_line(line: bytes) -> str:
        return f"{origin.harness}:{reading.cleaner.hash(origin.session_id.encode() + line).hex()[:32]}"

    return list(completed(reader, bare, reading.context, name_line))


def context_at(file: BinaryIO, start: int, reader: TranscriptReader, context: Context) -> Context:
    """Return what holds before the line at ``start`` of a file: every line before it is read that may change it."""
    at = 0
    while reader.context_marks and at < start:
        block = cut_at(read_segment(file, at, limit=CONTEXT_BYTES), start)
        if not block.raw:
            break
        at = block.end
        if any(mark in block.raw for mark in reader.context_marks):  # far quicker than looking at each line
            for line in block.raw.split(b"\n"):
                context = advanced(reader, context, line[last_record_at(line) :])
    return context


def _reasons(
    spans: list[tuple[int, int]], said: list[bytes] | None, raw: RawSegment, reading: Reading
) -> tuple[list[str | None], tuple[str, ...]]:
    policy = reading.policy
    if reading.closed is None and not reading.tainted and policy.is_open(reading.origin.session_id):
        return [None] * len(spans), ()
    reader = reader_of(reading.origin.harness)
    facts = [reader.facts(line) for line in said or (raw.raw[at:stop] for at, stop in spans)]
    if reading.closed is not None:
        reasons: list[str | None] = [reading.closed] * len(spans)
    else:
        own = policy.reasons(reading.origin, facts, first=raw.start == 0, inherited=reading.inherited)
        reasons = policy.with_echoes(own, facts, first=raw.start == 0, tainted=reading.tainted)
    private = [fact.uuid for fact, reason in zip(facts, reasons, strict=True) if reason is not None and fact.uuid]
    return reasons, tuple(private)


def _piece(
    raw: RawSegment,
    spans: list[tuple[int, int]],
    said: list[bytes] | None,
    reason: str | None,
    cleaner: Cleaner,
    counts: Counter[str],
) -> SegmentPiece:
    first, last = spans[0][0], spans[-1][1]
    start, stop = raw.start + first, raw.start + last
    if reason is not None:
        state: LedgerState = "private"
        return SegmentPiece(start, stop, state, reason)
    whole = raw.raw[first:last] if said is None else b"\n".join([*said, b""])
    kept, is_changed = [], False
    for (at, _), (clean, findings) in zip(spans, cleaner.clean_lines(whole), strict=True):
        if findings:
            counts.update(findings)
            is_changed = True
        kept.append((raw.start + at, clean))
    with_text = tuple((offset, clean) for offset, clean in kept if clean.strip())
    if len(whole) > SEGMENT_BYTES and len(with_text) == len(kept) == 1:
        clean_bytes = b""
    else:
        clean_bytes = b"\n".join([*(clean for _, clean in kept), b""]) if is_changed else whole
    raw_hash = cleaner.hash(memoryview(raw.raw)[first:last])
    return SegmentPiece(start, stop, "captured", None, clean_bytes, raw_hash, with_text)
