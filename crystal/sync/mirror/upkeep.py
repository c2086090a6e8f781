"""Choose objects to rebuild: those lost or with forgotten rows immediately, many small ones into one now and then.

Pure. Objects have levels: a new one has 0, and ``FAN`` neighbours of one level are merged into one of the next level.
So each byte is uploaded again only a few times, and the list grows with the logarithm of the published data, then with
the number of full objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crystal.store.sync.mirror import FORGOTTEN, Listed
from crystal.store.sync.mirror_export import RAW_BYTES

FAN = 32
NEWEST = 32
"""Number of newest objects that are not merged, so that an almost current device fetches only new ones."""

FULL_BYTES = 4 << 20
"""Approximate sealed bytes of a full object."""

FULL_LEVEL = 100
"""Level of full objects, which are not merged."""

MEND_BYTES = 64 << 20
"""Approximate maximum bytes that one run uploads again; the rest follows in the next."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Neighbours of the list to be merged into one object of a level."""

    objects: Sequence[Listed]
    level: int


def runs_to_mend(listed: Sequence[Listed]) -> list[Upkeep]:
    """Return stale objects, each to be rebuilt; those with forgotten rows first."""
    stale = sorted((one for one in listed if one.stale), key=lambda one: (one.stale != FORGOTTEN, one.last))
    runs: list[Upkeep] = []
    size = 0
    for one in stale:
        if runs and size + one.size > MEND_BYTES:
            break
        size += one.size
        runs.append(Upkeep([one], one.level))
    return runs


def runs_to_merge(listed: Sequence[Listed]) -> list[Upkeep]:
    """Return the first run of each level that is long enough, excluding the newest objects."""
    listed = listed[: max(0, len(listed) - NEWEST)]
    runs: list[Upkeep] = []
    at = 0
    while at < len(listed):
        end = at
        while end < len(listed) and _level(listed[end]) == _level(listed[at]):
            end += 1
        if _level(listed[at]) < FULL_LEVEL and end - at >= FAN:
            some = _fitting(listed[at : at + FAN])
            level = FULL_LEVEL if len(some) < FAN else _level(listed[at]) + 1
            if len(some) > 1:
                runs.append(Upkeep(some, level))
        at = end
    return runs


def _level(one: Listed) -> int:
    return FULL_LEVEL if one.size >= FULL_BYTES // 2 or one.raw >= RAW_BYTES // 2 else one.level


def _fitting(objects: Sequence[Listed]) -> list[Listed]:
    """Return as many objects, from the first on, as fit into one."""
    some: list[Listed] = []
    size = raw = 0
    for one in objects:
        size, raw = size + one.size, raw + one.raw
        if some and (size > FULL_BYTES or raw > RAW_BYTES):
            break
        some.append(one)
    return some
