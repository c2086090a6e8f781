"""Match the tool calls that an export shows with those of the agent's transcript, one with one. Pure.

An export shows a call in words of its own, with its result; what was asked of the tool is quoted in it, with shorter
paths at most. A call that quotes something else, though it has all words of another one, is not that one.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from crystal.model.named_tuple import NamedTuple

MAX_CALLS = 200
"""Calls of the agent that one in an export is compared with, if it quotes none: the first that are left of its tool."""
MAX_QUOTES = 8
MIN_ARGUMENT = 40
"""Characters of a quote that is recognized as any argument of a call."""
MIN_SHARE = 0.5
"""Share of a call's words that an export must have which does not quote it."""
_WORD = re.compile(r"\w+")
_ELLIPSIS = re.compile(r"(?:\.{3}|…)$")
_ARGUMENT = re.compile(r"[\w.-]+: ")
_QUOTE = re.compile(
    r"(`{3,})(?P<info>[^\n`]*)\n(?P<block>.*?)\n\1(?!`)|(?<!`)`(?P<code>[^`\n]+)`(?!`)|(?P<json>\"(?:[^\"\\]|\\.)*\")",
    re.DOTALL,
)


class CallText(NamedTuple):
    """A tool call: its line, the tool if it is named, and the text."""

    line: str
    tool: str | None
    text: str


class _Known(NamedTuple):
    """A call of the agent.

    Attributes:
        number: Its place.
        call: Its line, tool and text.
        main: The first line of the main argument, or all of the text if there is none.
        rest: The other lines of the text.
        words: Those of ``main``.
        file: The words in the name of the file that it names.
        has_main: Whether it has a main argument.
    """

    number: int
    call: CallText
    main: str
    rest: list[str]
    words: frozenset[str]
    file: frozenset[str]
    has_main: bool

    def share_in(self, said: Collection[str]) -> float:
        """Return the share of the call's words among some, 0 to 1; 1 if the name of its file is among them."""
        if not self.words or (self.file and self.file.issubset(said)):
            return 1.0
        return len(self.words.intersection(said)) / len(self.words)

    def main_of(self, quote: str) -> str | None:
        """Return what was asked of the tool if it has as many lines as a quote; None if it has more of them."""
        lines = quote.strip().count("\n")
        more = [line for line in self.rest[lines:] if line.strip()][:1]
        is_whole = not more or _ARGUMENT.match(more[0])
        return "\n".join([self.main, *self.rest[:lines]]) if is_whole else None


def match_calls(shown: Sequence[CallText], own: Sequence[CallText]) -> dict[int, str]:
    """Return the agent's line that each call of an export repeats, by the place of the call among ``shown``.

    First come those that are quoted, then those that share the most words.
    """
    left = {number: _known(number, call) for number, call in enumerate(own)}
    found = dict(_quoted(shown, left))
    pairs = [
        (-share, -len(known.main), place, known.number)
        for place, call in enumerate(shown)
        if place not in found
        for share, known in _similar(call, left.values())
    ]
    for *_, place, number in sorted(pairs):
        if place not in found and number in left:
            found[place] = left.pop(number).call.line
    return found


def _quoted(shown: Sequence[CallText], left: dict[int, _Known]) -> Iterator[tuple[int, str]]:
    """Yield the calls that are quoted in the export; take them out of those that are left."""
    by_name = defaultdict[tuple[str, ...], list[_Known]](list)
    for known in left.values():
        by_name[_name(known.main)].append(known)
    for place, call in enumerate(shown):
        for quote in _quotes(call.text):
            named = by_name[_name(quote)]
            same = [one for one in named if _is_of(call, one) and _is_same(quote, one.main_of(quote))]
            if same:
                nearest = min(same, key=lambda one: (len(one.main), one.number))
                named.remove(nearest)
                yield place, left.pop(nearest.number).call.line
                break


def _similar(call: CallText, left: Iterable[_Known]) -> Iterator[tuple[float, _Known]]:
    """Yield the agent's calls that an export may show in other words, each with the share of its words there."""
    said, quote = {*_WORD.findall(call.text)}, next(_quotes(call.text), "").rstrip()
    beginning = _ELLIPSIS.sub("", quote)
    for known in islice((one for one in left if _is_of(call, one)), MAX_CALLS):
        if quote and known.has_main:  # all of it is there, or its end is cut off
            is_cut = beginning != quote and known.main.startswith(beginning)
            is_argument = len(quote) >= MIN_ARGUMENT and quote in known.call.text
            share = float(is_cut or is_argument or f"`{known.main}`" in call.text)  # has marks of quotes in it
        else:
            share = known.share_in(said)
        if share >= MIN_SHARE:
            yield share, known


def _known(number: int, call: CallText) -> _Known:
    head, *rest = call.text.split("\n")
    main = head.partition(": ")[2]
    has_main = bool(main)
    if not has_main:
        main, rest = " ".join(rest), []
    file = main.rpartition("/")[2] if "/" in main and not re.search(r"\s", main) else ""
    words = frozenset(_WORD.findall(main))
    return _Known(number, call, main, rest, words, frozenset(_WORD.findall(file)), has_main)


def _is_of(call: CallText, known: _Known) -> bool:
    """Return whether an export may show a call: one of the same tool, or of one that the export does not name."""
    return call.tool == known.call.tool or (call.tool is None and bool(known.words))


def _quotes(text: str) -> Iterator[str]:
    """Yield what a text quotes, without the results of calls."""
    for found in islice((one for one in _QUOTE.finditer(text) if one["info"] != "text"), MAX_QUOTES):
        yield json.loads(found["json"], strict=False) if found["json"] else found["block"] or found["code"] or ""


def _name(text: str) -> tuple[str, ...]:
    """Return the words in the first line of a text, of paths only the names of the files."""
    return tuple(word.rpartition("/")[2] or word for word in text.strip().partition("\n")[0].split())


def _is_same(quote: str, main: str | None) -> bool:
    """Return whether a quote is what was asked of a tool, apart from the beginnings of paths."""
    words, others = quote.split(), (main or "").split()
    same = (
        one == other or other.endswith("/" + one.removeprefix("./")) for one, other in zip(words, others, strict=False)
    )
    return len(words) == len(others) and all(same)
