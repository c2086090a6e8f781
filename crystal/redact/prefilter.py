r"""Decide first if any rule could find anything in a line. Most lines of a transcript are read no further.

The prefilter reads the raw bytes of a line, before any unescaping, so every hint allows for ``\"``, ``\/`` and ``\n``
where these can be. A line that writes ordinary ASCII letters as ``\u0041`` always passes, and terminal colours are left
out first. A test compares it with every rule: a line in which a rule finds something passes the prefilter.
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
from crystal.redact.command_passwords import COMMAND_HINTS, command_spans, command_words
from crystal.redact.encoded import DUMP_HINTS, dump_spans, encoded_spans, literal_hints, shape_hints
from crystal.redact.formats import (
    LONG_LITERALS,
    SHORT_LITERALS,
    format_hints,
    format_literals,
    format_spans,
    holds_format,
)
from crystal.redact.inserts import INSERT_HINTS, insert_spans
from crystal.redact.manifests import MANIFEST_HINTS, manifest_spans
from crystal.redact.mnemonics import holds_phrase, mnemonic_spans
from crystal.redact.named_value_hints import NAMED_HINTS
from crystal.redact.named_values import named_spans
from crystal.redact.private import PRIVATE_HINT
from crystal.redact.recalled import FENCE_NAME
from crystal.redact.secret_columns import TABLE_HINTS, holds_table, table_spans
from crystal.redact.spans import Span
from crystal.redact.spoken import SPOKEN_HINTS, spoken_spans
from crystal.redact.views import COLOUR, MAX_LEVELS, percent_decoded
from crystal.redact.work_limit import RedactionWork

Look = Callable[[bytes], bool]
Prefilter = Callable[[bytes, int], bool]
"""Function that tells if a rule could find anything in a text, given the bytes of the longest string in it."""
Rules = Callable[[bytes, RedactionWork], Iterator[Span]]

_HINTS: dict[Rules, tuple[bytes, ...]] = {
    block_spans: BLOCK_HINTS,
    url_spans: URL_HINTS,
    pgpass_spans: PGPASS_HINTS,
    header_spans: HEADER_HINTS,
    dump_spans: DUMP_HINTS,
    manifest_spans: MANIFEST_HINTS,
    insert_spans: INSERT_HINTS,
    spoken_spans: SPOKEN_HINTS,
}
"""Families of rules, and what must be in a text for each to find anything."""
_LOOKING = (table_spans, format_spans, named_spans, encoded_spans, mnemonic_spans)
"""Families that have a search of their own: in one automaton with the others it would grow without end."""


def families_in(text: bytes) -> Iterator[Rules]:
    """Yield the families of rules that may find something in a plain text; others only if these find little."""
    yield from _LOOKING
    yield from map(list(_HINTS).__getitem__, _matcher()(text) or ())
    if _holds(command_words())(text):
        yield command_spans


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
"""Tokens that continue in the next line: they were cut at the width of a terminal or of an e-mail."""


def secret_hints() -> tuple[tuple[bytes, ...], ...]:
    """Return all hints that the prefilter searches for, in groups that have an automaton each.

    A single automaton would need a new state for nearly every byte of random letters.
    """
    formats = (_CUT_HINTS[0], *format_hints())
    return _OTHER_HINTS, COMMAND_HINTS, NAMED_HINTS, TABLE_HINTS, literal_hints(), shape_hints(), formats


_OTHER_HINTS = (*_PRIVATE_HINTS, *_CUT_HINTS[1:], *chain(*_HINTS.values()))
MIN_SECRET_BYTES = 7
"""Bytes of the shortest string in which a rule finds anything: ``pwd=abc``."""
MIN_TOKEN_BYTES = 15
"""The same for a token of a known format."""
MIN_TABLE_BYTES = 9
"""The same for a table: two names of columns, and a row."""


def _holds(hints: tuple[bytes, ...]) -> Look:
    """Return a function that tells if a text holds one of these hints. Its first call builds their automaton."""
    return lambda text: regex_engines.scanner(hints)(text) is not None


def _near(words: tuple[bytes, ...], exact: Look) -> Look:
    """Return a function that applies ``exact`` near ``words`` only: most texts hold none of them and are read once."""
    return lambda text: any(exact(text[start:end]) for start, end in regex_engines.near_stretches(text, words))


@cache
def secret_prefilter() -> Prefilter:
    """Return the prefilter for secrets, private spans and recalled text."""
    named, cut, other = map(_holds, (NAMED_HINTS, _CUT_HINTS[:1], _OTHER_HINTS))
    # Names, tables and formats first: a text dense with secrets is not read for anything else.
    looks = {
        named: MIN_SECRET_BYTES,
        holds_table: MIN_TABLE_BYTES,
        _near(format_literals(), lambda part: holds_format(part) or cut(part)): MIN_TOKEN_BYTES,
        other: MIN_SECRET_BYTES,
        _near(command_words(), _holds(COMMAND_HINTS)): MIN_SECRET_BYTES,
        _holds(literal_hints()): MIN_TOKEN_BYTES * 4 // 3,
        _holds(shape_hints()): MIN_TOKEN_BYTES * 4 // 3,
        holds_phrase: 0,  # each word may be a string
    }
    return _prefilter(looks, MAX_LEVELS)


@cache
def private_prefilter() -> Prefilter:
    """Return the prefilter for private spans and recalled text alone."""
    return _prefilter({_holds(_PRIVATE_HINTS): MIN_SECRET_BYTES}, 0)


_LONG, _HEAD = 256 << 10, 8 << 10
"""A text of more bytes has its first 8 kB searched first: one that is full of hints is not read to its end."""


def _prefilter(looks: dict[Look, int], url_levels: int) -> Prefilter:
    """Return a prefilter that passes a text if one of the looks does. Terminal colours are removed first.

    Args:
        looks: Called in turn, each only if the longest string has so many bytes: its rules match no shorter one.
        url_levels: How many levels of URL encoding are undone if no look passes the text.
    """

    def seen(text: bytes, longest: int, levels: int = url_levels) -> bool:
        if len(text) > _LONG and seen(text[:_HEAD], longest, levels):
            return True
        if b"\x1b[" in text:
            text = COLOUR.sub(b"", text)
        if b"\\u001" in text:
            text = _ESCAPED_COLOUR.sub(b"", text)
        if any(longest >= least and look(text) for look, least in looks.items()):
            return True
        view = percent_decoded(text) if levels else None
        return view is not None and seen(view.text, longest, levels - 1)

    return seen
