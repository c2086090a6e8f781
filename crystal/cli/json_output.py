"""Print JSON: values by their names, times as ISO 8601."""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from typing import Any

from crystal.timewords.parse import iso

TIMES = frozenset(
    "at created_at first_at forked_at from_at heard_at last_at paired_at retry_at revoked_at since started_at timestamp"
    " until_at updated_at".split()
)
"""Names of values that are times in ms since the epoch."""


def print_json(found: dict[str, Any], **layout: Any) -> None:
    """Print one JSON object with the version of its format."""
    print(json.dumps({"schema": 1, **found}, default=bytes.hex, **layout))


def iso_times(found: Any, names: AbstractSet[str] = TIMES) -> Any:
    """Return a value for JSON: dataclasses as objects, and times as text; ``names`` are the keys of times."""
    if isinstance(found, list | tuple):
        return [iso_times(one, names) for one in found]
    fields = getattr(type(found), "__match_args__", None)  # of a dataclass; ``asdict`` takes three times as long
    if fields is not None:
        found = {name: getattr(found, name) for name in fields}
    if isinstance(found, dict):
        return {key: iso(one) if key in names else iso_times(one, names) for key, one in found.items()}
    return found


def record(one: Any) -> dict[str, Any]:
    """Return all attributes of a dataclass for JSON; the attribute ``memory`` becomes ``from``."""
    return {"from" if name == "memory" else name: value for name, value in iso_times(one).items()}


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
