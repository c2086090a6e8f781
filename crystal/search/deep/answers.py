"""Parse a model's answer: strings or numbers, however it wraps them. Pure; no answer raises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

_THOUGHT = re.compile(r"<think(?:ing)?>.{0,20000}?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_FENCED = re.compile(r"```(?:json|text)?(.*?)```", re.DOTALL)
_MAX_VALUES = 500
_NAMES_OF_NUMBERS = ("passage", "id", "index", "number", "document", "doc")


def body_of(answer: str) -> str:
    """Return the answer without reasoning before it and without a code fence around it."""
    text = _THOUGHT.sub("", answer, count=3).strip()
    fenced = _FENCED.search(text)
    return (fenced[1] if fenced else text).strip()


def json_of(text: str) -> Any:
    """Return the JSON value that a text is, or that spans its first to its last bracket; None without one."""
    for opening, closing in (("", ""), ("[", "]"), ("{", "}")):
        start = text.find(opening) if opening else 0
        stop = text.rfind(closing) + 1 if closing else len(text)
        if start < 0 or stop <= start:
            continue
        try:
            return orjson.loads(text[start:stop].encode("utf-8", "replace"))
        except orjson.JSONDecodeError:
            continue
    return None


def strings_in(value: Any) -> list[str]:
    """Return every string in a JSON value, in order, without the keys of objects."""
    return [one for one in _values(value) if isinstance(one, str)]


def numbers_in(value: Any) -> list[int]:
    """Return the integers of the first list of them in a JSON value; of objects in a list, the identifying number."""
    for one in _values(value):
        numbers = list(map(_number_of, one[:_MAX_VALUES])) if isinstance(one, list) else []
        if any(number is not None for number in numbers):
            return [number for number in numbers if number is not None]
    return []


def _number_of(item: Any) -> int | None:
    if isinstance(item, dict):
        item = next((item[name] for name in _NAMES_OF_NUMBERS if name in item), None)
    if isinstance(item, str) and re.fullmatch(r"\[?\s?[0-9]{1,4}\s?\]?", item):
        return int(item.strip("[] "))
    return item if isinstance(item, int) and not isinstance(item, bool) else None


def _values(value: Any) -> Iterator[Any]:
    """Yield the values in a JSON value in order, containers before what they hold."""
    stack, seen = [value], 0
    while stack and seen < _MAX_VALUES:
        one = stack.pop()
        seen += 1
        yield one
        if isinstance(one, (dict, list)):
            inside = list(one.values()) if isinstance(one, dict) else one
            stack.extend(reversed(inside[:_MAX_VALUES]))
