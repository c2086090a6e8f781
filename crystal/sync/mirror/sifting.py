"""Filter objects that home published before it received a tombstone, so that forgotten rows do not come back.

Rows named by this device's tombstones are removed from an object before it is applied. Titles, summaries and log lines
of such sessions may paraphrase the text; they are removed until home has published with the tombstone. Source:
docs/spec/mirror.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crystal.store import Store
from crystal.store.forget.forgetting import Blocks, Tombstone, forgotten_memories, read_blocks
from crystal.store.search.scope import is_within
from crystal.store.sync import mirror_names, relay_forgotten
from crystal.store.sync.mirror_content import COLUMNS, Content, Row
from crystal.summarize.markdown import file_stem

_AT = {table: {column: at for at, column in enumerate(columns)} for table, columns in COLUMNS.items()}

Sift = Callable[[Store, Content, int], Mapping[str, int]]
"""Removes from an object what is forgotten here, given the mirror and the time of publication.

Returns the number of rows.
"""


def take_all(_: Store, __: Content, ___: int) -> Mapping[str, int]:
    """Remove nothing."""
    return {}


@dataclass(frozen=True, slots=True)
class Sieve:
    """Filter by the tombstones of a device's own store."""

    store: Store

    def __call__(self, mirror: Store, content: Content, published_at: int) -> Mapping[str, int]:
        """Remove forgotten rows. Return how many rows of each table were removed."""
        blocks = read_blocks(self.store)
        if blocks is None:
            return {}
        sessions, folders = _sessions(mirror, content), _folders(mirror, content)
        dropped = {
            "turns": _drop(content, "turns", _forgotten_turns(content, blocks, sessions, folders)),
            "memories": _drop(content, "memories", _forgotten_memories(content, self.store)),
        }
        chunks = _orphans(mirror, content)
        content.texts = [text for number, text in enumerate(content.texts) if number not in chunks]
        dropped["chunks"] = _drop(content, "chunks", chunks)
        dropped["turn_copies"] = _drop(content, "turn_copies", _orphaned_copies(mirror, content))
        waits = relay_forgotten.not_published(self.store, published_at)
        if waits:
            _silence(content, _Waiting(waits, sessions, folders))
        return dropped


def _drop(content: Content, table: str, numbers: Collection[int]) -> int:
    if numbers:
        content.rows[table] = [row for number, row in enumerate(content.rows[table]) if number not in numbers]
    return len(numbers)


def _sessions(mirror: Store, content: Content) -> dict[int, Row]:
    """Return the sessions of an object as rows of the table, by home's ids."""
    at = _AT["sessions"]
    known = {int(row[at["id"]]): row for row in content.rows.get("sessions", ())}
    named = {row[_AT[table]["session"]] for table in ("turns", "chunks") for row in content.rows.get(table, ())}
    wanted = [ident for ident in named if ident is not None and ident not in known]
    return {**known, **mirror_names.sessions(mirror, wanted)}


def _folders(mirror: Store, content: Content) -> dict[int, str]:
    at = _AT["projects"]
    return {
        **mirror_names.folders(mirror),
        **{int(row[at["id"]]): str(row[at["cwd"]]) for row in content.rows.get("projects", ())},
    }


def _forgotten_turns(
    content: Content, blocks: Blocks, sessions: Mapping[int, Row], folders: Mapping[int, str]
) -> set[int]:
    at, session_at = _AT["turns"], _AT["sessions"]["session_id"]

    def is_forgotten(row: Row) -> bool:
        session = sessions.get(row[at["session"]])
        named = "" if session is None else str(session[session_at])
        return blocks.holds(row[at["uuid"]], named, row[at["ts"]], folders.get(row[at["project"]]))

    return {number for number, row in enumerate(content.rows.get("turns", ())) if is_forgotten(row)}


def _forgotten_memories(content: Content, store: Store) -> set[int]:
    uid = _AT["memories"]["uid"]
    rows = content.rows.get("memories", ())
    gone = forgotten_memories(store, [row[uid] for row in rows])
    return {number for number, row in enumerate(rows) if row[uid] in gone}


def _orphans(mirror: Store, content: Content) -> set[int]:
    """Return the chunks whose turn or memory was removed, now or before."""
    gone: set[int] = set()
    for table, column in (("turns", "turn"), ("memories", "memory")):
        at = _AT["chunks"][column]
        known = {row[0] for row in content.rows.get(table, ())}
        named = {row[at] for row in content.rows.get("chunks", ())} - known - {None}
        missing = named - mirror_names.ids_there(mirror, table, named)
        gone |= {number for number, row in enumerate(content.rows.get("chunks", ())) if row[at] in missing}
    return gone


def _orphaned_copies(mirror: Store, content: Content) -> set[int]:
    at = _AT["turn_copies"]["turn"]
    rows = content.rows.get("turn_copies", ())
    named = {row[at] for row in rows} - {row[0] for row in content.rows.get("turns", ())}
    missing = named - mirror_names.ids_there(mirror, "turns", named)
    return {number for number, row in enumerate(rows) if row[at] in missing}


# --------------------------------------------------------------------------------------------------------- derived text


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Tombstones that home did not have when it published, as a question about sessions."""

    tombstones: Sequence[Tombstone]
    sessions: Mapping[int, Row]
    folders: Mapping[int, str]

    def tells(self, row: Row) -> bool:
        """Return True if text derived from a session may contain something forgotten."""
        at = _AT["sessions"]
        session, began = row[at["session_id"]], row[at["started_at"]]
        folder = self.folders.get(row[at["project"]])
        for one in self.tombstones:
            if session in one.sessions:
                return True
            is_early = began is None or (one.until_at is not None and began < one.until_at)
            if one.until_at is not None and is_early and one.kind == "before":
                return True
            if is_early and folder is not None and any(is_within(folder, name) for name in one.folders):
                return True
        return False


def _silence(content: Content, waiting: _Waiting) -> None:
    """Remove titles, summaries and log lines of sessions with forgotten parts."""
    at = _AT["sessions"]
    told = [row for row in waiting.sessions.values() if waiting.tells(row)]
    names = {row[at["id"]] for row in told}
    content.rows["sessions"] = [
        _untitled(row) if row[at["id"]] in names else row for row in content.rows.get("sessions", ())
    ]
    stems = {file_stem(str(session)) for one in waiting.tombstones for session in one.sessions}
    stems |= {file_stem(str(row[at["session_id"]])) for row in told}
    marks = [f"<!-- {stem} ".encode() for stem in stems]
    content.documents = [
        replace(one, content=b"".join(line for line in one.content.splitlines(keepends=True) if not _has(line, marks)))
        for one in content.documents
        if not any(one.path.endswith(f"--{stem}.md") for stem in stems)
    ]


def _untitled(row: Row) -> list[Any]:
    at = _AT["sessions"]
    gone = {at["title"], at["summary_title"]}
    return [None if number in gone else value for number, value in enumerate(row)]


def _has(line: bytes, marks: Sequence[bytes]) -> bool:
    return any(mark in line for mark in marks)
