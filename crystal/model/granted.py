"""Define the project to which a token is limited."""

from __future__ import annotations

from crystal.model.quick_dataclass import dataclass
from crystal.model.repository_address import is_same_repository


@dataclass(frozen=True, slots=True)
class GrantedProject:
    """A project to which a token is limited, as it was when the token was made.

    Attributes:
        name: Its name then. It grants nothing, because another project may get the name later.
        folders: Its root in each memory.
        identity: What identifies the project when its folder moves, or None.
    """

    name: str
    folders: tuple[str, ...]
    identity: str | None

    def is_of(self, root: str, identity: str | None) -> bool:
        """Return True if it is the project with this root or this identity."""
        return root in self.folders or is_same_repository(identity, self.identity)
