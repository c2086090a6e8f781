"""Compose answers of a limited size: as many items as fit, as Markdown and as JSON, and how to get more.

The limit applies to both forms, because the client chooses which one its model sees.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from crystal.text.fence import NONCE_CHARACTERS, closing, fenced, opening
from crystal.text.quoting import quote_line

SPARE = 120
"""Characters reserved for text that is added around the items only if there are any."""
MAX_LENGTH = 6_000
"""Maximum number of characters shown of one text, unless it alone is requested."""
MIN_LENGTH = 40
CUT = "crystal_get with the id of what is cut off"
MAX_NOTES = 4
MAX_NOTE = 200

Json = dict[str, Any]


NONCE = "\0"
"""Placeholder for the nonce of the fence until the answer is sent; no quoted text contains it."""
Place = tuple[str, ...]
_LIKE_NO_BRACKET = "\u2013\u2014\u2018-\u201d\u2022\u2026\u2192\u2713-\u2718"
"""Dashes, quotation marks, bullets, arrows and ticks."""
_LIKE_A_HEAD = re.compile(rf"\n[^a-zA-Z0-9\n]*?(?:[\[&%\\]|[^\x00-\x7f{_LIKE_NO_BRACKET}])")
"""Pattern of a line that may be read as a head: a bracket, an escape or another sign before its first ASCII letter."""


@dataclass(frozen=True, slots=True)
class AnswerItem:
    """An item of an answer in both forms.

    Attributes:
        head: Its id and its author.
        place: The day (or nothing), the project, and more; parts equal to those of the item before are not printed.
        text: The quoted text, then its neighbours, each with ``NONCE`` in its head.
        data: All of it as JSON.
    """

    head: str
    place: Place
    text: str
    data: Json

    @property
    def size(self) -> int:
        """Return the number of characters that the item takes in the longer form."""
        parts = (self.head, *self.place, self.text)
        markdown = sum(map(len, parts)) + 2 * len(parts) + NONCE_CHARACTERS + 10
        return max(markdown, len(_encoded(self.data)) + 2)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Answer of a tool in two forms, one of which is sent: ``text`` for models, ``data`` for programs."""

    text: str
    data: Json

    @property
    def size(self) -> int:
        """Return the number of characters of the longer form."""
        return max(len(self.markdown("-" * NONCE_CHARACTERS)), len(self.json("-" * NONCE_CHARACTERS)))

    def markdown(self, nonce: str) -> str:
        """Return the text with the nonce of this answer in its tags and in the head of each item."""
        return self.text.replace(NONCE, nonce)

    def json(self, nonce: str) -> str:
        """Return the data as one JSON object that begins and ends with a tag."""
        tags = {"fence": f"{opening(nonce)} data:"}, {"fence_end": f"end of data {closing(nonce)}"}
        return _encoded({**tags[0], **self.data, **tags[1]})


