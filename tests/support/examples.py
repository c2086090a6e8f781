"""How often a property is tried: fully before a merge, less often in the fast suite."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

THOROUGH = 100
QUICK = 12
FEWEST = 5


def examples(number: int, **more: Any) -> settings:
    """Return settings that try ``number`` examples in the thorough profile, and a part of them in the quick one."""
    part = number * settings.default.max_examples // THOROUGH
    return settings(max_examples=min(number, max(part, FEWEST)), **more)
