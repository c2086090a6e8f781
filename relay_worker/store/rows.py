"""Rows of a database: how the statements of the relay are run. Values are written ``?`` in both databases."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from relay_worker.model import NewBody
from relay_worker.settings import Settings

ACCOUNT = "(SELECT id FROM accounts WHERE name = ?)"
"""SQL for the id of an account."""
CHARGE = "UPDATE accounts SET bytes = bytes + ?, change = CASE WHEN change < ? THEN ? ELSE change END WHERE id = ?"
MAX_IN = 200


Row: TypeAlias = "tuple[Any, ...]"
Put: TypeAlias = "Generator[tuple[str, Row], Row | None, bool]"
"""Storing of a body: yields one question, a statement and its values, and gets the first row. So a store can ask the
questions of many at once. Until it goes on, another body of the same account may be stored, but none in its place."""


class Rows(Protocol):
    """Connection on which statements run."""

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row."""

    def all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows."""

    def run(self, sql: str, *values: Any) -> None:
        """Run a statement that returns nothing."""

    def many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement once for each row of values."""


def all_in(rows: Rows, sql: str, values: Sequence[str]) -> list[Row]:
    """Return the rows of a statement that ends with ``IN``, asked for many values at a time."""
    found: list[Row] = []
    for at in range(0, len(values), MAX_IN):
        some = values[at : at + MAX_IN]
        full = [*some, *[some[-1]] * (MAX_IN - len(some))]  # one statement for any number
        found += rows.all(f"{sql} ({', '.join('?' * MAX_IN)})", *full)
    return found


class Transaction(Rows, Protocol):
    """Transaction of some jobs, and what they need besides.

    Attributes:
        unseen: Bytes by account that were charged since a body's question was asked.
    """

    settings: Settings
    unseen: Mapping[int, int]

    def run_later(self, *statements: tuple[str, Row]) -> None:
        """Run INSERTs and UPDATEs, each of another row, at the latest before the next statement of another kind.

        A store can then run those of many bodies at once. An UPDATE names its row last.
        """

    def charge(self, account: int, size: int, change: int) -> None:
        """Add to the bytes of an account, and raise its change counter, when ``run_later`` does its part."""

    def check_disk(self, new: NewBody) -> None:
        """Refuse a body for which the disk has no room, as far as the store knows its disk."""

    def drop(self, *files: str | None) -> None:
        """Delete body files after the COMMIT."""


def finish(put: Put, rows: Rows) -> bool:
    """Answer a body's question at once, and store it."""
    sql, values = next(put)
    return answer(put, rows.one(sql, *values))


def answer(put: Put, row: Row | None) -> bool:
    """Store a body whose question has this answer. Return whether it is new."""
    try:
        put.send(row)
    except StopIteration as end:
        return bool(end.value)
    raise AssertionError("a body has one question")
