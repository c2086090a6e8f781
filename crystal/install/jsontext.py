"""Edit JSON as text: locate, add and remove values without changing any other character.

``remove`` undoes ``append`` to the last character, even if it was the only value between two brackets. Strict JSON as
in RFC 8259, which Claude Code reads: no comments, no trailing commas; and no duplicate keys in one object, which are
ambiguous. Positions are indexes of characters.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from crystal.model.named_tuple import NamedTuple
from crystal.model.quick_dataclass import dataclass

COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
SPACE = re.compile(r"[ \t\r\n]*")
NEWLINE = re.compile(r"\r\n|\n|\r")
DECODER = json.JSONDecoder()
DEFAULT_UNIT = "  "


class JsonSyntaxError(ValueError):
    """The text is not strict JSON, or has the wrong structure. ``position`` is the index of the offending character."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.position = position


class TextEdit(NamedTuple):
    """A change: ``text[start:end]`` becomes ``new``."""

    start: int
    end: int
    new: str

    def at(self, places: Sequence[int]) -> TextEdit:
        """Return the same change for the text in which the characters have these positions."""
        return TextEdit(places[self.start], places[self.end], self.new)

    def apply(self, text: str) -> str:
        """Return the changed text."""
        return text[: self.start] + self.new + text[self.end :]


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its span ``text[start:end]``."""

    text: str
    start: int
    end: int
    value: Any

    @property
    def children(self) -> tuple[Child, ...]:
        """Return the values in an array or object, in order; none for other values."""
        return _children(self.text, self.start, isinstance(self.value, dict)) if self.text[self.start] in "{[" else ()

    def child(self, key: str) -> Node | None:
        """Return the value of a key, or None."""
        return next((child.node for child in self.children if child.key == key), None)


class Child(NamedTuple):
    """A value in an array or object; ``start`` is the position of its key, if any, or its own."""

    start: int
    key: str | None
    node: Node


@functools.lru_cache(maxsize=2)  # called for every question about the text's formatting, and a file may have megabytes
def parse(text: str) -> Node:
    """Parse a whole document. The result is shared: do not change its values.

    Raises:
        JsonSyntaxError: It is not strict JSON, has a duplicate key, or is nested too deeply.
    """

    def refuse(constant: str) -> NoReturn:
        raise JsonSyntaxError(f"{constant}, which JSON does not allow", text.find(constant))

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            key = next(key for at, (key, _) in enumerate(pairs) if any(key == other for other, _ in pairs[:at]))
            raise JsonSyntaxError(f"the key {json.dumps(key)} a second time", text.rfind(json.dumps(key)))
        return found

    try:
        value = json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        is_comment = text.startswith(("//", "/*", "#"), error.pos)
        raise JsonSyntaxError(
            "a comment, which JSON does not allow" if is_comment else error.msg.lower(), error.pos
        ) from error
    except JsonSyntaxError:
        raise
    except ValueError as error:
        raise JsonSyntaxError("a number with too many digits", 0) from error
    except RecursionError as error:
        raise JsonSyntaxError("nested too deeply", 0) from error
    return Node(text, _skip(text, 0), len(text.rstrip(" \t\r\n")), value)


def place(text: str, position: int) -> tuple[int, int]:
    """Return line and column of a character, both from 1."""
    before = NEWLINE.split(text[:position])
    return len(before), len(before[-1]) + 1


def append(text: str, container: Node, value: Any, key: str | None = None) -> TextEdit:
    """Add a value at the end of an array, or to an object under ``key``, formatted like the surrounding text."""
    if container.children:
        last = container.children[-1]
        opening = container.children[-2].node.end if len(container.children) > 1 else container.start
        gap = re.sub(r"[^ \t\r\n]", "", text[opening : last.start])
        if NEWLINE.search(gap):
            indent = NEWLINE.split(gap)[-1]
            written = _newline(text) + indent + _pretty(text, value, key, indent)
        else:
            written = (gap or _space(text)) + _compact(text, value, key)
        return TextEdit(last.node.end, last.node.end, f",{written}")
    if _on_lines(text):
        base = _indentation(text, container.start)
        indent = base + _unit(text)
        newline = _newline(text)
        written = newline + indent + _pretty(text, value, key, indent) + newline + base
    else:
        written = _compact(text, value, key)
    return TextEdit(container.end - 1, container.end - 1, written)


def remove(text: str, container: Node, child: Child) -> TextEdit:
    """Remove one value (with its key) from an array or object, with its comma and white space."""
    children = container.children
    index = children.index(child)
    if index > 0:
        return TextEdit(children[index - 1].node.end, child.node.end, "")
    if len(children) > 1:
        return TextEdit(child.start, children[1].start, "")
    before = text[container.start + 1 : child.start]
    kept = before.rfind(_newline(text))  # the text before is followed only by our own line break, if any
    return TextEdit(container.start + 1 + (len(before) if kept < 0 else kept), container.end - 1, "")


def replace(node: Node, value: Any) -> TextEdit:
    """Replace a value."""
    return TextEdit(node.start, node.end, json.dumps(value, ensure_ascii=False))


def blank_comments(text: str) -> str:
    """Return the text with each comment as spaces, so that it can be parsed and no position changes."""
    return COMMENT.sub(_blanked, text)


def without(text: str, container: Node, child: Child, places: Sequence[int] = ()) -> str:
    """Remove one value from a text with comments. The comments beside it stay.

    Args:
        text: The text with its comments.
        container: The array or object, in the text that was parsed.
        child: The value to remove.
        places: The positions in ``text`` of the parsed text's characters; empty if they are equal.
    """
    places = places or range(len(text) + 1)
    edit = remove(container.text, container, child).at(places)
    beside = text[edit.start : places[child.start]], text[places[child.node.end] : edit.end]
    return edit._replace(new="".join(map(_comments_of, beside))).apply(text)


def _blanked(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else re.sub(r"[^\r\n]", " ", match[0])


def _comments_of(part: str) -> str:
    return "".join(f" {one}{'' if one.startswith('/*') else chr(10)}" for one in COMMENT.findall(part))


def _skip(text: str, position: int) -> int:
    found = SPACE.match(text, position)
    return found.end() if found else position


@functools.lru_cache(maxsize=16)
def _children(text: str, start: int, is_object: bool) -> tuple[Child, ...]:
    """Return the children of the container at ``start`` of a valid document."""
    found: list[Child] = []
    at = _skip(text, start + 1)
    while text[at] not in "}]":
        first, key = at, None
        if is_object:
            key, at = DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        value, end = DECODER.raw_decode(text, at)
        found.append(Child(first, key, Node(text, at, end, value)))
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return tuple(found)


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
