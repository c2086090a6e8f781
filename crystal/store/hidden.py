"""What a connection does not see; crystal/store/isolation.py hides it."""

from typing import NamedTuple


class Hidden(NamedTuple):
    """What an agent does not see: what was said in these agents, and in these folders of projects."""

    agents: tuple[str, ...]
    folders: frozenset[str] | None = None
