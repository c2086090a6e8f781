"""What the derived index holds, and what has come since: the list of its files, the log of changes, what it reads."""

from __future__ import annotations

import json
from dataclasses import dataclass

from crystal.store.connection import Store

FORMAT = 1
"""Of the files. Raise it when they change, or when a text has other words than before: all are made anew."""

PAGE = 500


@dataclass(frozen=True, slots=True)
class State:
    """How far the index is: ``to_read`` is the chunk down to which everything newer is in, None when all is."""

    format: int
    version: int
    to_read: int | None
    generations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartFile:
    """One file of the index, as the store lists it."""

    name: str
    kind: str
    of: str | None
    generation: int | None
    documents: int
    bytes: int
    mtime_ns: int
    checksum: int
    made_at: int


@dataclass(frozen=True, slots=True)
class Log:
    """What is not in the files yet; ``last`` is the newest entry.

    ``fresh`` chunks are to be read from the store, ``stale`` ones in the files are void (the fresh ones are among
    them), ``embedded`` ones got a vector and are not fresh.
    """

    last: int
    fresh: tuple[int, ...]
    stale: frozenset[int]
    embedded: tuple[int, ...]


def is_due(store: Store) -> bool:
    """Whether the index has something to do: it was never made, is of another format, or the log has entries."""
    return bool(
        store.value(
            "SELECT NOT EXISTS (SELECT 1 FROM index_state WHERE format = ? AND to_read IS NULL)"
            " OR EXISTS (SELECT 1 FROM index_log)",
            (FORMAT,),
        )
    )


def read_state(store: Store) -> State | None:
    """How far the index is, or None when there is none."""
    row = store.row("SELECT format, version, to_read, generations FROM index_state")
    return None if row is None else State(row[0], row[1], row[2], tuple(json.loads(row[3])))


def parts(store: Store) -> list[PartFile]:
    """The files in use, those of words with the most documents first."""
    rows = store.rows(
        "SELECT name, kind, of, generation, documents, bytes, mtime_ns, checksum, made_at FROM index_parts"
        " WHERE retired_at IS NULL ORDER BY documents DESC, name"
    )
    return [PartFile(*row) for row in rows]


def read_log(store: Store) -> Log:
    """What is not in the files yet."""
    last = 0
    newest: dict[int, bool] = {}  # whether the chunk was there when it was noted last
    embedded: set[int] = set()
    for seq, chunk, what in store.rows("SELECT seq, chunk, what FROM index_log ORDER BY seq"):
        last = seq
        if what == "vector":
            embedded.add(chunk)
        else:
            newest[chunk] = what != "gone"
    fresh = tuple(sorted(chunk for chunk, is_there in newest.items() if is_there))
    return Log(last, fresh, frozenset(newest), tuple(sorted(embedded - newest.keys())))
