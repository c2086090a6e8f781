"""Answers of a bounded size: as many items as fit, as Markdown and as JSON, and a last line that says how to go on.

Both forms are measured, because which of them a client shows to its model is the client's choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crystal.mcp.said import plain

SPARE = 250
"""Room for what is said around the items only where there are some."""
LONGEST = 6_000
"""So many characters of one text are shown at most, unless it alone is asked for."""
SHORTEST = 40
CUT = "crystal_get with the id of what is cut off"
MOST_NOTES = 4
LONGEST_NOTE = 200

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of an answer in both forms."""

    text: str
    data: Json

    @property
    def size(self) -> int:
        """How much room it takes in the longer form."""
        return max(len(self.text) + 2, len(json.dumps(self.data, ensure_ascii=False)) + 2)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool answers: ``data`` fits the tool's output schema, ``text`` is for reading."""

    text: str
    data: Json

    @property
    def size(self) -> int:
        """How many characters the longer form has."""
        return max(len(self.text), len(json.dumps(self.data, ensure_ascii=False)))


def bounded(
    makers: Iterable[Callable[[int], Item]],
    compose: Callable[[Sequence[Item]], Answer],
    room: int,
    longest: int = LONGEST,
) -> Answer:
    """An answer with the first of some items, as many as there is room for; the first one shortened as needed.

    Args:
        makers: Each makes its item, given how many characters of its text may be shown.
        compose: Puts the items together with what stands around them, and says how to get the rest.
        room: The characters there are for all, in either form.
        longest: How many characters of one text are shown at most.
    """
    items: list[Item] = []
    left = room - compose(items).size - SPARE
    for make in makers:
        allowed = max(SHORTEST, min(longest, room))
        item = make(allowed)
        while not items and item.size > left and allowed > SHORTEST:
            allowed = max(SHORTEST, allowed * 2 // 3)
            item = make(allowed)
        if items and item.size > left:
            break
        items.append(item)
        left -= item.size
    answer = compose(items)
    while items and answer.size > room:
        items.pop()
        answer = compose(items)
    return answer


def answered(head: str, items: Sequence[Item], name: str, data: Mapping[str, Any], more: str | None) -> Answer:
    """An answer with a list of items: a line about it, notes, the items, and how to get more."""
    if "crystal_get" not in (more or "") and any(_is_cut(item.data) for item in items):
        more = f"{more}; {CUT}" if more else f"more: {CUT}"
    parts = [head, *(f"note: {note}" for note in data.get("notes") or ()), *(item.text for item in items)]
    whole: Json = {**data, name: [item.data for item in items], "more": more}
    return Answer("\n\n".join([*parts, *([more] if more else [])]), whole)


def _is_cut(data: Mapping[str, Any]) -> bool:
    return bool(data.get("characters_left") or (data.get("memory") or {}).get("characters_left"))


def noted(notes: Iterable[str]) -> list[str]:
    """Remarks for the reader, few and short; names that were stored may stand in them."""
    return [one if len(one) <= LONGEST_NOTE else one[: LONGEST_NOTE - 1] + "…" for one in map(_line, notes)][
        :MOST_NOTES
    ]


def _line(text: str) -> str:
    return " ".join(plain(text).split())
