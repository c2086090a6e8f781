"""How often a property is tried, and how much of a table: all before a merge, a part in the fast suite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from hypothesis import settings

THOROUGH = 100
QUICK = 12
FEWEST = 5

Row = TypeVar("Row")


def examples(number: int, **more: Any) -> settings:
    """Return settings that try ``number`` examples in the thorough profile, and a part of them in the quick one."""
    part = number * settings.default.max_examples // THOROUGH
    return settings(max_examples=min(number, max(part, FEWEST)), **more)


def part_of(rows: Iterable[Row], number: int = 1) -> list[Row]:
    """Return all rows in the thorough profile; about ``number`` of them, spread over all, in the quick one."""
    every = list(rows)
    if settings.default.max_examples >= THOROUGH:
        return every
    return every[:: max(1, -(-len(every) // number))]
