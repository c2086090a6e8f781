"""Which objects of the list are made anew: what was lost or forgotten at once, many small ones as one now and then.

Pure. Objects have levels: a new one has 0, and when ``FAN`` neighbours of one level stand together, they become one of
the next level. So a byte is uploaded again a few times in all, and the list grows with the logarithm of what was
published, then with the number of full objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crystal.store.sync.mirror import FORGOTTEN, Listed
from crystal.store.sync.mirror_export import RAW_BYTES

FAN = 32
NEWEST = 32
"""So many of the newest objects are left as they are: who is nearly up to date has to fetch what is new alone."""

FULL_BYTES = 4 << 20
"""Sealed bytes of one object, about."""

FULL_LEVEL = 100
"""The level of objects that are left alone: full ones."""

MEND_BYTES = 64 << 20
"""What one run uploads again at most, about; the rest follows with the next."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Neighbours of the list that become one object, of a level."""

    objects: Sequence[Listed]
    level: int


def runs_to_mend(listed: Sequence[Listed]) -> list[Upkeep]:
    """Stale objects, each to be made anew; those that hold what is to be forgotten first."""
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
    """The first run of each level that is long enough, among all but the newest objects."""
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
    """As many from the first on as one object holds."""
    some: list[Listed] = []
    size = raw = 0
    for one in objects:
        size, raw = size + one.size, raw + one.raw
        if some and (size > FULL_BYTES or raw > RAW_BYTES):
            break
        some.append(one)
    return some
