"""Keep a record of what is private in a file beside the archive, for a database that is lost or restored.

The file has one JSON array per line: a private period, or the id of a private line. It contains no text of the user.
Triggers of the connection write it, whatever code changes the tables, and each line is durable before the
transaction commits. ``meta`` holds the file's length at that time; if it differs, file and tables are compared once.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

from crystal.config.json_file import read_regular
from crystal.config.paths import make_private_dir, refused, write_own
from crystal.errors import CrystalError
from crystal.model.named_tuple import NamedTuple

RECORD_FILE = "private.jsonl"
_SIZE = "private_record"
_HEADER = "crystal-private-1"

MarkRow = tuple[str | None, str, int, int | None, str | None]
"""session_id, reason, from_at, until_at, folder."""

_TRIGGERS = """
CREATE TEMP TRIGGER record_mark AFTER INSERT ON main.private_marks BEGIN
    UPDATE main.meta SET value = record_private('mark', NEW.session_id, NEW.reason, NEW.from_at, NEW.until_at,
        NEW.folder) WHERE key = 'private_record';
END;
CREATE TEMP TRIGGER record_mark_end AFTER UPDATE OF until_at ON main.private_marks BEGIN
    UPDATE main.meta SET value = record_private('mark', NEW.session_id, NEW.reason, NEW.from_at, NEW.until_at,
        NEW.folder) WHERE key = 'private_record';
END;
CREATE TEMP TRIGGER record_line AFTER INSERT ON main.private_lines BEGIN
    UPDATE main.meta SET value = record_private('line', NEW.uuid) WHERE key = 'private_record';
END;
"""


class PrivateRecord(NamedTuple):
    """The content of a record file.

    Attributes:
        marks: Private periods by session, reason, beginning and folder; the value is the end, None while it lasts.
        lines: Ids of private lines.
        complete: False if the file does not contain everything from before it was created.
    """

    marks: dict[tuple[str | None, str, int, str | None], int | None]
    lines: set[str]
    complete: bool


def read_record(path: Path) -> PrivateRecord | None:
    """Read a record file; return None if it is missing or not a record.

    Blank and invalid lines are skipped: a killed process may have written a part of a line.

    Raises:
        CrystalError: The operating system refuses to read it.
    """
    rows = (read_regular(path) or b"").splitlines()
    parsed = [row for row in map(_parsed, rows) if row]
    if not parsed or parsed[0][0] != _HEADER:
        return None
    record = PrivateRecord({}, set(), parsed[0][1:] == [True])
    for kind, *values in parsed[1:]:
        if kind == "line" and len(values) == 1 and _is_text(values[0]):
            record.lines.add(values[0])
        elif kind == "mark" and _is_mark(values):
            session, reason, start, until, folder = values
            record.marks[session, reason, start, folder] = until
    return record


def _parsed(row: bytes) -> list[Any]:
    try:
        values = json.loads(row)
    except (ValueError, RecursionError):
        return []
    return values if isinstance(values, list) else []


def _is_mark(values: list[Any]) -> bool:
    if len(values) != 5:
        return False
    session, reason, start, until, folder = values
    texts = [reason, *(text for text in (session, folder) if text is not None)]
    return all(map(_is_text, texts)) and type(start) is int and type(until) in (int, type(None))


def _is_text(value: object) -> bool:
    """Return True if a value is text that a database can store."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


class Recorder:
    """Write what one connection adds to the privacy tables into the record file, before each commit."""

    def __init__(self, db: apsw.Connection, path: Path) -> None:
        self._db, self._path = db, path
        self._pending: list[bytes] = []
        self._error: CrystalError | None = None

    def start(self, *, complete: bool = True) -> None:
        """Reconcile file and tables if they differ, then record every change.

        Args:
            complete: Whether a file that is created now lists everything that was ever private.

        Raises:
            CrystalError: The file cannot be read or written.
        """
        if self._size() != self._known_size():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._reconcile(complete=complete)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # on a full disk SQLite has ended it
                    self._db.execute("ROLLBACK")
                raise
        self._db.create_scalar_function("record_private", self._add)
        self._db.execute(_TRIGGERS)
        self._db.set_commit_hook(self._flush)
        self._db.set_rollback_hook(self._pending.clear)

    def error(self) -> CrystalError | None:
        """Return why the last commit was refused, or None."""
        error, self._error = self._error, None
        return error

    def _known_size(self) -> int | None:
        for (value,) in self._db.execute("SELECT value FROM meta WHERE key = ?", (_SIZE,)):
            return int(value) if value.isascii() and value.isdigit() else None
        return None

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise refused(error, self._path) from error

    def _reconcile(self, *, complete: bool) -> None:
        told = read_record(self._path)
        known = self._in_tables()
        if told is not None:
            complete = told.complete
            self._take_in(told, known)
        if told is None or told.lines != known.lines | told.lines or told.marks != {**known.marks, **told.marks}:
            both = self._in_tables()
            rows: list[Iterable[Any]] = [
                [_HEADER, complete],
                *(["mark", *_flat(key, until)] for key, until in both.marks.items()),
            ]
            rows += [["line", uuid] for uuid in sorted(both.lines)]
            make_private_dir(self._path.parent)
            write_own(self._path, b"".join(_line(row) for row in rows))
        self._db.execute(
            "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2",
            (_SIZE, str(self._size())),
        )

    def _in_tables(self) -> PrivateRecord:
        marks = self._db.execute("SELECT session_id, reason, from_at, folder, until_at FROM private_marks ORDER BY id")
        lines = self._db.execute("SELECT uuid FROM private_lines")
        return PrivateRecord(
            {(session, reason, start, folder): until for session, reason, start, folder, until in marks},
            {uuid for (uuid,) in lines},
            complete=False,
        )

    def _take_in(self, told: PrivateRecord, known: PrivateRecord) -> None:
        for key, until in told.marks.items():
            if key not in known.marks:
                self._db.execute(
                    "INSERT INTO private_marks (session_id, reason, from_at, until_at, folder, last_at)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    (*_flat(key, until), key[2]),
                )
            elif known.marks[key] is None and until is not None:
                self._db.execute(
                    "UPDATE private_marks SET until_at = ? WHERE session_id IS ? AND reason = ? AND from_at = ?"
                    " AND folder IS ?",
                    (until, *key),
                )
        self._db.executemany(
            "INSERT INTO private_lines (uuid) VALUES (?) ON CONFLICT DO NOTHING", [(uuid,) for uuid in told.lines]
        )

    def _add(self, *row: Any) -> str:
        """Queue a row for the next commit; return the file's length after it."""
        self._pending.append(_line(row))
        return str(self._size() + len(b"\n") + sum(map(len, self._pending)))

    def _flush(self) -> bool:
        """Write the pending rows durably. Return True to refuse the commit."""
        if not self._pending:
            return False
        try:
            self._append(b"".join(self._pending))
        except OSError as error:
            self._error = refused(error, self._path)
            return True
        self._pending.clear()
        return False

    def _append(self, rows: bytes) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(handle, "ab", buffering=0) as file:
            data = memoryview(b"\n" + rows)  # the newline ends an incomplete line of a killed process
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())


def _line(row: Iterable[Any]) -> bytes:
    return json.dumps(list(row), separators=(",", ":")).encode("ascii") + b"\n"


def _flat(key: tuple[str | None, str, int, str | None], until: int | None) -> MarkRow:
    session, reason, start, folder = key
    return session, reason, start, until, folder
