"""Describe a tool as a client sees it, with the schemas of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]

MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    Attributes:
        name, title, description: As clients show them.
        run: The module and function of this package that answers, as ``module:function``.
        scope: The scope that a token needs, one of ``SCOPES`` in crystal/credentials/access.py.
        properties: The schemas of the arguments.
        required: Names of the required arguments.
        needs_folder: True if only agents on this machine have the tool.
        is_json: True if it always answers with JSON.
        repeats: True if a repeated call changes nothing more.
        open_world: True if it may use the network.
        renamed: The function's names of arguments, by the tool's names.
        fixed: Further arguments of the function.
    """

    name: str
    title: str
    description: str
    run: str
    scope: str
    properties: Mapping[str, Schema]
    required: tuple[str, ...] = ()
    needs_folder: bool = False
    is_json: bool = False
    repeats: bool = True
    open_world: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def input(self) -> Schema:
        """Return the schema of the arguments."""
        return {"type": "object", "properties": dict(self.properties), "required": list(self.required),
                "additionalProperties": False}  # fmt: skip

    @property
    def definition(self) -> dict[str, Any]:
        """Return the entry of the tool in ``tools/list``."""
        return {
            "name": self.name, "title": self.title, "description": self.description,
            "inputSchema": self.input,
            "annotations": {
                "title": self.title, "readOnlyHint": self.scope == "read", "destructiveHint": self.scope == "forget",
                "idempotentHint": self.repeats, "openWorldHint": self.open_world,
            },
        }  # fmt: skip


def text(description: str, most: int = MAX_NAME) -> Schema:
    """Return the schema of a text with its limits."""
    return {"type": "string", "minLength": 1, "maxLength": most, "description": description}


def number(description: str, low: int, high: int) -> Schema:
    """Return the schema of a whole number with its limits."""
    return {"type": "integer", "minimum": low, "maximum": high, "description": description}


def flag(description: str) -> Schema:
    """Return the schema of a switch that is off unless it is given."""
    return {"type": "boolean", "default": False, "description": description}


def one_of(description: str, values: Sequence[str]) -> Schema:
    """Return the schema of a choice between values."""
    return {"type": "string", "enum": list(values), "description": description}
