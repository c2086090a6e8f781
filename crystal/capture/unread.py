"""Count what was not captured. ``verify``, ``agents``, ``status`` and ``doctor`` count here, so that they agree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from crystal.capture import finder
from crystal.capture.damage import damage_of, noting_damage
from crystal.capture.engine import Capture, Tally
from crystal.capture.snapshots import (
    Container,
    ConversationCapture,
    changed,
    containers,
    is_elsewhere,
    opened_container,
    retried,
)
from crystal.capture.tail import Cleaner, recognise
from crystal.errors import CrystalError
from crystal.model.capture import Origin, Watermark
from crystal.store.capture import snapshots as seen
from crystal.transcript.framing import end_of_lines
from crystal.transcript.reader import MISTAKES, named_mistake
from crystal.transcript.snapshot import PartMissingError, SourceError


def count_new(
    capture: Capture, container: Container, *, skipped_too: bool
) -> tuple[list[tuple[str, Origin, int]], SourceError | None]:
    """Return (transcript key, origin, bytes) of the conversations in a file with records that were not captured.

    With the error that names what in the file cannot be read, although the rest can.

    Args:
        capture: The machine's capture.
        container: The file.
        skipped_too: Count what was there before crystal, too.

    Raises:
        FileNotFoundError: It is gone.
        CrystalError: As ``capture_file``.
    """
    counted, stamps = [], seen.stamps(capture.store, container.found.path)
    with opened_container(capture, container) as (reader, source):
        for conversation in reader.conversations(source):
            one = ConversationCapture(capture, container, reader, source, conversation, Tally())
            is_read = stamps.get(one.key) == conversation.stamp
            if (is_read and not skipped_too) or is_elsewhere(capture, container, one.key):
                continue
            # A record of an unchanged conversation differs only because another file has the same conversation; one
            # that was recovered is in the archive.
            kept = ("captured", "recovered") if is_read else ("recovered",)
            size = 0
            with noting_damage(source):
                size = sum(
                    record.size
                    for record, _, old in one.new_records(skipped_too=skipped_too)
                    if old is None or old.state not in kept
                )
            if size:
                counted.append((one.key, one.origin, size))
    return counted, damage_of(source)


def unread(capture: Capture) -> Iterator[tuple[Path, int, Exception | None]]:
    """Yield each file that is rewritten, and folder of such files, of which something was not captured.

    With the bytes of new records, and the error if it, or a part of it, cannot be read.
    """
    refused: dict[Path, Exception] = {}
    for container in changed(capture, containers(capture, refusal=refused.setdefault)):
        size, error = unread_in(capture, container)
        if size or error is not None:
            yield container.found.path, size, error
    yield from ((path, 0, error) for path, error in refused.items())


def unread_in(capture: Capture, container: Container) -> tuple[int, Exception | None]:
    """Return the bytes of records in a file that were not captured, and the error if some of it cannot be read."""
    try:
        found, error = retried(lambda: count_new(capture, container, skipped_too=False))
    except FileNotFoundError:
        return 0, None
    except (CrystalError, OSError) as failed:
        return 0, failed
    except MISTAKES as mistake:
        return 0, named_mistake(mistake)
    return sum(size for _, _, size in found), error


def unproved_bytes(error: Exception | None, size: int) -> int:
    """Return how many of ``size`` bytes could not be compared: none if the file was read, or lacks only a part."""
    return 0 if error is None or isinstance(error, PartMissingError) else size


def unread_lines(
    found: finder.TranscriptFile, mark: Watermark, cleaner: Cleaner
) -> tuple[int, int, OSError | CrystalError | None]:
    """Return the bytes of a file of lines that were not captured, as (start, end, the error if it cannot be read)."""
    is_same = (mark.dev, mark.inode) == (found.dev, found.inode) and mark.written in (0, found.written)
    if is_same and mark.offset - found.size in (0, 1) and os.access(found.name, os.R_OK):
        return mark.offset, mark.offset, None
    try:
        with finder.opened(found.path) as file:
            end = end_of_lines(file, found.size)
            now = recognise(file, found, mark, cleaner)
    except FileNotFoundError:
        return mark.offset, mark.offset, None
    except (OSError, CrystalError) as error:
        return mark.offset, max(mark.offset, found.size), error
    return now.offset, max(now.offset, end), None
