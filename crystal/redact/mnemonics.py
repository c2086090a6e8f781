"""Recovery phrases of wallets (BIP-39): 12, 15, 18, 21 or 24 words of the English list whose checksum holds.

Twelve words of the list in a row are ordinary in a dictionary and rare in prose; the checksum leaves one in sixteen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache

from crystal.redact.engine import compiled
from crystal.redact.spans import FORMAT, Span
from crystal.redact.work import FINDING, Work

SIZES = (24, 21, 18, 15, 12)
MAX_WORDS = 40
"""A longer run of words of the list is a dictionary, not a phrase."""

_BETWEEN = rb"(?:[\s,;\"'\[\]()|>*.:\-]|\d)"
_GAP_RAW = rb"(?:[\s,;\"'\[\]()|>*.:\-0-9]|\\+[nrt\"])"
MNEMONIC_HINTS = (rb"(?:[a-z]{3,8}" + _GAP_RAW + rb"+){11}[a-z]{3}",)
_PHRASE = rb"\b[a-z]{3,8}(?:" + _BETWEEN + rb"{1,8}[a-z]{3,8}\b){11,}"


@cache
def _words() -> dict[bytes, int]:
    from mnemonic import Mnemonic  # noqa: PLC0415 - takes 30 ms, and nearly no text needs it

    return {word.encode(): place for place, word in enumerate(Mnemonic("english").wordlist)}


def mnemonic_spans(text: bytes, work: Work) -> Iterator[Span]:
    """Yield the recovery phrases, from their first word to their last."""
    work.spend(len(text) * 15)
    for found in compiled(_PHRASE).finditer(text):
        work.spend(FINDING)
        run: list[tuple[int, int, int]] = []
        for word in compiled(rb"[a-z]{3,8}").finditer(text, *found.span()):
            work.spend(500)
            place = _words().get(word.group())
            if place is not None:
                run.append((place, *word.span()))
                continue
            yield from _phrases(run, work)
            run = []
        yield from _phrases(run, work)


def _phrases(run: list[tuple[int, int, int]], work: Work) -> Iterator[Span]:
    at = 0
    while len(run) <= MAX_WORDS and at + SIZES[-1] <= len(run):
        work.spend(FINDING)
        size = next((size for size in SIZES if _is_phrase([place for place, _, _ in run[at : at + size]], size)), 0)
        if size:
            yield Span(run[at][1], run[at + size - 1][2], "recovery-phrase", FORMAT)
        at += size or 1


def _is_phrase(places: list[int], size: int) -> bool:
    """Return whether the last bits are the checksum of the others."""
    if len(places) != size:
        return False
    value = 0
    for place in places:
        value = value << 11 | place
    check = size // 3
    entropy = (value >> check).to_bytes(size * 4 // 3, "big")
    return hashlib.sha256(entropy).digest()[0] >> (8 - check) == value & ((1 << check) - 1)
