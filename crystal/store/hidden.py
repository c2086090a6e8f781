"""Describe what a connection does not see; crystal/store/isolation.py hides it."""

from crystal.model.named_tuple import NamedTuple


class Hidden(NamedTuple):
    """Content that an agent does not see: what was said in these agents, and in these folders of projects.

    ``only``: the folders of projects that it sees, if it sees no other ones, nor what belongs to no project.
    """

    agents: tuple[str, ...]
    folders: frozenset[str] | None = None
    only: frozenset[str] | None = None
