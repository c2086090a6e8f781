"""Content of the derived index, and changes since: the list of its files, and the log of changes.

The list and the log change in one transaction, and are read in one snapshot with the chunks: the files are correct for
every chunk that the log does not name. For a chunk that it names, the store counts.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store

FORMAT = 11
"""Version of the file format. Raise it when the format or the tokenizer changes: all files are then rebuilt."""
NO_FORMAT = 0

SUFFIX = ".part"

WORTH_WHILE = 256
"""Number of log entries from which on files are written."""


class State(NamedTuple):
    """The progress of the index.

    ``version`` rises with every change of the list, and begins at a random number, so that two indexes of one place
    are never confused. ``to_read`` is the chunk down to which everything newer is in the files, None when all is.
    ``generations`` are the embedding generations whose vectors are in the files or in the log, with the names of their
    models, because a number may be used again for another one.
    """

    format: int
    version: int
    to_read: int | None
    generations: dict[int, str]


class PartFile(NamedTuple):
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


class Log(NamedTuple):
    """Changes that are not in the files yet; ``last`` is the newest entry.

    ``fresh`` chunks are to be read from the store; ``stale`` ones, including the fresh ones, are invalid in the files;
    ``embedded`` ones got a vector and are not stale.
    """

    last: int
    fresh: tuple[int, ...]
    stale: frozenset[int]
    embedded: tuple[int, ...]


class Change(NamedTuple):
    """A change of the list, applied in one transaction.

    Entries of the log up to ``upto`` are deleted if they are of the chunks in ``done``, or of any chunk if that is
    None: then all of them have been processed. ``waiting`` chunks keep their entry about a vector in either case.
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
    """Return True if there is work: no index, one of another format, an unfinished one, or new entries."""
    return bool(
        store.value(
            "SELECT NOT EXISTS (SELECT 1 FROM index_state WHERE format = ? AND to_read IS NULL"
            " AND upto >= coalesce((SELECT max(seq) FROM index_log), 0))",
            (FORMAT,),
        )
    )


def is_worth_while(store: Store) -> bool:
    """Return True if files should be written: there is no whole index, many chunks wait, or something was deleted.

    A few waiting chunks are read from the store by every search, which costs less than writing files each turn.
    """
    state = read_state(store)
    if state is None or (state.format, state.to_read) != (FORMAT, None) or state.generations != generations(store):
        return True
    row = store.row("SELECT count(*) >= ? OR coalesce(sum(what = 'gone'), 0) > 0 FROM index_log", (WORTH_WHILE,))
    return row is not None and bool(row[0])


def read_state(store: Store) -> State | None:
    """Return the progress of the index, or None if there is none; of ``NO_FORMAT`` if it was damaged: it is rebuilt."""
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
    columns = ", ".join(PartFile._fields)
    return store.all(PartFile, f"SELECT {columns} FROM index_parts ORDER BY documents DESC, name")


def places(store: Store) -> list[tuple[str, int, int]]:
    """Return name, size and time of the files in use, as on disk."""
    rows = store.rows("SELECT name, bytes, mtime_ns FROM index_parts")
    return [(name + SUFFIX, size, mtime_ns) for name, size, mtime_ns in rows]


def has_changed_files(store: Store) -> bool:
    """Return True if a file is missing, or has another size or time than recorded. Reads none of them."""
    folder = folder_of(store.path)
    for name, size, mtime_ns in places(store):
        try:
            found = (folder / name).stat()
        except OSError:
            return True
        if (found.st_size, found.st_mtime_ns) != (size, mtime_ns):
            return True
    return False


def count_log(store: Store) -> tuple[int, int, int, bytes | None]:
    """Return the count of log entries, the newest entry's number, the sum of their chunks and the newest chunk's hash.

    They differ for any other log: also that of a store that was restored and then changed in another way.
    """
    row = store.row(
        "SELECT count(*), coalesce(max(seq), 0), coalesce(sum(chunk), 0),"
        " (SELECT text_sha256 FROM chunks WHERE id = (SELECT chunk FROM index_log ORDER BY seq DESC LIMIT 1))"
        " FROM index_log"
    )
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2]), row[3]


def read_log(store: Store) -> Log:
    """Return what is not in the files yet."""
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
    """Return the maximum number of documents that wait to be written into files."""
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
    """Start to log changes, with an empty list: every present chunk is to be read."""
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
    """Change the list; return False, and change nothing, if another process has changed it since."""
    with store.transaction():
        if read_state(store) != since:
            return False
        store.execute_many("DELETE FROM index_parts WHERE name = ?", [(name,) for name in what.removed])
        store.insert_many("index_parts", ", ".join(PartFile._fields), what.added)
        is_other = bool(what.added or what.removed)
        store.execute(
            "UPDATE index_state SET version = version + ?, upto = max(upto, ?), to_read = ?, generations = ?",
            (is_other, what.upto if what.done is None else 0, what.to_read, json.dumps(dict(what.generations))),
        )
        _trim(store, what)
        return True


def touched(store: Store, name: str, mtime_ns: int) -> None:
    """Note that a file has a new modification time, and is intact."""
    store.execute("UPDATE index_parts SET mtime_ns = ? WHERE name = ?", (mtime_ns, name))


def _trim(store: Store, what: Change) -> None:
    if what.done is None and not what.waiting:
        store.execute("DELETE FROM index_log WHERE seq <= ?", (what.upto,))
        return
    rows = store.rows("SELECT seq, chunk, what FROM index_log WHERE seq <= ?", (what.upto,))
    store.execute_many(
        "DELETE FROM index_log WHERE seq = ?",
        [
            (seq,)
            for seq, chunk, kind in rows
            if (what.done is None or chunk in what.done) and not (kind == "vector" and chunk in what.waiting)
        ],
    )
