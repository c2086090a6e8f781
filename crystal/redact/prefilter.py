r"""The first look at every line: could any rule find anything here? Nearly all bytes of a transcript end here.

It looks at the raw bytes of a line, before any unescaping, so every hint allows for ``\"``, ``\/`` and ``\n`` where
these can stand. A line that writes ordinary ASCII letters as ``\u0041`` always passes, and terminal colours are left
out before looking. A test holds every rule against it: what the rules find in a line, the prefilter lets through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache

from crystal.redact import regex_engines
from crystal.redact.addresses import (
    COMMAND_HINTS,
    HEADER_HINTS,
    PGPASS_HINTS,
    URL_HINTS,
    command_spans,
    header_spans,
    pgpass_spans,
    url_spans,
)
from crystal.redact.blocks import BLOCK_HINTS, block_spans
from crystal.redact.encoded import encoded_hints, encoded_spans
from crystal.redact.formats import FORMAT_LITERALS, format_hints, format_spans
from crystal.redact.mnemonics import MIN_PHRASE_BYTES, MNEMONIC_HINTS, holds_words, mnemonic_spans
from crystal.redact.named import named_spans
from crystal.redact.named_hints import NAMED_HINTS
from crystal.redact.private import PRIVATE_HINT
from crystal.redact.recalled import FENCE_NAME
from crystal.redact.spans import Span
from crystal.redact.views import MAX_LEVELS, percent_decoded
from crystal.redact.work import RedactionWork

Prefilter = Callable[[bytes], bool]
Rules = Callable[[bytes, RedactionWork], Iterator[Span]]

_FAMILIES: tuple[tuple[Callable[[], tuple[bytes, ...]], Rules], ...] = (
    (lambda: BLOCK_HINTS, block_spans),
    (format_hints, format_spans),
    (lambda: URL_HINTS, url_spans),
    (lambda: PGPASS_HINTS, pgpass_spans),
    (lambda: HEADER_HINTS, header_spans),
    (lambda: COMMAND_HINTS, command_spans),
    (lambda: NAMED_HINTS, named_spans),
    (encoded_hints, encoded_spans),
    (lambda: MNEMONIC_HINTS, mnemonic_spans),
)
"""Each family of rules: what must be in the text for it to find anything, and the rules. Only the last has its own
automaton in the first look, too: joined with the others it would need a state for every pair of theirs."""
_COUNTING = (format_spans, encoded_spans)
"""Families whose hints count letters. Each has its own automaton: one for all would, in a text of random letters, need
a new state for nearly every byte."""

_WRITTEN_OUT = rb"\\u00[2-7]"
_COLOUR = regex_engines.Lazy(rb"(?:\x1b|\\+u001[bB])\[[0-9;?]*[A-Za-z]")
_COLOUR_HINT = rb"\x1b\[|u001[bB]\["
_COLOUR_STARTS = b"\x1bu"
_PRIVATE_HINTS = (PRIVATE_HINT, FENCE_NAME, _WRITTEN_OUT)
_CUT_HINT = (
    rb"(?:"
    + rb"|".join(sorted(map(re.escape, FORMAT_LITERALS)))
    + rb")[A-Za-z0-9_./+=~-]*(?:\\+r)?(?:\\+n|\n)[A-Za-z0-9_./+=~-]"
)
"""A token that goes on in the next line: it was cut at the width of a terminal or of a mail."""


def secret_hints() -> list[bytes]:
    """Return everything that the first look looks for."""
    return [*_PRIVATE_HINTS, _CUT_HINT, *(hint for hints, _ in _FAMILIES[:-1] for hint in hints())]


@lru_cache(maxsize=1)
def secret_prefilter() -> Prefilter:
    """Return the prefilter for secrets, private spans and recalled text."""
    return _through_percent(_prefilter((_COLOUR_HINT, *secret_hints()), _holds_phrase))


@lru_cache(maxsize=1)
def private_prefilter() -> Prefilter:
    """Return the prefilter for private spans and recalled text alone."""
    return _prefilter((_COLOUR_HINT, *_PRIVATE_HINTS), lambda _: False)


def _prefilter(hints: tuple[bytes, ...], holds_more: Prefilter) -> Prefilter:
    """Return the prefilter that lets through what matches a hint, with colours left out, and what ``holds_more``."""
    search = regex_engines.scanner(hints)

    def seen(text: bytes) -> bool:
        found = search(text)
        if found is not None and text[found.start()] in _COLOUR_STARTS:
            text = _COLOUR.sub(b"", text)
            found = search(text)
        return found is not None or holds_more(text)

    return seen


def _holds_phrase(text: bytes) -> bool:
    return len(text) >= MIN_PHRASE_BYTES and holds_words(text, regex_engines.scanner(MNEMONIC_HINTS))


@cache
def _family_matchers() -> tuple[tuple[tuple[Rules, ...], Callable[[bytes], list[int] | None]], ...]:
    """Return the automata, each with the families that it tells of."""
    hints_of = {rules: hints for hints, rules in _FAMILIES[:-1]}
    groups = [tuple(rules for rules in hints_of if rules not in _COUNTING), *((rules,) for rules in _COUNTING)]
    return tuple((group, regex_engines.matcher(hints_of[rules]() for rules in group)) for group in groups)


def families_in(text: bytes) -> list[Rules]:
    """Return the families of rules that may find something in a plain text."""
    found = [group[number] for group, match in _family_matchers() for number in match(text) or ()]
    found.sort(key=[rules for _, rules in _FAMILIES].index)
    return [*found, mnemonic_spans] if _holds_phrase(text) else found


def _through_percent(seen: Prefilter) -> Prefilter:
    def seen_when_decoded(text: bytes) -> bool:
        if seen(text):
            return True
        if b"%" not in text:
            return False
        for _ in range(MAX_LEVELS):
            view = percent_decoded(text)
            if view is None:
                return False
            text = view.text
            if seen(text):
                return True
        return False

    return seen_when_decoded
