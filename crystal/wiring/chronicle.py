"""What happened when, on this machine: sessions and what was remembered, told together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crystal.store import Store
from crystal.wiring.machine import Machine

if TYPE_CHECKING:
    from crystal.timeline import Day

MOST_MEMORIES = 1_000


def days(
    machine: Machine, mirror: Store | None, *, since: int, before: int | None, project: str | None, limit: int
) -> tuple[Sequence[Day], tuple[str, ...]]:
    """See ``crystal.timeline.timeline``; ``before`` None is now."""
    from crystal.timeline import timeline
    from crystal.wiring.remembered import list_memories

    end = machine.now() + 1 if before is None else before
    remembered = list_memories(machine, mirror, project=project, limit=MOST_MEMORIES)
    return timeline(
        machine.store, since=since, before=end, project=project, memories=remembered, limit=limit, mirror=mirror
    )
