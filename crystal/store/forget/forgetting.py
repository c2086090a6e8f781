"""Store tombstones: what was forgotten, what may not be stored again, and the remaining work. Ids only, no text.

A tombstone is both a queue entry and a permanent record: while ``done_at`` is NULL, a part of it is still stored;
afterwards it blocks the same content from another file, machine or backup. Lines are blocked by the privacy tables:
ids of lines in ``private_lines``, sessions, folders and times in ``private_marks`` with the reason ``forgotten``.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from crystal.model.named_tuple import NamedTuple
from crystal.store.capture.privacy import add_private_lines, is_private_line
from crystal.store.connection import Store
from crystal.store.json_columns import FORGOTTEN_NAMES, read_json
from crystal.store.notes import read_note, write_note
from crystal.text.folders import is_within

FORGOTTEN = "forgotten"
"""Reason of private periods that a tombstone makes; capture stays on during these."""

TombstoneKind = Literal["lines", "session", "project", "before", "memory"]


class ForgottenScope(NamedTuple):
    """All lines of a session, or below a folder (None: any), before a moment (ms)."""

    session: str | None
    folder: str | None
    until: int

    def holds(self, session_id: str, at: int | None, cwd: str | None) -> bool:
        """Return True if a line is in scope. A line without a time is in scope with its session."""
        if self.session not in (None, session_id) or (at is None and self.session is None) or (at or 0) >= self.until:
            return False
        return self.folder is None or (cwd is not None and is_within(cwd, self.folder))


class Tombstone(NamedTuple):
    """A record of what was forgotten, by id.

    Attributes:
        uid: 32 hexadecimal digits, the same on every machine.
        kind: ``lines`` {"lines", "sessions"}, ``session`` {"session", "lines"}, ``project`` {"folders", "lines"},
            ``before`` {"lines"}, ``memory`` {"memories", "lines", "sessions"}; each a list of ids but ``session``.
        value: The ids, as a dictionary with the keys listed under ``kind``.
        until_at: For session, project and before: only lines before this moment (ms) are forgotten.
        made_at: When it was forgotten, ms.
        device: The machine on which it was forgotten.
    """

    uid: str
    kind: TombstoneKind
    value: Mapping[str, Any]
    until_at: int | None
    made_at: int
    device: str

    def names(self, what: str) -> tuple[str, ...]:
        """Return one list of ids of the value; empty if it is missing or malformed, as another machine may send it."""
        found = self.value.get(what)
        return tuple(name for name in found if isinstance(name, str)) if isinstance(found, list | tuple) else ()

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the ids of forgotten transcript lines."""
        return self.names("lines")

    @property
    def sessions(self) -> tuple[str, ...]:
        """Return the agents' ids of the sessions with forgotten parts."""
        session = self.value.get("session")
        return (*((session,) if isinstance(session, str) else ()), *self.names("sessions"))

    @property
    def memories(self) -> tuple[str, ...]:
        """Return the ids of forgotten memories (mem-...)."""
        return self.names("memories")

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders of a forgotten project."""
        return self.names("folders")

    @property
    def scopes(self) -> list[ForgottenScope]:
        """Return the sessions, folders and times that are forgotten as a whole."""
        if self.until_at is None:
            return []
        places: dict[str, list[tuple[str | None, str | None]]] = {
            "session": [(session, None) for session in self.sessions],
            "project": [(None, folder) for folder in self.folders],
            "before": [(None, None)],
        }
        return [ForgottenScope(*place, self.until_at) for place in places.get(self.kind, [])]


def make_tombstone(
    kind: TombstoneKind, value: Mapping[str, Any], until_at: int | None, made_at: int, device: str, *more: object
) -> Tombstone:
    """Return a tombstone whose uid is a hash of its content, the device and ``more``."""
    text = json.dumps([kind, value, device, *more], sort_keys=True)
    uid = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Tombstone(uid, kind, value, until_at, made_at, device)


MAX_NAMES = 1_000
MAX_LETTERS = 1 << 18
"""Maximum number of names in a tombstone, and of their characters (approximate): messages have a limited size."""

_LISTS = ("folders", "memories", "sessions", "lines")
_OWN_KIND = {"folders": "project", "memories": "memory"}


def parts(tombstone: Tombstone) -> list[Tombstone]:
    """Split a tombstone with too many names; the parts' uids derive from its own, so they are the same everywhere."""
    runs: list[list[tuple[str, str]]] = [[]]
    letters = 0
    named = [(what, name) for what in _LISTS for name in tombstone.names(what)]
    for what, name in named:
        if len(runs[-1]) >= MAX_NAMES or (runs[-1] and letters + len(name) > MAX_LETTERS):
            runs.append([])
            letters = 0
        runs[-1].append((what, name))
        letters += len(name)
    return [tombstone] if len(runs) == 1 else [_part(tombstone, number, run) for number, run in enumerate(runs)]


def _part(whole: Tombstone, number: int, names: Sequence[tuple[str, str]]) -> Tombstone:
    value: dict[str, Any] = {"session": whole.value["session"]} if number == 0 and "session" in whole.value else {}
    for what, name in names:
        value.setdefault(what, []).append(name)
    uid = hashlib.sha256(f"{whole.uid}:{number}".encode()).hexdigest()[:32]
    if number and all(_OWN_KIND.get(what) != whole.kind for what in value):
        return Tombstone(uid, "lines", value, None, whole.made_at, whole.device)
    return Tombstone(uid, whole.kind, value, whole.until_at, whole.made_at, whole.device)


_COLUMNS = "uid, kind, value, until_at, made_at, device"


