"""Count the records of each transcript that gave turns, say nothing, or are of unknown kinds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store

SAID, SILENT = "said", "silent"


class CountedRecords(NamedTuple):
    """Records of one transcript: those of one unknown kind, those that gave turns, or those that gave none."""

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
    """Yield the counts of each harness's newest transcripts, and those of unknown kinds of all, the newest first.

    ``newest`` is how many records the newest transcripts have together, at least; each counts as a whole.
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


def drop_unknown(store: Store, harness: str, kinds: Iterable[str]) -> None:
    """Count records of kinds that were unknown as known. Inside a transaction."""
    for kind in kinds:
        store.execute(
            "DELETE FROM record_counts WHERE is_unknown AND kind = ?"
            " AND transcript IN (SELECT id FROM capture_state WHERE harness = ?)",
            (kind, harness),
        )
