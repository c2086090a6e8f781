"""The rows of what is to be forgotten: found by name, by place and by text, and deleted. Also the work that is left.

Finding only reads. Deleting runs inside the caller's transactions and leaves nothing in free pages or in the log: the
connection deletes securely, and ``empty_log`` writes the log back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from crystal.model import Memory
from crystal.store import space
from crystal.store.connection import Store, translated
from crystal.store.memories import delete_memories
from crystal.store.scope import is_within

PAGE = 500
MANY = 1_000
"""More chunks than this are deleted in batches, and their words with them when all are gone."""

BATCH = 4_000


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a transcript as a list shows it: the beginning of what its first part says."""

    uuid: str
    role: str
    text: str
    session_id: str
    project: str | None
    device: str | None
    timestamp: int | None
    memory: Memory = "local"


@dataclass(frozen=True, slots=True)
class Said:
    """What one turn or one memory says, whole. One of ``uuid`` (of a line) and ``uid`` (of a memory) is empty."""

    uuid: str
    uid: str
    text: str


# ---------------------------------------------------------------------------------------------------------- finding


def each_text(store: Store) -> Iterator[Said]:
    """Every text of the store: of turns, of memories and of what these were before."""
    with translated(store.path):
        turn, text, uuid = None, "", ""
        for ident, start, piece, of in store.db.execute(
            "SELECT c.turn, c.start, c.text, t.uuid FROM chunks c JOIN turns t ON t.id = c.turn"
            " ORDER BY c.turn, c.start"
        ):
            if ident != turn:
                if turn is not None:
                    yield Said(uuid, "", text)
                turn, text, uuid = ident, "", of
            text = text[:start] + piece if start <= len(text) else f"{text}\n{piece}"
        if turn is not None:
            yield Said(uuid, "", text)
        for uid, words, key in store.db.execute(
            "SELECT uid, text, key FROM memories UNION ALL"
            " SELECT m.uid, h.text, NULL FROM memory_history h JOIN memories m ON m.id = h.memory"
        ):
            yield Said("", uid, words if key is None else f"{key}: {words}")


def lines_named(store: Store, uuids: Collection[str], memory: Memory = "local") -> list[Line]:
    """The lines of these ids that are in the store."""
    found: list[Line] = []
    wanted = sorted(uuids)
    for at in range(0, len(wanted), PAGE):
        rows = store.rows(
            "SELECT t.uuid, t.role, (SELECT substr(c.text, 1, 300) FROM chunks c WHERE c.turn = t.id AND c.start = 0),"
            " s.session_id, p.name, s.device, t.ts, min(t.part) FROM turns t JOIN sessions s ON s.id = t.session"
            " LEFT JOIN projects p ON p.id = t.project WHERE t.uuid IN (SELECT value FROM json_each(?))"
            " GROUP BY t.uuid",
            (json.dumps(wanted[at : at + PAGE]),),
        )
        found += [
            Line(uuid, role, text or "", session, project, device, ts, memory)
            for uuid, role, text, session, project, device, ts, _ in rows
        ]
    return found


def uuids_of_sessions(store: Store, session_ids: Collection[str], until: int | None) -> set[str]:
    """The lines that were said in these sessions (not those that they repeat from others), before a moment."""
    rows = store.rows(
        "SELECT DISTINCT t.uuid FROM turns t JOIN sessions s ON s.id = t.session"
        " WHERE s.session_id IN (SELECT value FROM json_each(?1)) AND (?2 IS NULL OR t.ts IS NULL OR t.ts < ?2)",
        (json.dumps(sorted(session_ids)), until),
    )
    return {str(uuid) for (uuid,) in rows}


def session_ids(store: Store) -> list[str]:
    """Claude Code's ids of all sessions."""
    return [str(name) for (name,) in store.rows("SELECT session_id FROM sessions")]


def uuid_of_turn(store: Store, turn: int) -> str:
    """The id of the line that a turn is a part of."""
    return str(store.value("SELECT uuid FROM turns WHERE id = ?", (turn,)))


