"""A project as a token names it."""

from __future__ import annotations

from crystal.model.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GrantedProject:
    """A project that a token is limited to, as it was when the token was made.

    Attributes:
        name: What it was called. The name allows nothing: another project may get it later.
        folders: Its root in each memory.
        identity: What identifies it when its folder moves; None if nothing does.
    """

    name: str
    folders: tuple[str, ...]
    identity: str | None

    def is_of(self, root: str, identity: str | None) -> bool:
        """Return True if it is the project with a root and an identity."""
        return root in self.folders or (identity is not None and identity == self.identity)
