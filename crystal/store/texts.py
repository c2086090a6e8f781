"""The form in which the texts of chunks are stored: compressed where that is shorter.

``chunks.body`` holds a text, or a blob: one byte that names the dictionary, then a zstd frame without its magic number.
``chunks.text`` is computed from it by the SQL function ``text_of``, so every query reads texts as before. The
dictionary is part of the program and never changes: it must hold no words of a user, who may want them forgotten.
"""

# ruff: noqa: PLC0415 - every hook's worker opens the store, and one that finds nothing new reads no text

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw

MAGIC = b"\x28\xb5\x2f\xfd"
ENGLISH = b"\x01"
LEVEL = 6
MIN_BYTES = 48
"""Compression does not make shorter texts smaller."""

_FILE = Path(__file__).with_name("texts-1.dictionary")


def packed(text: str) -> str | bytes:
    """Return what is stored for a text."""
    data = text.encode()
    if len(data) < MIN_BYTES:
        return text
    frame = _zstd().compress(data, options=_options(), zstd_dict=_dictionary())
    return ENGLISH + frame[len(MAGIC) :] if len(frame) - len(MAGIC) + 1 < len(data) else text


def text_of(body: Any) -> Any:
    """Return the stored text; an empty one if it is damaged, which ``crystal verify`` detects by its hash."""
    if not isinstance(body, bytes):
        return body
    zstd = _zstd()
    try:
        return zstd.decompress(MAGIC + body[1:], zstd_dict=_dictionary()).decode() if body[:1] == ENGLISH else ""
    except (zstd.ZstdError, UnicodeDecodeError):
        return ""


def register(db: apsw.Connection) -> None:
    """Register the SQL function that reads texts on a connection."""
    read: Any = text_of
    write: Any = packed
    db.create_scalar_function("text_of", read, 1, deterministic=True, flags=apsw.SQLITE_INNOCUOUS)
    db.create_scalar_function("packed", write, 1, deterministic=True)


@cache
def _zstd() -> ModuleType:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


@cache
def _dictionary() -> Any:
    return _zstd().ZstdDict(_FILE.read_bytes())


@cache
def _options() -> dict[int, int]:
    """Return zstd options: no dictionary name and no checksum in frames, because the store has a hash of every text."""
    parameter = _zstd().CompressionParameter
    return {parameter.compression_level: LEVEL, parameter.dict_id_flag: 0, parameter.checksum_flag: 0}
