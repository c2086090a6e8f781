"""Count what a reader makes of the records of a transcript, and name the kinds that it does not know.

Every harness adds kinds of records with time; the archive keeps them all. A format that changed shows in their share.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

from crystal.model.capture import Turn
from crystal.model.named_tuple import NamedTuple
from crystal.transcript.block_kinds import is_known_block, unknown_block
from crystal.transcript.line_context import parse_completed, text_of
from crystal.transcript.reader import TranscriptReader

NOT_JSON = "not JSON"
OTHER = "other"
"""Kinds without a name, those whose names are no names, which may be anything, and those beyond the most frequent."""
MAX_KINDS = 20
_BLOCK = ":"
"""Separates the kind of a record from that of a block in it."""
_NAME = re.compile(r"[A-Za-z0-9][\w.:/$-]{0,63}", re.ASCII)


class RecordCounts(NamedTuple):
    """Counts of records: those that gave turns, those known to have no text, and those of unknown kinds."""

    said: int = 0
    silent: int = 0
    unknown: tuple[tuple[str, int], ...] = ()


def unread_calls(turns: Iterable[Turn]) -> dict[int, str]:
    """Return the unknown arguments of tools that edit files or run commands, by the offsets of their records."""
    calls = [turn for turn in turns if turn.role == "tool_call"]
    if not calls:
        return {}
    from crystal.work.calls import unread_arguments  # noqa: PLC0415 - only where a tool was called

    found = ((turn.offset, unread_arguments(turn.tool, turn.text)) for turn in calls)
    return {offset: unread for offset, unread in found if unread is not None}


def count_records(
    reader: TranscriptReader,
    lines: Iterable[tuple[int, bytes]],
    said: Collection[int],
    unread: Mapping[int, str] | None = None,
) -> RecordCounts:
    """Count records by what the reader makes of them.

    Args:
        reader: The reader of the lines.
        lines: (offset, line), as for ``TranscriptReader.turns``.
        said: The offsets of those that gave turns. They are understood, unless their content has something unknown.
        unread: What is unknown of the calls in some of these, see ``unread_calls``.
    """
    calls = {} if unread is None or is_known(reader, OTHER) else unread
    numbers = Counter(_kind_of(reader, line, calls.get(offset), is_said=offset in said) for offset, line in lines)
    spoke, silent, unknown = numbers.pop("", 0), 0, Counter[str]()
    for kind, number in numbers.most_common():
        if kind is None or is_known(reader, kind):
            silent += number
        else:
            is_name = kind == NOT_JSON or (len(unknown) < MAX_KINDS and _NAME.fullmatch(kind))
            unknown[kind if is_name else OTHER] += number
    return RecordCounts(spoke, silent, tuple(unknown.items()))


def is_known(reader: TranscriptReader, kind: str) -> bool:
    """Return True for a known kind of block, or a kind of record that may have no text as the reader knows."""
    record, _, block = kind.rpartition(_BLOCK)
    return is_known_block(block) if record else any(fnmatchcase(kind, pattern) for pattern in reader.silent_kinds)


def _kind_of(reader: TranscriptReader, line: bytes, unread: str | None, *, is_said: bool) -> str | None:
    """Return the kind of a record, None if it has none, empty if it gave turns and all of it is known."""
    fields, _ = parse_completed(line)
    if not fields or text_of(fields) is not None:
        return "" if is_said else NOT_JSON if line.strip() else None
    is_title = fields.keys() == {"title"}  # ours, see ``SnapshotReader.records``
    kind = reader.kind(fields) or (OTHER if reader.kinds_are_named and not is_title else None)
    is_unknown = not is_said and kind is not None and not is_known(reader, kind)
    block = None if is_unknown else unknown_block(fields) or unread
    if block is not None:
        return f"{kind or OTHER}{_BLOCK}{block}"
    return "" if is_said else kind
