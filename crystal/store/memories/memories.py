"""Store memories as versions whose merge gives the same result in any order of arrival.

A memory has the same id on every machine, and its newest version wins. Only one memory can have a key: of two with
the same key, the last changed keeps it, and the other is deprecated without it. An active memory's text is stored in
chunks, so that search finds it; a deprecated memory has none. A forgotten memory is never stored again.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

from crystal.model.capture import Chunk, Project
from crystal.model.quick_dataclass import dataclass, replace
from crystal.model.recall import FormerMemory, Remembered
from crystal.store.capture.projects import project_row
from crystal.store.connection import GIVEN, Row, Store
from crystal.store.notes import ALIAS, MEMORY_RECORD_SIZE, drop_note, drop_notes
from crystal.store.search.space import delete_chunks
from crystal.store.text_blocks import put_texts
from crystal.store.texts import text_hash
from crystal.text.chunking import merge, split

SOURCE = "memory"
ROLE = "memory"

_COLUMNS = (
    "m.uid, m.text, m.category, m.key, p.name, p.cwd, m.status, m.source, m.agent, m.device, m.session, m.created_at,"
    " m.updated_at"
)
_SAME_COLUMNS = ("text", "category", "key", "status", "source", "agent", "device", "created_at", "updated_at")
"""The columns that are named like the fields of a ``Remembered``."""
_FROM = "FROM memories m LEFT JOIN projects p ON p.id = m.project"
_LATEST = "ORDER BY m.updated_at DESC, m.uid"


@dataclass(frozen=True, slots=True)
class Version:
    """A memory at one moment, with its project."""

    memory: Remembered
    project: Project | None = None


def order_of(one: Remembered) -> tuple[Any, ...]:
    """Return the sort key of versions, of which the greatest wins: the newest, then by text, then deprecated."""
    folder = one.cwd or ""
    return (one.updated_at, one.text, one.category, folder, one.status == "deprecated", one.key is None, one.key)


def claim_of(one: Remembered) -> tuple[Any, ...]:
    """Return the sort key of claims to a key, of which the greatest wins."""
    return (one.status == "active", one.updated_at, one.text, one.id)


def searched_text(key: str | None, text: str) -> str:
    """Return the text of a memory's chunks: the key, if any, and the memory's text."""
    return text if key is None else f"{key_prefix(key)}{text}"


def key_prefix(key: str) -> str:
    """Return the text that precedes a memory with this key in its chunks."""
    return f"{key}: "


# --------------------------------------------------------------------------------------------------------- reading


def _select(store: Store, where: str, *values: object) -> list[Remembered]:
    return store.all(Remembered, f"SELECT {_COLUMNS} {_FROM} {where}", values)


def memory_of(store: Store, uid: str) -> Remembered | None:
    """Return the memory with this id."""
    return next(iter(_select(store, "WHERE m.uid = ?", uid)), None)


def memories_like(store: Store, beginning: str, limit: int) -> list[Remembered]:
    """Return the memories whose id starts with ``beginning``, latest first."""
    return _select(store, f"WHERE substr(m.uid, 1, ?) = ? {_LATEST} LIMIT ?", len(beginning), beginning, limit)


def memories_with_ids(store: Store, ids: Collection[str]) -> dict[str, Remembered]:
    """Return the memories with these ids, by id."""
    found = _select(store, f"WHERE m.uid IN {GIVEN}", ids)
    return {one.id: one for one in found}


def memories_by_key(store: Store, key: str) -> list[Remembered]:
    """Return the memory that has this key, at most one."""
    return _select(store, "WHERE m.key = ?", key)


def memories_by_words(store: Store, text: str, cwd: str | None) -> list[Remembered]:
    """Return the memories with exactly this text in a project (None: in all); active first, without key first.

    A letter with an accent may be one character or two.
    """
    forms = [text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))]
    order = "ORDER BY m.status, m.key IS NOT NULL, m.updated_at DESC, m.uid"
    return _select(store, f"WHERE m.text IN (?, ?, ?) AND p.cwd IS ? {order}", *forms, cwd)


def all_memories(store: Store) -> list[Remembered]:
    """Return every memory, latest first."""
    return _select(store, _LATEST)


def version_of(store: Store, uid: str) -> Version | None:
    """Return a memory with its project, or None."""
    row = store.row(f"SELECT {_COLUMNS}, p.cwd, p.git_root, p.remote, p.name {_FROM} WHERE m.uid = ?", (uid,))
    return None if row is None else _version(row)


def versions_after(store: Store, after: int, limit: int) -> list[tuple[int, Version]]:
    """Return the memories whose row ids are greater than ``after``, in order of row id."""
    rows = store.rows(
        f"SELECT m.id, {_COLUMNS}, p.cwd, p.git_root, p.remote, p.name {_FROM} WHERE m.id > ? ORDER BY m.id LIMIT ?",
        (after, limit),
    )
    return [(int(row[0]), _version(row[1:])) for row in rows]


def count_memories(store: Store) -> int:
    """Return the number of memories."""
    return int(store.value("SELECT count(*) FROM memories"))


def row_of(store: Store, uid: str) -> int | None:
    """Return the row id of a memory."""
    return store.find(int, "SELECT id FROM memories WHERE uid = ?", (uid,))


_FORGOTTEN = "SELECT j.value FROM tombstones t, json_each(t.value, '$.memories') j WHERE t.kind = 'memory'"


def is_forgotten(store: Store, uid: str) -> bool:
    """Return True if this memory was forgotten for good."""
    return store.has(f"{_FORGOTTEN} AND j.value = ? LIMIT 1", (uid,))


def forgotten_memories(store: Store) -> set[str]:
    """Return the ids of all memories that were forgotten for good."""
    return set(store.all(str, _FORGOTTEN))


def first_chunk(store: Store, uid: str) -> int | None:
    """Return the first chunk of an active memory."""
    sql = "SELECT c.id FROM chunks c JOIN memories m ON m.id = c.memory WHERE m.uid = ? ORDER BY c.start LIMIT 1"
    return store.find(int, sql, (uid,))


def memory_of_chunk(store: Store, chunk: int) -> Remembered | None:
    """Return the memory of a chunk, or None."""
    found = _select(store, "JOIN chunks c ON c.memory = m.id WHERE c.id = ?", chunk) if 0 < chunk < 2**63 else []
    return next(iter(found), None)


def superseded(store: Store, mirror: Store) -> list[int]:
    """Return the row ids of the mirror's memories that are newer here, or forgotten; search must skip them there."""
    gone, own = forgotten_memories(store), _orders(store)
    if not own and not gone:
        return []
    theirs = mirror.rows(_ORDERS_OF, ([*own, *gone],))
    return [row for row, uid, *order in theirs if uid in gone or own.get(uid, ()) > tuple(order)]


