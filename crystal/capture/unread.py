"""Count what was not captured of files that are rewritten, and of databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crystal.capture.engine import Capture, Tally
from crystal.capture.snapshots import (
    Container,
    ConversationCapture,
    changed,
    containers,
    damage_of,
    is_elsewhere,
    noting_damage,
    opened_container,
    record_size,
)
from crystal.errors import CrystalError
from crystal.model.capture import Origin
from crystal.store.capture import snapshots as seen
from crystal.transcript.snapshot import SourceError


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
            if is_elsewhere(capture, container, one.key):
                continue
            # A record of an unchanged conversation differs only because another file has the same conversation; one
            # that was recovered is in the archive.
            is_read = stamps.get(one.key) == conversation.stamp
            kept = ("captured", "recovered") if is_read else ("recovered",)
            size = 0
            with noting_damage(source):
                size = sum(
                    record_size(record)
                    for record, _, old in one.new_records(skipped_too=skipped_too)
                    if old is None or old.state not in kept
                )
            if size:
                counted.append((one.key, one.origin, size))
    return counted, damage_of(source)


def unread(capture: Capture) -> Iterator[tuple[Path, int, CrystalError | None]]:
    """Yield each file with records that were not captured: their bytes, or the error if it cannot be read."""
    for container in changed(capture, containers(capture)):
        path = container.found.path
        try:
            found, damage = count_new(capture, container, skipped_too=False)
        except FileNotFoundError:
            continue
        except CrystalError as error:
            yield path, 0, error
        else:
            size = sum(one for _, _, one in found)
            if size or damage is not None:
                yield path, size, damage
