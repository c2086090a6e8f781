"""Filter objects that home published before it received a tombstone, so that forgotten rows do not come back.

Rows named by this device's tombstones are removed from an object before it is applied. Titles of such sessions may
paraphrase the text; they are removed until home has published with the tombstone.

Source: docs/spec/mirror.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone, Tombstones, read_blocks
from crystal.store.memories.memories import forgotten_memories
from crystal.store.sync import mirror_apply, relay_forgotten
from crystal.store.sync.mirror_content import KINDS, ObjectRows, Row
from crystal.text.folders import is_within

_AT = {kind: {column: at for at, column in enumerate(one.columns)} for kind, one in KINDS.items()}


def sift(store: Store, mirror: Store, content: ObjectRows, published_at: int) -> None:
    """Remove from an object what the tombstones of a device's own store name."""
    blocks = read_blocks(store)
    if blocks is None:
        return
    sessions, folders = _sessions(mirror, content), _folders(mirror, content)
    _keep(content, "turn", _turn_test(blocks, sessions, folders))
    gone = forgotten_memories(store)
    _keep(content, "memory", lambda row: row[_AT["memory"]["uid"]] not in gone)
    learned = _AT["learned"]
    _keep(
        content,
        "learned",
        lambda row: (
            row[learned["memory"]] not in gone
            and not blocks.holds(row[learned["line"]], row[learned["session"]], row[learned["at"]], None)
        ),
    )
    for column in ("turn", "memory"):
        _keep_with_parent(mirror, content, "text", column)
    _keep_with_parent(mirror, content, "copy", "turn")
    waits = relay_forgotten.not_published(store, published_at)
    if waits:
        rows = content.rows.get("session", ())
        content.rows["session"] = [_untitled(row) if _may_contain(row, waits, folders) else row for row in rows]


def _keep(content: ObjectRows, kind: str, is_kept: Callable[[Row], bool]) -> None:
    if kind in content.rows:
        content.rows[kind] = [row for row in content.rows[kind] if is_kept(row)]


def _sessions(mirror: Store, content: ObjectRows) -> dict[int, Row]:
    """Return the sessions of an object as rows of the table, by home's ids."""
    at = _AT["session"]
    known = {int(row[at["id"]]): row for row in content.rows.get("session", ())}
    named = {row[_AT["turn"]["session"]] for row in content.rows.get("turn", ())}
    wanted = [ident for ident in named if ident is not None and ident not in known]
    return {**known, **mirror_apply.sessions_there(mirror, wanted)}


def _folders(mirror: Store, content: ObjectRows) -> dict[int, str]:
    at = _AT["project"]
    return {
        **mirror_apply.folders_there(mirror),
        **{int(row[at["id"]]): str(row[at["cwd"]]) for row in content.rows.get("project", ())},
    }


def _turn_test(blocks: Tombstones, sessions: Mapping[int, Row], folders: Mapping[int, str]) -> Callable[[Row], bool]:
    """Return a test for turns that are not forgotten."""
    at, session_at = _AT["turn"], _AT["session"]["session_id"]

    def is_kept(row: Row) -> bool:
        session = sessions.get(row[at["session"]])
        named = "" if session is None else str(session[session_at])
        return not blocks.holds(row[at["uuid"]], named, row[at["ts"]], folders.get(row[at["project"]]))

    return is_kept


def _keep_with_parent(mirror: Store, content: ObjectRows, kind: str, parent: str) -> None:
    """Remove rows whose turn or memory was removed, now or before."""
    at = _AT[kind][parent]
    named = {row[at] for row in content.rows.get(kind, ())} - {row[0] for row in content.rows.get(parent, ())} - {None}
    missing = named - mirror_apply.ids_there(mirror, KINDS[parent].table, named)
    _keep(content, kind, lambda row: row[at] not in missing)


# --------------------------------------------------------------------------------------------------------- derived text


def _may_contain(row: Row, waits: Sequence[Tombstone], folders: Mapping[int, str]) -> bool:
    """Return True if a session's derived text may contain text of these tombstones, which home did not have yet."""
    at = _AT["session"]
    session, began, folder = row[at["session_id"]], row[at["started_at"]], folders.get(row[at["project"]])
    for one in waits:
        if session in one.sessions:
            return True
        is_early = began is None or (one.until_at is not None and began < one.until_at)
        if one.until_at is not None and is_early and one.kind == "before":
            return True
        if is_early and folder is not None and any(is_within(folder, name) for name in one.folders):
            return True
    return False


def _untitled(row: Row) -> Row:
    at = _AT["session"]
    gone = {at["title"], at["summary_title"]}
    return [None if number in gone else value for number, value in enumerate(row)]
