"""Recognise a line of a file again: by a keyed hash of it without spaces, so that no hash confirms a guess."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable

MIN_CHARACTERS = 8
"""A line with fewer, such as a brace, says nothing about who wrote it."""
_PLAIN = str.maketrans("'`", '""')
_SPACE = re.compile(r"\s+")
_LETTERS = re.compile(r"\w")

Hash = Callable[[str], int]


def plain_line(line: str) -> str:
    """Return a line as it is compared: without spaces, kinds of quotes and its last comma; empty if it is too short."""
    plain = _SPACE.sub("", line).translate(_PLAIN).rstrip(",;")
    return plain if len(plain) >= MIN_CHARACTERS and len(_LETTERS.findall(plain)) * 2 >= MIN_CHARACTERS else ""


def hasher(key: bytes) -> Hash:
    """Return a function that hashes a text to a number of 63 bits with a key."""
    start = hashlib.blake2b(key=key[:64], digest_size=8)

    def hash_of(text: str) -> int:
        digest = start.copy()
        digest.update(text.encode("utf-8", "surrogatepass"))
        return int.from_bytes(digest.digest(), "big") >> 1

    return hash_of


def line_hashes(lines: Iterable[str], hash_of: Hash) -> list[int | None]:
    """Return the hash of each line, None for lines that do not count."""
    return [hash_of(plain) if (plain := plain_line(line)) else None for line in lines]
