"""Run one statement for many rows of values together, as one statement over arrays.

A statement costs PostgreSQL and the driver more than its row, so the bodies of a transaction share one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from relay_worker.store.rows import Row

_TYPES = {int: "BIGINT", bytes: "BYTEA", str: "TEXT"}


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
