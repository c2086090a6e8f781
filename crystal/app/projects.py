"""Projects: find the one of a folder, list them, rename, join and split them."""

import contextlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from crystal.app.project_finder import project_finder
from crystal.config.paths import refused
from crystal.errors import NotFoundError, UsageError
from crystal.model.capture import Project
from crystal.model.granted import GrantedProject
from crystal.model.repository_address import repository_identity
from crystal.store import Store
from crystal.store.capture import projects
from crystal.store.search.scope import home_of, project_ids
from crystal.store.sessions.contexts import project_rows
from crystal.text.folders import is_folder
from crystal.transcript.project import MARKER_FILE, find_project, first_commit

MAX_NAME_CHARS = 100
CONTROL_CHARS = frozenset(map(chr, range(32)))


def find_home(stores: Sequence[Store], folder: str) -> tuple[str, str] | None:
    """Return the known project of a folder, as (folder, name); None if crystal has nothing of it."""
    here = project_finder(stores[0])(folder)
    found = (home_of(store, here) for store in stores)
    return next((home for home in found if home is not None), None)


def known_folder(stores: Sequence[Store], folder: str) -> str:
    """Return the folder under which the project of a folder is known: another one if it was moved, else the same."""
    real = str(Path(folder).resolve())
    for place in (folder, real):
        if any(project_ids(store, place) for store in stores):
            return place
    identity = project_finder(stores[0])(real).remote
    moved = (projects.root_with_identity(store, identity) for store in stores if identity is not None)
    return next((root for root, _ in filter(None, moved)), folder)


def rename_project(store: Store, wanted: str, name: str) -> projects.KnownProject:
    """Give a project another name, and return it.

    Raises:
        UsageError: The name cannot be used, or another project has it.
        NotFoundError: There is no such project.
    """
    name = _checked_name(name)
    found = find_known(store, wanted)
    other = next((one for one in projects.known_projects(store) if _same_name(one.name, name)), None)
    if other is not None and other.rows != found.rows:
        hint = f"to make them one: crystal projects join {shlex.quote(wanted)} {shlex.quote(name)}"
        raise UsageError(f"a project {name!r} already exists", hint=hint)
    with store.transaction():
        projects.rename(store, found.rows, name)
    return _with_row(store, found.rows[0])


def join_projects(store: Store, wanted: str, into: str) -> projects.KnownProject:
    """Move everything of one project into another, and return that.

    Raises:
        UsageError: They are one project already.
        NotFoundError: There is no such project.
    """
    first, second = find_known(store, wanted), find_known(store, into)
    if first.rows == second.rows:
        raise UsageError(f"{wanted!r} and {into!r} are one project already", hint="run: crystal projects")
    identity = second.identity or f"joined:{os.urandom(8).hex()}"
    with store.transaction():
        projects.join(store, first.rows, second.rows, second.name, identity)
    return _with_row(store, second.rows[0])


def split_project(store: Store, folder: str) -> projects.KnownProject:
    """Undo ``join_projects`` for a folder, and return its own project.

    Raises:
        NotFoundError: Nobody joined this folder to another project.
    """
    place = _absolute(folder)
    rows = projects.joined_rows(store, place)
    if not rows:
        raise NotFoundError(f"{place} was not joined to a project", hint="run: crystal projects")
    found = [_found_alone(cwd) for cwd in projects.folders_of(store, rows)]
    with store.transaction():
        projects.split(store, rows, found)
    return _with_row(store, rows[0])


def mark_folder(folder: str) -> tuple[Path, bool]:
    """Put a marker file into a folder, so that its project is known again after a move.

    Returns:
        The file, and False if it was there already.

    Raises:
        NotFoundError: There is no such folder.
        UnavailableError, UsageError: It cannot be written to.
    """
    place = Path(_absolute(folder))
    path = place / MARKER_FILE
    if find_project(str(place)).remote == f"marker:{_first_line(path)}":
        return path, False
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(f"{os.urandom(16).hex()}\n# This folder is known by the line above, wherever it is moved.\n")
    except FileExistsError as error:
        raise UsageError(
            f"{path} exists, but has no id", hint=f"remove it, then: crystal projects mark {folder}"
        ) from error
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no folder {place}", hint="name the folder of a project") from error
    except OSError as error:
        raise refused(error, path) from error
    return path, True


