"""Add crystal's entries to a JSON file that an agent and its user share, and remove them, changing nothing else.

The file may be JSON5. An entry is ours if it runs crystal's hook, even if a user added it; OpenClaw's two entries name
our plugin instead. ``others`` compares every result with the original, independently of the edit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crystal.install import jsontext
from crystal.install.json5 import as_json
from crystal.install.jsontext import Child, JsonSyntaxError, Node
from crystal.model.named_tuple import NamedTuple

OURS = re.compile(r"""(?:^|[/\\\s"'=])crystal[/\\]+hook(?:[/\\]+main)?\.py(?=$|["'\s])""")
"""Pattern of the hook of any version, in a command."""
SECTIONS = ("hooks", "plugins")
"""The keys of a document that may contain our entries."""
PLUGIN = "crystal"
PLUGIN_FOLDER = "crystal-plugin"


class Entry(NamedTuple):
    """A value to add: at the end of the list at ``path``, or under ``key`` in the object at ``path``."""

    path: tuple[str, ...]
    value: Any
    key: str | None = None

    @property
    def around(self) -> tuple[str, ...]:
        """Return the containers from the document to the entry, as keys joined by a dot, outermost first."""
        return tuple(".".join(self.path[:end]) for end in range(1, len(self.path) + 1))


class FoundEntry(NamedTuple):
    """An entry of ours: the containers and values from the document to it, and their keys without list indexes."""

    steps: tuple[tuple[Node, Child], ...]
    path: tuple[str, ...]

    @property
    def entry(self) -> Node:
        """Return the entry itself."""
        return self.steps[-1][1].node


def added(text: str, entries: Sequence[Entry], kept: Sequence[str]) -> str:
    """Return the document with exactly these entries of ours; unchanged if it has them.

    Args:
        text: The document.
        entries: The wanted entries.
        kept: See ``removed``.

    Raises:
        JsonSyntaxError: It is not JSON5, or a container has another type.
    """
    if ours(text) == sorted((".".join(entry.path), json.dumps(entry.value)) for entry in entries):
        return text
    text = removed(text, kept)
    for entry in entries:
        text = with_entry(text, entry)
    return text


def removed(text: str, kept: Sequence[str]) -> str:
    """Return the document without our entries, and without the lists and objects that become empty.

    Args:
        text: The document.
        kept: Containers that existed before our first entry (``containers``): they stay.

    Raises:
        JsonSyntaxError: It is not JSON5.
    """
    while True:
        entries = list(find(as_json(text).text))
        if not entries:
            return text
        text = without_entry(text, entries[-1], kept)


def without_entry(text: str, found: FoundEntry, kept: Sequence[str]) -> str:
    """Return the document without one of its entries; see ``removed``."""
    return jsontext.without(text, *_outermost(found, kept), as_json(text).places)


def ours(text: str) -> list[tuple[str, str]]:
    """Return our entries in a document, sorted: the path of each, and its value with the surrounding group as JSON."""
    found = []
    for steps, _ in find(as_json(text).text):
        lists = [at for at, (container, _) in enumerate(steps) if isinstance(container.value, list)]
        last = lists[0] if lists else len(steps) - 1
        path = ".".join(str(child.key) for _, child in steps[:last])
        found.append((path, json.dumps(steps[last][1].node.value)))
    return sorted(found)


def containers(text: str, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return those lists and objects around the entries that a document has."""
    root = jsontext.parse(as_json(text).text)
    around = dict.fromkeys(path for entry in entries for path in entry.around)
    return tuple(path for path in around if _at(root, path.split(".")) is not None)


def others(document: Any) -> Any:
    """Return a parsed document without our entries and without empty parts of our sections, for comparison."""
    if not isinstance(document, dict):
        return _others_in(document)
    pairs = {key: _others_in(value) if key in SECTIONS else value for key, value in document.items()}
    return {key: value for key, value in pairs.items() if key not in SECTIONS or value not in _EMPTY}


def _others_in(document: Any) -> Any:
    if isinstance(document, list):
        left = [_others_in(value) for value in document if not (is_ours(None, value) or _is_our_group(value))]
        return [value for value in left if value not in _EMPTY]
    if not isinstance(document, dict):
        return document
    pairs = {key: _others_in(value) for key, value in document.items() if not is_ours(key, value)}
    return {key: value for key, value in pairs.items() if value not in _EMPTY}


_EMPTY: tuple[object, ...] = ({}, [])


def is_ours(key: str | None, value: Any) -> bool:
    """Return True if a value in one of our sections is an entry of ours, of any version."""
    if isinstance(value, str):
        return key is None and value.replace("\\", "/").endswith("/" + PLUGIN_FOLDER)
    if not isinstance(value, Mapping):
        return False
    return _runs_hook(value.get("command")) or (key == PLUGIN and "enabled" in value and "hooks" in value)


def _is_our_group(value: Any) -> bool:
    entries = value.get("hooks") if isinstance(value, dict) else None
    return isinstance(entries, list) and bool(entries) and all(is_ours(None, entry) for entry in entries)


def _runs_hook(command: object) -> bool:
    return isinstance(command, str) and OURS.search(command) is not None


def find(plain: str) -> Iterator[FoundEntry]:
    """Yield our entries in a JSON document, in its order."""
    root = jsontext.parse(plain)
    for section in root.children if isinstance(root.value, dict) else ():
        if section.key in SECTIONS:
            yield from _below(((root, section),), (str(section.key),))


def _below(steps: tuple[tuple[Node, Child], ...], path: tuple[str, ...]) -> Iterator[FoundEntry]:
    node = steps[-1][1].node
    for child in node.children:
        further = (*steps, (node, child))
        if is_ours(child.key, child.node.value):
            yield FoundEntry(further, path)
        else:
            yield from _below(further, path if child.key is None else (*path, child.key))


def _outermost(found: FoundEntry, kept: Sequence[str]) -> tuple[Node, Child]:
    """Return the value to remove with an entry: the largest part around it that contains nothing else."""
    steps, path = list(found.steps), list(found.path)
    while len(steps) > 1:
        container = steps[-1][0]
        is_group = len(steps) > 2 and isinstance(steps[-2][0].value, list)  # a matcher without hooks has no meaning
        if len(container.children) > 1 and not (is_group and isinstance(container.value, dict)):
            break
        if ".".join(path) in kept and not is_group:
            break
        steps.pop()
        if steps[-1][1].key is not None:
            path.pop()
    return steps[-1]


def with_entry(text: str, entry: Entry) -> str:
    """Return the document with one more entry, and the missing containers around it.

    Raises:
        JsonSyntaxError: It is not JSON5, or a container has another type.
    """
    plain, places = as_json(text)
    node = jsontext.parse(plain)
    for depth, key in enumerate((*entry.path, None)):
        wanted = list if key is None and entry.key is None else dict
        if not isinstance(node.value, wanted):
            name = ".".join(entry.path[:depth]) or "the file"
            raise JsonSyntaxError(f"{name} should be {'a list' if wanted is list else 'an object'}", places[node.start])
        child = None if key is None else node.child(key)
        if key is not None and child is None:
            return jsontext.append(plain, node, _nested(entry, depth + 1), key).at(places).apply(text)
        node = child or node
    if entry.key is not None and node.child(entry.key) is not None:
        raise JsonSyntaxError(f"{'.'.join(entry.path)} has another {entry.key}", places[node.start])
    return jsontext.append(plain, node, entry.value, entry.key).at(places).apply(text)


def _nested(entry: Entry, depth: int) -> Any:
    value: Any = [entry.value] if entry.key is None else {entry.key: entry.value}
    for key in reversed(entry.path[depth:]):
        value = {key: value}
    return value


def _at(node: Node | None, path: Sequence[str]) -> Node | None:
    for key in path:
        node = node.child(key) if node is not None and isinstance(node.value, dict) else None
    return node
