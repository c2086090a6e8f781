"""Judge the strings of JSON by the names that they are under: those of a line, and those of JSON in its strings."""

from __future__ import annotations

from itertools import accumulate

from crystal.redact.addresses import HEADER_HINTS, header_spans, names_header
from crystal.redact.lines import strings_of
from crystal.redact.named_value_hints import ANY_NAME, NAMED_HINTS
from crystal.redact.named_values import is_secret_beside
from crystal.redact.regex_engines import Lazy, scanner
from crystal.redact.spans import NAMED, STRING_END, Cut, masked, string_around
from crystal.redact.views import MAX_LEVELS, moved, unescaped
from crystal.redact.work_limit import CALL, FINDING, RedactionWork

_QUOTE = 70
"""Work for one quote of JSON in a string: what is between any two is looked at."""


def add_structured(cuts: list[Cut], text: bytes, work: RedactionWork, level: int = 0) -> bool:
    """Judge the strings of each string that is itself JSON by the keys that they are under, and JSON in them too.

    Returns:
        Whether the whole text is JSON.
    """
    is_json = False
    for begin in _JSON_START.finditer(STRING_END + text):
        start, end = string_around(text, begin.end() - 1 - len(STRING_END))
        found = _json_cuts(text[start:end], work, level)
        cuts += moved(found or [], None, start)
        is_json = found is not None and end - start == len(text)
    return is_json


_JSON_START = Lazy(STRING_END + rb"[ \t\r\n]*[{\[\"]")


def _may_name(text: bytes) -> bool:
    """Return whether JSON may have a secret under a telling name or the name of a header."""
    return any(scanner(hints)(text) is not None for hints in (NAMED_HINTS, HEADER_HINTS, _LIST_HINTS))


_LIST_HINTS = (ANY_NAME + rb"\\*\"(?:\s|\\+[nrt])*:(?:\s|\\+[nrt])*\[",)


def _json_cuts(text: bytes, work: RedactionWork, level: int) -> list[Cut] | None:
    """Return the secrets of a string; None if it is not JSON, or has no name that could tell of one."""
    if not _may_name(text):
        return None
    work.spend(text.count(b'"') * _QUOTE)
    strings = strings_of(text)
    if strings is None:
        return None
    cuts: list[Cut] = []
    nested = strings.nested()
    work.spend(len(strings) * 2 * _QUOTE + len(nested) * CALL // 4 + len(strings.names) * FINDING // 2)
    for number in sorted({*strings.names, *nested}):
        inner = strings.text(number)
        if number not in strings.names and not _may_name(inner):
            continue
        work.spend(2 * CALL)
        view = unescaped(inner)
        leaf = inner if view is None else view.text
        found = _named_leaf(strings.names[number], leaf, work) if number in strings.names else []
        if view is not None and level < MAX_LEVELS:
            add_structured(found, leaf, work, level + 1)
        cuts += moved(found, view, strings.start(number))
    return cuts


def named_cuts(names: dict[int, bytes], text: bytes, work: RedactionWork) -> list[Cut]:
    """Judge the strings that a text joins by the names that they are under, if these tell of a secret."""
    strings = text.split(STRING_END)
    starts = [*accumulate(map(len(STRING_END).__add__, map(len, strings)), initial=0)]
    return [
        Cut(starts[number] + start, starts[number] + end, kind, rank, secret)
        for number, name in names.items()
        for start, end, kind, rank, secret, *_ in _named_leaf(name, strings[number], work)
    ]


def _named_leaf(name: bytes, leaf: bytes, work: RedactionWork) -> list[Cut]:
    """Judge a whole JSON string by the key that it is under, and what a header of that name would hold."""
    plain = masked(leaf)
    kind = is_secret_beside(name, plain)
    cuts = [Cut(0, len(leaf), kind, NAMED, leaf)] if kind else []
    if not names_header(name):
        return cuts
    shift = len(name) + 2
    for start, end, kind, rank in header_spans(name + b": " + plain, work):
        if start >= shift:
            cuts.append(Cut(start - shift, end - shift, kind, rank, leaf[start - shift : end - shift]))
    return cuts
