r"""The first look at every line: could any rule find anything here? Nearly all bytes of a transcript end here.

It looks at the raw bytes of a line, before any unescaping, so every hint allows for ``\"``, ``\/`` and ``\n`` where
these can stand. A line that writes ordinary ASCII letters as ``\u0041`` always passes, and terminal colours are left
out before looking. A test holds every rule against it: what the rules find in a line, the prefilter lets through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain

from crystal.redact import regex_engines
from crystal.redact.addresses import (
    HEADER_HINTS,
    PGPASS_HINTS,
    URL_HINTS,
    header_spans,
    pgpass_spans,
    url_spans,
)
from crystal.redact.blocks import BLOCK_HINTS, block_spans
from crystal.redact.command_passwords import COMMAND_HINTS, COMMAND_WORDS, command_spans
from crystal.redact.encoded import DUMP_HINTS, dump_spans, encoded_hints, encoded_spans
from crystal.redact.formats import (
    LONG_LITERALS,
    SHORT_LITERALS,
    format_hints,
    format_literals,
    format_spans,
    holds_format,
)
from crystal.redact.manifests import MANIFEST_HINTS, manifest_spans
from crystal.redact.mnemonics import holds_phrase, mnemonic_spans
from crystal.redact.named import named_spans
from crystal.redact.named_hints import NAMED_HINTS
from crystal.redact.private import PRIVATE_HINT
from crystal.redact.recalled import FENCE_NAME
from crystal.redact.secret_columns import TABLE_HINTS, table_spans
from crystal.redact.spans import Span
from crystal.redact.spoken import SPOKEN_HINTS, SPOKEN_WORDS, spoken_spans
from crystal.redact.views import COLOUR, MAX_LEVELS, percent_decoded
from crystal.redact.work_limit import RedactionWork

Prefilter = Callable[[bytes], bool]
Rules = Callable[[bytes, RedactionWork], Iterator[Span]]

_HINTS: dict[Rules, tuple[bytes, ...]] = {
    block_spans: BLOCK_HINTS,
    url_spans: URL_HINTS,
    pgpass_spans: PGPASS_HINTS,
    header_spans: HEADER_HINTS,
    dump_spans: DUMP_HINTS,
    manifest_spans: MANIFEST_HINTS,
}
"""Families of rules, and what must be in a text for each to find anything."""
_WORDS: dict[Rules, tuple[bytes, ...]] = {command_spans: COMMAND_WORDS, spoken_spans: SPOKEN_WORDS}
"""The same for families with many words: with the others in one automaton each word would meet each state of theirs."""
_LOOKING = (format_spans, named_spans, table_spans, encoded_spans, mnemonic_spans)
"""Families that look for themselves: what they count in random letters would need an automaton of endless size."""


def families_in(text: bytes) -> list[Rules]:
    """Return the families of rules that may find something in a plain text."""
    found = map(list(_HINTS).__getitem__, _matcher()(text) or ())
    return [*found, *(rules for rules, words in _WORDS.items() if _holds(words)(text)), *_LOOKING]


@cache
def _matcher() -> Callable[[bytes], list[int] | None]:
    return regex_engines.matcher(_HINTS.values())


_WRITTEN_OUT = rb"\\u00[2-7]"
_ESCAPED_COLOUR = regex_engines.Lazy(rb"\\\\*u001[bB]\[[0-9;?]*[A-Za-z]")
_PRIVATE_HINTS = (PRIVATE_HINT, FENCE_NAME, _WRITTEN_OUT)
_LETTER = rb"[A-Za-z0-9_./+=~$%-]"
_LINE_END = rb"(?:\\+r|\r)?(?:\\+n|\n)"
_NEXT_LINE = _LINE_END + _LETTER
_SHORT_FREE = rb"(?:^|[^A-Za-z0-9]|\\[nrt])"
_CUT_HINTS = (
    rb"(?:" + b"|".join(map(re.escape, LONG_LITERALS)) + rb")" + _LETTER + rb"*" + _NEXT_LINE,
    rb"(?:" + _SHORT_FREE + rb"(?:" + b"|".join(re.escape(word) for word in SHORT_LITERALS if word != b"pat") + rb")"
    rb"|[0-9](?::AA|Q~))(?:" + _LETTER + rb"{6,}" + _NEXT_LINE + rb"{4}|" + _LETTER + rb"{0,5}" + _NEXT_LINE + rb"{6})",
    _SHORT_FREE + rb"pat(?:[A-Za-z0-9]{0,14}" + _LINE_END + rb"[A-Za-z0-9]{0,14}\.[0-9a-f]{16}"
    rb"|[A-Za-z0-9]{14}\.[0-9a-f]*" + _LINE_END + rb"[0-9a-f]{4})",
    rb"\$(?:2[abxy]|[56y])\$[A-Za-z0-9.=$/\\]*" + _NEXT_LINE,
    rb"SK[0-9a-f]+" + _NEXT_LINE + rb"[0-9a-f]{4}",
    rb"A3-[A-Z0-9-]+" + _NEXT_LINE,
    rb"(?:\\n|\n)(?:[0-9]{1,3}:AA[\w-]{16}|[0-9a-fA-F]{0,3}NRAL)",
)
"""A token that goes on in the next line: it was cut at the width of a terminal or of a mail."""


def secret_hints() -> tuple[tuple[bytes, ...], ...]:
    """Return everything that the first look looks for, in groups that have an automaton each.

    One for all would need a state for each pair of what two groups have read, which in random letters is a new one
    for nearly every byte.
    """
    return _OTHER_HINTS, _WORD_HINTS, NAMED_HINTS, TABLE_HINTS, encoded_hints(), (*_CUT_HINTS, *format_hints())


_WORD_HINTS = (*COMMAND_HINTS, *SPOKEN_HINTS)
_OTHER_HINTS = (*_PRIVATE_HINTS, *chain(*_HINTS.values()))
_MAX_JOINT = 16 * 1024
"""Bytes of a text that is read for words and other hints at once: less time, but more states in random letters."""


def _in_two_steps(near: tuple[bytes, ...], *exact: Prefilter) -> Prefilter:
    """Return a look that is exact where a near hint is found: most text holds none, and is read once."""
    search = regex_engines.scanner(near)
    return lambda text: search(text) is not None and any(holds(text) for holds in exact)


def _holds(hints: tuple[bytes, ...]) -> Prefilter:
    """Return whether a text holds a hint. Its automaton is made when it is asked first."""
    return lambda text: regex_engines.scanner(hints)(text) is not None


@cache
def secret_prefilter() -> Prefilter:
    """Return the prefilter for secrets, private spans and recalled text."""
    words = tuple(chain(*_WORDS.values()))
    exact = _holds(_OTHER_HINTS), _holds(_WORD_HINTS)
    apart = exact[0], _in_two_steps(words, exact[1])
    joint = (_in_two_steps((*_OTHER_HINTS, *words), *exact),)
    near_formats = (*_CUT_HINTS[1:], *format_literals())  # the first of _CUT_HINTS begins with a literal
    formats = _in_two_steps(near_formats, holds_format, _holds(_CUT_HINTS))

    def holds_other(text: bytes) -> bool:
        return any(look(text) for look in (joint if len(text) <= _MAX_JOINT else apart))

    named, tables, encoded = map(_holds, (NAMED_HINTS, TABLE_HINTS, encoded_hints()))
    # Names and formats first: a text dense with secrets is not read for anything else.
    return _prefilter([named, formats, holds_other, tables, encoded, holds_phrase], MAX_LEVELS)


@cache
def private_prefilter() -> Prefilter:
    """Return the prefilter for private spans and recalled text alone."""
    return _prefilter([_holds(_PRIVATE_HINTS)], 0)


def _prefilter(looks: list[Prefilter], url_levels: int) -> Prefilter:
    """Return the prefilter that lets through what one of the looks does, with colours left out.

    Args:
        looks: Asked in turn.
        url_levels: How many levels of the encoding of URLs are undone, if all say no.
    """

    def seen(text: bytes, levels: int = url_levels) -> bool:
        if b"\x1b[" in text:
            text = COLOUR.sub(b"", text)
        if b"\\u001" in text:
            text = _ESCAPED_COLOUR.sub(b"", text)
        if any(look(text) for look in looks):
            return True
        view = percent_decoded(text) if levels else None
        return view is not None and seen(view.text, levels - 1)

    return seen
