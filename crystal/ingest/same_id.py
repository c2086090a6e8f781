"""Give an id of its own to a line that has the id of another one and says something else: a file may be replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from crystal.ingest import archive
from crystal.model.capture import Segment, SegmentPiece, Turn
from crystal.store import Store
from crystal.store.capture import ledger, turns
from crystal.transcript.line import digest
from crystal.transcript.line_context import parse_completed, set_apart
from crystal.transcript.reader import TranscriptReader, reader_of

Words: TypeAlias = list[tuple[str, str]]
"""Role and text of each turn of a line."""

MAX_ID = 200


def told_apart(store: Store, ldm_home: Path, segment: Segment, said: Sequence[Turn]) -> Segment:
    """Return the segment; each line that says other words than an earlier one with its id is set apart.

    Its id tells its words, so that it is the same whenever the line is read. Inside a transaction.
    """
    first, asked = dict[str, int](), set[str]()
    for turn in said:
        if first.setdefault(turn.uuid, turn.offset) != turn.offset:
            asked.add(turn.uuid)
    asked |= turns.stored_uuids(store, first.keys() - asked)
    if not asked:
        return segment
    from crystal.store.sessions.conversations import turns_of_lines  # noqa: PLC0415 - most turns ask nothing

    known = {uuid: [_words(one)] for uuid, one in turns_of_lines(store, asked).items()}
    names = dict[int, tuple[str, str]]()
    for at, (uuid, words) in _by_line(said, asked).items():
        others = known.setdefault(uuid, [words])
        if words not in others:
            others += _archived(store, ldm_home, segment, uuid)  # a newer crystal may read the same line otherwise
        if words not in others:
            names[at] = uuid, f"{uuid[:MAX_ID]}-{digest([uuid, words])[:12]}"
    reader = reader_of(segment.origin.harness)
    return segment._replace(pieces=tuple(_named(piece, names, reader) for piece in segment.pieces))


def _words(said: Iterable[tuple[str, str, str | None]]) -> Words:
    return [(role, text) for role, text, _ in said]


def _by_line(said: Iterable[Turn], asked: set[str]) -> dict[int, tuple[str, Words]]:
    lines = dict[int, tuple[str, Words]]()
    for turn in said:
        if turn.uuid in asked:
            lines.setdefault(turn.offset, (turn.uuid, []))[1].append((turn.role, turn.text))
    return lines


def _archived(store: Store, ldm_home: Path, segment: Segment, uuid: str) -> list[Words]:
    """Return what the archived lines with an id say to this crystal."""
    reader, lines = reader_of(segment.origin.harness), list[bytes]()
    for name, *frame in ledger.frames_of_line(store, uuid):
        lines += (archive.text_of(ldm_home / name, archive.Frame(*frame)) or b"").split(b"\n")
    said = reader.turns(enumerate(lines), segment.before.transcript, subagent=segment.origin.subagent is not None)
    return [words for _, words in _by_line(said, {uuid}).values()]


def _named(piece: SegmentPiece, names: Mapping[int, tuple[str, str]], reader: TranscriptReader) -> SegmentPiece:
    """Return a piece with the names of its lines, of those that have the id: not of what is told in another's line.

    A record of a file that is rewritten has its id from crystal.
    """
    lines = list(piece.lines)
    for place, (at, line) in enumerate(lines):
        uuid, name = names.get(at, (None, ""))
        if uuid is not None and reader.facts(line).uuid == uuid and parse_completed(line)[1].id is None:
            lines[place] = at, set_apart(line, name)
    return piece if tuple(lines) == piece.lines else piece._replace(lines=tuple(lines), kept=b"")