def _encoded(data: Json) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def bounded(
    makers: Iterable[Callable[[int], AnswerItem]],
    compose: Callable[[Sequence[AnswerItem]], ToolAnswer],
    max_chars: int,
    longest: int = MAX_LENGTH,
) -> ToolAnswer:
    """Return an answer with as many of the items as fit; the first item is shortened if needed.

    Args:
        makers: Functions that render an item, given the maximum number of characters of its text.
        compose: Combines the items with the text around them, and says how to get the rest.
        max_chars: Maximum number of characters of the answer, in either form.
        longest: Maximum number of characters shown of one text.
    """
    items: list[AnswerItem] = []
    left = max_chars - compose(items).size - SPARE
    for make in makers:
        allowed = max(MIN_LENGTH, min(longest, max_chars))
        item = make(allowed)
        while not items and item.size > left and allowed > MIN_LENGTH:
            allowed = max(MIN_LENGTH, allowed * 2 // 3)
            item = make(allowed)
        if items and item.size > left:
            break
        items.append(item)
        left -= item.size
    answer = compose(items)
    while items and answer.size > max_chars:
        items.pop()
        answer = compose(items)
    return answer


def _with_get(more: str | None, items: Sequence[AnswerItem]) -> str | None:
    """Return how to get more, including the tool for whole texts if a text was cut."""
    if "crystal_get" in (more or "") or not any(_is_cut(item.data) for item in items):
        return more
    return f"{more}; {CUT}" if more else f"more: {CUT}"


def answered(
    head: str, items: Sequence[AnswerItem], name: str, data: Mapping[str, Any], more: str | None
) -> ToolAnswer:
    """Compose an answer: a heading, notes and the items in one fence, and below it how to get more.

    Heads of items have the nonce only if a line of a text could be read as a head. If no text has several lines, each
    item is one line.
    """
    more = _with_get(more, items)
    lines = [f"data: {head}".rstrip(), *(f"note: {note}" for note in data.get("notes") or ())]
    said = [item.text.replace(f"\n[{NONCE} ", "\r") for item in items]
    is_list = not any("\n" in text for text in said)
    is_plain = is_list or not any(_LIKE_A_HEAD.search(f"\n{text}") for text in said)
    opened, end = "[" if is_plain else f"[{NONCE} ", "] " if is_list else "]\n"
    before: Place = ()
    for item, text in zip(items, said, strict=True):
        new = new_parts(item.place, before)
        shown = text.replace("\r", f"\n{opened}")
        lines.append(f"{opened}{' '.join(filter(None, (item.head, new)))}{end}{shown}")
        before = item.place or before
    whole: Json = {**data, name: [item.data for item in items], "more": more}
    return ToolAnswer("\n".join([fenced("\n".join(lines), NONCE), *([more] if more else [])]), whole)


def new_parts(place: Place, before: Place) -> str:
    """Return the parts of a place that differ from the previous place; a day of the same year without its year."""
    pairs = list(zip_longest(place, before[: len(place)], fillvalue=""))
    new = [now for now, last in pairs if now != last]
    if new and pairs[0][0] != pairs[0][1] and pairs[0][0][:5] == pairs[0][1][:5]:
        new[0] = new[0][5:]
    return " ".join(filter(None, new))


def one_page(
    makers: Sequence[Callable[[int], AnswerItem]],
    data: Mapping[str, Any],
    name: str,
    max_chars: int,
    none: str,
    more: Callable[[int], str],
    limit: int | None = None,
) -> ToolAnswer:
    """Return a page of a list with its JSON field ``next_offset``, and how to get the next page.

    Args:
        makers: Functions that render the items: the whole list, or one item more than is shown.
        data: The rest of the JSON; ``offset`` is the index of the page's first item.
        name: The JSON field of the items.
        max_chars: Maximum number of characters of the answer.
        none: The first line of a page without items.
        more: Returns how to ask for the next page, given its offset.
        limit: Maximum number of items, None for all that fit.
    """
    offset = data["offset"]

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        at = offset + len(items)
        is_last = at >= len(makers)
        whole = {**data, "next_offset": None if is_last else at}
        return answered("" if items else none, items, name, whole, None if is_last else f"more: {more(at)}")

    return bounded(makers[offset:][:limit], compose, max_chars)


def _is_cut(data: Mapping[str, Any]) -> bool:
    return bool(data.get("characters_left") or (data.get("memory") or {}).get("characters_left"))


def noted(notes: Iterable[str]) -> list[str]:
    """Return the first ``MAX_NOTES`` notes, each quoted and cut: they may contain stored names."""
    return [quote_line(note, MAX_NOTE) for note in notes][:MAX_NOTES]


def hint_for_agent(hint: str) -> str:
    """Return a hint for an agent, which has no terminal: the tool that does the same, or to ask the user."""
    command = hint.removeprefix("run: ")
    tool = next((tool for words, tool in _TOOL_OF_COMMAND.items() if command.startswith(words)), None)
    if tool is not None:
        return f"use {tool}"
    return hint if command == hint else f"ask the user to run: {command}"


_TOOL_OF_COMMAND = {
    "crystal sessions": "crystal_recent",
    "crystal search": "crystal_search",
    "crystal memories": "crystal_search",
    "crystal show": "crystal_get",
    "crystal status": "crystal_status",
}
