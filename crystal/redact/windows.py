"""Read a huge text in overlapping windows, so that memory holds none of its readings whole.

Each rule but two finds stretches that are far shorter than what two windows share. A private span or a fence may be of
any length, and the keys of JSON in a string tell of its values: such a text is still read whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from crystal.redact.prefilter import private_prefilter
from crystal.redact.regex_engines import LARGE, Lazy

SHARED = 256 << 10
"""Bytes that a window shares with the next. The longest stretch of a rule, the block of a private key, has 64 KB."""

_EDGE = Lazy(rb'[ \n]|(?<!\\)\\(?:[nrtbf"/\\]|u(?![dD][c-fC-F]))')
_EDGE_BYTES = 4096
_JSON = Lazy(rb'(?:\\+[nrt]|\s)*(?:[{\[]|\\*")')


def windows(source: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the windows of ``source[start:end]`` begin and end; none of them cuts a word or an escape."""
    while end - start > LARGE:
        stop = _edge(source, start + LARGE, end)
        if stop == end:
            break
        yield start, stop
        start = _edge(source, stop - SHARED, end)
    yield start, end


def owned_until(stop: int, end: int) -> int:
    """Return up to where a window that ends at ``stop`` finds what begins in it: both it and the next see enough."""
    return end if stop == end else stop - SHARED // 2


def is_divisible(source: bytes, start: int, end: int) -> bool:
    """Return whether windows of ``source[start:end]`` show all that it shows as a whole."""
    if end - start <= LARGE or _JSON.match(source, start, end):
        return False
    may_hide = private_prefilter()
    return not any(may_hide(source[at:stop], stop - at) for at, stop in windows(source, start, end))


def _edge(source: bytes, at: int, end: int) -> int:
    """Return where a window may begin or end: before white space or an escape, else between two characters."""
    found = _EDGE.search(source, at, min(at + _EDGE_BYTES, end))
    if found is not None:
        return found.start()
    while at < end and source[at] & 0xC0 == 0x80:
        at += 1
    return at