def folders_of_projects(store: Store, projects: Sequence[int]) -> set[str]:
    """The folders of some projects."""
    rows = store.rows(
        "SELECT cwd FROM projects WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(projects)),)
    )
    return {str(cwd) for (cwd,) in rows}


def folders_within(store: Store, folders: Collection[str]) -> list[int]:
    """The projects that lie in these folders or below."""
    rows = store.rows("SELECT id, cwd FROM projects")
    return [ident for ident, cwd in rows if any(is_within(cwd, folder) for folder in folders)]


def uuids_of_projects(store: Store, projects: Sequence[int], until: int | None) -> set[str]:
    """The lines that were said in these projects before a moment."""
    rows = store.rows(
        "SELECT DISTINCT uuid FROM turns WHERE project IN (SELECT value FROM json_each(?1))"
        " AND (?2 IS NULL OR ts IS NULL OR ts < ?2)",
        (json.dumps(list(projects)), until),
    )
    return {str(uuid) for (uuid,) in rows}


def uuids_before(store: Store, until: int) -> set[str]:
    """The lines that were said before a moment."""
    return {str(uuid) for (uuid,) in store.rows("SELECT DISTINCT uuid FROM turns WHERE ts < ?", (until,))}


def uuids_there(store: Store, uuids: Collection[str]) -> set[str]:
    """Those of some lines that are in the store."""
    rows = store.rows(
        "SELECT DISTINCT uuid FROM turns WHERE uuid IN (SELECT value FROM json_each(?))", (json.dumps(sorted(uuids)),)
    )
    return {str(uuid) for (uuid,) in rows}


def memories_where(
    store: Store, *, sessions: Collection[str] = (), projects: Sequence[int] = (), before: int | None = None
) -> set[str]:
    """Memories that were asked for in these sessions, hold in these projects, or were last changed before a moment."""
    rows = store.rows(
        "SELECT uid FROM memories WHERE session IN (SELECT value FROM json_each(?1))"
        " OR project IN (SELECT value FROM json_each(?2)) OR (?3 IS NOT NULL AND updated_at < ?3)",
        (json.dumps(sorted(sessions)), json.dumps(list(projects)), before),
    )
    return {str(uid) for (uid,) in rows}


def sessions_of(store: Store, uuids: Collection[str]) -> set[str]:
    """Claude Code's ids of the sessions in whose transcripts these lines stand, forks as well."""
    found: set[str] = set()
    wanted = sorted(uuids)
    for at in range(0, len(wanted), PAGE):
        rows = store.rows(
            "SELECT DISTINCT s.session_id FROM turns t LEFT JOIN turn_copies c ON c.turn = t.id"
            " JOIN sessions s ON s.id IN (t.session, c.session)"
            " WHERE t.uuid IN (SELECT value FROM json_each(?))",
            (json.dumps(wanted[at : at + PAGE]),),
        )
        found |= {str(session) for (session,) in rows}
    return found


def summaries_after(store: Store, uuids: Collection[str]) -> set[str]:
    """The client's summaries of conversations (lines of role summary) that came after some lines in their session."""
    rows = store.rows(
        "SELECT DISTINCT y.uuid FROM turns t JOIN turns y ON y.session = t.session AND y.role = 'summary'"
        " AND (y.ts IS NULL OR t.ts IS NULL OR y.ts >= t.ts)"
        " WHERE t.uuid IN (SELECT value FROM json_each(?))"
        " UNION SELECT DISTINCT y.uuid FROM turns t JOIN turn_copies c ON c.turn = t.id"
        " JOIN turns y ON y.session = c.session AND y.role = 'summary'"
        " AND (y.ts IS NULL OR t.ts IS NULL OR y.ts >= t.ts)"
        " WHERE t.uuid IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(uuids)),) * 2,
    )
    return {str(uuid) for (uuid,) in rows}


