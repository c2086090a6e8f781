"""Compare the projects of two folders, also across machines."""

from __future__ import annotations

from crystal.model.capture import Project


def is_same_project(here: Project, other: Project, *, same_machine: bool) -> bool:
    """Return True if ``other`` is the project of folder ``here``.

    Projects are the same if folder, repository or the address of ``origin`` are equal. The name alone counts only
    across machines, where folders differ, and only if the addresses do not differ: two repositories with one name on
    one machine are two projects.
    """
    if (here.git_root or here.cwd) == (other.git_root or other.cwd) or here.cwd == other.cwd:
        return True
    if here.remote is not None and other.remote is not None:
        return here.remote == other.remote
    return not same_machine and bool(here.name) and here.name.casefold() == other.name.casefold()
