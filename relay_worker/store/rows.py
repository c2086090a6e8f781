"""Define how the relay's statements run on a database. Values are written ``?`` for both databases."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from relay_worker.model import NewBody
from relay_worker.settings import Settings

ACCOUNT = "(SELECT id FROM accounts WHERE name = ?)"
"""SQL for the id of an account."""
CHARGE = "UPDATE accounts SET bytes = bytes + ?, change = CASE WHEN change < ? THEN ? ELSE change END WHERE id = ?"
FILES = "SELECT file FROM blobs WHERE file IS NOT NULL UNION ALL SELECT file FROM objects WHERE file IS NOT NULL"
"""SQL for the names of all bodies outside of the database."""
MAX_IN = 200


Row: TypeAlias = "tuple[Any, ...]"
Put: TypeAlias = "Generator[tuple[str, Row], Row | None, bool]"
"""A generator that stores a body: yields one query (statement, values), and is sent its first row. So a store can run
the queries of many bodies together. Meanwhile, another body of the account may be stored, but none in its place.
"""


class Rows(Protocol):
    """A connection on which statements run."""

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row."""

    def all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows."""

    def run(self, sql: str, *values: Any) -> None:
        """Run a statement that returns nothing."""

    def many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement once for each row of values."""


def all_in(rows: Rows, sql: str, values: Sequence[str]) -> list[Row]:
    """Return the rows of a statement that ends with ``IN``, run for many values at a time."""
    found: list[Row] = []
    for at in range(0, len(values), MAX_IN):
        some = values[at : at + MAX_IN]
        full = [*some, *[some[-1]] * (MAX_IN - len(some))]  # the same statement for any number of values
        found += rows.all(f"{sql} ({', '.join('?' * MAX_IN)})", *full)
    return found


class Transaction(Rows, Protocol):
    """A transaction of some jobs, with what else they need.

    Attributes:
        unseen: Bytes by account that were charged since a body's query ran.
    """

    settings: Settings
    unseen: Mapping[int, int]

    def run_later(self, *statements: tuple[str, Row]) -> None:
        """Run INSERTs and UPDATEs, each of another row, at the latest before the next statement of another kind.

        A store can then run the statements of many bodies together. An UPDATE names its row last.
        """

    def charge(self, account: int, size: int, change: int) -> None:
        """Add to the bytes of an account, and raise its change counter, when ``run_later`` runs its statements."""

    def check_disk(self, new: NewBody) -> None:
        """Refuse a body for which the disk has no room, if the store knows its disk."""

    def drop(self, *files: str | None) -> None:
        """Delete body files after the COMMIT."""


def finish(put: Put, rows: Rows) -> bool:
    """Run a body's query immediately, and store the body."""
    sql, values = next(put)
    return answer(put, rows.one(sql, *values))


def answer(put: Put, row: Row | None) -> bool:
    """Store a body, given the result of its query. Return whether it is new."""
    try:
        put.send(row)
    except StopIteration as end:
        return bool(end.value)
    raise AssertionError("a body has one question")
