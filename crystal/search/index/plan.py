"""Which parts to merge: few parts to search, and no document is rewritten often."""

from __future__ import annotations

from collections.abc import Sequence

from crystal.search.index.parts import MAX_DOCUMENTS

SMALL = 512
"""Parts of fewer documents are merged whenever there are two: it costs a few milliseconds."""

FAN_OUT = 8


def merges(sizes: Sequence[int], *, most: int = MAX_DOCUMENTS) -> list[list[int]]:
    """Return groups of parts to merge, by index in ``sizes``; each becomes one part of ``most`` at most."""
    groups = [[at] for at in range(len(sizes))]
    totals = list(sizes)
    while True:
        found = _next(totals, most)
        if not found:
            return [group for group in groups if len(group) > 1]
        first, *others = found
        for other in others:
            groups[first] += groups[other]
            totals[first] += totals[other]
            groups[other], totals[other] = [], 0


def _next(totals: Sequence[int], most: int) -> list[int]:
    """Return the smallest parts of the first level that has enough of them, as many as fit together; or none."""
    levels: dict[int, list[int]] = {}
    for at in sorted((at for at, total in enumerate(totals) if total), key=lambda at: (totals[at], at)):
        levels.setdefault(_level(totals[at]), []).append(at)
    for level, members in sorted(levels.items()):
        if len(members) < (FAN_OUT if level else 2):
            continue
        chosen: list[int] = []
        for at in members[:FAN_OUT]:
            if sum(totals[one] for one in chosen) + totals[at] <= most:
                chosen.append(at)
        if len(chosen) > 1:
            return chosen
    return []


def _level(documents: int) -> int:
    level = 0
    while documents >= SMALL:
        documents //= FAN_OUT
        level += 1
    return level
