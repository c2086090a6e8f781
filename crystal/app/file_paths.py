"""Find the path of a file below its project's folder: a file has one in all working trees and copies of the project."""

from __future__ import annotations

import posixpath

from crystal.hook.matching import without_tree
from crystal.store import Store
from crystal.store.work.queries import folders_and_trees
from crystal.text.folders import is_folder, is_within
from crystal.transcript.project import find_project, linked_trees
from crystal.work.moves import trees_added
from crystal.work.validity import PathInProject, path_below


class FilePaths:
    """Paths of files in their projects, as tools named them."""

    def __init__(self, *stores: Store) -> None:
        self._stores = stores
        self._there, self._known = dict[str, list[str]](), dict[str, list[str]]()

    def find(self, path: str, cwd: str | None, folder: str | None) -> PathInProject | None:
        """Return a file's place, by where the agent worked and the project's folder; None for one that is not in it."""
        at, top = cwd or "", folder or ""
        trees = self._trees_there(top)
        if path.startswith(f"{top}/") and not (trees or "trees/" in f"{path}{at}" or ".." in path or "\\" in path):
            return PathInProject(path[len(top) + 1 :])  # as most are, in a tenth of the time
        place = path_below(path, at, top, trees)
        if top and (place is None or "trees/" in f"{path}{at}/" or not is_within(at, top)):
            return path_below(path, at, top, self._trees_known(top)) or place
        return place

    def inside(self, path: str, cwd: str | None, folder: str | None) -> str:
        """Return a file's path in its project, with slashes; as it is if it is not in it."""
        place = self.find(path, cwd, folder)
        return place.path if place else path.replace("\\", "/")

    def asked(self, name: str, folder: str) -> str:
        """Return a file's path in the project of a folder, of a name given as below the folder or as a whole path.

        Any other name stays as it is, but for the folder of a working tree before it.
        """
        is_path = " " not in name and (name.startswith(("./", "../")) or is_folder(name))
        path = posixpath.normpath(posixpath.join(folder, name.replace("\\", "/")))
        return self.inside(path, folder, find_project(folder).git_root or folder) if is_path else without_tree(name)

    def _trees_there(self, folder: str) -> list[str]:
        """Return the linked working trees of a project that are there."""
        if folder not in self._there:
            self._there[folder] = linked_trees(folder) if folder else []
        return self._there[folder]

    def _trees_known(self, folder: str) -> list[str]:
        """Return the working trees and the copies of a project that are there, or that sessions made or worked in."""
        if folder not in self._known:
            trees = [*self._trees_there(folder)]
            for store in self._stores:
                places, commands = folders_and_trees(store, folder)
                trees += [tree for command, cwd in commands for tree in trees_added(command, cwd)]
                for one in sorted(places, key=len):  # a branch, and so a tree's folder, may be called a/b
                    is_tree = "worktrees/" in one.removeprefix(folder) or not is_within(one, folder)
                    trees += [one] * (is_tree and not any(is_within(one, tree) for tree in trees))
            self._known[folder] = trees
        return self._known[folder]
