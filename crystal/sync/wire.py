"""Encode a Segment for the envelope, and decode it strictly: input is validated before any of it is used.

The first line is a JSON object, the head; the captured lines follow as stored in the archive. Source:
docs/spec/relay-messages.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from crystal.config.harnesses import HARNESSES
from crystal.config.paths import checked_agent_id
from crystal.errors import DeniedError, UsageError
from crystal.model.capture import Finding, Origin, Project, Segment, SegmentPiece, Watermark, is_unicode

Lane = Literal["live", "past"]
VERSION = 1
MAX_NAME = 400
MAX_KEY = 4096
"""Maximum characters of a transcript's key or a session id: they come from file names, in any encoding."""
MAX_STORED = (1 << 63) - 1
MAX_PATH = 8192
MAX_UUID = 1 << 26
MAX_OFFSET = 1 << 53
_STATES = ("captured", "private", "skipped")


class InvalidRecordError(DeniedError):
    """An authentic message is malformed: its sender has a fault, or is another version."""

    code = "record"


def control_message(kind: str, fields: Mapping[str, Any]) -> bytes:
    """Return a control message, see ``CONTROL_KINDS`` in ``crystal.sync.taking``."""
    return json.dumps({"v": 1, "kind": kind, **fields}, separators=(",", ":")).encode()


def encode_segment(segment: Segment, projects: Mapping[str, Project], lane: Lane = "live") -> bytes:
    """Encode a segment.

    Args:
        segment: The cleaned segment.
        lane: Live conversation or the past.
        projects: The git projects, on the capturing machine, of the folders that the lines name.
    """
    head = {
        "v": VERSION,
        "kind": "segment",
        "lane": lane,
        "origin": list(segment.origin),
        "path": segment.path[:MAX_PATH],
        "before": _mark(segment.before),
        "after": _mark(segment.after),
        "pieces": [_piece(piece) for piece in segment.pieces],
        "findings": [list(finding) for finding in segment.findings],
        "private": list(segment.private_uuids),
        "projects": [row for one in projects.values() if _fits(row := [one.cwd, one.git_root, one.remote, one.name])],
    }
    clean = b"".join(piece.clean for piece in segment.pieces)
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + clean


def _fits(row: list[str | None]) -> bool:
    """Return True if the receiver accepts the name of a folder: it comes from a transcript, which may hold anything."""
    try:
        project_from(row)
    except InvalidRecordError:
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


@dataclass(frozen=True, slots=True)
class Sent:
    """Received segment, with the git projects of its folders on the capturing machine and its lane."""

    segment: Segment
    projects: Mapping[str, Project]
    lane: Lane


def decode_segment(payload: bytes) -> Sent:
    """Decode a segment.

    Raises:
        InvalidRecordError: It is malformed.
    """
    line, newline, clean = payload.partition(b"\n")
    try:
        head = json.loads(line)
        if not newline or not isinstance(head, dict) or head.get("kind") != "segment":
            raise InvalidRecordError("the message holds no segment")
        if head.get("v") != VERSION:
            raise InvalidRecordError(
                f"the segment has version {_word(head.get('v'))}", hint="update crystal on this machine"
            )
        return _segment(head, clean)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, UsageError) as error:
        raise InvalidRecordError(f"the segment's head cannot be understood ({type(error).__name__})") from error


def _harness(value: Any) -> str:
    name = _text(value)
    if name not in HARNESSES:
        raise InvalidRecordError(
            f"transcripts of {_word(name)} cannot be read here", hint="update crystal on this machine"
        )
    return name


def _segment(head: Mapping[str, Any], clean: bytes) -> Sent:
    agent, device, session, subagent, *named = _list(head["origin"])
    (harness,) = named or ("claude-code",)  # a crystal that reads only Claude Code's transcripts does not name it
    origin = Origin(
        checked_agent_id(_text(agent)),
        _text(device),
        _text(session, MAX_KEY),
        _optional(subagent, MAX_KEY),
        _harness(harness),
    )
    before, after = _watermark(head["before"]), _watermark(head["after"])
    pieces: list[SegmentPiece] = []
    at = 0
    for one in _list(head["pieces"]):
        piece = _read_piece(one, clean, at)
        if pieces and piece.start != pieces[-1].end:
            raise InvalidRecordError("the segment's pieces do not lie edge to edge")
        at += len(piece.clean)
        pieces.append(piece)
    if not pieces or at != len(clean) or before.transcript != after.transcript:
        raise InvalidRecordError("the segment's pieces do not hold its lines")
    findings = tuple(Finding(_text(kind), _whole(count)) for kind, count in _list(head["findings"]))
    private = tuple(_text(uuid, MAX_UUID) for uuid in _list(head["private"]))
    projects = {_text(row[0], MAX_PATH): project_from(row) for row in _list(head["projects"])}
    segment = Segment(origin, _path(head["path"]), before, after, tuple(pieces), findings, private)
    return Sent(segment, projects, "past" if head["lane"] == "past" else "live")


