"""Print answers, as text or as JSON: values by their names, times as ISO 8601."""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

from crystal.cli.render import note, say, say_nothing
from crystal.timewords.parse import iso

TIMES = frozenset(
    "at created_at first_at forked_at from_at heard_at last_at paired_at retry_at revoked_at since started_at timestamp"
    " until_at updated_at".split()
)
"""Names of values that are times in ms since the epoch."""


def print_json(found: dict[str, Any], **layout: Any) -> None:
    """Print one JSON object with the version of its format."""
    print(json.dumps({"schema": 1, **found}, default=bytes.hex, **layout))


def answer(
    found: dict[str, Any],
    lines: Iterable[str],
    *,
    as_json: bool,
    notes: Iterable[str] = (),
    nothing: tuple[str, str] | None = None,
    **layout: Any,
) -> None:
    """Print an answer: as one JSON object, or as notes and lines.

    Args:
        found: The answer for ``--json``.
        lines: The answer for people.
        as_json: Which of both to print.
        notes: Printed to standard error, before the lines; the object has its own.
        nothing: Without lines: what there is not, and the next step.
        layout: How ``json.dumps`` writes the object.
    """
    if as_json:
        print_json(found, **layout)
        return
    note(*notes)
    is_empty = True
    for line in lines:  # one after the other: what makes them may print to standard error between them
        say(line)
        is_empty = False
    if is_empty and nothing is not None:
        say_nothing(*nothing)


def record(found: Any, times: AbstractSet[str] = TIMES) -> Any:
    """Return a value for JSON, as deep as it goes; ``times`` are the keys of times, which become text.

    Dataclasses become objects with all their attributes; the attribute ``memory`` becomes ``from``.
    """
    if isinstance(found, list | tuple):
        return [record(one, times) for one in found]
    fields = getattr(type(found), "__match_args__", None)  # of a dataclass; ``asdict`` takes three times as long
    if fields is not None:
        found = {"from" if name == "memory" else name: getattr(found, name) for name in fields}
    if isinstance(found, dict):
        return {key: iso(one) if key in times else record(one, times) for key, one in found.items()}
    return found


def json_row(one: object, *names: str, **renamed: str) -> dict[str, Any]:
    """Return some attributes of a value for JSON.

    Args:
        one: The value.
        names: Attributes with the same name in JSON.
        renamed: Attributes with another name in JSON, by that name.
    """
    attributes = {**dict(zip(names, names, strict=True)), **renamed}
    values = {name: getattr(one, attribute) for name, attribute in attributes.items()}
    return {name: iso(value) if attributes[name] in TIMES else value for name, value in values.items()}
