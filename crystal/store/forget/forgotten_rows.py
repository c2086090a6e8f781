"""Find the rows to forget by id, place and text, and their lines in the archives.

Finding only reads. Functions that change the ledger run inside the caller's transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import GIVEN, Store
from crystal.text.folders import is_within

LARGE_CHUNKS = 2_000
LARGE_ARCHIVE_BYTES = 2 << 20


class ForgottenSource(NamedTuple):
    """The whole text of one turn or memory; ``uuid`` is empty for a memory, ``uid`` for a turn."""

    uuid: str
    uid: str
    text: str
    key: str | None = None


# ---------------------------------------------------------------------------------------------------------- finding


def each_text(store: Store, turns: Collection[int] | None = None) -> Iterator[ForgottenSource]:
    """Yield all texts of the store: turns (or only those with these row ids), memories and their former versions."""
    yield from _texts_of_turns(store, "") if turns is None else texts_of_turns(store, turns)
    yield from _texts_of_memories(store, "")


def texts_of_turns(store: Store, turns: Collection[int]) -> Iterator[ForgottenSource]:
    """Yield the texts of some turns."""
    return _texts_of_turns(store, f"WHERE c.turn IN {GIVEN}", turns)


def texts_of(stores: Iterable[Store], lines: Collection[str], memories: Collection[str]) -> list[str]:
    """Return the texts of lines, turn by turn, and of memories with their former versions."""
    found: list[ForgottenSource] = []
    for store in stores:
        found += _texts_of_turns(store, f"WHERE t.uuid IN {GIVEN}", lines)
        found += _texts_of_memories(store, f"WHERE m.uid IN {GIVEN}", memories)
    return [said.text for said in found]


def _texts_of_turns(store: Store, where: str, *values: Collection[object]) -> Iterator[ForgottenSource]:
    rows = store.stream(
        "SELECT c.turn, t.uuid, c.start, c.text FROM chunks c JOIN turns t ON t.id = c.turn"
        f" {where} ORDER BY c.turn, c.start",
        values,
    )
    for (_, uuid), chunks in groupby(rows, key=lambda row: row[:2]):
        text = ""
        for *_, start, piece in chunks:
            text = text[:start] + piece if start <= len(text) else f"{text}\n{piece}"
        yield ForgottenSource(uuid, "", text)


def _texts_of_memories(store: Store, where: str, *values: Collection[object]) -> Iterator[ForgottenSource]:
    former = "SELECT '', m.uid, h.text, NULL FROM memory_history h JOIN memories m ON m.id = h.memory"
    sql = f"SELECT '', m.uid, m.text, m.key FROM memories m {where} UNION ALL {former} {where}"
    return (ForgottenSource(*row) for row in store.stream(sql, values * 2))


def is_large(store: Store) -> bool:
    """Return True if reading a whole store and its archives takes longer than a person waits."""
    chunks = int(store.value("SELECT count(*) FROM chunks"))
    return chunks > LARGE_CHUNKS or archived_bytes(store) > LARGE_ARCHIVE_BYTES


def archived_bytes(store: Store) -> int:
    """Return the decompressed size of all archived lines, in bytes."""
    return int(store.value("SELECT coalesce(sum(clean_length), 0) FROM segments"))


def lines_named(store: Store, uuids: Collection[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the stored lines among these.

    Each as (uuid, role, beginning of the first turn, session, project, device, ms, harness, number of turns).
    """
    for row in store.rows(
        "SELECT t.uuid, t.role, coalesce((SELECT substr(c.text, 1, 300) FROM chunks c"
        " WHERE c.turn = t.id AND c.start = 0), ''), s.session_id, p.name, s.device, t.ts, s.harness, count(*),"
        " min(t.part)"
        " FROM turns t JOIN sessions s ON s.id = t.session LEFT JOIN projects p ON p.id = t.project"
        f" WHERE t.uuid IN {GIVEN} GROUP BY t.uuid",
        (uuids,),
    ):
        yield row[:-1]


_FIRST = "(SELECT value FROM json_each(?1))"


def _names(store: Store, sql: str, *values: object) -> set[str]:
    """Return the first column of a query."""
    return set(store.all(str, sql, values))


def lines_where(
    store: Store,
    *,
    sessions: Collection[str] | None = None,
    projects: Sequence[int] | None = None,
    before: int | None = None,
) -> set[str]:
    """Return the lines of these sessions (without lines repeated from others), or of these projects, before a moment.

    With only a moment, they are of all sessions, and lines without a time are left out.
    """
    sql, timed = "SELECT DISTINCT uuid FROM turns WHERE", "(?2 IS NULL OR ts IS NULL OR ts < ?2)"
    if sessions is not None:
        named = f"session IN (SELECT id FROM sessions WHERE session_id IN {_FIRST})"
        return _names(store, f"{sql} {named} AND {timed}", sessions, before)
    if projects is not None:
        return _names(store, f"{sql} project IN {_FIRST} AND {timed}", projects, before)
    return _names(store, f"{sql} ts < ?", before)


