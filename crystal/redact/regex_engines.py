"""The regular expression engines: RE2 searches every byte for all rules at once, ``re`` applies the exact rules.

RE2 takes time linear in the text, forty times less than Python's own engine (measured in
docs/adr/0003-redaction-rules.md). Patterns are compiled when they are first used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import re2

from crystal.text.lazy_pattern import lazy_pattern

_AUTOMATON_BYTES = 32 << 20
"""Memory that RE2 may use. With less it starts over and over on long input; more gains nothing."""

LARGE = 4 << 20
"""Bytes above which a text is read in windows of that size."""

Search = Callable[..., Any]
"""``search(text, start)``: the first match at or after ``start``, or None."""


Lazy = lazy_pattern


@cache
def compiled(pattern: bytes) -> re.Pattern[bytes]:
    """Compile an exact rule when it is needed first: all of them together take longer than cleaning a turn."""
    return re.compile(pattern)


@cache
def scanner(hints: tuple[bytes, ...]) -> Search:
    """Return a function that finds the next match of any of ``hints``."""
    # (?U), reluctant: a match ends as soon as it can, so that no search reads far beyond what it has found.
    search: Search = re2.compile(b"(?U:" + _joined(hints) + b")", _options()).search
    return search


def matcher(groups: Iterable[Iterable[bytes]]) -> Callable[[bytes], list[int] | None]:
    """Return a function that lists which groups of hints match a text: None if none does."""
    patterns = re2.Set.SearchSet(_options())
    for hints in groups:
        patterns.Add(_joined(hints))
    patterns.Compile()
    match: Callable[[bytes], list[int] | None] = patterns.Match
    return match


_PART = Lazy(rb"(?s)\\.|\[(?:\\.|[^\\\]])+\]|[^\\\[()|]+|.")


def alternatives(hints: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the alternatives of hints in order: RE2 joins what begins alike only where it is side by side."""
    found, depth = [b""], 0
    for part in _PART.findall(b"|".join(hints)):
        depth += (part == b"(") - (part == b")")
        if part == b"|" and not depth:
            found.append(b"")
        else:
            found[-1] += part
    return tuple(sorted(found))


def _joined(hints: Iterable[bytes]) -> bytes:
    return b"|".join(b"(?:" + hint + b")" for hint in hints)


def _options() -> Any:
    options = re2.Options()
    options.max_mem = _AUTOMATON_BYTES
    options.never_capture = True  # a hint with a group in it costs five times as much where it matches
    options.encoding = re2.Options.Encoding.LATIN1  # bytes are bytes: a line need not be UTF-8
    return options


_AROUND, _MAX_STRETCH = 400, 64 * 1024
_REACH = 4096
"""Bytes around words that are read exactly: rules read at most a tenth of it, but escapes make text longer."""
_TOKEN_END = Lazy(rb"[^A-Za-z0-9_.+/=-]")


def stretches(
    text: bytes, hints: tuple[bytes, ...], reach: int = _AROUND, longest: int = _MAX_STRETCH
) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a text that can hold what ``hints`` tell of: a short one whole, of a long one parts.

    Otherwise one hint would have all patterns read all of a long text. Hints close to each other share a stretch: the
    next one is looked for only where the last stretch ends, and the more of them follow, the farther on.

    Args:
        text: Where to look.
        hints: What to look for.
        reach: Bytes before and after a hint that its stretch has at least.
        longest: Bytes of a word at its end that belong to it at most.
    """
    if len(text) < 8 * reach:
        yield 0, len(text)
        return
    search = scanner(hints)
    begin = stop = at = 0
    around = reach
    while (hint := search(text, at)) is not None:
        end = min(hint.end(), hint.start() + _MAX_STRETCH)
        around = min(2 * around, _MAX_STRETCH // 2) if stop and hint.start() <= stop else reach
        limit = min(end + _MAX_STRETCH, end + around + longest, len(text))
        after = _TOKEN_END.search(text, end + around, limit)
        if hint.start() - reach > stop:
            if stop:
                yield begin, stop
            begin = max(hint.start() - reach, 0)
        stop = max(stop, after.start() if after else limit)
        at = max(hint.end(), stop - reach // 2)
    if stop:
        yield begin, stop


def near_stretches(text: bytes, words: tuple[bytes, ...]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a text that are near one of ``words``; none of a text without any."""
    return stretches(text, words, _REACH) if scanner(words)(text) is not None else iter(())
