"""Edit JSON as text: locate values, add one and remove one, without changing any other character.

``remove`` undoes ``append`` to the last character, even if it was the only value between two brackets. Strict JSON as
in RFC 8259, which Claude Code reads: no comments, no trailing commas; and no duplicate keys in one object, which are
ambiguous.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import Any

SPACE = re.compile(r"[ \t\r\n]*")
NEWLINE = re.compile(r"\r\n|\n|\r")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z.+-])")
STRING = json.JSONDecoder()
WORDS = {"true": True, "false": False, "null": None}
DEEPEST = 200
DEFAULT_UNIT = "  "


class NotJson(ValueError):
    """The text is not strict JSON. ``position`` is the offending character's index."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.position = position


@dataclass(frozen=True, slots=True)
class Child:
    """Value within an array or object; ``start`` is that of its key if it has one."""

    start: int
    key: str | None
    node: Node


@dataclass(frozen=True, slots=True)
class Node:
    """Value and its characters ``text[start:end]``."""

    start: int
    end: int
    value: Any
    children: tuple[Child, ...] = ()

    def child(self, key: str) -> Node | None:
        """Return the value of a key, or None."""
        return next((child.node for child in self.children if child.key == key), None)


@functools.lru_cache(maxsize=2)  # called for every question about the text's formatting, and a file may have megabytes
def parse(text: str) -> Node:
    """Parse a whole document. The result is shared: do not change its values.

    Raises:
        NotJson: It is not strict JSON, has a duplicate key, or is nested more than ``DEEPEST`` levels.
    """
    node = _value(text, _skip(text, 0), 0)
    rest = _skip(text, node.end)
    if rest < len(text):
        raise _unexpected(text, rest, "the end of the file")
    return node


def place(text: str, position: int) -> tuple[int, int]:
    """Return line and column of a character, both from 1."""
    before = NEWLINE.split(text[:position])
    return len(before), len(before[-1]) + 1


def append(text: str, container: Node, value: Any, key: str | None = None) -> str:
    """Add a value at the end of an array, or to an object under ``key``, formatted like the surrounding text."""
    inside = container.end - 1
    if container.children:
        last = container.children[-1]
        opening = container.children[-2].node.end if len(container.children) > 1 else container.start
        gap = re.sub(r"[^ \t\r\n]", "", text[opening : last.start])
        if NEWLINE.search(gap):
            indent = NEWLINE.split(gap)[-1]
            written = _newline(text) + indent + _pretty(text, value, key, indent)
        else:
            written = (gap or _space(text)) + _compact(text, value, key)
        return text[: last.node.end] + "," + written + text[last.node.end :]
    if _on_lines(text):
        base = _indentation(text, container.start)
        indent = base + _unit(text)
        newline = _newline(text)
        written = newline + indent + _pretty(text, value, key, indent) + newline + base
    else:
        written = _compact(text, value, key)
    return text[:inside] + written + text[inside:]


def remove(text: str, container: Node, child: Child) -> str:
    """Remove one value (with its key) from an array or object, with its comma and white space."""
    index = container.children.index(child)
    if index > 0:
        return text[: container.children[index - 1].node.end] + text[child.node.end :]
    if len(container.children) > 1:
        return text[: child.start] + text[container.children[1].start :]
    before = text[container.start + 1 : child.start]
    kept = before.rfind(_newline(text))  # the text before is followed only by our own line break, if any
    return text[: container.start + 1] + (before if kept < 0 else before[:kept]) + text[container.end - 1 :]


def replace(text: str, node: Node, value: Any) -> str:
    """Replace a value."""
    return text[: node.start] + json.dumps(value, ensure_ascii=False) + text[node.end :]


# --- reading


def _skip(text: str, position: int) -> int:
    found = SPACE.match(text, position)
    return found.end() if found else position


def _unexpected(text: str, position: int, wanted: str) -> NotJson:
    if position >= len(text):
        return NotJson(f"the file ends where {wanted} should be", position)
    if text.startswith(("//", "/*", "#"), position):
        return NotJson("a comment, which JSON does not allow", position)
    if text[position] in "}]" and wanted in ("a key", "a value"):
        return NotJson(f"a comma or colon before {text[position]!r} with nothing after it", position)
    return NotJson(f"{text[position]!r} where {wanted} should be", position)


