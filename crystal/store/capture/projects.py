"""Store projects: one row for each folder; rows with the same root or the same identity are one project.

The identity is kept in the column ``remote``: the address of ``origin`` in one form; else ``marker:ID`` from a marker
file; else ``commit:ID``, the first commit; else ``joined:ID`` if a person joined folders.
"""

from collections.abc import Sequence

from crystal.model.capture import Project
from crystal.model.named_tuple import NamedTuple
from crystal.model.repository_address import LOCAL_IDENTITIES, repository_identity
from crystal.store.connection import GIVEN, Row, Store
from crystal.store.notes import ADDRESS_FORM, MEMORY_RECORD_SIZE, drop_note, read_note, write_note


class KnownProject(NamedTuple):
    """A project, with counts of what is stored about it.

    Attributes:
        name: Its name.
        folders: Its folders, the root first, then by last use, newest first.
        identity: What identifies the project when its folder moves, or None.
        rows: Ids of its rows.
        sessions: Number of sessions that began in it.
        memories: Number of memories that apply in it.
        last_at: Time of its latest turn, ms since the epoch.
        joined: True if a person joined folders into it.
    """

    name: str
    folders: tuple[str, ...]
    identity: str | None
    rows: tuple[int, ...]
    sessions: int
    memories: int
    last_at: int | None
    joined: bool


def project_row(store: Store, project: Project) -> int:
    """Insert or update a folder's row and return its id. Inside a transaction.

    A folder that was deleted keeps what git reported. A name or an identity that a person chose is kept, and applies to
    new folders of the same project. What is stored of the same repository under another spelling of its address becomes
    part of the project.
    """
    _join_spellings(store)
    project = project._replace(remote=project.remote and repository_identity(project.remote))
    if project.former is not None and project.remote is not None:
        _move_identity(store, project, project.former)
    known = store.row("SELECT own_name, joined_to FROM projects WHERE cwd = ?", (project.cwd,))
    own_name, joined_to = known or _chosen_names(store, project)
    store.execute(
        "INSERT INTO projects (cwd, git_root, remote, name, own_name, joined_to)"
        " VALUES (?1, ?2, coalesce(?6, ?3), coalesce(?5, ?4), ?5, nullif(?6, ?3)) ON CONFLICT (cwd) DO UPDATE SET"
        " git_root = coalesce(?2, git_root), remote = coalesce(?6, ?3, remote), joined_to = nullif(?6, ?3),"
        " name = CASE WHEN ?5 IS NOT NULL THEN ?5 WHEN ?2 IS NULL THEN name ELSE ?4 END",
        (project.cwd, project.git_root, project.remote, project.name, own_name, joined_to),
    )
    store.execute(
        "UPDATE projects SET remote = coalesce(?1, remote)"
        " WHERE git_root = ?2 AND (joined_to IS NULL OR remote IS NULL)",
        (joined_to or project.remote, project.git_root),
    )
    return int(store.value("SELECT id FROM projects WHERE cwd = ?", (project.cwd,)))


def _join_spellings(store: Store) -> None:
    """Give all rows of one repository the same identity, once in a store that an older version filled."""
    if read_note(store, ADDRESS_FORM) is not None:
        return
    for former in store.all(str, "SELECT DISTINCT remote FROM projects WHERE remote IS NOT NULL"):
        if repository_identity(former) != former:
            drop_note(store, MEMORY_RECORD_SIZE)
            _replace_identity(store, former, repository_identity(former))
    write_note(store, ADDRESS_FORM, "1")


def _spellings(store: Store, identity: str | None) -> list[str]:
    """Return the stored addresses that name the repository of an identity in another form."""
    if identity is None or identity.startswith(LOCAL_IDENTITIES):
        return []
    name = identity.rpartition("/")[2].removesuffix(".git")
    sql = "SELECT DISTINCT remote FROM projects WHERE remote <> ?1 AND instr(lower(remote), lower(?2))"
    return [one for one in store.all(str, sql, (identity, name)) if repository_identity(one) == identity]


def _replace_identity(store: Store, former: str, identity: str | None) -> None:
    store.execute(
        "UPDATE projects SET remote = ?1, joined_to = iif(joined_to IS NULL, NULL, ?1) WHERE remote = ?2",
        (identity, former),
    )


def _move_identity(store: Store, project: Project, former: str) -> None:
    """Replace the identity ``former`` by the project's in all rows, unless another clone has the former address."""
    sql = "SELECT 1 FROM projects WHERE remote = ? AND joined_to IS NULL AND coalesce(git_root, cwd) <> ? LIMIT 1"
    if former.startswith(LOCAL_IDENTITIES) or not store.rows(sql, (former, project.git_root)):
        _replace_identity(store, former, project.remote)


def former_identity(store: Store, root: str, identity: str) -> str | None:
    """Return a stored identity of a repository's root that differs from ``identity`` and that no person chose."""
    sql = (
        "SELECT remote FROM projects WHERE (git_root = ?1 OR cwd = ?1) AND remote <> ?2"
        " AND (joined_to IS NULL OR joined_to LIKE 'joined:%') LIMIT 1"
    )
    return store.find(str, sql, (root, identity))


def identity_of_root(store: Store, git_root: str) -> str | None:
    """Return the stored identity of a repository's root, or None."""
    sql = "SELECT remote FROM projects WHERE git_root = ? AND remote IS NOT NULL LIMIT 1"
    return store.find(str, sql, (git_root,))


def root_with_identity(store: Store, identity: str) -> tuple[str, str] | None:
    """Return the root and the name of the newest project with an identity."""
    sql = f"SELECT coalesce(git_root, cwd), name FROM projects WHERE remote IN {GIVEN} ORDER BY id DESC LIMIT 1"
    return store.find(lambda *found: found, sql, ([identity, *_spellings(store, identity)],))


