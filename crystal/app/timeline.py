"""The timeline of this machine: sessions and memories, day by day."""

from __future__ import annotations

from collections.abc import Sequence

from crystal.app.context import Machine
from crystal.app.memory_queries import list_memories
from crystal.sessions.timeline import Day, timeline

MAX_MEMORIES = 1_000


def days(
    machine: Machine, *, since: int, before: int | None, project: str | None, limit: int
) -> tuple[Sequence[Day], tuple[str, ...]]:
    """Return the days of ``crystal.sessions.timeline.timeline``; ``before`` None is now."""
    end = machine.now() + 1 if before is None else before
    remembered = list_memories(machine, project=project, limit=MAX_MEMORIES)
    return timeline(machine.stores, since=since, before=end, project=project, memories=remembered, limit=limit)