def turns_of_session(store: Store, session_id: str) -> list[tuple[str, str, str | None, str]]:
    """The turns of a session that a person or a tool call made, as (uuid, role, tool, text)."""
    rows = store.rows(
        "SELECT t.uuid, t.role, t.tool, group_concat(c.text, '') FROM turns t JOIN sessions s ON s.id = t.session"
        " JOIN chunks c ON c.turn = t.id WHERE s.session_id = ? AND t.role IN ('user', 'tool_call', 'tool_result')"
        " GROUP BY t.id ORDER BY t.id",
        (session_id,),
    )
    return [(str(uuid), str(role), tool, str(text)) for uuid, role, tool, text in rows]


def files_of_sessions(store: Store, session_ids: Collection[str], device: str) -> list[str | bytes]:
    """Where the transcripts of these sessions were seen last on a device."""
    rows = store.rows(
        "SELECT path FROM capture_state WHERE device = ? AND session_id IN (SELECT value FROM json_each(?))",
        (device, json.dumps(sorted(session_ids))),
    )
    return [path for (path,) in rows]


# --------------------------------------------------------------------------------------------------------- archives


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A row of the ledger whose lines are archived; ``transcript`` is the row of its transcript, ``key`` its key."""

    id: int
    transcript: int
    key: str
    session_id: str
    subagent: str | None
    device: str
    archive: str
    offset: int
    length: int
    start: int


_KEPT = (
    "SELECT s.id, c.id, c.transcript, c.session_id, c.subagent, c.device, c.archive, s.archive_offset,"
    " s.archive_length, s.start FROM segments s JOIN capture_state c ON c.id = s.transcript"
    " WHERE s.state = 'captured' AND s.archive_length > 0 AND c.archive IS NOT NULL"
)


def kept_rows(store: Store) -> list[KeptRow]:
    """Every row whose lines are archived, file by file."""
    return [KeptRow(*row) for row in store.rows(f"{_KEPT} ORDER BY c.id, s.archive_offset")]


def kept_rows_of(store: Store, transcript: int) -> list[KeptRow]:
    """The same, of one transcript."""
    return [KeptRow(*row) for row in store.rows(f"{_KEPT} AND c.id = ? ORDER BY s.archive_offset", (transcript,))]


def kept_rows_of_session(store: Store, session_id: str) -> list[KeptRow]:
    """The same, of one session, in the order of capture."""
    return [KeptRow(*row) for row in store.rows(f"{_KEPT} AND c.session_id = ? ORDER BY s.id", (session_id,))]


def transcript_of_row(store: Store, row: int) -> int | None:
    """The transcript that a ledger row belongs to."""
    value = store.value("SELECT transcript FROM segments WHERE id = ?", (row,))
    return None if value is None else int(value)


def rows_of_sessions(store: Store, session_ids: Collection[str]) -> set[int]:
    """The ids of every ledger row of these sessions whose lines are archived."""
    rows = store.rows(
        "SELECT s.id FROM segments s JOIN capture_state c ON c.id = s.transcript WHERE s.state = 'captured'"
        " AND c.session_id IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(session_ids)),),
    )
    return {int(ident) for (ident,) in rows}


def move_archive(store: Store, transcript: int, archive: str | None) -> None:
    """Note that a transcript's lines are in another file now, or in none. Inside a transaction."""
    store.execute("UPDATE capture_state SET archive = ? WHERE id = ?", (archive, transcript))


def place_lines(store: Store, row: int, offset: int, length: int, sha: bytes, size: int) -> None:
    """Note where a row's lines lie and what they are, now that some were forgotten. Inside a transaction.

    The hash of the bytes in the file goes: it would confirm a guess.
    """
    store.execute(
        "UPDATE segments SET archive_offset = ?, archive_length = ?, clean_hash = ?, clean_length = ?,"
        " raw_hash = x'' WHERE id = ?",
        (offset, length, sha, size, row),
    )


def close_row(store: Store, row: int, rule: str) -> None:
    """Let a row's bytes be private: all of its lines were forgotten. Inside a transaction."""
    store.execute(
        "UPDATE segments SET state = 'private', rule = ?, raw_hash = NULL, archive_offset = NULL,"
        " archive_length = NULL, clean_hash = NULL, clean_length = NULL WHERE id = ?",
        (rule, row),
    )