def uuids_repeated(store: Store, session_ids: Collection[str], since: int) -> set[str]:
    """Return the lines since a moment that these sessions repeat and that are stored under another session."""
    sql = "SELECT t.uuid FROM turn_copies c JOIN turns t ON t.id = c.turn JOIN sessions s ON s.id = c.session"
    return _names(store, f"{sql} WHERE s.session_id IN {GIVEN} AND t.ts >= ?", session_ids, since)


def uuids_lent(store: Store, session_ids: Collection[str], before: int) -> set[str]:
    """Return the lines before a moment that are stored under these sessions and repeated by others."""
    sql = (
        "SELECT t.uuid FROM sessions s JOIN turns t ON t.session = s.id JOIN turn_copies c ON c.turn = t.id"
        " JOIN sessions o ON o.id = c.session WHERE"
    )
    where = f"s.session_id IN {_FIRST} AND o.session_id NOT IN {_FIRST} AND t.ts < ?2"
    return _names(store, f"{sql} {where}", session_ids, before)


def turns_of(store: Store, uuids: Collection[str], among: Collection[int] | None) -> set[int]:
    """Return the row ids of the turns of some lines, only those in ``among`` unless it is None."""
    found = set(store.all(int, f"SELECT id FROM turns WHERE uuid IN {GIVEN}", (uuids,)))
    return found if among is None else found.intersection(among)


def uuid_of_turn(store: Store, turn: int) -> str:
    """Return the id of a turn's line."""
    return str(store.value("SELECT uuid FROM turns WHERE id = ?", (turn,)))


def folders_of_projects(store: Store, projects: Sequence[int]) -> set[str]:
    """Return the folders of some projects."""
    return _names(store, f"SELECT cwd FROM projects WHERE id IN {GIVEN}", projects)


def folders_within(store: Store, folders: Collection[str]) -> list[int]:
    """Return the ids of the projects in these folders or below."""
    rows = store.rows("SELECT id, cwd FROM projects")
    return [ident for ident, cwd in rows if any(is_within(cwd, folder) for folder in folders)]


def counts_before(store: Store, until: int) -> tuple[int, int]:
    """Return the numbers of lines and sessions before a moment."""
    row = store.row("SELECT count(DISTINCT uuid), count(DISTINCT session) FROM turns WHERE ts < ?", (until,))
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def memories_where(
    store: Store, *, sessions: Collection[str] = (), projects: Sequence[int] = (), before: int | None = None
) -> set[str]:
    """Return memories requested in these sessions, of these projects, or last changed before a moment."""
    named = f"session IN {_FIRST} OR project IN (SELECT value FROM json_each(?2))"
    sql = f"SELECT uid FROM memories WHERE {named} OR (?3 IS NOT NULL AND updated_at < ?3)"
    return _names(store, sql, sessions, projects, before)


def sessions_of(store: Store, uuids: Collection[str]) -> set[str]:
    """Return the agents' ids of the sessions whose transcripts contain these lines, including forks."""
    sql = (
        "SELECT DISTINCT s.session_id FROM turns t LEFT JOIN turn_copies c ON c.turn = t.id"
        f" JOIN sessions s ON s.id IN (t.session, c.session) WHERE t.uuid IN {GIVEN}"
    )
    return _names(store, sql, uuids)


def summaries_after(store: Store, uuids: Collection[str]) -> set[str]:
    """Return the client's summaries (role summary) that follow these lines in their session."""
    later = "y.role = 'summary' AND (y.ts IS NULL OR t.ts IS NULL OR y.ts >= t.ts)"
    own = f"SELECT y.uuid FROM turns t JOIN turns y ON y.session = t.session AND {later}"
    copied = "SELECT y.uuid FROM turns t JOIN turn_copies c ON c.turn = t.id JOIN turns y ON y.session = c.session"
    some = f"t.uuid IN {_FIRST}"
    return _names(store, f"{own} WHERE {some} UNION {copied} AND {later} WHERE {some}", uuids)


