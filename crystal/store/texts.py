"""Convert texts of chunks to and from their stored form: compressed, alone or together with others.

``chunks.body`` refers to a text of a block in ``text_blocks``: one byte that names the dictionary, then a zstd frame
without its magic number, of many texts. An older crystal wrote plain text, or such a frame of one text.
The SQL function ``text_of`` computes ``chunks.text`` from it. The dictionary is part of the program and never changes;
it must not contain a user's words, which may have to be forgotten.
"""

# ruff: noqa: PLC0415 - every hook's worker opens the store, and one that finds nothing new reads no text

from __future__ import annotations

import struct
import weakref
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw

MAGIC = b"\x28\xb5\x2f\xfd"
ENGLISH = b"\x01"
LEVEL = 6
MIN_BYTES = 48
"""Shorter texts do not become smaller by compression."""

REFERENCE = b"\x02"
BLOCK_SIZE = 32_000
"""Characters of a block. Larger blocks save little space, and reading one text reads the whole block."""
BLOCK_LEVEL = 9
MAX_BLOCKS = 256
"""Number of cached blocks: a search reads the texts of some of its candidates twice."""

_PLACE = struct.Struct(">IH")
_LENGTH = struct.Struct("<I")
Block = tuple[bytes, tuple[int, ...]]
"""A block's bytes, and the length of each of its texts."""

_FILE = Path(__file__).with_name("texts-1.dictionary")


def packed(text: str) -> str | bytes:
    """Return the stored form of a text."""
    data = text.encode()
    if len(data) < MIN_BYTES:
        return text
    frame = _compressed(data, LEVEL)
    return frame if len(frame) < len(data) else text


def text_hash(text: str) -> bytes:
    """Return the hash by which equal texts are found: the first quarter of SHA-256."""
    import hashlib

    return hashlib.sha256(text.encode()).digest()[:8]


def pack_block(texts: Sequence[str]) -> bytes:
    """Return the stored form of several texts: how many, the length of each in bytes, and the texts."""
    encoded = [text.encode() for text in texts]
    lengths = b"".join(_LENGTH.pack(len(text)) for text in encoded)
    return _compressed(_LENGTH.pack(len(encoded)) + lengths + b"".join(encoded), BLOCK_LEVEL)


def reference(block: int, place: int) -> bytes:
    """Return the value of ``body`` for a chunk whose text is in a block."""
    return REFERENCE + _PLACE.pack(block, place)


def block_of(body: Any) -> int | None:
    """Return the block to which a chunk's body refers, or None."""
    if isinstance(body, bytes) and body[:1] == REFERENCE and len(body) == _PLACE.size + 1:
        return int(_PLACE.unpack(body[1:])[0])
    return None


class TextReader:
    """Read texts for the queries of one connection, with a cache of the last blocks."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = weakref.ref(db)
        self._blocks: dict[int, Block] = {}

    def text_of(self, body: Any) -> Any:
        """Return the stored text; empty if it is damaged, which ``crystal verify`` detects by its hash."""
        if not isinstance(body, bytes):
            return body
        block = block_of(body)
        if block is None:
            return _decoded(_decompressed(body))
        (data, lengths), place = self._block(block), _PLACE.unpack(body[1:])[1]
        if place >= len(lengths):
            return ""
        start = _LENGTH.size * (1 + len(lengths)) + sum(lengths[:place])
        return _decoded(data[start : start + lengths[place]])

    def _block(self, block: int) -> Block:
        known = self._blocks.pop(block, None)
        db = self._db()
        if known is None and db is not None:
            found = list(db.execute("SELECT body FROM text_blocks WHERE id = ?", (block,)))
            known = _unpacked(found[0][0]) if found else (b"", ())
            if db.txn_state("main") == apsw.SQLITE_TXN_WRITE:
                return known  # not cached: a transaction that is rolled back frees the number for another block
        self._blocks[block] = known or (b"", ())
        if len(self._blocks) > MAX_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        return self._blocks[block]


def register(db: apsw.Connection) -> None:
    """Register the SQL functions that read and write texts."""
    functions: tuple[tuple[str, Any, int], ...] = (
        ("text_of", TextReader(db).text_of, apsw.SQLITE_INNOCUOUS),
        ("packed", packed, 0),
        ("block_of", block_of, 0),
    )
    for name, function, flags in functions:
        db.create_scalar_function(name, function, 1, deterministic=True, flags=flags)


def _compressed(data: bytes, level: int) -> bytes:
    frame: bytes = _zstd().compress(data, options=_options(level), zstd_dict=_dictionary())
    return ENGLISH + frame[len(MAGIC) :]


def _decompressed(body: bytes) -> bytes:
    """Return the decompressed bytes, empty if they are damaged."""
    if body[:1] != ENGLISH:
        return b""
    reader = _zstd().ZstdDecompressor(zstd_dict=_dictionary())
    try:
        data: bytes = reader.decompress(MAGIC + body[1:])
    except _zstd().ZstdError:
        return b""
    return data if reader.eof and not reader.unused_data else b""


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


@lru_cache(maxsize=2)
def _unpacked(body: bytes) -> Block:
    """Return a block as it was packed. SQLite requests each text while the block is being written."""
    data = _decompressed(body)
    try:
        return data, struct.unpack_from(f"<{_LENGTH.unpack_from(data)[0]}I", data, _LENGTH.size)
    except struct.error:  # damaged
        return b"", ()


@cache
def _zstd() -> ModuleType:
    from crystal.model.zstd import zstd

    return zstd


@cache
def _dictionary() -> Any:
    return _zstd().ZstdDict(_FILE.read_bytes())


@cache
def _options(level: int) -> dict[int, int]:
    """Return zstd options: no dictionary name and no checksum in frames, because the store has a hash of every text."""
    parameter = _zstd().CompressionParameter
    return {parameter.compression_level: level, parameter.dict_id_flag: 0, parameter.checksum_flag: 0}
