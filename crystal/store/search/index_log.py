"""Store the list of the derived index's files, and the log of changes since.

List and log change in one transaction, and are read in one snapshot with the chunks: the files are correct for every
chunk that is not in the log. Chunks in the log must be read from the store.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Row, Store, columns_of

FORMAT = 13
"""Version of the file format. Raise it when the format or the tokenizer changes: all files are then rebuilt."""
NO_FORMAT = 0

SUFFIX = ".part"

WORTH_WHILE = 256
"""Number of log entries from which files are written."""


class State(NamedTuple):
    """The progress of the index.

    ``version`` rises with every change of the list and begins at a random number, so that two indexes in one folder are
    never confused. All chunks newer than ``to_read`` are in the files; None means all chunks. ``generations`` are those
    embedding generations whose vectors are in the files or in the log, with the names of their models, because a number
    may be used again for another model.
    """

    format: int
    version: int
    to_read: int | None
    generations: dict[int, str]


class PartFile(NamedTuple):
    """One file of the index, as listed in the store."""

    name: str
    kind: str
    of: str | None
    generation: int | None
    documents: int
    bytes: int
    mtime_ns: int
    checksum: int
    made_at: int


class Log(NamedTuple):
    """Changes that are not in the files yet; ``last`` is the newest entry.

    ``fresh`` chunks must be read from the store; ``stale`` chunks, including the fresh ones, are invalid in the files;
    ``embedded`` chunks got a vector and are not stale.
    """

    last: int
    fresh: tuple[int, ...]
    stale: frozenset[int]
    embedded: tuple[int, ...]


class Change(NamedTuple):
    """A change of the list, applied in one transaction.

    Entries of the log up to ``upto`` are deleted: those whose chunks are in ``done``, or all if that is None. Chunks in
    ``waiting`` keep their entry about a vector in either case.
    """

    added: Sequence[PartFile] = ()
    removed: Sequence[str] = ()
    to_read: int | None = None
    generations: Mapping[int, str] = MappingProxyType({})
    upto: int = 0
    done: frozenset[int] | None = frozenset()
    waiting: frozenset[int] = frozenset()


def folder_of(db: Path) -> Path:
    """Return the folder of a store's index: for ``crystal.db`` it is ``index/crystal/`` beside it."""
    return db.parent / "index" / db.stem


# ---------------------------------------------------------------------------------------------------------- reading


def has_news(store: Store) -> bool:
    """Return True if there is work: no index, an index of another format, an incomplete one, or new entries."""
    return bool(
        store.value(
            "SELECT NOT EXISTS (SELECT 1 FROM index_state WHERE format = ? AND to_read IS NULL"
            " AND upto >= coalesce((SELECT max(seq) FROM index_log), 0))",
            (FORMAT,),
        )
    )


def is_worth_while(store: Store) -> bool:
    """Return True if files should be written: the index is incomplete, many chunks wait, or something was deleted.

    Every search reads a few waiting chunks from the store, which costs less than writing files each turn.
    """
    state = read_state(store)
    if state is None or (state.format, state.to_read) != (FORMAT, None) or state.generations != generations(store):
        return True
    sql = "SELECT count(*) >= ? OR coalesce(sum(what = 'gone'), 0) > 0 FROM index_log"
    return bool(store.value(sql, (WORTH_WHILE,)))


def read_state(store: Store) -> State | None:
    """Return the progress of the index; None if there is none, or format ``NO_FORMAT`` if it is damaged."""
    row = store.row("SELECT format, version, to_read, generations FROM index_state")
    if row is None:
        return None
    try:
        return State(row[0], row[1], row[2], {int(ident): str(name) for ident, name in json.loads(row[3]).items()})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return State(NO_FORMAT, row[1], row[2], {})


def generations(store: Store) -> dict[int, str]:
    """Return the existing embedding generations with the names of their models."""
    rows = store.rows("SELECT id, provider, model, dimension, created_at FROM embedding_generations ORDER BY id")
    return {int(row[0]): json.dumps(row[1:]) for row in rows}


def parts(store: Store) -> list[PartFile]:
    """Return the files in use, those with the most documents first."""
    return store.select(PartFile, "index_parts ORDER BY documents DESC, name")