def turns_of_session(store: Store, session_id: str) -> list[tuple[str, str, str | None, str]]:
    """Return (uuid, role, tool, text) of the turns of a session that a person or a tool call made."""
    rows = store.rows(
        "SELECT t.uuid, t.role, t.tool, group_concat(c.text, '') FROM turns t JOIN sessions s ON s.id = t.session"
        " JOIN chunks c ON c.turn = t.id WHERE s.session_id = ? AND t.role IN ('user', 'tool_call', 'tool_result')"
        " GROUP BY t.id ORDER BY t.id",
        (session_id,),
    )
    return [(str(uuid), str(role), tool, str(text)) for uuid, role, tool, text in rows]


def files_of_sessions(store: Store, session_ids: Collection[str], device: str) -> list[str | bytes]:
    """Return all paths at which the transcripts of these sessions were seen on a device."""
    known = f"SELECT path, transcript FROM capture_state WHERE device = ? AND session_id IN {GIVEN}"
    sql = (
        f"WITH known AS ({known}) SELECT path FROM known"
        " UNION SELECT s.path FROM snapshot_stamps s JOIN known k ON s.conversation = k.transcript"
    )
    return [path for (path,) in store.rows(sql, (device, session_ids))]


# --------------------------------------------------------------------------------------------------------- archives


class KeptRow(NamedTuple):
    """A ledger row with archived lines; ``transcript`` is the row id of its transcript, ``key`` the transcript's key.

    ``hash`` is the hash of its lines: rows with equal hashes have the same lines.
    """

    id: int
    transcript: int
    key: str
    session_id: str
    subagent: str | None
    harness: str
    device: str
    archive: str
    offset: int
    length: int
    start: int
    hash: bytes


_KEPT = (
    "SELECT s.id, c.id, c.transcript, c.session_id, c.subagent, c.harness, c.device, c.archive,"
    " s.archive_offset, s.archive_length, s.start, s.clean_hash"
    " FROM segments s JOIN capture_state c ON c.id = s.transcript"
    " WHERE s.state = 'captured' AND s.archive_length > 0 AND c.archive IS NOT NULL"
)


def kept_rows(store: Store, sessions: Collection[str] | None = None) -> list[KeptRow]:
    """Return the rows with archived lines, of all sessions or of some, file by file."""
    some, values = ("", ()) if sessions is None else (f"AND c.session_id IN {GIVEN}", (sessions,))
    return store.all(KeptRow, f"{_KEPT} {some} ORDER BY c.id, s.archive_offset", values)


def kept_rows_of(store: Store, transcript: int) -> list[KeptRow]:
    """Return the rows with archived lines of one transcript."""
    return store.all(KeptRow, f"{_KEPT} AND c.id = ? ORDER BY s.archive_offset", (transcript,))


def kept_rows_of_session(store: Store, session_id: str) -> list[KeptRow]:
    """Return the rows with archived lines of one session, in the order of capture."""
    return store.all(KeptRow, f"{_KEPT} AND c.session_id = ? ORDER BY s.id", (session_id,))


def kept_rows_between(store: Store, first: int, last: int) -> Iterator[KeptRow]:
    """Yield the rows with archived lines and ids from ``first`` to ``last``, in the order of capture."""
    return (KeptRow(*row) for row in store.stream(f"{_KEPT} AND s.id BETWEEN ? AND ? ORDER BY s.id", (first, last)))


def transcript_of_row(store: Store, row: int) -> int | None:
    """Return the id of a ledger row's transcript."""
    return store.find(int, "SELECT transcript FROM segments WHERE id = ?", (row,))


def place_lines(store: Store, row: int, offset: int, length: int, sha: bytes, size: int) -> None:
    """Record the new place and content of a row's lines after some were forgotten. Inside a transaction.

    The hash of the bytes in the transcript is deleted: it would confirm a guess.
    """
    store.execute(
        "UPDATE segments SET archive_offset = ?, archive_length = ?, clean_hash = ?, clean_length = ?,"
        " raw_hash = x'' WHERE id = ?",
        (offset, length, sha, size, row),
    )


def close_row(store: Store, row: int, rule: str) -> None:
    """Mark a row's bytes as private after all its lines were forgotten. Inside a transaction."""
    store.execute(
        "UPDATE segments SET state = 'private', rule = ?, raw_hash = NULL, archive_offset = NULL,"
        " archive_length = NULL, clean_hash = NULL, clean_length = NULL WHERE id = ?",
        (rule, row),
    )


def close_relayed(store: Store, session_ids: Collection[str], rule: str) -> None:
    """Mark the bytes of whole sessions whose lines only home has as private. Inside a transaction."""
    store.execute(
        "UPDATE segments SET state = 'private', rule = ?, raw_hash = NULL, clean_hash = NULL, clean_length = NULL"
        " WHERE state = 'captured' AND archive_length IS NULL AND transcript IN"
        f" (SELECT id FROM capture_state WHERE session_id IN {GIVEN})",
        (rule, session_ids),
    )
