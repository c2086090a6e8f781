"""Add, update and remove crystal's entries in the ``hooks`` of a settings document. Text to text.

Our entries are recognized by their command: a path that ends in ``crystal/hook/main.py``, however it was added. Entries
of other tools, and additions of the user to ours, are not changed.

Source: facts about Claude Code 2.1.329: one invalid value disables the whole settings file, so every result is parsed
again and compared with the intended one before it is written.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from crystal.install import jsontext
from crystal.install.jsontext import Child, JsonSyntaxError, Node

# Seconds until the client ends the hook. SessionEnd has 1.5 by default, and this is what raises it.
# PreCompact and PostCompact are left out: the client shows a line for each of their hooks after `/compact`.
TIMEOUTS: Mapping[str, int] = {
    "Stop": 10,
    "SubagentStop": 10,
    "SessionEnd": 5,
    "SessionStart": 10,
    "UserPromptSubmit": 5,
}
OURS = re.compile(r"""(?:^|[/\\\s"'=])crystal[/\\]+hook(?:[/\\]+main)?\.py(?=$|["'\s])""")
EMPTY = "{}\n"
Entry = tuple[Child, Child, Child]
"""An event, a group of it, and an entry of that group."""


def installed(text: str, command: str) -> str:
    """Give each event exactly one entry that runs ``command``; an older one of ours is updated in place.

    Raises:
        JsonSyntaxError: ``text`` is not strict JSON or no object, or ``hooks`` or an event has the wrong type.
    """
    text = text if text.strip(" \t\r\n") else EMPTY
    checked(text)
    text = _without_entries(text, _strays)
    for event, timeout in TIMEOUTS.items():
        root = checked(text)
        hooks = root.child("hooks")
        event_node = hooks.child(event) if hooks else None
        found = next(_ours_in(event_node), None) if event_node else None
        if found is not None:
            old = found[1].node.child("command")
            if old is not None and old.value != command:
                text = jsontext.replace(old, command).apply(text)
            continue
        group = {"hooks": [{"type": "command", "command": command, "timeout": timeout}]}
        if event_node is not None:
            text = jsontext.append(text, event_node, group).apply(text)
        elif hooks is not None:
            text = jsontext.append(text, hooks, [group], event).apply(text)
        else:
            text = jsontext.append(text, root, {event: [group]}, "hooks").apply(text)
    return text


def removed(text: str, before: str | None = None) -> str:
    """Remove all our entries, and the groups, events and ``hooks`` that are empty without them.

    If ``hooks`` is not an object, it has no entries of ours.

    Args:
        text: The document.
        before: The document before our first entry, if known. An event with an empty list there keeps it.

    Raises:
        JsonSyntaxError: ``text`` is not strict JSON.
    """
    known = None
    with contextlib.suppress(JsonSyntaxError):
        known = None if before is None else jsontext.parse(before).value
    return _without_entries(text, _all_ours, known)


def ours(text: str) -> dict[str, list[str]]:
    """Return the commands of our entries in a document, by event; an empty text has none."""
    found: dict[str, list[str]] = {}
    hooks = jsontext.parse(text).child("hooks") if text.strip() else None
    for event, _, entry in _all_ours(hooks) if hooks else ():
        found.setdefault(event.key or "", []).append(entry.node.value["command"])
    return found


def is_ours(entry: Any) -> bool:
    """Return True if a hook entry runs crystal's hook, of any version and path."""
    command = entry.get("command") if isinstance(entry, dict) else None
    return isinstance(command, str) and OURS.search(command) is not None


def without_ours(document: Any) -> Any:
    """Return a parsed document without our entries, empty lists of events and empty ``hooks``.

    Independent of ``installed`` and ``removed``, because it checks their results.
    """
    document = copy.deepcopy(document)
    hooks = document.get("hooks") if isinstance(document, dict) else None
    if not isinstance(hooks, dict):
        return document
    for event, groups in list(hooks.items()):
        if not isinstance(groups, list):
            continue
        left = []
        for group in groups:
            entries = group.get("hooks") if isinstance(group, dict) else None
            if isinstance(entries, list) and any(is_ours(entry) for entry in entries):
                entries[:] = [entry for entry in entries if not is_ours(entry)]
                if not entries:
                    continue
            left.append(group)
        hooks[event] = left
        if not left:
            del hooks[event]
    if not hooks:
        del document["hooks"]
    return document


def checked(text: str) -> Node:
    """Parse a settings document and check that our entries can be added.

    Raises:
        JsonSyntaxError: See ``installed``.
    """
    root = jsontext.parse(text)
    if not isinstance(root.value, dict):
        raise JsonSyntaxError(f"the settings should be an object, but are {_kind(root.value)}", root.start)
    hooks = root.child("hooks")
    if hooks is None:
        return root
    if not isinstance(hooks.value, dict):
        raise JsonSyntaxError(f'"hooks" should be an object, but is {_kind(hooks.value)}', hooks.start)
    for child in hooks.children:
        if child.key in TIMEOUTS and not isinstance(child.node.value, list):
            raise JsonSyntaxError(
                f'"hooks.{child.key}" should be a list, but is {_kind(child.node.value)}', child.node.start
            )
    return root


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _ours_in(event: Node) -> Iterator[tuple[Child, Child]]:
    """Return our entries in one event's list, each with its group."""
    for group in event.children if isinstance(event.value, list) else ():
        entries = group.node.child("hooks")
        for entry in entries.children if entries and isinstance(entries.value, list) else ():
            if is_ours(entry.node.value):
                yield group, entry


def _all_ours(hooks: Node) -> Iterator[Entry]:
    for event in hooks.children if isinstance(hooks.value, dict) else ():
        for group, entry in _ours_in(event.node):
            yield event, group, entry


def _strays(hooks: Node) -> Iterator[Entry]:
    """Return our entries of events no longer used, and all but the first of an event."""
    seen: set[str | None] = set()
    for event, group, entry in _all_ours(hooks):
        if event.key in seen or event.key not in TIMEOUTS:
            yield event, group, entry
        seen.add(event.key)


def _without_entries(text: str, find: Callable[[Node], Iterator[Entry]], known: Any = None) -> str:
    """Remove the entries that ``find`` returns, the last first: each removal moves the places of those after it."""
    while True:
        root = jsontext.parse(text)
        hooks = root.child("hooks")
        found = list(find(hooks)) if hooks else []
        if not found or hooks is None:
            return text
        text = _without(text, root, hooks, *found[-1], known)


def _without(text: str, root: Node, hooks: Node, event: Child, group: Child, entry: Child, known: Any) -> str:
    """Remove an entry, and the containers that become empty."""
    entries = group.node.child("hooks")
    if entries is not None and len(entries.children) > 1:
        return jsontext.remove(text, entries, entry).apply(text)
    known_hooks = known.get("hooks") if isinstance(known, dict) else None
    keeps_event = isinstance(known_hooks, dict) and event.key in known_hooks
    if len(event.node.children) > 1 or keeps_event:
        return jsontext.remove(text, event.node, group).apply(text)
    if len(hooks.children) > 1 or isinstance(known_hooks, dict):
        return jsontext.remove(text, hooks, event).apply(text)
    whole = next(child for child in root.children if child.node is hooks)
    return jsontext.remove(text, root, whole).apply(text)


def same(one: Any, other: Any) -> bool:
    """Return True if two parsed documents are equal in every value and in the order of every object's keys."""
    return json.dumps(one) == json.dumps(other)