def changed_files(store: Store) -> Iterator[tuple[str, bool]]:
    """Yield how each file differs from the list, by its size and time, and True if its content does. Reads none.

    Another modification time alone is allowed, because copied files have one: the content is then compared.
    """
    folder = folder_of(store.path)
    for name, size, mtime_ns in store.rows("SELECT name, bytes, mtime_ns FROM index_parts"):
        try:
            found = (folder / f"{name}{SUFFIX}").stat()
        except OSError as error:
            yield f"{name}{SUFFIX}: {error.strerror}", True
            continue
        if (found.st_size, found.st_mtime_ns) != (size, mtime_ns):
            yield f"{name}{SUFFIX} has {found.st_size} bytes instead of {size}", found.st_size != size


def count_log(store: Store) -> Row:
    """Return the number of log entries, the newest entry's number, the sum of their chunks and the newest chunk's hash.

    The result differs for any other log, also for one of a restored store that was then changed differently.
    """
    return store.rows(
        "SELECT count(*), coalesce(max(seq), 0), coalesce(sum(chunk), 0),"
        " (SELECT text_sha256 FROM chunks WHERE id = (SELECT chunk FROM index_log ORDER BY seq DESC LIMIT 1))"
        " FROM index_log"
    )[0]


def read_log(store: Store) -> Log:
    """Return the changes that are not in the files yet."""
    last = 0
    newest: dict[int, bool] = {}  # whether the chunk existed at its last entry
    embedded: set[int] = set()
    for seq, chunk, what in store.rows("SELECT seq, chunk, what FROM index_log ORDER BY seq"):
        last = seq
        if what == "vector":
            embedded.add(chunk)
        else:
            newest[chunk] = what != "gone"
    fresh = tuple(sorted(chunk for chunk, is_there in newest.items() if is_there))
    return Log(last, fresh, frozenset(newest), tuple(sorted(embedded - newest.keys())))


def most_to_write(store: Store) -> int:
    """Return the maximum number of documents to be written into files."""
    to_read = store.value("SELECT to_read FROM index_state")
    return int(to_read or 0) + int(store.value("SELECT count(*) FROM index_log"))


def count_chunks(store: Store) -> int:
    """Return how many chunks the store has."""
    return int(store.value("SELECT count(*) FROM chunks"))


def listed(store: Store) -> frozenset[str]:
    """Return the names of the files in use."""
    return frozenset(store.all(str, "SELECT name FROM index_parts"))


# ---------------------------------------------------------------------------------------------------------- writing


def begin(store: Store, now: int) -> None:
    """Start an empty list and the log: all present chunks must be read."""
    with store.transaction():
        _end(store)
        newest = store.value("SELECT max(id) FROM chunks")
        store.execute(
            "INSERT INTO index_state (id, format, version, to_read, generations, made_at) VALUES (1, ?, ?, ?, ?, ?)",
            (FORMAT, int.from_bytes(os.urandom(6), "big"), newest, json.dumps(generations(store)), now),
        )


def end(store: Store) -> None:
    """Clear the list and stop logging changes."""
    with store.transaction():
        _end(store)


def _end(store: Store) -> None:
    for table in ("index_parts", "index_log", "index_state"):
        store.execute(f"DELETE FROM {table}")


def change(store: Store, since: State, what: Change) -> bool:
    """Change the list; return False without a change if another process has changed it since ``since``."""
    with store.transaction():
        if read_state(store) != since:
            return False
        store.execute_many("DELETE FROM index_parts WHERE name = ?", [(name,) for name in what.removed])
        store.insert_many("index_parts", columns_of(PartFile), what.added)
        is_other = bool(what.added or what.removed)
        store.execute(
            "UPDATE index_state SET version = version + ?, upto = max(upto, ?), to_read = ?, generations = ?",
            (is_other, what.upto if what.done is None else 0, what.to_read, json.dumps(dict(what.generations))),
        )
        _trim(store, what)
        return True


def touched(store: Store, name: str, mtime_ns: int) -> None:
    """Record the new modification time of an intact file."""
    store.execute("UPDATE index_parts SET mtime_ns = ? WHERE name = ?", (mtime_ns, name))


def _trim(store: Store, what: Change) -> None:
    store.execute(
        "DELETE FROM index_log WHERE seq <= ?1 AND (?2 IS NULL OR chunk IN (SELECT value FROM json_each(?2)))"
        " AND NOT (what = 'vector' AND chunk IN (SELECT value FROM json_each(?3)))",
        (what.upto, what.done, what.waiting),
    )