def outdated(store: Store, mirror: Store) -> list[str]:
    """Return the ids of memories for which home has a different version that is not older."""
    own = _orders(store)
    theirs = mirror.rows(_ORDERS_OF, (own,))
    return [uid for _, uid, *order in theirs if uid in own and own[uid] != tuple(order) and own[uid][0] <= order[0]]


_ORDERS = (
    "SELECT m.id, m.uid, m.updated_at, m.text, m.category, coalesce(p.cwd, ''), m.status = 'deprecated', m.key IS NULL"
    f" {_FROM}"
)
_ORDERS_OF = f"{_ORDERS} WHERE m.uid IN {GIVEN}"


def _orders(store: Store) -> dict[str, Row]:
    return {uid: tuple(order) for _, uid, *order in store.rows(_ORDERS)}


def _version(row: Row) -> Version:
    fields: list[Any] = list(row)
    memory, (cwd, root, remote, name) = Remembered(*fields[:13]), fields[13:]
    return Version(memory, None if cwd is None else Project(cwd, root, remote, name))


# --------------------------------------------------------------------------------------------------------- writing


def put_version(store: Store, version: Version, *, from_home: bool = False) -> bool:
    """Store a version of a memory if it is newer than the stored one. Inside a transaction; idempotent.

    Of equally new versions, home's wins.

    Returns:
        Whether anything has changed.
    """
    uid = version.memory.id
    if is_forgotten(store, uid):
        return False
    known = version_of(store, uid)
    if known is not None:
        version = _keep_first_author(version, known)
        if not _wins(version.memory, known.memory, from_home=from_home):
            return False
    version = _with_its_key(store, version)
    if known is not None and not _wins(version.memory, known.memory, from_home=from_home):
        return False
    folder = None if version.project is None else project_row(store, version.project)
    _write(store, version.memory, folder, None if known is None else known.memory)
    return True


