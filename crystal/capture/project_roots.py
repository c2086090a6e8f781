"""Find conversations that an agent stores in project folders, by looking into the projects that are known."""

from __future__ import annotations

from pathlib import Path

from crystal.capture import finder
from crystal.capture.meeting import met_name
from crystal.capture.safe_open import Folders
from crystal.config.harnesses import Root, places_of_all
from crystal.store import Store
from crystal.store.capture import ledger, projects

MAX_PROJECTS = 500


def project_roots(store: Store) -> tuple[Root, ...]:
    """Return the folders of the newest known projects that have such a file, or were never looked at.

    The others are left out, so that each is looked at once in a sweep. A project is known as soon as a conversation in
    its folder was captured, of whatever agent.
    """
    met = ledger.met_roots(store)
    places = [(name, number, place) for name, number, place in places_of_all() if place.in_projects]
    known = [Path(folder) for folder in projects.folders(store, MAX_PROJECTS)]
    roots = [Root(folder, name, number) for folder in known if folder.is_absolute() for name, number, _ in places]
    return tuple(root for root in roots if met_name(root) not in met or _has_files(root))


def _has_files(root: Root) -> bool:
    folders = Folders((root,))
    return any(finder.look_at(root.folder / name, folders) is not None for name in root.place.files)
