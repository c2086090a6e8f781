"""JSON as text: where each value stands, putting one in and taking one out, without touching any other character.

What was put in by ``append`` is taken out by ``remove`` to the last character, also when it was the only value between
two brackets. Strict JSON as in RFC 8259, which is what Claude Code reads: no comments, no trailing commas; and no key
twice in one object, because then nobody can say which of the two counts.
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
    """A value within an array or object; ``start`` is that of its key if it has one."""

    start: int
    key: str | None
    node: Node


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the characters ``text[start:end]`` that it is made of."""

    start: int
    end: int
    value: Any
    children: tuple[Child, ...] = ()

    def child(self, key: str) -> Node | None:
        """The value of a key, or None."""
        return next((child.node for child in self.children if child.key == key), None)


@functools.lru_cache(maxsize=2)  # every question about the manner of a text asks for it, and a file may have megabytes
def parse(text: str) -> Node:
    """Parse a whole document. What is returned is shared: nobody may change the values in it.

    Raises:
        NotJson: It is no strict JSON, has a key twice, or is nested more than ``DEEPEST`` levels.
    """
    node = _value(text, _skip(text, 0), 0)
    rest = _skip(text, node.end)
    if rest < len(text):
        raise _unexpected(text, rest, "the end of the file")
    return node


def place(text: str, position: int) -> tuple[int, int]:
    """Line and column of a character, both from 1."""
    before = NEWLINE.split(text[:position])
    return len(before), len(before[-1]) + 1


def append(text: str, container: Node, value: Any, key: str | None = None) -> str:
    """Put a value at the end of an array, or of an object under ``key``, in the manner of the text around it."""
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
    """Take one value (with its key) out of an array or object, with the comma and the space that came with it."""
    index = container.children.index(child)
    if index > 0:
        return text[: container.children[index - 1].node.end] + text[child.node.end :]
    if len(container.children) > 1:
        return text[: child.start] + text[container.children[1].start :]
    before = text[container.start + 1 : child.start]
    kept = before.rfind(_newline(text))  # what stood there before is followed by our own line break, if by any
    return text[: container.start + 1] + (before if kept < 0 else before[:kept]) + text[container.end - 1 :]


def replace(text: str, node: Node, value: Any) -> str:
    """Put another value in a value's place."""
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
    """Where the closing bracket stands (and True), or where the next child must start."""
    at = _skip(text, end)
    if text.startswith(closing, at):
        return at, True
    if not text.startswith(",", at):
        raise _unexpected(text, at, f"',' or '{closing}'")
    return _skip(text, at + 1), False


# --- writing in the manner of the text


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
    """A space, unless the text goes without even after its first colon."""
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
