"""Show the context that a session would be given at its start, and those that were given."""

from __future__ import annotations

import os
from dataclasses import dataclass

from crystal.app.context import Machine
from crystal.app.memory_queries import mirror_of
from crystal.app.session_context_ready import beginning
from crystal.app.session_context_sources import tellable
from crystal.capture.privacy import policy_of
from crystal.context import Told, take_told
from crystal.hook.main import truthy
from crystal.store.sessions.contexts import Injection, injections


@dataclass(frozen=True, slots=True)
class Preview:
    """What a session that began in a folder now would be told; ``refusals`` say why it would be nothing."""

    folder: str
    project: str | None
    budget: int
    told: Told
    refusals: tuple[str, ...]
    notes: tuple[str, ...] = ()


def preview(machine: Machine, folder: str) -> Preview:
    """Return what a session that began in a folder now would be given, and why that may be nothing."""
    policy, config = policy_of(machine.store, machine.config), machine.config
    with mirror_of(machine) as mirror:
        found = tellable(machine, mirror)
        here = next((one for one in found.folders() if one.cwd == folder), None)
        told = found.told(here)
    notes = [] if here else ["no session was captured in this folder yet: the context has only what applies everywhere"]
    refusals = []
    if not config.context_enabled:
        refusals.append("context is off; to switch it on: crystal config set context.enabled true")
    if truthy(os.environ.get("CRYSTAL_PRIVATE")):
        refusals.append("CRYSTAL_PRIVATE is set")
    if policy.is_off:
        refusals.append("capture is off: crystal --on")
    beginnings = tuple(map(beginning, config.private_projects))
    if policy.is_private_folder(folder):
        refusals.append("the folder is private")
    elif here is None and folder.startswith(beginnings):
        refusals.append("crystal does not know the folder, and it may be private")
    return Preview(folder, here.name if here else None, config.context_tokens, told, tuple(refusals), tuple(notes))


def told_log(machine: Machine, limit: int) -> list[Injection]:
    """Return the log of injected contexts, latest first; with the marks that no worker has moved to the store yet."""
    noted = injections(machine.store, limit)
    known = {(one.session_id, one.source) for one in noted}
    waiting = [one for _, one in take_told(machine.places.data_dir, machine.now()) if one is not None]
    fresh = [one for one in waiting if (one.session_id, one.source) not in known]
    return sorted([*fresh, *noted], key=lambda one: -one.at)[:limit]
