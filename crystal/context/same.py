"""Whether two folders are of one project, also on different machines."""

from __future__ import annotations

from crystal.model.capture import Project


def is_same_project(here: Project, other: Project, *, same_machine: bool) -> bool:
    """Whether ``other`` is the project that ``here`` is a folder of.

    The same folder or repository is; so is one with the same address of ``origin``. The name alone tells only between
    machines, where folders differ, and only if no addresses contradict it: two repositories of one machine that are
    called alike are two projects.
    """
    if (here.git_root or here.cwd) == (other.git_root or other.cwd) or here.cwd == other.cwd:
        return True
    if here.remote is not None and other.remote is not None:
        return here.remote == other.remote
    return not same_machine and bool(here.name) and here.name.casefold() == other.name.casefold()
