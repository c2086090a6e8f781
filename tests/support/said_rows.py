"""What two stores are compared by: conversations, whenever and however they came."""

from __future__ import annotations

from crystal.store import Store


def said(store: Store) -> list[tuple[object, ...]]:
    """What a store has of conversations, as rows that do not depend on when and how they came."""
    return sorted(
        store.rows(
            "SELECT t.uuid, t.part, t.role, t.offset, coalesce(t.ts, 0), coalesce(t.tool, ''), coalesce(p.cwd, ''),"
            " s.session_id, c.start, c.text, c.agent, c.device FROM turns t JOIN sessions s ON s.id = t.session"
            " JOIN chunks c ON c.turn = t.id LEFT JOIN projects p ON p.id = t.project"
        )
    )
