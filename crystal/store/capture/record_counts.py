"""Count each transcript's records: with turns, without turns, and of unknown kinds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store

SAID, SILENT = "said", "silent"


class CountedRecords(NamedTuple):
    """The number of records of one transcript that have turns, that have none, or that are of one unknown kind."""

    harness: str
    path: str
    kind: str
    is_unknown: bool
    number: int
    is_newest: bool


def add_counts(store: Store, transcript: int, said: int, silent: int, unknown: Iterable[tuple[str, int]]) -> None:
    """Add to the counts of a transcript. Inside a transaction."""
    rows = [(SAID, 0, said), (SILENT, 0, silent), *((kind, 1, number) for kind, number in unknown)]
    for kind, is_unknown, number in rows:
        if number:
            again = "DO UPDATE SET number = number + excluded.number"
            values = (transcript, kind, is_unknown, number)
            store.insert("record_counts", "transcript, kind, is_unknown, number", *values, on_conflict=again)


def counted_records(store: Store, newest: int) -> Iterator[CountedRecords]:
    """Yield the counts of each harness's newest transcripts, and all counts of unknown kinds, newest first.

    ``newest`` is the minimum number of records of the newest transcripts together; each transcript counts as a whole.
    """
    rows = store.rows(
        "SELECT c.harness, c.path, r.kind, r.is_unknown, r.number FROM record_counts r"
        " JOIN capture_state c ON c.id = r.transcript ORDER BY c.updated_at DESC, c.id DESC, r.number DESC, r.kind"
    )
    records, paths = Counter[str](), set[tuple[str, str]]()
    for harness, path, kind, is_unknown, number in rows:
        is_newest = records[harness] < newest or (harness, path) in paths
        if is_newest:
            records[harness] += number
            paths.add((harness, path))
        if is_newest or is_unknown:
            yield CountedRecords(harness, os.fsdecode(path), kind, bool(is_unknown), number, is_newest)


def newest_roles(store: Store, newest: int) -> dict[str, Counter[str]]:
    """Return the number of turns by role, by harness: of its ``newest`` turns among the newest 20,000 of all."""
    found: dict[str, Counter[str]] = {}
    sql = (
        "SELECT s.harness, t.role FROM (SELECT id, session, role FROM turns ORDER BY id DESC LIMIT 20000) t"
        " JOIN sessions s ON s.id = t.session ORDER BY t.id DESC"
    )
    for harness, role in store.rows(sql):
        roles = found.setdefault(harness, Counter())
        if roles.total() < newest:
            roles[role] += 1
    return found


def has_role(store: Store, harness: str, role: str) -> bool:
    """Return whether a harness has a turn with this role. Reads all turns if not."""
    sql = "SELECT 1 FROM turns t JOIN sessions s ON s.id = t.session WHERE s.harness = ? AND t.role = ? LIMIT 1"
    return store.has(sql, (harness, role))


def drop_unknown(store: Store, harness: str, kinds: Iterable[str]) -> None:
    """Delete the counts of kinds that are no longer unknown. Inside a transaction."""
    for kind in kinds:
        store.execute(
            "DELETE FROM record_counts WHERE is_unknown AND kind = ?"
            " AND transcript IN (SELECT id FROM capture_state WHERE harness = ?)",
            (kind, harness),
        )
