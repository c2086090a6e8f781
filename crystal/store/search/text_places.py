"""Find the places of texts: all their sessions, the sessions and projects of memories, the folders of files.

Tables are named with their schema, so that content hidden from a connection counts too.
"""

from collections.abc import Collection
from typing import Literal

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store

TextKind = Literal["chunk", "turn", "session"]


class TextPlace(NamedTuple):
    """A place of the text in row ``ident``.

    ``at`` is in ms; ``folder`` is None if unknown, and empty if there is none; ``is_forgotten``: a tombstone
    covers the text, and its rows will be deleted.
    """

    ident: int
    session_id: str
    harness: str
    at: int
    folder: str | None
    is_forgotten: bool


_WANTED = {
    "chunk": "SELECT c.id, c.turn, c.memory, c.id FROM json_each(?) j JOIN main.chunks c ON c.id = j.value",
    "turn": "SELECT t.id, t.id, NULL, NULL FROM json_each(?) j JOIN main.turns t ON t.id = j.value",
    "session": "SELECT s.id, t.id, NULL, NULL FROM json_each(?) j JOIN main.sessions s ON s.id = j.value"
    " JOIN main.turns t ON t.session = s.id OR t.id IN (SELECT turn FROM main.turn_copies WHERE session = s.id)",
}
"""SQL for the row of a text, and for its turn, memory and chunk, by kind."""

_SAID = (
    "SELECT w.ident, s.session_id, s.harness, coalesce(t.ts, 0), p.cwd,"
    " EXISTS (SELECT 1 FROM main.private_lines l WHERE l.uuid = t.uuid)"
    " FROM wanted w JOIN main.turns t ON t.id = w.turn{} LEFT JOIN main.projects p ON p.id = t.project"
)
_OWN = " JOIN main.sessions s ON s.id = t.session"
_COPIED = " JOIN main.turn_copies k ON k.turn = t.id JOIN main.sessions s ON s.id = k.session"
_MEMORY = (  # the last word of its source may name an agent
    "SELECT w.ident, coalesce(m.session, ''), replace(m.source, rtrim(m.source, replace(m.source, ' ', '')), ''),"
    " m.created_at, coalesce(p.cwd, ''), m.uid IN (SELECT j.value FROM main.tombstones o,"
    " json_each(o.value, '$.memories') j WHERE o.done_at IS NULL)"
    " FROM wanted w JOIN main.memories m ON m.id = w.memory LEFT JOIN main.projects p ON p.id = m.project"
)
_LEARNED = (
    "SELECT w.ident, l.session, coalesce(s.harness, ''), l.at, p.cwd,"
    " EXISTS (SELECT 1 FROM main.private_lines g WHERE g.uuid = l.line)"
    " FROM wanted w JOIN main.memories m ON m.id = w.memory JOIN ("
    "SELECT memory, line, session, at FROM main.learned_from"
    " UNION ALL SELECT uid, NULL, session, created_at FROM main.memories WHERE session IS NOT NULL) l"
    " ON l.memory = m.uid LEFT JOIN main.sessions s ON s.session_id = l.session"
    " LEFT JOIN main.projects p ON p.id = s.project"
)
_FILE = (  # a file has no time of capture: only a private period that is still open counts
    f"SELECT w.ident, '', '', {1 << 62}, k.path || '/' || f.path, 0 FROM wanted w JOIN main.sources x"
    " ON x.chunk = w.chunk JOIN main.source_files f ON f.id = x.file JOIN main.source_collections k"
    " ON k.id = f.collection"
)
_PLACES = " UNION ".join([_SAID.format(_OWN), _SAID.format(_COPIED), _MEMORY, _LEARNED, _FILE])


def places_of(store: Store, kind: TextKind, ids: Collection[int]) -> list[TextPlace]:
    """Return every place of some texts; nothing for a text that is no longer stored."""
    sql = f"WITH wanted(ident, turn, memory, chunk) AS MATERIALIZED ({_WANTED[kind]}) {_PLACES}"
    return store.all(TextPlace, sql, (ids,))
