"""Find the project of a folder. The worker does at each turn: nothing else of projects is loaded with it."""

from collections.abc import Callable

from crystal.model.capture import Project
from crystal.store import Store
from crystal.store.capture import projects
from crystal.transcript.project import find_project, first_commit


def project_finder(store: Store) -> Callable[[str], Project]:
    """Return a function that finds the project of a folder, with its identity from the store or from git."""

    def find(cwd: str) -> Project:
        found = find_project(cwd)
        if found.git_root is None:
            return found
        if found.remote is None:
            return found._replace(
                remote=projects.identity_of_root(store, found.git_root) or first_commit(found.git_root)
            )
        former = projects.former_identity(store, found.git_root, found.remote)
        return found._replace(former=former if former and _is_still(former, found.git_root) else None)

    return find


def _is_still(former: str | None, root: str) -> bool:
    """Return whether a folder is the project that was known by an identity: another repository may be there now."""
    return former is not None and (not former.startswith("commit:") or former == first_commit(root))
