"""Check the arguments of a tool against its schema, in the part of JSON Schema that crystal's schemas use. Pure."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

from crystal.errors import UsageError


def checked(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check arguments and return them without those that are null, which counts as not given.

    Raises:
        UsageError: An argument is unknown, missing or invalid. The message names it and what is allowed.
    """
    properties: Mapping[str, Any] = schema["properties"]
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name not in properties:
            near = difflib.get_close_matches(name, properties, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(properties) or 'none'}"
            raise UsageError(f"there is no argument {name[:60]!r}", hint=hint)
    for name in schema.get("required", ()):
        if name not in given:
            raise UsageError(f"the argument {name} is missing", hint=str(properties[name].get("description", "")))
    return {name: _checked(name, properties[name], value) for name, value in given.items()}


def _checked(name: str, rule: Mapping[str, Any], value: Any) -> Any:
    """Return a value that is valid under its rule; a whole number written as 5.0 becomes 5."""
    if "anyOf" in rule:
        for one in rule["anyOf"]:
            if _is_a(one["type"], value):
                return _checked(name, one, value)
        raise _wrong(name, " or ".join(_A[one["type"]] for one in rule["anyOf"]))
    kind = rule["type"]
    if not _is_a(kind, value):
        raise _wrong(name, _A[kind])
    if "enum" in rule and value not in rule["enum"]:
        raise _wrong(name, f"one of {', '.join(map(str, rule['enum']))}")
    if kind == "string":
        _check_length(name, len(value), rule.get("minLength", 0), rule.get("maxLength"), "characters")
        return value.encode("utf-8", "replace").decode()  # half a surrogate pair is no text
    if kind == "array":
        _check_length(name, len(value), rule.get("minItems", 0), rule.get("maxItems"), "items")
        return [_checked(f"{name}[{at}]", rule["items"], one) for at, one in enumerate(value)]
    if kind in ("integer", "number"):
        low, high = rule.get("minimum", -math.inf), rule.get("maximum", math.inf)
        if not low <= value <= high:
            raise _wrong(name, f"from {low} to {high}")
        return int(value) if kind == "integer" else value
    return value


_A = {"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
      "array": "a list"}  # fmt: skip


def _is_a(kind: str, value: Any) -> bool:
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds: dict[str, tuple[type, ...]] = {"string": (str,), "number": (int, float), "array": (list,)}
    return isinstance(value, kinds[kind])


def _check_length(name: str, length: int, low: int, high: int | None, what: str) -> None:
    if length < low or (high is not None and length > high):
        most = "any number" if high is None else str(high)
        raise UsageError(f"{name} has {length} {what}", hint=f"use {low} to {most}")


def _wrong(name: str, allowed: str) -> UsageError:
    return UsageError(f"{name} has a wrong value", hint=f"{name} is {allowed}")
