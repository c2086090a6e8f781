"""Encode and decode the content of an object. Pure; input is authentic but still validated.

Layout: ``MIR1``, the length of the index (big-endian, 4 bytes), the index as JSON, then texts, documents, vectors. The
index stores the rows by column, because columns of similar values compress well, and the lengths of the parts after it.

Source: docs/spec/mirror.md, section 3.
"""

from __future__ import annotations

import base64
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from crystal.errors import Damaged
from crystal.store.sync.mirror_content import COLUMNS, KINDS, Content, Document, Row, VectorSpace
from crystal.store.sync.mirror_export import WIDE_DIMENSION

MAGIC = b"MIR1"
FORMAT = 2
BEFORE_MEMORIES = 1
"""Format of objects whose chunks have no ``memory``."""

MAX_DIMENSIONS = 65_536


class ContentUnreadable(Damaged):
    """An object opens, but its content is unknown to this version."""


def pack(content: Content) -> bytes:
    """Encode rows as bytes."""
    texts = [text.encode() for text in content.texts]
    index: dict[str, Any] = {
        "format": FORMAT,
        "first": content.first,
        "marks": base64.b64encode(content.marks).decode(),
        "rows": {table: [list(column) for column in zip(*rows, strict=True)] for table, rows in content.rows.items()},
        "texts": [len(text) for text in texts],
        "gone": content.gone,
        "documents": [[one.agent, one.path, len(one.content)] for one in content.documents],
        "refused": content.refused,
        "vectors": [ident for ident, _ in content.vectors],
    }
    space = content.space
    parts = [*texts, *(one.content for one in content.documents)]
    if space is not None:
        index["space"] = [space.id, space.provider, space.model, space.dimension]
        parts += [_narrowed(vector, space.dimension) for _, vector in content.vectors]
    head = orjson.dumps(index)
    return b"".join((MAGIC, struct.pack(">I", len(head)), head, *parts))


def unpack(data: bytes) -> Content:
    """Decode bytes into rows.

    Raises:
        ContentUnreadable: They are malformed, or from a newer version.
    """
    if len(data) < 8 or data[:4] != MAGIC:
        raise ContentUnreadable("an object of the mirror has no known beginning")
    (length,) = struct.unpack(">I", data[4:8])
    try:
        index = orjson.loads(data[8 : 8 + length])
        if index.get("format") == BEFORE_MEMORIES:
            _add_memory(index["rows"])
        elif index.get("format") != FORMAT:
            raise ContentUnreadable(
                f"the mirror has format {index.get('format')!r}, this crystal knows {FORMAT}",
                hint="upgrade crystal on this machine",
            )
        return _content(index, memoryview(data)[8 + length :])
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, struct.error) as error:
        raise ContentUnreadable(f"an object of the mirror cannot be understood ({type(error).__name__})") from error


def _add_memory(rows: dict[str, list[list[Any]]]) -> None:
    for table in ("chunks", "chunk_origins"):
        if table in rows:
            rows[table].append([None] * len(rows[table][0]))


def _content(index: Mapping[str, Any], body: memoryview) -> Content:
    content = Content(_whole(index["first"]), base64.b64decode(index["marks"], validate=True))
    if not content.marks or len(content.marks) % 8:
        raise ValueError("marks")
    content.rows = {table: _rows(table, columns) for table, columns in index["rows"].items()}
    place = 0
    for size in index["texts"]:
        content.texts.append(str(_slice(body, place, size), "utf-8"))
        place += size
    if len(content.texts) != len(content.rows.get("chunks", ())):
        raise ValueError("texts")
    for agent, path, size in index["documents"]:
        content.documents.append(Document(_text(agent), _text(path), bytes(_slice(body, place, size))))
        place += size
    content.gone = {kind: list(keys) for kind, keys in index["gone"].items() if kind in KINDS}
    if len(content.gone) != len(index["gone"]):
        raise ValueError("gone")
    place = _read_vectors(index, content, body, place)
    if place != len(body):
        raise ValueError("length")
    return content


def _read_vectors(index: Mapping[str, Any], content: Content, body: memoryview, place: int) -> int:
    if index.get("space") is None:
        return place
    ident, provider, model, dimension = index["space"]
    content.space = VectorSpace(_whole(ident), _text(provider), _text(model), _whole(dimension))
    if not 0 < content.space.dimension <= MAX_DIMENSIONS or content.space.id < 1:
        raise ValueError("dimension")
    content.refused = [_whole(chunk) for chunk in index["refused"]]
    width = dimension * (2 if dimension > WIDE_DIMENSION else 4)
    for chunk in index["vectors"]:
        content.vectors.append((_whole(chunk), _widened(_slice(body, place, width), dimension)))
        place += width
    return place


def _rows(table: str, columns: Sequence[Sequence[Any]]) -> list[Row]:
    if len(columns) != len(COLUMNS[table]):
        raise ValueError(table)
    for column in columns:
        for value in column:
            if not (value is None or type(value) in (int, str, float)):
                raise ValueError(table)
    return list(zip(*columns, strict=True))


def _slice(body: memoryview, place: int, size: int) -> memoryview:
    if _whole(size) < 0 or place + size > len(body):
        raise ValueError("length")
    return body[place : place + size]


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError("not a whole number")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError("not a text")
    return value


# --------------------------------------------------------------------------------------------------------- vectors


def _narrowed(vector: bytes, dimension: int) -> bytes:
    """Return a vector in its transfer format: long ones as half floats (11 bits of precision), short ones unchanged."""
    if len(vector) != 4 * dimension:
        raise ValueError(f"a vector of {len(vector)} bytes has no {dimension} numbers")
    if dimension <= WIDE_DIMENSION:
        return vector
    return struct.pack(f"<{dimension}e", *_floats(vector))


def _widened(data: memoryview, dimension: int) -> bytes:
    if dimension <= WIDE_DIMENSION:
        return bytes(data)
    return struct.pack(f"<{dimension}f", *struct.unpack(f"<{dimension}e", data))


def _floats(vector: bytes) -> array[float]:
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