def close_relayed(store: Store, session_ids: Collection[str], rule: str) -> None:
    """Let the bytes of whole sessions be private whose lines only home has. Inside a transaction."""
    store.execute(
        "UPDATE segments SET state = 'private', rule = ?, raw_hash = NULL, clean_hash = NULL, clean_length = NULL"
        " WHERE state = 'captured' AND archive_length IS NULL AND transcript IN"
        " (SELECT id FROM capture_state WHERE session_id IN (SELECT value FROM json_each(?)))",
        (rule, json.dumps(sorted(session_ids))),
    )


# --------------------------------------------------------------------------------------------------------- deleting


def chunks_of(store: Store, uuids: Collection[str]) -> list[int]:
    """The chunks of these lines."""
    found: list[int] = []
    wanted = sorted(uuids)
    for at in range(0, len(wanted), PAGE):
        found += [
            int(ident)
            for (ident,) in store.rows(
                "SELECT c.id FROM chunks c JOIN turns t ON t.id = c.turn"
                " WHERE t.uuid IN (SELECT value FROM json_each(?))",
                (json.dumps(wanted[at : at + PAGE]),),
            )
        ]
    return found


def delete_marked(store: Store, ids: Sequence[int]) -> None:
    """Delete some of very many chunks with their vectors, inside a transaction.

    Their words are only marked in the keyword index: ``merge_words`` takes them out when all are deleted.
    """
    space.delete_chunks(store, ids, marked=True)


def merge_words(store: Store) -> None:
    """Take the words of deleted chunks out of the keyword index, some pages at a time, so that others can write."""
    space.merge_words(store)


def delete_lines(store: Store, uuids: Collection[str]) -> None:
    """Delete the turns of lines and all that is left of their chunks, inside a transaction."""
    wanted = sorted(uuids)
    for at in range(0, len(wanted), PAGE):
        page = (json.dumps(wanted[at : at + PAGE]),)
        some = "(SELECT id FROM turns WHERE uuid IN (SELECT value FROM json_each(?)))"
        space.delete_chunks(
            store, [ident for (ident,) in store.rows(f"SELECT id FROM chunks WHERE turn IN {some}", page)]
        )
        store.execute(f"DELETE FROM turn_copies WHERE turn IN {some}", page)
        store.execute("DELETE FROM turns WHERE uuid IN (SELECT value FROM json_each(?))", page)


def delete_copies(store: Store, session_ids: Collection[str]) -> None:
    """Let sessions that are forgotten as a whole repeat nothing of others any more. Inside a transaction."""
    store.execute(
        "DELETE FROM turn_copies WHERE session IN (SELECT id FROM sessions WHERE session_id IN"
        " (SELECT value FROM json_each(?)))",
        (json.dumps(sorted(session_ids)),),
    )


def delete_remembered(store: Store, uids: Sequence[str]) -> int:
    """Delete memories with their history, inside a transaction."""
    return delete_memories(store, list(uids))


@dataclass(frozen=True, slots=True)
class Reset:
    """A session whose title and summary were taken back; ``summary_path`` is below its agent's folder."""

    session_id: str
    agent: str
    summary_path: str | None
    is_gone: bool