def _wins(one: Remembered, known: Remembered, *, from_home: bool) -> bool:
    if from_home:
        return one.updated_at >= known.updated_at and order_of(one) != order_of(known)
    return order_of(one) > order_of(known)


def _keep_first_author(version: Version, known: Version) -> Version:
    """Return the version with its first creation time, agent and device kept."""
    one, old = version.memory, known.memory
    first = min(one.created_at, old.created_at)
    return replace(version, memory=replace(one, agent=old.agent, device=old.device, created_at=first))


def _with_its_key(store: Store, version: Version) -> Version:
    """Decide which memory has the key; if another one loses it, change that one in the store."""
    one = version.memory
    if one.key is None:
        return version
    other = next((other for other in memories_by_key(store, one.key) if other.id != one.id), None)
    if other is None:
        return version
    if claim_of(other) > claim_of(one):
        return replace(version, memory=_without_key(one))
    folder = store.value("SELECT project FROM memories WHERE uid = ?", (other.id,))
    _write(store, _without_key(other), folder, other, max(one.updated_at, other.updated_at))
    return version


def _without_key(one: Remembered) -> Remembered:
    """Return a memory without the key that it lost. Its time stays, so that every machine gets the same result."""
    return replace(one, key=None, status="deprecated")


def restore_version(store: Store, version: Version, former: Sequence[FormerMemory]) -> bool:
    """Write a memory and its history exactly as recorded. Inside a transaction; idempotent.

    Returns:
        False if the memory was forgotten; nothing is written then.
    """
    uid = version.memory.id
    if is_forgotten(store, uid):
        return False
    version = _with_its_key(store, version)
    folder = None if version.project is None else project_row(store, version.project)
    row = _write(store, version.memory, folder)
    store.execute("DELETE FROM memory_history WHERE memory = ?", (row,))
    rows = [(row, one.text, one.category, one.status, one.from_at, one.until_at) for one in former]
    store.insert_many("memory_history", "memory, text, category, status, from_at, until_at", rows)
    return True


def rename_device(store: Store, old: str, name: str) -> None:
    """Rename the device of memories, in the record too. Inside a transaction."""
    for (uid,) in store.rows("UPDATE memories SET device = ? WHERE device = ? RETURNING uid", (name, old)):
        _note_change(store, uid)


def _note_change(store: Store, uid: str) -> None:
    """Queue a change for the record; if the record is not kept, mark it as out of date."""
    if store.before_commit is None:
        drop_note(store, MEMORY_RECORD_SIZE)
    else:
        store.changed_memories.setdefault(uid, [])


def _write(store: Store, one: Remembered, folder: int | None, old: Remembered | None = None, at: int = 0) -> int:
    """Write a memory and its chunks, and its ``old`` version to the history if it differs; return the row id.

    The old version ended at ``at``, or when this version began.
    """
    _note_change(store, one.id)
    row = _write_row(store, one, folder)
    if old is not None and (old.text, old.category, old.status) != (one.text, one.category, one.status):
        ident = store.value(
            "INSERT INTO memory_history (memory, text, category, status, from_at, until_at) VALUES (?1, ?2, ?3, ?4,"
            " coalesce((SELECT max(until_at) FROM memory_history WHERE memory = ?1), ?5), ?6) RETURNING id",
            (row, old.text, old.category, old.status, old.created_at, at or one.updated_at),
        )
        store.changed_memories.setdefault(old.id, []).append(int(ident))
    _write_chunks(store, row, one, folder)
    return row


