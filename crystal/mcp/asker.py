"""Who asks: the session, the project folder and the room for an answer, as the client's environment tells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crystal.errors import UsageProblem

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.store import Store


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The agent at the other end.

    Attributes:
        session: Its session's id, where the client tells it: what was said there the agent knows already.
        folder: The folder that it works in.
        room: How many characters an answer may have.
    """

    session: str | None = None
    folder: str | None = None
    room: int = 20_000

    def left_out(self, machine: Machine, arguments: Mapping[str, object]) -> str | None:
        """The session whose words are left out of an answer, if any.

        A session that has ended asks no more: its client goes on with another one, which lacks its words.
        """
        from crystal.store.sessions.sessions import session_named

        own, wanted = self.session, arguments.get("session")
        if own is None or arguments.get("include_current"):
            return None
        if isinstance(wanted, str) and own.startswith(wanted.strip()):
            return None
        known = session_named(machine.store, own)
        return None if known is not None and known.ended_at is not None else own

    def project(self, machine: Machine) -> tuple[str, str] | None:
        """The known project of the folder, as (folder, name); None when crystal has nothing of it."""
        from crystal.app.projects import find_home

        return None if self.folder is None else find_home(stores_of(machine), self.folder)


def stores_of(machine: Machine) -> list[Store]:
    """This machine's own store, and the mirror where it can be read."""
    mirror = None if machine.mirror is None else machine.mirror.store
    return [machine.store, *([] if mirror is None else [mirror])]


def mirror_of(machine: Machine) -> Store | None:
    """The mirror of home's memory, where there is one that can be read."""
    return None if machine.mirror is None else machine.mirror.store


def refuse_folder(project: str | None) -> None:
    """No tool takes a path: what a project is called says nothing of where it lies."""
    if project is not None and (any(mark in project for mark in "/\\") or project.strip() in (".", "..", "~")):
        raise UsageProblem(f"project is {project[:80]!r}, a folder", hint="give the project's name")
