"""The context of a client: its session, project folder and answer size, as its environment tells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crystal.errors import UsageError

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.store import Store


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The agent at the other end.

    Attributes:
        session: Its session's id, if the client tells it: the agent already knows what was said there.
        folder: The folder that it works in.
        room: How many characters an answer may have.
    """

    session: str | None = None
    folder: str | None = None
    room: int = 20_000

    def left_out(self, machine: Machine, arguments: Mapping[str, object]) -> str | None:
        """Return the session whose messages are left out of an answer, if any.

        A session that has ended sends no more requests: its client continues with another, which lacks its messages.
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
        """Return the known project of the folder, as (folder, name); None if crystal has stored nothing of it."""
        from crystal.app.projects import find_home

        return None if self.folder is None else find_home(stores_of(machine), self.folder)


def stores_of(machine: Machine) -> list[Store]:
    """Return this machine's own store, and the mirror if it can be read."""
    return [machine.store, *([] if machine.mirror_store is None else [machine.mirror_store])]


def refuse_folder(project: str | None) -> None:
    """Refuse a path as a project: tools take only names, which say nothing of where a project lies."""
    if project is not None and (any(mark in project for mark in "/\\") or project.strip() in (".", "..", "~")):
        raise UsageError(f"project is {project[:80]!r}, a folder", hint="give the project's name")
