r"""The first look at every line: could any rule find anything here? Nearly all bytes of a transcript end here.

It looks at the raw bytes of a line, before any unescaping, so every hint allows for ``\"``, ``\/`` and ``\n`` where
these can stand. A line that writes ordinary ASCII letters as ``\u0041`` always passes, and terminal colours are left
out before looking. A test holds every rule against it: what the rules find in a line, the prefilter lets through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from crystal.redact import engine
from crystal.redact.addresses import (
    ADDRESS_FOLDED,
    ADDRESS_LITERALS,
    COMMAND_HINTS,
    HEADER_HINTS,
    URL_HINTS,
    command_spans,
    header_spans,
    url_spans,
)
from crystal.redact.blocks import BLOCK_HINTS, BLOCK_LITERALS, block_spans
from crystal.redact.formats import FORMAT_HINTS, FORMAT_LITERALS, FORMAT_PATTERNS, format_spans
from crystal.redact.named import named_spans
from crystal.redact.named_hints import NAMED_HINTS
from crystal.redact.names import STEM_LITERALS
from crystal.redact.private import PRIVATE_HINT
from crystal.redact.recalled import FENCE_NAME
from crystal.redact.spans import Span

Prefilter = Callable[[bytes], bool]

_FAMILIES = (
    (BLOCK_HINTS, block_spans),
    (FORMAT_HINTS, format_spans),
    (URL_HINTS, url_spans),
    (HEADER_HINTS, header_spans),
    (COMMAND_HINTS, command_spans),
    (NAMED_HINTS, named_spans),
)

_WRITTEN_OUT = rb"\\u00[2-7]"
_COLOUR = re.compile(rb"(?:\x1b|\\+u001[bB])\[[0-9;?]*[A-Za-z]")
_COLOUR_HINT = rb"\x1b\[|u001[bB]\["


def secret_hints() -> list[bytes]:
    """Return everything that the first look looks for."""
    return [PRIVATE_HINT, FENCE_NAME, _WRITTEN_OUT, *(hint for hints, _ in _FAMILIES for hint in hints)]


@lru_cache(maxsize=1)
def secret_prefilter() -> Prefilter:
    """Return the prefilter for secrets, private spans and recalled text."""
    if not engine.HAVE_RE2:
        return plain_secret_prefilter()
    search = engine.re2_search([_COLOUR_HINT, *secret_hints()])

    def seen(text: bytes) -> bool:
        found = search(text)
        if found is None:
            return False
        if found.group()[:1] not in (b"\x1b", b"u"):
            return True
        return search(_COLOUR.sub(b"", text)) is not None

    return seen


@lru_cache(maxsize=1)
def plain_secret_prefilter() -> Prefilter:
    """Return the same, without RE2."""
    return _through_colours(
        engine.plain_prefilter(
            (FENCE_NAME, *BLOCK_LITERALS, *FORMAT_LITERALS, *ADDRESS_LITERALS),
            (b"private", *ADDRESS_FOLDED, *STEM_LITERALS),
            (*FORMAT_PATTERNS, _WRITTEN_OUT),
        )
    )


@lru_cache(maxsize=1)
def private_prefilter() -> Prefilter:
    """Return the prefilter for private spans and recalled text alone."""
    pattern = re.compile(PRIVATE_HINT)

    def seen(text: bytes) -> bool:
        if b"\\u00" in text and re.search(_WRITTEN_OUT, text):
            return True
        if FENCE_NAME in text:
            return True
        return b"private" in text.lower() and pattern.search(text) is not None

    return _through_colours(seen)


@lru_cache(maxsize=1)
def secret_families() -> tuple[tuple[Prefilter, Callable[[bytes], Iterator[Span]]], ...]:
    """Return the families of rules, each with the look that decides whether a plain text is worth its while."""
    if engine.HAVE_RE2:
        return tuple((_looks(hints), spans) for hints, spans in _FAMILIES)
    return tuple((_always, spans) for _, spans in _FAMILIES)


def _looks(hints: tuple[bytes, ...]) -> Prefilter:
    search = engine.re2_search(hints)
    return lambda text: search(text) is not None


def _always(text: bytes) -> bool:
    return bool(text)


def _through_colours(seen: Prefilter) -> Prefilter:
    def seen_without_colours(text: bytes) -> bool:
        if seen(text):
            return True
        if b"u001b" in text or b"\x1b" in text or b"u001B" in text:
            return seen(_COLOUR.sub(b"", text))
        return False

    return seen_without_colours
