"""Delete the rows of what is forgotten, and record the work that remains in files.

Everything runs inside the caller's transactions. The connection deletes securely, so nothing stays in free pages;
copies between the cells of a page are removed when the file is rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import GIVEN, Store
from crystal.store.json_columns import FORGET_WORK, read_json
from crystal.store.notes import ANSWER_ALONE, MODEL_ANSWER, drop_notes
from crystal.store.search import space

MANY = 1_000
"""With more chunks than this, deletion runs in batches; their words are removed at the end."""

BATCH = 4_000


# --------------------------------------------------------------------------------------------------------- deleting


def chunks_of(store: Store, uuids: Collection[str]) -> list[int]:
    """Return the chunk ids of these lines."""
    sql = "SELECT id FROM chunks WHERE turn IN " + _TURNS
    return store.all(int, sql, (uuids,))


_TURNS = f"(SELECT id FROM turns WHERE uuid IN {GIVEN})"


def delete_lines(store: Store, uuids: Collection[str], whole: Collection[str]) -> None:
    """Delete the turns of lines with their chunks, words and vectors, and all records of copies in ``whole`` sessions.

    Runs inside a transaction.
    """
    store.execute(
        f"DELETE FROM turn_copies WHERE session IN (SELECT id FROM sessions WHERE session_id IN {GIVEN})",
        (whole,),
    )
    space.delete_chunks(store, chunks_of(store, uuids))
    store.execute(f"DELETE FROM turn_copies WHERE turn IN {_TURNS}", (uuids,))
    for table, column in (("learned_from", "line"), ("turns", "uuid")):
        store.execute(f"DELETE FROM {table} WHERE {column} IN {GIVEN}", (uuids,))


def move_turns_to_copies(store: Store, uuids: Collection[str], session_ids: Collection[str]) -> None:
    """Move the turns of lines from these sessions to another session that repeats them. Inside a transaction."""
    for turn, old, new in store.rows(
        "SELECT t.id, t.session, min(c.session) FROM turns t JOIN turn_copies c ON c.turn = t.id"
        f" JOIN sessions o ON o.id = c.session WHERE t.uuid IN {GIVEN}"
        f" AND o.session_id NOT IN {GIVEN} GROUP BY t.id",
        (uuids, session_ids),
    ):
        store.execute("UPDATE turns SET session = ? WHERE id = ?", (new, turn))
        store.execute("UPDATE chunks SET session = ? WHERE turn = ?", (new, turn))
        store.execute("DELETE FROM turn_copies WHERE turn = ? AND session = ?", (turn, new))
        store.insert("turn_copies", "session, turn", old, turn, on_conflict="DO NOTHING")


def reset_sessions(store: Store, session_ids: Collection[str]) -> list[tuple[str, str, str | None]]:
    """Delete what was derived from sessions: title, summary, log line, a model's answers. Delete empty sessions.

    Inside a transaction.

    Returns:
        (session, agent, path of the summary below the agent's folder) of each session that was stored.
    """
    done: list[tuple[str, str, str | None]] = []
    for session_id in sorted(session_ids):
        row = store.row("SELECT id, agent, summary_path FROM sessions WHERE session_id = ?", (session_id,))
        if row is None:
            continue
        ident, agent, path = row
        drop_notes(store, f"{MODEL_ANSWER}{ident}:")
        turns = "(SELECT id, ts FROM turns WHERE session = ?1 UNION ALL SELECT t.id, t.ts FROM turn_copies c"
        turns += " JOIN turns t ON t.id = c.turn WHERE c.session = ?1)"
        newest = store.value(f"SELECT max(id) FROM {turns}", (ident,))
        if newest is None and not store.has("SELECT 1 FROM chunks WHERE session = ? LIMIT 1", (ident,)):
            store.execute("DELETE FROM turn_copies WHERE session = ?", (ident,))
            store.execute("DELETE FROM sessions WHERE id = ?", (ident,))
        else:
            store.execute(
                "UPDATE sessions SET title = NULL, summary_title = NULL, summary_mode = NULL, summary_path = NULL,"
                f" summarized_turn = 0, logged_turn = 0, last_turn = ?2, started_at = (SELECT min(ts) FROM {turns}),"
                f" last_at = (SELECT max(ts) FROM {turns}) WHERE id = ?1",
                (ident, newest or 0),
            )
        done.append((session_id, agent, path))
    store.execute(f"DELETE FROM meta WHERE {ANSWER_ALONE}", (MODEL_ANSWER,))
    return done


def log_again(store: Store, session_id: str, title: str | None) -> None:
    """Mark a session's lines in the daily log to be written again, and set a title if it has none.

    Runs inside the transaction that removed the lines.
    """
    sql = "UPDATE sessions SET logged_turn = 0, title = coalesce(title, ?) WHERE session_id = ?"
    store.execute(sql, (title, session_id))


# ------------------------------------------------------------------------------------------------------------- work


class ForgetWork(NamedTuple):
    """A place that still contains forgotten text after its rows were deleted. See the table ``forget_work``."""

    id: int
    target: str
    detail: Any


def add_work(store: Store, kind: str, target: str, detail: object, now: int) -> None:
    """Record remaining work, inside a transaction; equal work is recorded once."""
    text = json.dumps(detail, sort_keys=True)
    known = "SELECT 1 FROM forget_work WHERE kind = ? AND target = ? AND detail = ?"
    if not store.has(known, (kind, target, text)):
        store.insert("forget_work", "kind, target, detail, made_at", kind, target, text, now)


def works(store: Store, kind: str) -> list[ForgetWork]:
    """Return the remaining work of one kind, in the order in which it was recorded."""
    rows = store.rows("SELECT id, target, detail FROM forget_work WHERE kind = ? ORDER BY id", (kind,))
    return [ForgetWork(ident, target, read_json(FORGET_WORK, detail)) for ident, target, detail in rows]


def work_kinds(store: Store) -> set[str]:
    """Return the kinds of the remaining work."""
    return set(store.all(str, "SELECT DISTINCT kind FROM forget_work"))


def end_works(store: Store, done: Sequence[ForgetWork]) -> None:
    """Delete finished work."""
    store.execute_many("DELETE FROM forget_work WHERE id = ?", [(one.id,) for one in done])


def end_tombstones(store: Store, uids: Sequence[str], now: int) -> None:
    """Mark tombstones as finished: none of their content is left here. Inside a transaction."""
    store.execute_many(
        "UPDATE tombstones SET done_at = ? WHERE uid = ? AND done_at IS NULL", [(now, uid) for uid in uids]
    )