def reset_sessions(store: Store, session_ids: Collection[str]) -> list[Reset]:
    """Take back what was made of sessions: title, summary, log line. Sessions without a turn go. In a transaction."""
    done: list[Reset] = []
    for session_id in sorted(session_ids):
        row = store.row("SELECT id, agent, summary_path FROM sessions WHERE session_id = ?", (session_id,))
        if row is None:
            continue
        ident, agent, path = row
        turns = "(SELECT id, ts FROM turns WHERE session = ?1 UNION ALL SELECT t.id, t.ts FROM turn_copies c"
        turns += " JOIN turns t ON t.id = c.turn WHERE c.session = ?1)"
        newest = store.value(f"SELECT max(id) FROM {turns}", (ident,))
        if newest is None and store.value("SELECT 1 FROM chunks WHERE session = ? LIMIT 1", (ident,)) is None:
            store.execute("DELETE FROM turn_copies WHERE session = ?", (ident,))
            store.execute("DELETE FROM sessions WHERE id = ?", (ident,))
        else:
            store.execute(
                "UPDATE sessions SET title = NULL, summary_title = NULL, summary_mode = NULL, summary_path = NULL,"
                f" summarized_turn = 0, logged_turn = 0, last_turn = ?2, started_at = (SELECT min(ts) FROM {turns}),"
                f" last_at = (SELECT max(ts) FROM {turns}) WHERE id = ?1",
                (ident, newest or 0),
            )
        done.append(Reset(session_id, agent, path, newest is None))
    return done


def log_again(store: Store, session_id: str) -> None:
    """Let a session's lines in the daily log be written again. Inside the transaction that took them out."""
    store.execute("UPDATE sessions SET logged_turn = 0 WHERE session_id = ?", (session_id,))


def give_title(store: Store, session_id: str, title: str) -> None:
    """Note the title that is left in a session's transcript, where it has none now."""
    store.execute("UPDATE sessions SET title = ? WHERE session_id = ? AND title IS NULL", (title, session_id))


def delete_documents(store: Store, wanted: Collection[str]) -> None:
    """Delete documents of a mirror, as agent/path. Inside a transaction."""
    store.execute_many("DELETE FROM documents WHERE agent || '/' || path = ?", [(name,) for name in sorted(wanted)])


def documents(store: Store) -> Iterator[tuple[str, bytes]]:
    """The documents of a mirror, as (agent/path, content)."""
    for agent, path in store.rows("SELECT agent, path FROM documents ORDER BY agent, path"):
        content = store.value("SELECT content FROM documents WHERE agent = ? AND path = ?", (agent, path))
        yield f"{agent}/{path}", bytes(content or b"")


def write_document(store: Store, name: str, content: bytes) -> None:
    """Change a document of a mirror."""
    store.execute("UPDATE documents SET content = ? WHERE agent || '/' || path = ?", (content, name))


# ------------------------------------------------------------------------------------------------------------- work


@dataclass(frozen=True, slots=True)
class Work:
    """Something that still holds what was forgotten; its rows are gone. See the table ``forget_work``."""

    id: int
    kind: str
    target: str
    detail: Any


def add_work(store: Store, kind: str, target: str, detail: object, now: int) -> None:
    """Note work that is left, inside a transaction; the same once."""
    text = json.dumps(detail, sort_keys=True)
    known = "SELECT 1 FROM forget_work WHERE kind = ? AND target = ? AND detail = ?"
    if store.value(known, (kind, target, text)) is None:
        store.execute(
            "INSERT INTO forget_work (kind, target, detail, made_at) VALUES (?, ?, ?, ?)", (kind, target, text, now)
        )


def works(store: Store, kind: str) -> list[Work]:
    """The work of one kind, in the order in which it was noted."""
    rows = store.rows("SELECT id, kind, target, detail FROM forget_work WHERE kind = ? ORDER BY id", (kind,))
    return [Work(ident, name, target, json.loads(detail)) for ident, name, target, detail in rows]


def work_kinds(store: Store) -> dict[str, int]:
    """How much work of each kind is left."""
    return {str(kind): int(count) for kind, count in store.rows("SELECT kind, count(*) FROM forget_work GROUP BY kind")}


def end_works(store: Store, done: Sequence[Work]) -> None:
    """Let go of work that is done."""
    store.execute_many("DELETE FROM forget_work WHERE id = ?", [(one.id,) for one in done])


def end_tombstones(store: Store, uids: Sequence[str], now: int) -> None:
    """Note that nothing of some tombstones is left here. Inside a transaction."""
    store.execute_many(
        "UPDATE tombstones SET done_at = ? WHERE uid = ? AND done_at IS NULL", [(now, uid) for uid in uids]
    )