def note_marked(store: Store, folder: Path) -> bool:
    """Identify what was captured in a marked folder, and below it, by the marker too.

    False if a person joined the folder to a project: then that identifies it, and a marker changes nothing.
    """
    find = project_finder(store)
    with store.transaction():
        for _, known in project_rows(store):
            if Path(known.cwd).is_relative_to(folder):
                projects.project_row(store, find(known.cwd))
    return not projects.joined_rows(store, str(folder))


def find_known(store: Store, wanted: str) -> projects.KnownProject:
    """Return the project of a name or of a folder.

    Raises:
        NotFoundError: There is none, or the name is that of several.
    """
    word = _absolute(wanted) if is_folder(wanted) or os.sep in wanted or wanted in (".", "..", "~") else wanted
    known = projects.known_projects(store)
    found = [one for one in known if word in one.folders or _same_name(one.name, word)]
    if not found:  # a former name, or a folder inside
        found = [one for one in known if not set(one.rows).isdisjoint(project_ids(store, word))]
    if len(found) > 1:
        raise _is_ambiguous(wanted, found)
    if not found:
        raise NotFoundError(f"there is no project {wanted!r}", hint="run: crystal projects")
    return found[0]


def granted_project(stores: Sequence[Store], wanted: str) -> GrantedProject:
    """Return a project of this memory and of the mirror, by its name or a folder of it.

    Raises:
        NotFoundError: There is none.
        UsageError: There are several, so the name says more than its user may mean.
    """
    found: list[projects.KnownProject] = []
    for store in stores:
        with contextlib.suppress(NotFoundError):
            found.append(find_known(store, wanted))
    if not found:
        raise NotFoundError(f"there is no project {wanted!r}", hint="run: crystal projects")
    roots = {one.folders[0] for one in found}
    identities = {repository_identity(one.identity) for one in found if one.identity}
    if len(roots) > 1 and (len(identities) != 1 or not all(one.identity for one in found)):
        raise _is_ambiguous(wanted, found)
    return GrantedProject(found[0].name, tuple(sorted(roots)), next(iter(identities), None))


def _is_ambiguous(wanted: str, found: Sequence[projects.KnownProject]) -> UsageError:
    places = ", ".join(one.folders[0] for one in found[:5])
    return UsageError(f"{len(found)} projects are called {wanted!r}", hint=f"name one by its folder: {places}")


def _with_row(store: Store, row: int) -> projects.KnownProject:
    return next(one for one in projects.known_projects(store) if row in one.rows)


def _found_alone(cwd: str) -> Project:
    """Return the project of a folder as git tells it, whatever the store has of it."""
    found = find_project(cwd)
    return found._replace(remote=found.remote or (found.git_root and first_commit(found.git_root)))


def _absolute(folder: str) -> str:
    return os.path.abspath(os.path.expanduser(folder))  # noqa: PTH100, PTH111 (links stay: transcripts may name them)


def _checked_name(name: str) -> str:
    clean = " ".join(name.split())
    if not clean or len(clean) > MAX_NAME_CHARS or CONTROL_CHARS & set(clean) or any(mark in clean for mark in "/\\"):
        hint = f"use one line of at most {MAX_NAME_CHARS} characters without slashes"
        raise UsageError(f"the name {name[:MAX_NAME_CHARS]!r} cannot be used", hint=hint)
    return clean


def _same_name(one: str, other: str) -> bool:
    return one.casefold() == other.strip().casefold()


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").partition("\n")[0].strip() or None
    except (OSError, ValueError):
        return None


def relative(path: str, *folders: str | None) -> str:
    """Return a path below the first of some folders that it is in, with slashes; else as it is."""
    plain = path.replace("\\", "/")
    for folder in folders:
        start = (folder or "").replace("\\", "/").rstrip("/") + "/"
        if len(start) > 1 and plain.startswith(start):
            return plain[len(start) :]
    return plain
