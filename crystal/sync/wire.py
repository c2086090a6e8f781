"""Encode a segment for the envelope, and decode it strictly: input is validated before any of it is used.

The first line is a JSON object, the head; the captured lines follow as stored in the archive. Source:
docs/spec/relay-messages.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from crystal.config.harnesses import HARNESSES
from crystal.config.paths import checked_agent_id
from crystal.errors import DeniedError, UsageError
from crystal.model.capture import Finding, LedgerState, Origin, Project, Segment, SegmentPiece, Watermark

Lane = Literal["live", "past"]
MAX_NAME = 400
MAX_KEY = 4096
"""Maximum characters of a transcript's key or a session id: they come from file names, in any encoding."""
MAX_STORED = (1 << 63) - 1
MAX_PATH = 8192
MAX_UUID = 1 << 26
TEXT = r"\A[^\0\ud800-\udfff]+\Z"

Name = Annotated[str, Meta(max_length=MAX_NAME, pattern=TEXT)]
Key = Annotated[str, Meta(max_length=MAX_KEY, pattern=TEXT)]
Folder = Annotated[str, Meta(max_length=MAX_PATH, pattern=TEXT)]
Offset = Annotated[int, Meta(ge=0, le=1 << 53)]


class InvalidRecordError(DeniedError):
    """An authentic message is malformed: its sender has a fault, or is another version."""

    code = "record"


def control_message(kind: str, fields: Mapping[str, Any]) -> bytes:
    """Return a control message, see ``ControlMessage`` in ``crystal.sync.taking``."""
    return json.dumps({"v": 1, "kind": kind, **fields}, separators=(",", ":")).encode()


def encode_segment(segment: Segment, projects: Mapping[str, Project], lane: Lane) -> bytes:
    """Encode a segment.

    Args:
        segment: The cleaned segment.
        lane: Live conversation or the past.
        projects: The git projects, on the capturing machine, of the folders that the lines name.
    """
    head = {
        "v": 1,
        "kind": "segment",
        "lane": lane,
        "origin": list(segment.origin),
        "path": segment.path[:MAX_PATH],
        "before": _mark(segment.before),
        "after": _mark(segment.after),
        "pieces": [_piece(piece) for piece in segment.pieces],
        "findings": [list(finding) for finding in segment.findings],
        "private": list(segment.private_uuids),
        "projects": [list(one) for one in projects.values() if _fits(one)],
    }
    clean = b"".join(piece.clean for piece in segment.pieces)
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + clean


def _fits(project: Project) -> bool:
    """Return True if the receiver accepts the path of a folder, which comes from a transcript and may be anything."""
    try:
        msgspec.convert(list(project), _Project)
    except ValueError:
        return False
    return True


def _mark(mark: Watermark) -> list[Any]:
    return [mark.transcript, mark.offset, mark.dev, mark.inode, mark.generation, mark.tail_hash.hex()]


def _piece(piece: SegmentPiece) -> list[Any]:
    raw_hash = None if piece.raw_hash is None else piece.raw_hash.hex()
    return [piece.start, piece.end, piece.state, piece.rule, raw_hash, len(piece.clean), _shifts(piece)]


def _shifts(piece: SegmentPiece) -> list[list[int]]:
    """Return the lines that do not directly follow the previous cleaned line: (number of the line, offset)."""
    told = iter(piece.lines)
    shifts = []
    at = piece.start
    for number, clean in enumerate(piece.clean.split(b"\n")[:-1]):
        if clean.strip():
            offset, _ = next(told)
            if offset != at:
                shifts.append([number, offset])
                at = offset
        at += len(clean) + 1
    return shifts