def with_same_identity(store: Store, rows: Sequence[int]) -> list[int]:
    """Return the ids of the rows and of all others that share a root or an identity with them, in order."""
    if not rows:
        return []
    return store.all(
        int,
        "WITH wanted AS (SELECT git_root, remote FROM projects WHERE id IN (SELECT value FROM json_each(?1)))"
        " SELECT id FROM projects WHERE id IN (SELECT value FROM json_each(?1))"
        " OR git_root IN (SELECT git_root FROM wanted) OR remote IN (SELECT remote FROM wanted) ORDER BY id",
        (rows,),
    )


def places_of(store: Store, folder: str) -> list[tuple[int, str, str | None]]:
    """Return (row id, root, identity) of the rows of a folder's project, newest first."""
    own = store.all(int, "SELECT id FROM projects WHERE ?1 IN (cwd, git_root)", (folder,))
    sql = f"SELECT id, coalesce(git_root, cwd), remote FROM projects WHERE id IN {GIVEN}"
    return store.rows(f"{sql} ORDER BY id DESC", (with_same_identity(store, own),))


def known_projects(store: Store) -> list[KnownProject]:
    """Return every project, most recently used first."""
    rows = store.rows(
        "SELECT p.id, p.cwd, p.git_root, p.remote, p.name, p.joined_to,"
        " (SELECT count(*) FROM sessions s WHERE s.project = p.id),"
        " (SELECT count(*) FROM memories m WHERE m.project = p.id AND m.status = 'active'),"
        " (SELECT max(s.last_at) FROM sessions s WHERE s.project = p.id) FROM projects p ORDER BY 9 DESC, p.id"
    )
    identities = {root: identity for _, _, root, identity, *_ in rows if root and identity}
    groups: dict[str, list[Row]] = {}
    for row in rows:
        root, identity = row[2] or row[1], row[3]
        groups.setdefault(identities.get(root) or identity or root, []).append(row)
    found = [_combine_rows(one) for one in groups.values()]
    return sorted(found, key=lambda one: (-(one.last_at or 0), one.name.casefold()))


def folders(store: Store, limit: int) -> list[str]:
    """Return the folders of projects, newest first: the root of the repository, else the working folder."""
    sql = "SELECT coalesce(git_root, cwd) FROM projects GROUP BY 1 ORDER BY max(id) DESC LIMIT ?"
    return store.all(str, sql, (limit,))


def rename(store: Store, rows: Sequence[int], name: str) -> None:
    """Rename a project; folders added later get the new name too. Inside a transaction."""
    drop_note(store, MEMORY_RECORD_SIZE)  # the record of memories contains project names
    store.execute(
        "UPDATE projects SET name = ?1, own_name = ?1 WHERE id IN (SELECT value FROM json_each(?2))", (name, rows)
    )


def join(store: Store, rows: Sequence[int], into: Sequence[int], name: str, identity: str) -> None:
    """Combine two projects under one name and identity. Inside a transaction."""
    drop_note(store, MEMORY_RECORD_SIZE)
    store.execute(
        "UPDATE projects SET remote = ?1, joined_to = ?1, name = ?2, own_name = ?2"
        " WHERE id IN (SELECT value FROM json_each(?3))",
        (identity, name, rows),
    )
    store.execute(
        "UPDATE projects SET remote = ?1, joined_to = ?1"
        " WHERE remote IS NULL AND id IN (SELECT value FROM json_each(?2))",
        (identity, into),
    )


def folders_of(store: Store, rows: Sequence[int]) -> list[str]:
    """Return the folder of each row, in the order of the rows."""
    return [str(store.value("SELECT cwd FROM projects WHERE id = ?", (row,))) for row in rows]


def split(store: Store, rows: Sequence[int], found: Sequence[Project]) -> None:
    """Undo ``join``: give each row the project in ``found`` that git reports for its folder. Inside a transaction."""
    for row, project in zip(rows, found, strict=True):
        store.execute(
            "UPDATE projects SET remote = ?, joined_to = NULL, name = ?, own_name = NULL WHERE id = ?",
            (project.remote, project.name, row),
        )


def joined_rows(store: Store, folder: str) -> list[int]:
    """Return the joined rows of a folder or of the repository with that root."""
    sql = "SELECT id FROM projects WHERE joined_to IS NOT NULL AND (git_root = ?1 OR cwd = ?1) ORDER BY id"
    return store.all(int, sql, (folder,))


def _chosen_names(store: Store, project: Project) -> tuple[str | None, str | None]:
    """Return the name and the identity that a person chose for another folder of the same project."""
    found = store.row(
        "SELECT own_name, joined_to FROM projects WHERE (git_root = ?1 OR remote = ?2)"
        " AND (own_name IS NOT NULL OR joined_to IS NOT NULL) ORDER BY id DESC LIMIT 1",
        (project.git_root, project.remote),
    )
    return (None, None) if found is None else (found[0], found[1])


def _combine_rows(rows: Sequence[Row]) -> KnownProject:
    """Combine the rows of one project, newest first."""
    folders = dict.fromkeys(row[2] or row[1] for row in rows)
    return KnownProject(
        name=rows[0][4],
        folders=tuple(folders),
        identity=next((row[3] for row in rows if row[3] is not None), None),
        rows=tuple(row[0] for row in rows),
        sessions=sum(row[6] for row in rows),
        memories=sum(row[7] for row in rows),
        last_at=max((row[8] for row in rows if row[8] is not None), default=None),
        joined=any(row[5] is not None for row in rows),
    )