def _value(text: str, position: int, depth: int) -> Node:
    if depth > DEEPEST:
        raise NotJson(f"nested more than {DEEPEST} levels", position)
    if text.startswith("{", position):
        return _object(text, position, depth)
    if text.startswith("[", position):
        return _array(text, position, depth)
    if text.startswith('"', position):
        value, end = _string(text, position)
        return Node(position, end, value)
    for word, meaning in WORDS.items():
        if text.startswith(word, position):
            return Node(position, position + len(word), meaning)
    number = NUMBER.match(text, position)
    if number is None:
        raise _unexpected(text, position, "a value")
    return Node(position, number.end(), _number(number.group(), position))


def _string(text: str, position: int) -> tuple[str, int]:
    try:
        return STRING.raw_decode(text, position)
    except json.JSONDecodeError as error:
        raise NotJson(f"a string is broken: {error.msg.lower()}", error.pos) from error


def _number(digits: str, position: int) -> Any:
    try:
        return json.loads(digits)
    except ValueError as error:
        raise NotJson("a number with too many digits", position) from error


def _object(text: str, position: int, depth: int) -> Node:
    children: list[Child] = []
    value: dict[str, Any] = {}
    at = _skip(text, position + 1)
    while not (text.startswith("}", at) and not children):
        if not text.startswith('"', at):
            raise _unexpected(text, at, "a key" if children else "a key or '}'")
        key, end = _string(text, at)
        if key in value:
            raise NotJson(f"the key {json.dumps(key)} a second time", at)
        colon = _skip(text, end)
        if not text.startswith(":", colon):
            raise _unexpected(text, colon, "':'")
        node = _value(text, _skip(text, colon + 1), depth + 1)
        children.append(Child(at, key, node))
        value[key] = node.value
        at, done = _after_child(text, node.end, "}")
        if done:
            break
    return Node(position, at + 1, value, tuple(children))


def _array(text: str, position: int, depth: int) -> Node:
    children: list[Child] = []
    at = _skip(text, position + 1)
    while not (text.startswith("]", at) and not children):
        node = _value(text, at, depth + 1)
        children.append(Child(node.start, None, node))
        at, done = _after_child(text, node.end, "]")
        if done:
            break
    return Node(position, at + 1, [child.node.value for child in children], tuple(children))


def _after_child(text: str, end: int, closing: str) -> tuple[int, bool]:
    """Return the position of the closing bracket (and True), or of the next child."""
    at = _skip(text, end)
    if text.startswith(closing, at):
        return at, True
    if not text.startswith(",", at):
        raise _unexpected(text, at, f"',' or '{closing}'")
    return _skip(text, at + 1), False


# --- writing in the style of the text


def _newline(text: str) -> str:
    found = NEWLINE.search(text)
    return found.group() if found else "\n"


def _on_lines(text: str) -> bool:
    root = parse(text)
    return not root.children or NEWLINE.search(text[root.start : root.end]) is not None


def _unit(text: str) -> str:
    root = parse(text)
    if root.children:
        lines = NEWLINE.split(text[root.start + 1 : root.children[0].start])
        if len(lines) > 1:
            return lines[-1][:16]
    return DEFAULT_UNIT


def _indentation(text: str, position: int) -> str:
    line = NEWLINE.split(text[:position])[-1]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _space(text: str) -> str:
    """Return a space, unless the text has none after its first colon."""
    root = parse(text)
    if not root.children or root.children[0].key is None:
        return " "
    first = root.children[0]
    return " " if text[first.node.start - 1] in " \t\r\n" else ""


def _pretty(text: str, value: Any, key: str | None, indent: str) -> str:
    written = json.dumps(value, ensure_ascii=False, indent=_unit(text)).replace("\n", _newline(text) + indent)
    return written if key is None else f"{json.dumps(key)}: {written}"


def _compact(text: str, value: Any, key: str | None) -> str:
    space = _space(text)
    written = json.dumps(value, ensure_ascii=False, separators=("," + space, ":" + space))
    return written if key is None else f"{json.dumps(key)}:{space}{written}"