def _watermark(row: Sequence[Any]) -> Watermark:
    transcript, offset, dev, inode, generation, tail = _list(row)
    tail_hash = bytes.fromhex(_text(tail, empty=True))
    if len(tail_hash) not in (0, 32):
        raise InvalidRecordError("a watermark's hash has the wrong length")
    return Watermark(
        _text(transcript, MAX_KEY),
        _whole(offset),
        _whole(dev, 1 << 64) & MAX_STORED,
        _whole(inode, 1 << 64) & MAX_STORED,
        _whole(generation),
        tail_hash,
    )


def _read_piece(row: Sequence[Any], clean: bytes, at: int) -> SegmentPiece:
    start, end, state, rule, raw_hash, length, shifts = _list(row)
    start, end, length = _whole(start), _whole(end), _whole(length)
    if end <= start or state not in _STATES or (length > 0) != (state == "captured"):
        raise InvalidRecordError("a piece of the segment contradicts itself")
    words = _optional(rule)
    if state != "captured":
        return SegmentPiece(start, end, state, words)
    own = clean[at : at + length]
    if len(own) != length or not own.endswith(b"\n"):
        raise InvalidRecordError("a piece of the segment does not hold whole lines")
    hashed = None if raw_hash is None else bytes.fromhex(_text(raw_hash))
    if hashed is not None and len(hashed) != 32:
        raise InvalidRecordError("a piece's hash has the wrong length")
    return SegmentPiece(start, end, "captured", words, own, hashed, _lines(own, start, end, shifts))


def _lines(clean: bytes, start: int, end: int, shifts: Any) -> tuple[tuple[int, bytes], ...]:
    moved = {_whole(number): _whole(offset) for number, offset in _list(shifts)}
    lines: list[tuple[int, bytes]] = []
    at = start
    for number, line in enumerate(clean.split(b"\n")[:-1]):
        if number in moved:
            at = moved[number]
        if line.strip():
            if not start <= at < end or (lines and at <= lines[-1][0]):
                raise InvalidRecordError("the lines of a piece do not lie in it in order")
            lines.append((at, line))
        at += len(line) + 1
    return tuple(lines)


def project_from(row: Any) -> Project:
    """Parse the git project of a folder.

    Raises:
        InvalidRecordError: It is malformed.
    """
    if not isinstance(row, list) or len(row) != 4:
        raise InvalidRecordError("the message has an invalid project")
    cwd, root, remote, name = _list(row)
    return Project(
        _text(cwd, MAX_PATH),
        _optional(root, MAX_PATH),
        _optional(remote, MAX_PATH),
        _text(name, empty=True),
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRecordError("the segment's head has an invalid list")
    return value


def _text(value: Any, most: int = MAX_NAME, *, empty: bool = False) -> str:
    if (
        not isinstance(value, str)
        or len(value) > most
        or "\0" in value
        or not (value or empty)
        or not is_unicode(value)
    ):
        raise InvalidRecordError("the segment's head has an invalid name")
    return value


def _optional(value: Any, most: int = MAX_NAME) -> str | None:
    return None if value is None else _text(value, most)


def _path(value: Any) -> str:
    """Decode a path. It may hold bytes that are not UTF-8, which Python writes as lone surrogates."""
    if isinstance(value, str) and 0 < len(value) <= MAX_PATH and "\0" not in value:
        try:
            value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise InvalidRecordError("the segment's head has an invalid path")


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


def _whole(value: Any, most: int = MAX_OFFSET) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidRecordError("the segment's head has an invalid number")
    return value


def _word(value: Any) -> str:
    return str(value) if isinstance(value, (int, float)) else "unknown"