def _write_row(store: Store, one: Remembered, folder: int | None) -> int:
    # Not OR REPLACE: the row keeps its id, and so its history.
    same = {name: getattr(one, name) for name in _SAME_COLUMNS}
    store.upsert("memories", "uid", {"uid": one.id, "project": folder, "session": one.session_id, **same})
    return int(store.value("SELECT id FROM memories WHERE uid = ?", (one.id,)))


def _write_chunks(store: Store, row: int, one: Remembered, folder: int | None) -> None:
    """Bring the chunks of a memory up to date: none if it is deprecated; unchanged text keeps its vectors."""
    chunks = _chunks(store, row)
    if one.status == "active" and _says(chunks, one):
        store.execute(
            "UPDATE chunks SET project = ?, agent = ?, device = ?, ts = ? WHERE memory = ?",
            (folder, one.agent, one.device, one.updated_at, row),
        )
        return
    delete_chunks(store, [ident for ident, _ in chunks])
    if one.status == "active":
        _insert_chunks(store, row, one, folder)


def _insert_chunks(store: Store, row: int, one: Remembered, folder: int | None) -> None:
    for chunk in split(searched_text(one.key, one.text)):
        sha = text_hash(chunk.text)
        columns = "start, body, text_sha256, source, role, project, agent, device, ts, memory"
        origin = (SOURCE, ROLE, folder, one.agent, one.device, one.updated_at, row)
        put_texts(store, [(store.insert("chunks", columns, chunk.start, b"", sha, *origin), chunk.text)])


def _chunks(store: Store, row: int) -> list[tuple[int, Chunk]]:
    rows = store.rows("SELECT id, start, text FROM chunks WHERE memory = ? ORDER BY start", (row,))
    return [(ident, Chunk(start, text)) for ident, start, text in rows]


def _says(chunks: Sequence[tuple[int, Chunk]], one: Remembered) -> bool:
    if not chunks:
        return False
    try:
        return merge([chunk for _, chunk in chunks]) == searched_text(one.key, one.text)
    except ValueError:
        return False


def write_chunks_again(store: Store, uid: str) -> None:
    """Write the chunks of a memory that has lost them. Inside a transaction."""
    row, one = row_of(store, uid), memory_of(store, uid)
    if row is not None and one is not None and one.status == "active":
        _insert_chunks(store, row, one, store.value("SELECT project FROM memories WHERE id = ?", (row,)))


def delete_memories(store: Store, ids: Sequence[str]) -> None:
    """Delete memories with their history and chunks, inside the caller's transaction."""
    store.deleted_memories.update(ids)
    for uid in ids:
        drop_notes(store, ALIAS, uid)
    if store.before_commit is None:
        drop_note(store, MEMORY_RECORD_SIZE)
    rows = [row for uid in dict.fromkeys(ids) if (row := row_of(store, uid)) is not None]
    delete_chunks(store, [ident for row in rows for ident, _ in _chunks(store, row)])
    for row in rows:
        store.execute("DELETE FROM memory_history WHERE memory = ?", (row,))
        store.execute("DELETE FROM memories WHERE id = ?", (row,))
    store.execute(f"DELETE FROM learned_from WHERE memory IN {GIVEN}", (ids,))


# --------------------------------------------------------------------------------------------------------- checking


def memories_with_other_chunks(store: Store) -> list[str]:
    """Return memories whose chunks do not match: active ones with wrong chunks, deprecated ones with any."""
    found = []
    for row, version in versions_after(store, 0, -1):
        chunks, one = _chunks(store, row), version.memory
        if not _says(chunks, one) if one.status == "active" else bool(chunks):
            found.append(one.id)
    return found
