"""Store the last known state of records in files that are rewritten and in databases, to find changes."""

import os
from collections.abc import Sequence
from pathlib import Path

from crystal.model.capture import BEFORE_CRYSTAL, Segment
from crystal.model.named_tuple import NamedTuple
from crystal.store.capture import ledger
from crystal.store.capture.ledger import stored_path
from crystal.store.connection import Store

SUPERSEDED = "superseded"
"""State of bytes that a record had before it changed."""


class SeenRecord(NamedTuple):
    """The last known state of a record.

    Attributes:
        record: Its id.
        state: ``captured``, ``private``, ``skipped`` (older than crystal), ``recovered`` (its archived line is known,
            but not whether that is its newest state), or ``lost`` (unknown whether it was private).
        hash: Keyed hash of its content, or None.
        size: Its length in bytes.
        superseded: The length of its earlier states, in bytes.
    """

    record: str
    state: str
    hash: bytes | None
    size: int
    superseded: int = 0


def seen_records(store: Store, transcript: int) -> dict[str, SeenRecord]:
    """Return the records of a transcript, by id."""
    rows = store.select(SeenRecord, "snapshot_records WHERE transcript = ?", (transcript,))
    return {one.record: one for one in rows}


def put_records(store: Store, transcript: int, records: Sequence[SeenRecord]) -> None:
    """Store the states of records, replacing earlier ones; ``superseded`` adds up. Inside a transaction."""
    again = (
        "DO UPDATE SET state = excluded.state, hash = excluded.hash, size = excluded.size,"
        " superseded = superseded + excluded.superseded"
    )
    columns = f"transcript, {', '.join(SeenRecord._fields)}"
    store.insert_many("snapshot_records", columns, [(transcript, *record) for record in records], again)


def close_records(store: Store, transcript: int, records: Sequence[str]) -> None:
    """Mark records as private and delete their hashes, which would confirm a guess. Inside a transaction."""
    store.execute_many(
        "UPDATE snapshot_records SET state = 'private', hash = NULL WHERE transcript = ? AND record = ?",
        [(transcript, record) for record in records],
    )


def claim_records(store: Store, segment: Segment, now: int, *, records: Sequence[tuple[int, SeenRecord]]) -> int:
    """Claim a segment of records: move the watermark, and store each record's state. Inside a transaction.

    Args:
        store: The store.
        segment: Lines of records.
        now: The time, ms.
        records: The records, each with the first byte of its line.

    Returns:
        The transcript's row id.

    Raises:
        WatermarkMovedError: The watermark is not where the segment begins.
    """
    ident = ledger.claim_tail(store, segment, now)
    private = [(piece.start, piece.end) for piece in segment.pieces if piece.state == "private"]
    noted = [
        record._replace(state="private", hash=None) if any(start <= at < end for start, end in private) else record
        for at, record in records
    ]
    put_records(store, ident, noted)
    return ident


def stamps(store: Store, path: Path) -> dict[str, str]:
    """Return the stamps of a file's conversations by key; the key of the whole file is empty."""
    sql = "SELECT conversation, stamp FROM snapshot_stamps WHERE path = ?"
    return dict(store.rows(sql, (stored_path(path),)))


def file_stamps(store: Store) -> dict[str, str]:
    """Return the stamps of whole files by path."""
    sql = "SELECT path, stamp FROM snapshot_stamps WHERE conversation = ''"
    return {os.fsdecode(path): stamp for path, stamp in store.rows(sql)}


def paths_with(store: Store, conversation: str) -> list[str]:
    """Return the paths of the files that contain a conversation, by its key."""
    sql = "SELECT path FROM snapshot_stamps WHERE conversation = ?"
    return store.all(str, sql, (conversation,))


def put_stamp(store: Store, path: Path, conversation: str, stamp: str) -> None:
    """Store the stamp of a conversation, or of the whole file if the key is empty. Inside a transaction."""
    key = {"path": stored_path(path), "conversation": conversation}
    store.upsert("snapshot_stamps", "path, conversation", {**key, "stamp": stamp})


def compare_anew(store: Store, harness: str) -> None:
    """Clear the stamps of a harness's files, so that the next sweep compares them again. Inside a transaction."""
    store.execute(
        "UPDATE snapshot_stamps SET stamp = '' WHERE path IN"
        " (SELECT path FROM snapshot_stamps WHERE substr(conversation, 1, length(?1)) = ?1)",
        (f"{harness}/",),
    )


def bytes_by_state(store: Store, transcript: int) -> dict[str, int]:
    """Return the bytes of a transcript's records that are not in the ledger, by state."""
    sql = (
        "SELECT coalesce(sum(size) FILTER (WHERE state = 'skipped'), 0), coalesce(sum(superseded), 0)"
        " FROM snapshot_records WHERE transcript = ?"
    )
    counts = dict(zip((BEFORE_CRYSTAL, SUPERSEDED), store.row(sql, (transcript,)) or (), strict=False))
    return {state: size for state, size in counts.items() if size}


def has_skipped(store: Store, session_id: str) -> bool:
    """Return whether a part of a session's transcripts was skipped as older than crystal."""
    return store.has(
        "SELECT 1 FROM capture_state c WHERE c.session_id = ?1 AND (EXISTS (SELECT 1 FROM segments s"
        " WHERE s.transcript = c.id AND s.state = 'skipped' AND s.rule = ?2) OR EXISTS (SELECT 1"
        " FROM snapshot_records r WHERE r.transcript = c.id AND r.state = 'skipped'))",
        (session_id, BEFORE_CRYSTAL),
    )


def set_lost(store: Store, *, lost: bool) -> None:
    """Exclude skipped records from imports (``lost``), or allow their import again. Inside a transaction."""
    old, new = ("skipped", "lost") if lost else ("lost", "skipped")
    store.execute("UPDATE snapshot_records SET state = ? WHERE state = ?", (new, old))
