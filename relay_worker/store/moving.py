"""Copy a relay from one store into another; run again, it copies what is missing and deletes what is gone.

The source is read as of one moment. Rows keep their ids, so the two sides can be compared by walking both in the order
of their keys. Bodies are hashed when they are read, and again when the target returns them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from relay_worker.errors import CannotServeError
from relay_worker.store.files import INLINE_BYTES, Bodies
from relay_worker.store.rows import Row, Rows

PAGE_ROWS = 1000
BATCH_BYTES = 8 << 20
COMPLETE = "if a move to it was interrupted, it is complete: start the relay there; else "
"""Hint for a target that has its name, which it gets last."""


@dataclass(frozen=True, slots=True)
class MovedTable:
    """A table of a relay.

    Attributes:
        name: Its name.
        keys: Number of columns, the first ones, that identify a row.
        columns: Its columns except those of bodies.
        has_bodies: It has bodies as well, whose SHA-256 is in the last column.
    """

    name: str
    keys: int
    columns: tuple[str, ...]
    has_bodies: bool = False

    @property
    def key(self) -> str:
        """Columns of the key, for a statement."""
        return ", ".join(self.columns[: self.keys])


def _table(name: str, keys: int, columns: str, *, has_bodies: bool = False) -> MovedTable:
    return MovedTable(name, keys, tuple(columns.split()), has_bodies)


TABLES = (
    _table("accounts", 1, "id name bytes change floor"),
    _table("tokens", 1, "id account label scopes secret_hash created_at last_used_at revoked_at"),
    _table("streams", 1, "id account stream head acked count bytes expired_upto change"),
    _table("blobs", 1, "id stream seq size at tag digest", has_bodies=True),
    _table("settled", 2, "stream seq at expired tag digest"),
    _table("objects", 1, "id account object size at digest", has_bodies=True),
    _table("mailboxes", 1, "nameplate account expires_at claim_hash"),
    _table("mail", 3, "nameplate side phase body"),
)
"""Every table that is moved, in an order in which each follows those that it references."""


@dataclass(slots=True)
class MoveEnd:
    """A store that is read, as of one moment, or written; no server serves it.

    Attributes:
        rows: Its rows.
        is_serving: A server may change it meanwhile.
        transaction: Returns a transaction for some rows.
        bodies: Its large bodies; None if they are in the database.
        is_complete: It has all data of the other one.
    """

    rows: Rows
    is_serving: bool
    transaction: Callable[[], AbstractContextManager[Any]]
    bodies: Bodies | None = None
    is_complete: bool = False

    def body(self, file: str | None, body: bytes | None) -> bytes | None:
        """Return the body for these two columns of a row, or None if it is lost."""
        return self.bodies.read(file) if self.bodies and file is not None else body

    def keep(self, body: bytes) -> tuple[str | None, bytes | None]:
        """Return the two columns for a body; a large one is durable afterwards."""
        if self.bodies is None or len(body) <= INLINE_BYTES:
            return None, body
        return self.bodies.save(body), None


@dataclass(slots=True)
class TableReport:
    """Result for a table: its number of rows, rows written and deleted, bytes of bodies written, bodies lost."""

    table: str
    rows: int = 0
    written: int = 0
    deleted: int = 0
    lost: int = 0


def move(source: MoveEnd, target: MoveEnd, report: Callable[[TableReport], None]) -> None:
    """Make the target equal to the source.

    Raises:
        CannotServeError: The target does not have what was written. It is incomplete and cannot be served.
    """
    done = {table.name: TableReport(table.name) for table in TABLES}
    for table in reversed(TABLES):
        _delete_gone(source, target, table, done[table.name])
    for table in TABLES:
        _write_missing(source, target, table, done[table.name])
        _verify(source, target, table, done[table.name])
        report(done[table.name])
    target.is_complete = not source.is_serving


def _rows(rows: Rows, table: MovedTable) -> Iterator[Row]:
    """Yield a table's rows in the order of its key."""
    columns, marks = ", ".join(table.columns), ", ".join("?" * table.keys)
    select, order = f"SELECT {columns} FROM {table.name}", f"ORDER BY {table.key} LIMIT ?"
    page = rows.all(f"{select} {order}", PAGE_ROWS)
    while page:
        yield from page
        after = page[-1][: table.keys]
        page = rows.all(f"{select} WHERE ({table.key}) > ({marks}) {order}", *after, PAGE_ROWS)


