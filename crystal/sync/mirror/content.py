"""Encode and decode the content of an object. Pure; input is authentic but still validated.

An object is one JSON text. Rows are stored by column, because columns of similar values compress well.

Source: docs/spec/mirror.md, section 3.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import orjson

from crystal.errors import DamagedError
from crystal.store.sync.mirror_content import KINDS, ObjectRows, VectorSpace

FORMAT = 3
MAX_DIMENSIONS = 65_536
_WIDTHS = {kind: len(one.columns) for kind, one in KINDS.items()} | {"vector": 2}


def pack(content: ObjectRows) -> bytes:
    """Encode rows as bytes."""
    return orjson.dumps({
        "format": FORMAT,
        "first": content.first,
        "marks": base64.b64encode(content.marks).decode(),
        "rows": {kind: list(zip(*rows, strict=True)) for kind, rows in content.rows.items()},
        "gone": content.gone,
        "space": None if content.space is None else astuple(content.space),
    })  # fmt: skip


def unpack(data: bytes) -> ObjectRows:
    """Decode bytes into rows.

    Raises:
        DamagedError: They are malformed, or from a newer version.
    """
    try:
        fields = orjson.loads(data)
        if fields.get("format") != FORMAT:
            raise DamagedError(
                f"the mirror has format {fields.get('format')!r}, this crystal knows {FORMAT}",
                hint="upgrade crystal on this machine",
            )
        return _content(fields)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise DamagedError(f"an object of the mirror cannot be understood ({type(error).__name__})") from error


def _content(fields: Mapping[str, Any]) -> ObjectRows:
    content = ObjectRows(fields["first"], base64.b64decode(fields["marks"], validate=True))
    if type(content.first) is not int or not content.marks or len(content.marks) % 8:
        raise ValueError("place")
    for kind, columns in fields["rows"].items():
        if len(columns) != _WIDTHS[kind]:
            raise ValueError(kind)
        content.rows[kind] = list(zip(*columns, strict=True))
    content.gone = {kind: list(keys) for kind, keys in fields["gone"].items() if kind in KINDS}
    content.space = None if fields["space"] is None else VectorSpace(*fields["space"])
    _check_vectors(content)
    return content


def _check_vectors(content: ObjectRows) -> None:
    """Check that every vector is one of the model's.

    Raises:
        ValueError, TypeError, AttributeError: One is not.
    """
    space = content.space
    if space is not None and not (0 < space.dimension <= MAX_DIMENSIONS and space.id > 0):
        raise ValueError("dimension")
    for chunk, vector in content.rows.get("vector", ()):
        if type(chunk) is not int or space is None:
            raise ValueError("vector")
        if vector is not None and len(bytes.fromhex(vector)) != space.dimension:
            raise ValueError("vector")
