"""Define which content a connection does not see; crystal/store/isolation.py hides it."""

from crystal.model.named_tuple import NamedTuple


class Hidden(NamedTuple):
    """Content that an agent cannot see: conversations of these agents, and of these projects' folders.

    ``only``: the folders of the only projects that it can see; content without a project is then hidden too.
    """

    agents: tuple[str, ...]
    folders: frozenset[str] | None = None
    only: frozenset[str] | None = None