class _Row(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A list of fields in the head."""


class _Origin(_Row, frozen=True):
    agent: Name
    device: Name
    session_id: Key
    subagent: Key | None
    harness: str

    def __post_init__(self) -> None:
        checked_agent_id(self.agent)
        if self.harness not in HARNESSES:
            raise ValueError("an unknown harness")


class _Watermark(_Row, frozen=True):
    transcript: Key
    offset: Offset
    dev: Annotated[int, Meta(ge=0)]
    inode: Annotated[int, Meta(ge=0)]
    generation: Annotated[int, Meta(ge=-1, le=1 << 53)]
    tail_hash: Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{64})?\Z")]

    def value(self) -> Watermark:
        dev, inode = self.dev & MAX_STORED, self.inode & MAX_STORED
        return Watermark(self.transcript, self.offset, dev, inode, self.generation, bytes.fromhex(self.tail_hash))


class _Piece(_Row, frozen=True):
    start: Offset
    end: Offset
    state: LedgerState
    rule: Name | None
    raw_hash: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")] | None
    length: Offset
    shifts: tuple[tuple[Offset, Offset], ...]

    def __post_init__(self) -> None:
        if self.end <= self.start or (self.length > 0) != (self.state == "captured"):
            raise ValueError("a piece contradicts itself")

    def value(self, clean: bytes) -> SegmentPiece:
        """Return the piece, given its lines."""
        if self.state != "captured":
            return SegmentPiece(self.start, self.end, self.state, self.rule)
        if len(clean) != self.length or not clean.endswith(b"\n"):
            raise ValueError("a piece does not hold whole lines")
        raw_hash = None if self.raw_hash is None else bytes.fromhex(self.raw_hash)
        lines = _lines(clean, self.start, self.end, dict(self.shifts))
        return SegmentPiece(self.start, self.end, self.state, self.rule, clean, raw_hash, lines)


class _Project(_Row, frozen=True):
    cwd: Folder
    git_root: Folder | None
    remote: Folder | None
    name: Annotated[str, Meta(max_length=MAX_NAME, pattern=r"\A[^\0\ud800-\udfff]*\Z")]


class _Head(Struct, frozen=True):
    v: Literal[1]
    kind: Literal["segment"]
    lane: Lane
    origin: _Origin
    # A path may hold bytes that are not UTF-8, which Python writes as the lone surrogates U+DC80 to U+DCFF.
    path: Annotated[str, Meta(max_length=MAX_PATH, pattern=r"\A[^\0\ud800-\udc7f\udd00-\udfff]+\Z")]
    before: _Watermark
    after: _Watermark
    pieces: Annotated[tuple[_Piece, ...], Meta(min_length=1)]
    findings: tuple[tuple[Name, Offset], ...]
    private: tuple[Annotated[str, Meta(max_length=MAX_UUID, pattern=TEXT)], ...]
    projects: tuple[_Project, ...]


@dataclass(frozen=True, slots=True)
class SentSegment:
    """A received segment, with its lane and the git projects of its folders on the capturing machine."""

    segment: Segment
    projects: Mapping[str, Project]
    lane: Lane


def decode_segment(payload: bytes) -> SentSegment:
    """Decode a segment.

    Raises:
        InvalidRecordError: It is malformed, or of another version.
    """
    try:
        line, clean = payload.split(b"\n", 1)
        return _sent(msgspec.convert(json.loads(line), _Head), clean)
    except (ValueError, RecursionError, UsageError) as error:
        raise InvalidRecordError("the segment cannot be understood", hint="update crystal on this machine") from error


def _sent(head: _Head, clean: bytes) -> SentSegment:
    ends = list(accumulate(one.length for one in head.pieces))
    pieces = tuple(one.value(clean[end - one.length : end]) for one, end in zip(head.pieces, ends, strict=True))
    if ends[-1] != len(clean) or head.before.transcript != head.after.transcript:
        raise ValueError("the pieces do not hold the lines")
    if any(former.end != piece.start for former, piece in pairwise(pieces)):
        raise ValueError("the pieces do not lie edge to edge")
    segment = Segment(
        Origin(*astuple(head.origin)),
        head.path,
        head.before.value(),
        head.after.value(),
        pieces,
        tuple(Finding(*one) for one in head.findings),
        head.private,
    )
    return SentSegment(segment, {one.cwd: Project(*astuple(one)) for one in head.projects}, head.lane)


def _lines(clean: bytes, start: int, end: int, shifts: Mapping[int, int]) -> tuple[tuple[int, bytes], ...]:
    lines: list[tuple[int, bytes]] = []
    at = start
    for number, line in enumerate(clean.split(b"\n")[:-1]):
        at = shifts.get(number, at)
        if line.strip():
            if not start <= at < end or (lines and at <= lines[-1][0]):
                raise ValueError("the lines of a piece do not lie in it in order")
            lines.append((at, line))
        at += len(line) + 1
    return tuple(lines)


def line_starts(piece: SegmentPiece) -> list[int]:
    """Return the offset of each line of a captured piece in its file, including blank lines.

    A blank line is never shortened: it ends where the next one begins.
    """
    lines = piece.clean.split(b"\n")[:-1]
    starts = [0] * len(lines)
    told = iter(reversed(piece.lines))
    at = piece.end
    for number in range(len(lines) - 1, -1, -1):
        at = next(told)[0] if lines[number].strip() else at - len(lines[number]) - 1
        starts[number] = at
    return starts
