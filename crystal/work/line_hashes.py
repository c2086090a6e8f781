"""Hash lines of files without their spaces, to recognise them again. The hash is keyed: it cannot confirm a guess."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from crystal.hook.matching import plain_line

Hash = Callable[[str], int]


def hasher(key: bytes) -> Hash:
    """Return a function that hashes a text to a number of 63 bits with a key."""
    start = hashlib.blake2b(key=key[:64], digest_size=8)

    def hash_of(text: str) -> int:
        digest = start.copy()
        digest.update(text.encode("utf-8", "surrogatepass"))
        return int.from_bytes(digest.digest(), "big") >> 1

    return hash_of


def line_hashes(lines: Iterable[str], hash_of: Hash) -> list[int | None]:
    """Return the hash of each line; None for lines that are too short."""
    return [hash_of(plain) if (plain := plain_line(line)) else None for line in lines]
