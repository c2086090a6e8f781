"""Find isolated projects: by the folders that the settings name, and by the repositories in them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from crystal.model.granted import GrantedProject
from crystal.model.named_tuple import NamedTuple
from crystal.model.repository_address import repository_identity
from crystal.store.capture.projects import with_same_identity
from crystal.store.connection import GIVEN, Store
from crystal.text.folders import is_within, outermost


class IsolatedProjects(NamedTuple):
    """Patterns and folders of isolated projects.

    Attributes:
        patterns: The folders that the settings isolate.
        folders: The folders of such projects, each with its outermost isolated folder.
    """

    patterns: Sequence[str]
    folders: Mapping[str, str]

    def at(self, path: str | None) -> str | None:
        """Return the isolated folder that contains a path, or None."""
        if path is None or not self.patterns:
            return None
        above = max((cwd for cwd in self.folders if is_within(path, cwd)), key=len, default="")
        return outermost(self.patterns, path) or self.folders.get(above)


def isolated_projects(stores: Iterable[Store], patterns: Sequence[str]) -> IsolatedProjects:
    """Find the isolated projects in some stores.

    If an isolated folder contains a whole repository, all other folders of the repository are isolated too, under
    whatever spelling of its address a store knows them.
    """
    sql = "SELECT cwd, coalesce(git_root, cwd), remote FROM main.projects ORDER BY id"
    known = [row for store in stores for row in store.rows(sql)] if patterns else []
    rows = [(cwd, root, identity and repository_identity(identity)) for cwd, root, identity in known]
    repositories = {name: found for _, root, identity in rows if (found := outermost(patterns, root))
                    for name in (root, identity) if name}  # fmt: skip
    every = {
        cwd: outermost(patterns, cwd) or repositories.get(root) or repositories.get(identity)
        for cwd, root, identity in rows
    }
    return IsolatedProjects(patterns, {cwd: found for cwd, found in every.items() if found})


def granted_folders(store: Store, projects: Iterable[GrantedProject]) -> frozenset[str]:
    """Return the folders of the projects to which a token is limited: matched by root and identity, not by name."""
    rows = store.rows("SELECT id, coalesce(git_root, cwd), remote FROM projects")
    found = [row for row, root, identity in rows if any(one.is_of(root, identity) for one in projects)]
    sql = f"SELECT cwd FROM projects WHERE id IN {GIVEN}"
    return frozenset(store.all(str, sql, (with_same_identity(store, found),)))


def isolated_sessions(store: Store, patterns: Sequence[str], among: Collection[str] | None = None) -> dict[str, str]:
    """Return the sessions of isolated projects, each with its outermost isolated folder.

    Only the sessions in ``among`` are examined, or all if it is None.
    """
    folders = isolated_projects([store], patterns).folders
    some = "" if among is None else " WHERE s.session_id IN (SELECT value FROM json_each(?1))"
    sql = (
        f"SELECT s.session_id, p.cwd FROM main.sessions s JOIN main.projects p ON p.id = s.project{some}"
        " UNION SELECT s.session_id, p.cwd FROM main.sessions s JOIN main.chunks c ON c.session = s.id"
        f" JOIN main.projects p ON p.id = c.project{some}"
    )
    rows = store.rows(sql, () if among is None else (among,)) if folders else ()
    return {session: folders[cwd] for session, cwd in rows if cwd in folders}
