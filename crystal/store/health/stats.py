"""Count rows for ``crystal status``, each from an index or a small table, so that large stores are fast too."""

from __future__ import annotations

import os

from crystal.model.capture import BEFORE_CRYSTAL, RESTORED
from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store

_IS_KEPT = f"(s.state = 'captured' OR coalesce(s.rule, '') = '{RESTORED}')"
"""SQL for a transcript's bytes that are in the archive, also those that were restored from it or recovered."""


def counts(store: Store) -> dict[str, int]:
    """Return the number of rows of each kind; of memories only active ones."""
    found = {
        table: int(store.value(f"SELECT count(*) FROM {table}"))
        for table in ("sessions", "turns", "chunks", "projects")
    }
    return {**found, "memories": int(store.value("SELECT count(*) FROM memories WHERE status = 'active'"))}


def bytes_by_state(store: Store) -> dict[str, int]:
    """Return the number of transcript bytes by ledger state; of skipped bytes by rule."""
    sql = "SELECT CASE state WHEN 'skipped' THEN rule ELSE state END, sum(stop - start) FROM segments GROUP BY 1"
    return {str(state): int(size) for state, size in store.rows(sql)}


class HarnessCounts(NamedTuple):
    """Counts of one harness: sessions, transcript bytes by state, and the time of the first session, ms."""

    sessions: int
    bytes: dict[str, int]
    since: int | None


NO_COUNTS = HarnessCounts(0, {}, None)


def counts_by_harness(store: Store, device: str) -> dict[str, HarnessCounts]:
    """Return the counts of each harness on one device."""
    rows = store.rows("SELECT harness, count(*) FROM sessions WHERE device = ? GROUP BY harness", (device,))
    sessions = {str(harness): int(number) for harness, number in rows}
    found: dict[str, HarnessCounts] = {}
    for harness, state, size, since in store.rows(
        f"SELECT c.harness, CASE WHEN {_IS_KEPT} THEN 'captured' ELSE coalesce(s.rule, s.state) END,"
        f" sum(s.stop - s.start), min(s.captured_at) FILTER (WHERE {_IS_KEPT}) FROM segments s JOIN capture_state c"
        " ON c.id = s.transcript WHERE c.device = ?1 AND s.generation = c.generation GROUP BY 1, 2"
        " UNION ALL SELECT c.harness, ?2, sum(r.size), NULL FROM snapshot_records r JOIN capture_state c"
        " ON c.id = r.transcript WHERE c.device = ?1 AND r.state = 'skipped' GROUP BY 1",
        (device, BEFORE_CRYSTAL),
    ):
        known = found.setdefault(harness, HarnessCounts(sessions.get(harness, 0), {}, None))
        known.bytes[state] = known.bytes.get(state, 0) + size
        found[harness] = known._replace(since=since if known.since is None else known.since)
    return found


class TranscriptLedger(NamedTuple):
    """The bytes of a transcript's present file, by state; ``missing`` are before its watermark and in no ledger row.

    ``session_id`` is None if no session is stored: all bytes are private, skipped or forgotten.
    """

    path: str
    harness: str
    device: str
    session_id: str | None
    read: int
    captured: int
    private: int
    skipped: int
    missing: int
    updated_at: int


def ledger_by_transcript(store: Store, limit: int) -> list[TranscriptLedger]:
    """Return the byte counts of transcripts: those with missing bytes first, then the most recent."""
    rows = store.rows(
        "SELECT c.path, c.harness, c.device,"
        " (SELECT session_id FROM sessions WHERE sessions.session_id = c.session_id), c.offset,"
        f" coalesce(sum(s.stop - s.start) FILTER (WHERE {_IS_KEPT}), 0),"
        " coalesce(sum(s.stop - s.start) FILTER (WHERE s.state = 'private'), 0),"
        f" coalesce(sum(s.stop - s.start) FILTER (WHERE s.state = 'skipped' AND NOT {_IS_KEPT}), 0),"
        " c.offset - coalesce(sum(s.stop - s.start), 0) AS missing, c.updated_at FROM capture_state c"
        " LEFT JOIN segments s ON s.transcript = c.id AND s.generation = c.generation GROUP BY c.id"
        " ORDER BY missing <= 0, c.updated_at DESC, c.id DESC LIMIT ?",
        (limit,),
    )
    return [TranscriptLedger(os.fsdecode(path), *rest) for path, *rest in rows]


def time_span(store: Store) -> tuple[int | None, int | None]:
    """Return the times of the earliest and the latest turn, ms."""
    [(first, last)] = store.rows("SELECT min(started_at), max(last_at) FROM sessions")
    return first, last


def last_capture(store: Store) -> int | None:
    """Return the time of the last capture, ms."""
    return store.find(int, "SELECT captured_at FROM segments WHERE state = 'captured' ORDER BY id DESC LIMIT 1")


def newest_turn(store: Store) -> int:
    """Return the largest id that a turn ever had; it grows with every new turn."""
    return int(store.value("SELECT max(seq) FROM sqlite_sequence WHERE name = 'turns'") or 0)


def has_home(store: Store) -> bool:
    """Return True if this machine sends to a home; faster to import than ``relay_peers``."""
    return store.has("SELECT 1 FROM relay_peers WHERE side = 'home' AND revoked_at IS NULL LIMIT 1")


def newest_memory(store: Store) -> int:
    """Return the row id of the newest memory, or 0."""
    return int(store.value("SELECT max(id) FROM memories") or 0)
