"""Report what cannot be read of a file that is rewritten, and remember it: a sweep does not read it again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

from crystal.errors import CrystalError
from crystal.transcript.snapshot import PartMissingError, Snapshot, SourceError

AGAIN_MS = 24 * 3_600_000
"""A file that did not change is read again after so long: what the disk refuses may be for a while."""


@contextlib.contextmanager
def noting_damage(source: Snapshot) -> Iterator[Callable[[], bool]]:
    """Add a ``SourceError`` of the block to ``source.damaged``.

    Yields:
        A function that returns True if the block added nothing, and the file is not in the middle of a write.
    """
    known = len(source.damaged)
    try:
        yield lambda: len(source.damaged) == known and not source.is_unfinished
    except SourceError as error:
        source.damaged.append(error)


def damage_of(source: Snapshot) -> SourceError | None:
    """Return the error that names what is damaged, None if nothing is."""
    if not source.damaged:
        told = source.other_form(source.missing[0]) if source.missing else None
        return told and PartMissingError(told.message, hint=told.hint)
    first, *others = source.damaged
    return SourceError(f"{first.message}, and {len(others)} more", hint=first.hint) if others else first


def stamp_of_damaged(stamp: str, error: CrystalError, now: int) -> str:
    """Return the stamp of a damaged file: its own stamp, when to read it again (ms), the message and the hint."""
    return json.dumps([stamp, now + AGAIN_MS, error.message, error.hint])


def refuse_damaged(noted: str | None, stamp: str, now: int) -> None:
    """Refuse a file that is as it was when it was found damaged.

    Raises:
        SourceError: It is, for the reason that was noted then.
    """
    if noted is not None and noted.startswith('["'):
        before, until, message, hint = json.loads(noted)
        if before == stamp and now < until:
            raise SourceError(message, hint=hint)
