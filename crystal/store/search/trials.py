"""Draw a reproducible sample of turns to test search with. Read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crystal.store.connection import Store


@dataclass(frozen=True, slots=True)
class Sampled:
    """The first chunk of a turn, and the user's request before it.

    ``id`` is the chunk's, ``uuid`` the turn's. ``before`` is the text of the user's preceding turn, or None;
    ``before_id`` is the id of its chunk.
    """

    id: int
    uuid: str
    text: str
    role: str
    session_id: str
    ts: int | None
    before: str | None = None
    before_id: int | None = None


def sample_turns(store: Store, limit: int, *, least: int) -> list[Sampled]:
    """Return turns of user and assistant with at least ``least`` characters, in the order of their text's hash.

    That order is as good as random, and the same whenever the memory is the same. A repeated text is returned once.
    """
    rows = store.rows(
        "SELECT min(c.id), t.uuid, c.text, c.role, s.session_id, c.ts, c.turn, c.session FROM chunks AS c"
        " JOIN turns AS t ON t.id = c.turn JOIN sessions AS s ON s.id = c.session"
        " WHERE c.role IN ('user', 'assistant') AND c.start = 0 AND length(c.text) >= ?"
        " GROUP BY c.text_sha256 ORDER BY c.text_sha256 LIMIT ?",
        (least, limit),
    )
    return [
        Sampled(ident, uuid, text, role, own, ts, *(_asked_before(store, turn, session) if role == "assistant" else ()))
        for ident, uuid, text, role, own, ts, turn, session in rows
    ]


def _asked_before(store: Store, turn: int, session: int) -> tuple[Any, ...]:
    """Return the user's last message before a turn and its chunk, if only the assistant's actions are between them."""
    row = store.row(
        "SELECT c.text, c.id FROM turns AS t JOIN chunks AS c ON c.turn = t.id AND c.start = 0"
        " WHERE t.session = ? AND t.id < ? AND t.role = 'user' ORDER BY t.id DESC LIMIT 1",
        (session, turn),
    )
    return row or ()
