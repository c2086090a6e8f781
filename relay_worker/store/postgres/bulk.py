"""Run one statement for many rows of values together, as one statement over arrays.

A statement costs PostgreSQL and the driver more than its row, so the bodies of a transaction share one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper, PyFormat
from psycopg.pq import Format

from relay_worker.store.rows import Row

_TYPES = {int: "BIGINT", bytes: "BYTEA", str: "TEXT"}
_OIDS = {int: (20, 1016), bytes: (17, 1001), str: (25, 1009)}
_ENCODED: dict[type, Any] = {int: struct.Struct(">q").pack, bytes: bytes, str: str.encode}
_LENGTH = struct.Struct(">i").pack


class ArrayDumper(Dumper):
    """Send a list of numbers, texts or bytes as an array. psycopg's own took 40 % of the time of a commit.

    Args:
        cls: ``list``.
        context: The connection.
        kind: The type of the values that are not None.
    """

    format = Format.BINARY

    def __init__(self, cls: type, context: AdaptContext | None = None, kind: type = str) -> None:
        super().__init__(cls, context)
        self._kind, (self._element, self.oid) = kind, _OIDS[kind]

    def get_key(self, obj: Any, format: PyFormat) -> tuple[type, type]:  # noqa: A002, ARG002 - psycopg's names
        """Return the key of the dumper for these values."""
        return self.cls, next((type(one) for one in obj if one is not None), str)

    def upgrade(self, obj: Any, format: PyFormat) -> Dumper:  # noqa: A002 - psycopg's names
        """Return the dumper for these values."""
        return ArrayDumper(self.cls, None, self.get_key(obj, format)[1])

    def dump(self, obj: Any) -> bytes:
        """Return the values in PostgreSQL's binary form of an array."""
        count, encoded = len(obj), _ENCODED[self._kind]
        head = struct.pack(">5i", 1, 0, self._element, count, 1)
        if self._kind is int and None not in obj:
            fields = [8] * (2 * count)
            fields[1::2] = obj
            return head + struct.pack(">" + "iq" * count, *fields)
        parts = [head]
        for one in obj:
            data = b"" if one is None else encoded(one)
            parts += _LENGTH(-1 if one is None else len(data)), data
        return b"".join(parts)


def for_all(sql: str, rows: Sequence[Row]) -> tuple[str, Row]:
    """Convert an INSERT, UPDATE or SELECT of one row to a statement for all of these.

    Args:
        sql: With ``?`` for values; an UPDATE must not change a row twice.
        rows: The values of each. A column has one type; a column of None alone becomes ``NULL``.

    Returns:
        The statement and its values. A SELECT returns the number of its row of values first, from 1.
    """
    columns = list(zip(*rows, strict=True))
    types = tuple(next((_TYPES[type(one)] for one in column if one is not None), "") for column in columns)
    return _over_arrays(sql, types), tuple(list(column) for column, kind in zip(columns, types, strict=True) if kind)


@lru_cache
def _over_arrays(sql: str, types: tuple[str, ...]) -> str:
    names = iter(names_of := [f"v.p{at}" if kind else "NULL" for at, kind in enumerate(types)])
    source = f"unnest({', '.join(f'CAST(? AS {kind}[])' for kind in types if kind)})"
    given = ", ".join(name[2:] for name in names_of if name != "NULL")
    head, is_insert, _ = sql.partition(" VALUES ")
    if is_insert:
        return f"{head} SELECT {', '.join(names_of)} FROM {source} v({given})"
    filled = re.sub(r"\?", lambda _: next(names), sql)
    if sql.startswith("UPDATE"):
        return filled.replace(" WHERE ", f" FROM {source} v({given}) WHERE ")
    # OFFSET 0: planned as for one row, whatever number of rows the planner expects.
    return f"SELECT v.n, q.* FROM {source} WITH ORDINALITY v({given}, n) CROSS JOIN LATERAL ({filled} OFFSET 0) q"


@lru_cache
def joined(statements: tuple[str, ...]) -> str:
    """Combine statements that change different tables to one."""
    *others, last = statements
    if not others:
        return last
    return f"WITH {', '.join(f's{at} AS ({sql})' for at, sql in enumerate(others))} {last}"


def together(statements: Sequence[tuple[str, Row]]) -> tuple[str, Row]:
    """Combine statements that change different tables, and their values, to one."""
    sql = joined(tuple(sql for sql, _ in statements))
    values: list[Any] = [value for _, values in statements for value in values]
    return sql, tuple(values)
