"""Find where texts name a thing (a file, an error, a branch ...), and classify names of things. Pure."""

from __future__ import annotations

import re
from typing import Literal

from crystal.work.errors import error_lines

ThingKind = Literal["file", "error", "branch", "pull request or issue", "commit", "name"]

MAX_LINE = 300
_NUMBERED = re.compile(
    r"(?:#|!|(?:pr|pull request|pull|issue|mr)[ /#!]*|https?://\S+/(?:pull|issues|merge_requests)/)(\d+)", re.IGNORECASE
)
_COMMIT = re.compile(r"(?=[0-9a-f]*\d)[0-9a-f]{7,40}")
_MARKS = re.compile(r"^(?:[|>*+-]+ |#{2,6} )+")
"""Marks that begin a line of a list, a table, a quotation or a heading in Markdown."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WRAPPED = re.compile(r"(?<=[^\n]{40})(?<![.!?:|])\n(?=[a-z`(])")
_ANNOUNCED = re.compile(r":(?:\*\*)?[ \t]*\n+[ \t]*(?:[-*+] |\d+[.)] )?(?!`{3})(?=\S)")


def kind_of_name(thing: str) -> ThingKind:
    """Return the kind of a thing, by the form of its name alone; ``name`` if only the memory can tell."""
    if _NUMBERED.fullmatch(thing):
        return "pull request or issue"
    if _COMMIT.fullmatch(thing):
        return "commit"
    return "error" if " " in thing and error_lines(thing) else "name"


def words_of(thing: str) -> list[str]:
    """Return the words to search for to find texts that name a thing: ``12`` for ``#12``."""
    number = _NUMBERED.fullmatch(thing)
    return [number[1]] if number else re.findall(r"\S+", thing)


def mentions(thing: str) -> re.Pattern[str]:
    """Return the pattern of a thing's name as a whole word, without regard to case."""
    number = _NUMBERED.fullmatch(thing)
    if number:
        return re.compile(
            rf"(?:[#!]|\b(?:pr|pull|pull request|issues?|merge_requests|mr)[ /#!]*){number[1]}(?!\w)", re.IGNORECASE
        )
    longer = r"[0-9a-f]*" if _COMMIT.fullmatch(thing) else ""
    name = r"\s+".join(map(re.escape, thing.split()))
    return re.compile(rf"(?<!\w){name}{longer}(?!\w)", re.IGNORECASE)


def joined(message: str) -> str:
    """Return a message without bold marks; wrapped lines are joined, and a line that ends in a colon with the next."""
    return _WRAPPED.sub(" ", _ANNOUNCED.sub(": ", message.replace("**", "")))


def sentences_with(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return the sentences and lines of a text that name the thing."""
    parts = (_MARKS.sub("", " ".join(part.split())).rstrip(" |") for part in _SENTENCE.split(text))
    return [part for part in parts if pattern.search(part)]


def shortened(pattern: re.Pattern[str], line: str) -> str:
    """Return a line, or the part of a long one that names the thing."""
    found = pattern.search(line)
    start = max(0, min((found.start() if found else 0) - MAX_LINE // 3, len(line) - MAX_LINE))
    return ("…" if start else "") + line[start : start + MAX_LINE] + ("…" if start + MAX_LINE < len(line) else "")