def _differences(source: MoveEnd, target: MoveEnd, table: MovedTable) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield (source's row, target's row) of all rows that differ."""
    ours, theirs = _rows(source.rows, table), _rows(target.rows, table)
    our, their = next(ours, None), next(theirs, None)
    while our is not None or their is not None:
        if their is None or (our is not None and our[: table.keys] < their[: table.keys]):
            yield our, None
            our = next(ours, None)
        elif our is None or their[: table.keys] < our[: table.keys]:
            yield None, their
            their = next(theirs, None)
        else:
            if our != their:
                yield our, their
            our, their = next(ours, None), next(theirs, None)


def _delete_gone(source: MoveEnd, target: MoveEnd, table: MovedTable, done: TableReport) -> None:
    where = " AND ".join(f"{column} = ?" for column in table.columns[: table.keys])
    # SQLite may reuse the id of a deleted body, so a changed row is written again with its body.
    differences = _differences(source, target, table)
    gone = [their[: table.keys] for our, their in differences if their and (our is None or table.has_bodies)]
    with target.transaction():
        target.rows.many(f"DELETE FROM {table.name} WHERE {where}", gone)
    done.deleted = len(gone)


def _write_missing(source: MoveEnd, target: MoveEnd, table: MovedTable, done: TableReport) -> None:
    batch: list[Row] = []
    size = 0
    for our, _ in _differences(source, target, table):
        row = _with_body(source, target, table, our, done) if our and table.has_bodies else our
        if row is None:
            continue
        batch.append(row)
        size += row[table.columns.index("size")] if table.has_bodies else 0
        if len(batch) >= PAGE_ROWS or size >= BATCH_BYTES:
            _write(target, table, batch)
            batch, size = [], 0
        done.written += 1
    _write(target, table, batch)


def _with_body(source: MoveEnd, target: MoveEnd, table: MovedTable, row: Row, done: TableReport) -> Row | None:
    """Return a row with its body's columns; None if a server has deleted the body meanwhile."""
    columns = source.rows.one(f"SELECT file, body FROM {table.name} WHERE id = ?", row[0]) or (None, None)
    body = source.body(*columns)
    if body is None or hashlib.sha256(body).digest() != row[-1]:
        if source.is_serving:
            return None
        done.lost += 1
        return (*row, None, None)
    return (*row, *target.keep(body))


def _write(target: MoveEnd, table: MovedTable, batch: list[Row]) -> None:
    if not batch:
        return
    names = (*table.columns, "file", "body")[: len(batch[0])]
    changes = ", ".join(f"{name} = excluded.{name}" for name in names[table.keys :])
    sql = (
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        f" ON CONFLICT ({table.key}) DO UPDATE SET {changes}"
    )
    with target.transaction():
        target.rows.many(sql, batch)
    if table.has_bodies and len(names) > len(table.columns):
        _verify_bodies(target, table, batch)


def _verify_bodies(target: MoveEnd, table: MovedTable, batch: list[Row]) -> None:
    for row in batch:
        if row[-2:] != (None, None):
            columns = target.rows.one(f"SELECT file, body FROM {table.name} WHERE id = ?", row[0]) or (None, None)
            if hashlib.sha256(target.body(*columns) or b"").digest() != row[len(table.columns) - 1]:
                raise _unlike(table)


def _verify(source: MoveEnd, target: MoveEnd, table: MovedTable, done: TableReport) -> None:
    """Compare all rows of a table again after the copy."""
    for our, their in _differences(source, target, table):
        if not (source.is_serving and table.has_bodies and our and their is None):
            raise _unlike(table)
    (done.rows,) = target.rows.one(f"SELECT count(*) FROM {table.name}") or (0,)


def _unlike(table: MovedTable) -> CannotServeError:
    return CannotServeError(
        f"the copied table {table.name} is not like the original", hint="nothing was lost: run the same command again"
    )
