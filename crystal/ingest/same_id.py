"""Give a new id to a line with the id of an earlier line but other words, as in a replaced file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from crystal.ingest import archive
from crystal.model.capture import Segment, SegmentPiece, Turn
from crystal.redact.spans import MARKER
from crystal.store import Store
from crystal.store.capture import ledger, turns
from crystal.transcript.line import digest
from crystal.transcript.line_context import parse_completed, set_apart
from crystal.transcript.reader import TranscriptReader, reader_of

Words: TypeAlias = tuple[tuple[str, bytes], ...]
"""Role and text of each turn of a line."""

MAX_ID = 200
_HASH = 12
"""Hexadecimal digits in a new id, from the hash of the line's words."""
MIN_LEFT = 12
"""Minimum bytes that redaction must leave of a text to recognise it."""


def with_distinct_ids(store: Store, ldm_home: Path, segment: Segment, said: Sequence[Turn]) -> Segment:
    """Return the segment with a new id for each line whose words differ from an earlier line with the same id.

    The new id derives from the words, so that it is the same whenever the line is read. Inside a transaction.
    """
    first, asked = dict[str, int](), set[str]()
    for turn in said:
        if first.setdefault(turn.uuid, turn.offset) != turn.offset:
            asked.add(turn.uuid)
    asked |= turns.stored_uuids(store, first.keys() - asked)
    if not asked:
        return segment
    from crystal.store.sessions.conversations import turns_of_lines  # noqa: PLC0415 - most turns ask nothing

    stored = turns_of_lines(store, asked).items()
    known = {uuid: {_words((role, text) for role, text, _ in one)} for uuid, one in stored}
    lines = _by_line(said, asked)
    for uuid, words in lines.values():
        known.setdefault(uuid, {words})
    others = {uuid for uuid, words in lines.values() if words not in known[uuid]}
    for uuid, words in _archived(store, ldm_home, segment, others):
        known[uuid].add(words)
    cut = {uuid: [*filter(_is_cut, every)] for uuid, every in known.items()}
    names = {
        at: (uuid, f"{uuid[:MAX_ID]}-{digest(f'{uuid}{words}')[:_HASH]}")
        for at, (uuid, words) in lines.items()
        if not _is_among(words, known[uuid], cut[uuid])
    }
    reader = reader_of(segment.origin.harness)
    return segment._replace(pieces=tuple(_with_new_ids(piece, names, reader) for piece in segment.pieces))


def _words(said: Iterable[tuple[str, str]]) -> Words:
    return tuple((role, text.encode("utf-8", "surrogatepass")) for role, text in said)


def _is_among(words: Words, known: Collection[Words], cut: Collection[Words]) -> bool:
    """Return whether a line has the words of a known line, apart from what redaction removed from one of them."""
    if words in known or any(_covers(one, words) for one in cut):
        return True
    return _is_cut(words) and any(_covers(words, one) for one in known)


def _is_cut(words: Words) -> bool:
    return any(MARKER.search(text) for _, text in words)


def _covers(marked: Words, whole: Words) -> bool:
    if [role for role, _ in marked] != [role for role, _ in whole]:
        return False
    return all(_covers_text(one, other) for (_, one), (_, other) in zip(marked, whole, strict=True))


def _covers_text(marked: bytes, whole: bytes) -> bool:
    """Return whether a text equals another one in which redaction replaced parts by markers."""
    first, *rest = MARKER.split(marked)[::2]
    if len(first) + sum(map(len, rest)) < MIN_LEFT or not rest or not whole.startswith(first):
        return marked == whole
    at = len(first)
    for part in rest[:-1]:
        place = whole.find(part, at)
        if place < 0:
            return False
        at = place + len(part)
    return whole.endswith(rest[-1]) and len(whole) - len(rest[-1]) >= at


def _by_line(said: Iterable[Turn], asked: Collection[str]) -> dict[int, tuple[str, Words]]:
    """Return (id, words) of the lines with some ids, by offset."""
    lines = dict[int, tuple[str, list[tuple[str, str]]]]()
    for turn in said:
        if turn.uuid in asked:
            lines.setdefault(turn.offset, (turn.uuid, []))[1].append((turn.role, turn.text))
    return {at: (uuid, _words(words)) for at, (uuid, words) in lines.items()}


def _archived(store: Store, ldm_home: Path, segment: Segment, uuids: set[str]) -> Iterator[tuple[str, Words]]:
    """Yield (id, words) of archived lines as this version parses them; an older version may have parsed differently."""
    reader, is_subagents = reader_of(segment.origin.harness), segment.origin.subagent is not None
    for name, *frame in ledger.frames_of_lines(store, uuids) if uuids else ():
        lines = (archive.text_of(ldm_home / name, archive.Frame(*frame)) or b"").split(b"\n")
        said = reader.turns(enumerate(lines), segment.before.transcript, subagent=is_subagents)
        yield from _by_line(said, uuids).values()


def _with_new_ids(piece: SegmentPiece, names: Mapping[int, tuple[str, str]], reader: TranscriptReader) -> SegmentPiece:
    """Return a piece with new ids in its lines, but only in lines whose own id is replaced, not quoted ids.

    Records of files that are rewritten are skipped, because crystal assigns their ids.
    """
    lines = list(piece.lines)
    for place, (at, line) in enumerate(lines):
        uuid, name = names.get(at, (None, ""))
        if uuid is not None and reader.facts(line).uuid == uuid and parse_completed(line)[1].id is None:
            lines[place] = at, set_apart(line, name)
    return piece if tuple(lines) == piece.lines else piece._replace(lines=tuple(lines), kept=b"")