def select_tombstones(store: Store, where: str, *values: int) -> list[tuple[int, Tombstone]]:
    """Return (number, tombstone) for a condition, in the order in which this machine received them."""
    rows = store.rows(f"SELECT id, {_COLUMNS} FROM tombstones WHERE {where}", values)
    return [
        (int(number), Tombstone(uid, kind, read_json(FORGOTTEN_NAMES, value), until_at, made_at, device))
        for number, uid, kind, value, until_at, made_at, device in rows
    ]


def add_tombstones(store: Store, tombstones: Iterable[Tombstone], now: int) -> None:
    """Record what is forgotten and block it, inside the caller's transaction.

    Idempotent by ``uid``. Deletes nothing: ``crystal.forgetting.finish`` finds and deletes the content; its queue is
    the tombstones without ``done_at``. A tombstone with too many names is stored in parts.
    """
    is_new = False
    for tombstone in (part for one in tombstones for part in parts(one)):
        if store.has("SELECT 1 FROM tombstones WHERE uid = ?", (tombstone.uid,)):
            continue
        value = json.dumps(dict(tombstone.value), ensure_ascii=False, sort_keys=True)
        row = tombstone._replace(value=value)  # type: ignore[arg-type]
        store.insert("tombstones", _COLUMNS, *row)
        _block(store, tombstone, now)
        is_new = True
    if is_new:
        # Parts of incomplete messages are plain text of unknown content: delete them and fetch them again. Accept any
        # predecessor once, because the tag of the blob before them is no longer known.
        store.execute(
            "UPDATE relay_in SET last_seq = f.seq - 1, last_tag = x'', resend = f.seq"
            " FROM (SELECT stream, min(seq) AS seq FROM relay_fragments GROUP BY stream) f WHERE relay_in.id = f.stream"
        )
        store.execute("DELETE FROM relay_fragments")


def _block(store: Store, tombstone: Tombstone, now: int) -> None:
    add_private_lines(store, tombstone.lines)
    taint_sessions(store, tombstone.sessions)
    marks = [(scope.session, FORGOTTEN, 0, now, scope.until, scope.folder) for scope in tombstone.scopes]
    store.insert_many("private_marks", "session_id, reason, from_at, last_at, until_at, folder", marks)


def taint_sessions(store: Store, session_ids: Iterable[str]) -> None:
    """Record that parts of sessions were forgotten, so that they are not repeated. Inside a transaction."""
    store.insert_many("forgotten_sessions", "session_id", [(one,) for one in session_ids], "DO NOTHING")


def tombstones_after(store: Store, number: int, limit: int) -> list[tuple[int, Tombstone]]:
    """Return (number, tombstone) after a number."""
    return select_tombstones(store, "id > ? ORDER BY id LIMIT ?", number, limit)


def newest_tombstone(store: Store) -> int:
    """Return the number of the newest tombstone, or 0."""
    return int(store.value("SELECT max(id) FROM tombstones") or 0)


def open_tombstones(store: Store) -> list[tuple[int, Tombstone]]:
    """Return (number, tombstone) that may still have content here, oldest first; at most a thousand."""
    return select_tombstones(store, "done_at IS NULL ORDER BY id LIMIT 1000")


def is_work_left(store: Store) -> bool:
    """Return True if ``finish`` has work; costs two look-ups in tables that are empty or indexed."""
    return store.has("SELECT 1 FROM tombstones WHERE done_at IS NULL UNION ALL SELECT 1 FROM forget_work LIMIT 1")


def is_anything_forgotten(store: Store) -> bool:
    """Return True if anything was ever forgotten on this machine: lines must then be checked."""
    return store.has("SELECT 1 FROM tombstones LIMIT 1")


def is_session_forgotten(store: Store, session_id: str) -> bool:
    """Return True if a part of this session was forgotten: lines that may repeat it are not captured."""
    return store.has("SELECT 1 FROM forgotten_sessions WHERE session_id = ?", (session_id,))


# ---------------------------------------------------------------------------------------------------------- blocking


class Tombstones(NamedTuple):
    """All tombstones, read once to check many lines."""

    store: Store
    marks: tuple[ForgottenScope, ...]

    def holds(self, uuid: str | None, session_id: str, at: int | None, cwd: str | None) -> bool:
        """Return True if a line or a turn was forgotten, by its id or by its session, folder and time."""
        if uuid is not None and is_private_line(self.store, uuid):
            return True
        return at is not None and any(mark.holds(session_id, at, cwd) for mark in self.marks)


def read_blocks(store: Store) -> Tombstones | None:
    """Return the tombstones that block lines, or None if nothing was ever forgotten."""
    if not is_anything_forgotten(store):
        return None
    rows = store.rows(
        "SELECT DISTINCT session_id, folder, until_at FROM private_marks WHERE reason = ? AND until_at IS NOT NULL",
        (FORGOTTEN,),
    )
    return Tombstones(store, tuple(ForgottenScope(*row) for row in rows))


def is_line_forgotten(store: Store, uuid: str) -> bool:
    """Return True if a line is blocked; False if nothing was ever forgotten."""
    return is_anything_forgotten(store) and is_private_line(store, uuid)


# -------------------------------------------------------------------------------------------------- the file of names

NAMES_FILE = "forgotten.json"
_NOTE = "forgotten_file"


def names_agree(store: Store, path: Path) -> bool:
    """Return True if the file of names is unchanged since the last comparison with the tombstones: one ``stat``."""
    newest = newest_tombstone(store)
    return (newest == 0 and not path.exists()) or read_note(store, _NOTE) == f"{newest} {_look(path)}"


def note_names(store: Store, path: Path) -> None:
    """Record that the file of names and the tombstones agree."""
    write_note(store, _NOTE, f"{newest_tombstone(store)} {_look(path)}")


def _look(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns}"
