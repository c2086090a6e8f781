"""The messages just before and just after a turn, by a person or the assistant, in the same thread."""

from __future__ import annotations

from crystal.store.connection import Row, Store

_SAME_THREAD = "session = ?1 AND subagent IS ?2 AND role IN ('user', 'assistant') AND id <> ?6"
_LAST_BEFORE = f"""
SELECT id, role, uuid, ts FROM turns WHERE {_SAME_THREAD} AND (ts, offset, part) < (?3, ?4, ?5)
ORDER BY ts DESC, offset DESC, part DESC LIMIT 1
"""
_FIRST_AFTER = f"""
SELECT id, role, uuid, ts FROM turns WHERE {_SAME_THREAD} AND (ts, offset, part) > (?3, ?4, ?5)
ORDER BY ts, offset, part LIMIT 1
"""

Said = tuple[str, str, str, int | None]
"""Role, text, uuid and time of a turn."""


def around(store: Store, turn: int, *, since: int | None, before: int | None) -> tuple[Said | None, Said | None]:
    """Return the messages before and after a turn, within a span of time; the text is that of the nearest chunk."""
    place = store.row("SELECT session, subagent, ts, offset, part, id FROM turns WHERE id = ?", (turn,))
    if place is None or place[2] is None:
        return None, None
    found = store.row(_LAST_BEFORE, place), store.row(_FIRST_AFTER, place)
    earlier, later = (None if row is None or not _within(row, since, before) else row for row in found)
    return _said(store, earlier, "DESC"), _said(store, later, "ASC")


def _within(row: Row, since: int | None, before: int | None) -> bool:
    return (since is None or row[3] >= since) and (before is None or row[3] < before)


def _said(store: Store, row: Row | None, direction: str) -> Said | None:
    if row is None:
        return None
    turn, role, uuid, ts = row
    text = store.value(f"SELECT text FROM chunks WHERE turn = ? ORDER BY start {direction} LIMIT 1", (turn,))
    return None if text is None else (role, text, uuid, ts)
