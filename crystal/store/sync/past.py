"""Store the progress of sending this machine's ledger to a home that lacks it, and read the content of each row."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

from crystal.model.capture import BEFORE_CRYSTAL, UNSENT, Project
from crystal.store.connection import GIVEN, Store
from crystal.store.health.checks import LEDGER_ROW, LedgerRow
from crystal.store.json_columns import read_fields
from crystal.store.notes import drop_note, write_note

_KEY = "relay_past"


@dataclass(frozen=True, slots=True)
class PastProgress:
    """Ledger rows up to ``row`` are sent; rows up to ``until`` must be sent.

    The ids of private lines are sent before them; ids up to ``private`` are sent, None when all are. Memories are sent
    up to the row ``memory``.
    """

    row: int
    until: int
    private: str | None = None
    memory: int | None = None


def begin(store: Store) -> int:
    """Queue everything that is stored now; return the number of ledger rows. Inside a transaction."""
    until = int(store.value("SELECT coalesce(max(id), 0) FROM segments") or 0)
    _write(store, PastProgress(0, until, "", 0))
    return rows_between(store, 0, until)


def include(store: Store, rows: int, *, private: bool) -> None:
    """Queue the next rows of the ledger too. Inside the transaction that adds them, before it does.

    For the data of a process that began before this machine joined a home, and does not know of it.

    Args:
        store: The store.
        rows: Maximum number of rows that follow.
        private: Whether ids of private lines follow with them.
    """
    last = int(store.value("SELECT coalesce(max(id), 0) FROM segments") or 0)
    place = read_place(store) or PastProgress(last, last)
    sent = "" if private else place.private
    _write(store, PastProgress(min(place.row, last), max(place.until, last + rows), sent, place.memory))


def include_memory(store: Store, row: int) -> None:
    """Queue a memory, and all memories after it again. Inside the transaction that changed it."""
    last = int(store.value("SELECT coalesce(max(id), 0) FROM segments") or 0)
    place = read_place(store) or PastProgress(last, last)
    _write(store, replace(place, memory=row - 1 if place.memory is None else min(place.memory, row - 1)))


def read_place(store: Store) -> PastProgress | None:
    """Return the progress of sending, or None if nothing must be sent."""
    return read_fields(store, _KEY, PastProgress)


def move_place(store: Store, **moved: Any) -> PastProgress:
    """Change fields of the progress. Inside the transaction that puts the sealed content into the outbox."""
    place = read_place(store)
    assert place is not None
    place = replace(place, **moved)
    _write(store, place)
    return place


def forget_place(store: Store) -> None:
    """Delete the progress: everything is sealed."""
    drop_note(store, _KEY)


def _write(store: Store, place: PastProgress) -> None:
    write_note(store, _KEY, json.dumps(asdict(place)))


_KEPT_BACK = f"state = 'skipped' AND rule IN ('{BEFORE_CRYSTAL}', '{UNSENT}')"
_SENT = f"(archive_length IS NOT NULL OR state <> 'captured' AND NOT ({_KEPT_BACK}))"


def next_row(store: Store, after: int, until: int) -> tuple[int, LedgerRow] | None:
    """Return (transcript, row) of the next row to send: archived, private, or skipped but not as before-crystal."""
    row = store.row(
        f"SELECT transcript, {LEDGER_ROW} FROM segments WHERE id > ?1 AND id <= ?2 AND {_SENT} ORDER BY id LIMIT 1",
        (after, until),
    )
    return None if row is None else (row[0], LedgerRow(*row[1:]))


def rows_between(store: Store, after: int, until: int) -> int:
    """Count the rows to send between two ids."""
    sql = f"SELECT count(*) FROM segments WHERE id > ?1 AND id <= ?2 AND {_SENT}"
    return int(store.value(sql, (after, until)) or 0)


def projects_of_row(store: Store, row: int) -> dict[str, Project]:
    """Return git's data about the folders that a row's turns name."""
    rows = store.rows(
        "SELECT DISTINCT p.cwd, p.git_root, p.remote, p.name FROM turns t JOIN projects p ON p.id = t.project"
        " WHERE t.segment = ?",
        (row,),
    )
    return {str(cwd): Project(cwd, root, remote, name) for cwd, root, remote, name in rows}


def offsets_of_row(store: Store, row: int) -> dict[str, int]:
    """Return the offsets of a row's lines in their file, by the lines' uuids."""
    return dict(store.rows("SELECT uuid, min(offset) FROM turns WHERE segment = ? GROUP BY uuid", (row,)))


def private_uuids(store: Store, after: str, limit: int) -> list[str]:
    """Return ids of private lines after one, in order."""
    return store.all(str, "SELECT uuid FROM private_lines WHERE uuid > ? ORDER BY uuid LIMIT ?", (after, limit))


def forget_relayed(store: Store, device: str) -> None:
    """Mark bytes whose lines only home has as not captured, so that they can be received. Inside a transaction."""
    _skip_relayed(store, BEFORE_CRYSTAL, "transcript IN (SELECT id FROM capture_state WHERE device = ?)", device)


def leave_unsent(store: Store, sealed_at: Collection[int]) -> int:
    """Mark bytes as not sent whose lines only messages of these times had; return their number. In a transaction."""
    return _skip_relayed(store, UNSENT, f"captured_at IN {GIVEN}", sealed_at)


def unsent_bytes(store: Store) -> dict[str, int]:
    """Return how many bytes are marked as not sent, by the path of their transcript, also if that was replaced."""
    rows = store.rows(
        "SELECT c.path, sum(s.stop - s.start) FROM segments s JOIN capture_state c ON c.id = s.transcript"
        " WHERE s.state = 'skipped' AND s.rule = ? GROUP BY c.path ORDER BY min(c.id)",
        (UNSENT,),
    )
    return {os.fsdecode(path): size for path, size in rows}


def _skip_relayed(store: Store, rule: str, condition: str, value: object) -> int:
    rows = store.rows(
        "UPDATE segments SET state = 'skipped', rule = ?, raw_hash = NULL, clean_hash = NULL, clean_length = NULL"
        f" WHERE state = 'captured' AND archive_length IS NULL AND {condition} RETURNING stop - start",
        (rule, value),
    )
    return sum(size for (size,) in rows)
