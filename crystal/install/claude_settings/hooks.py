"""Add, update and remove crystal's entries in the ``hooks`` of a settings document. Text to text.

Our entries are recognized by their command: a path that ends in ``crystal/hook/main.py``, however it was added. Entries
of other tools, and the user's additions to ours, are not changed.

Source: facts about Claude Code 2.1.329: one invalid value disables the whole settings file, so every result is parsed
again and compared with the intended one before it is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from crystal.hook.assist import MOMENTS
from crystal.install import jsontext
from crystal.install.jsontext import JsonSyntaxError, Node
from crystal.install.live import json_entries
from crystal.install.live.json_entries import Entry, FoundEntry

# Seconds until the client ends the hook. SessionEnd has 1.5 by default; this raises it.
# PreCompact and PostCompact are left out: the client shows a line for each of their hooks after `/compact`.
TIMEOUTS: Mapping[str, int] = {
    "Stop": 10,
    "SubagentStop": 10,
    "SessionEnd": 5,
    "SessionStart": 10,
    "UserPromptSubmit": 5,
}
MATCHERS: Mapping[str, Mapping[str, str]] = {
    "PreToolUse": {"matcher": "Edit|Write|MultiEdit|NotebookEdit"},
    "PostToolUseFailure": {"matcher": "Bash"},
    "SubagentStart": {},
}
"""The events of assist, and the tools for which they run."""
MATCHER_TIMEOUT = 5
EMPTY = "{}\n"


def wanted(moments: Collection[str] = ()) -> dict[str, int]:
    """Return the events that get an entry, with their timeouts, including the events of assist for ``moments``."""
    return {**TIMEOUTS, **{event: MATCHER_TIMEOUT for event in MATCHERS if MOMENTS[event] in moments}}


def installed(text: str, command: str, moments: Collection[str] = (), before: str | None = None) -> str:
    """Give each event exactly one entry that runs ``command``; an older entry of ours is updated in place.

    Args:
        text: The document.
        command: The hook.
        moments: The moments at which assist gives facts; entries for its other events are removed.
        before: See ``removed``.

    Raises:
        JsonSyntaxError: ``text`` is not strict JSON or no object, or ``hooks`` or an event has the wrong type.
    """
    text = text if text.strip(" \t\r\n") else EMPTY
    events = wanted(moments)
    checked(text, events)
    while strays := _strays(_entries(text), events):
        text = json_entries.without_entry(text, strays[-1], _kept(before))
    for event, timeout in events.items():
        found = next((one for one in _entries(text) if _event_of(one) == event), None)
        if found is not None:
            old = found.entry.child("command")
            if old is not None and old.value != command:
                text = jsontext.replace(old, command).apply(text)
            continue
        group = {**MATCHERS.get(event, {}), "hooks": [{"type": "command", "command": command, "timeout": timeout}]}
        text = json_entries.with_entry(text, Entry(("hooks", event), group))
    return text


def removed(text: str, before: str | None = None) -> str:
    """Remove all our entries, and the groups, events and ``hooks`` that become empty.

    If ``hooks`` is not an object, it has no entries of ours.

    Args:
        text: The document.
        before: The document before our first entry, if known. An event that had an empty list there keeps it.

    Raises:
        JsonSyntaxError: ``text`` is not strict JSON.
    """
    jsontext.parse(text)
    return json_entries.removed(text, _kept(before))


def ours(text: str) -> dict[str, list[str]]:
    """Return the commands of our entries in a document, by event; an empty text has none."""
    found: dict[str, list[str]] = {}
    for one in _entries(text) if text.strip() else ():
        found.setdefault(_event_of(one), []).append(one.entry.value["command"])
    return found


def checked(text: str, events: Collection[str] = TIMEOUTS) -> Node:
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
        if child.key in events and not isinstance(child.node.value, list):
            raise JsonSyntaxError(
                f'"hooks.{child.key}" should be a list, but is {_kind(child.node.value)}', child.node.start
            )
    return root


def _kept(before: str | None) -> Sequence[str]:
    """Return the containers that stay even if they are empty, because ``before`` has them."""
    known: Any = None
    with contextlib.suppress(JsonSyntaxError):
        known = None if before is None else jsontext.parse(before).value
    events = known.get("hooks") if isinstance(known, dict) else None
    return ["hooks", *(f"hooks.{event}" for event in events)] if isinstance(events, dict) else ()


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _entries(text: str) -> list[FoundEntry]:
    return [one for one in json_entries.find(text) if one.path[0] == "hooks"]


def _event_of(found: FoundEntry) -> str:
    return found.path[1] if len(found.path) > 1 else ""


def _strays(entries: Sequence[FoundEntry], events: Collection[str]) -> list[FoundEntry]:
    """Return our entries for unused events, and all but the first entry of each other event."""
    seen: set[str] = set()
    strays = []
    for one in entries:
        event = _event_of(one)
        if event in seen or event not in events:
            strays.append(one)
        seen.add(event)
    return strays
