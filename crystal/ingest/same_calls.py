"""Match the tool calls in an export with those of the agent's transcript, one to one. Pure.

An export shows a call in its own words, together with the result; the call's argument is quoted in it, at most with
shorter paths. A call that quotes a different argument is a different call, even if it contains all words.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from crystal.model.capture import Turn
from crystal.model.named_tuple import NamedTuple
from crystal.store.sessions.conversations import SaidTurn

MAX_CALLS = 200
"""Maximum number of the agent's calls, the first unmatched ones of its tool, compared with a call without a quote."""
MAX_QUOTES = 8
MIN_ARGUMENT = 40
"""Minimum characters of a quote that may match any argument of a call."""
MIN_SHARE = 0.5
"""Minimum share of a call's words that an export's call without a quote must contain."""
_WORD = re.compile(r"\w+")
_ELLIPSIS = re.compile(r"(?:\.{3}|…)$")
_ARGUMENT = re.compile(r"[\w.-]+: ")
_QUOTE = re.compile(
    r"(`{3,})(?P<info>[^\n`]*)\n(?P<block>.*?)\n\1(?!`)|(?<!`)`(?P<code>[^`\n]+)`(?!`)|(?P<json>\"(?:[^\"\\]|\\.)*\")",
    re.DOTALL,
)


class _Known(NamedTuple):
    """A call of the agent.

    Attributes:
        number: Its index.
        call: The call.
        main: The first line of the main argument, or the whole text if there is none.
        rest: The other lines of the text.
        words: The words of ``main``.
        file: The words in the name of the file in ``main``, if it is a path.
        has_main: Whether it has a main argument.
    """

    number: int
    call: SaidTurn
    main: str
    rest: list[str]
    words: frozenset[str]
    file: frozenset[str]
    has_main: bool

    def share_in(self, said: Collection[str]) -> float:
        """Return the share of the call's words in ``said``, 0 to 1; 1 if its file's name is in ``said``."""
        if not self.words or (self.file and self.file.issubset(said)):
            return 1.0
        return len(self.words.intersection(said)) / len(self.words)

    def main_of(self, quote: str) -> str | None:
        """Return the main argument if it has at most as many lines as a quote; else None."""
        lines = quote.strip().count("\n")
        more = [line for line in self.rest[lines:] if line.strip()][:1]
        is_whole = not more or _ARGUMENT.match(more[0])
        return "\n".join([self.main, *self.rest[:lines]]) if is_whole else None


def match_calls(shown: Sequence[Turn], own: Sequence[SaidTurn]) -> dict[int, str]:
    """Return the agent's line for each call of an export that matches, by the call's index in ``shown``.

    Quoted calls are matched first, then those that share the most words.
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
            found[place] = left.pop(number).call.uuid
    return found


def _quoted(shown: Sequence[Turn], left: dict[int, _Known]) -> Iterator[tuple[int, str]]:
    """Yield (index in ``shown``, the agent's line) of quoted calls, and remove these from ``left``."""
    by_name = defaultdict[tuple[str, ...], list[_Known]](list)
    for known in left.values():
        by_name[_name(known.main)].append(known)
    for place, call in enumerate(shown):
        for quote in _quotes(call.text):
            named = by_name[_name(quote)]
            same = [one for one in named if _may_be_same_call(call, one) and _is_same(quote, one.main_of(quote))]
            if same:
                nearest = min(same, key=lambda one: (len(one.main), one.number))
                named.remove(nearest)
                yield place, left.pop(nearest.number).call.uuid
                break


def _similar(call: Turn, left: Iterable[_Known]) -> Iterator[tuple[float, _Known]]:
    """Yield the agent's calls that may match a call of an export, with the share of their words in it."""
    said, quote = {*_WORD.findall(call.text)}, next(_quotes(call.text), "").rstrip()
    beginning = _ELLIPSIS.sub("", quote)
    for known in islice((one for one in left if _may_be_same_call(call, one)), MAX_CALLS):
        if quote and known.has_main:  # either the export has all of it, or it was truncated
            is_cut = beginning != quote and known.main.startswith(beginning)
            is_argument = len(quote) >= MIN_ARGUMENT and quote in known.call.text
            share = float(is_cut or is_argument or f"`{known.main}`" in call.text)  # the backticks mark a quote
        else:
            share = known.share_in(said)
        if share >= MIN_SHARE:
            yield share, known


def _known(number: int, call: SaidTurn) -> _Known:
    head, *rest = call.text.split("\n")
    main = head.partition(": ")[2]
    has_main = bool(main)
    if not has_main:
        main, rest = " ".join(rest), []
    file = main.rpartition("/")[2] if "/" in main and not re.search(r"\s", main) else ""
    words = frozenset(_WORD.findall(main))
    return _Known(number, call, main, rest, words, frozenset(_WORD.findall(file)), has_main)


def _may_be_same_call(call: Turn, known: _Known) -> bool:
    """Return whether a call of an export may be the agent's: same tool, or the export does not name the tool."""
    return call.tool == known.call.tool or (call.tool is None and bool(known.words))


def _quotes(text: str) -> Iterator[str]:
    """Yield the quotations in a text, without the results of calls."""
    for found in islice((one for one in _QUOTE.finditer(text) if one["info"] != "text"), MAX_QUOTES):
        yield json.loads(found["json"], strict=False) if found["json"] else found["block"] or found["code"] or ""


def _name(text: str) -> tuple[str, ...]:
    """Return the words in the first line of a text, with paths reduced to file names."""
    return tuple(word.rpartition("/")[2] or word for word in text.strip().partition("\n")[0].split())


def _is_same(quote: str, main: str | None) -> bool:
    """Return whether a quote equals an argument, apart from the beginnings of paths."""
    words, others = quote.split(), (main or "").split()
    same = (
        one == other or other.endswith("/" + one.removeprefix("./")) for one, other in zip(words, others, strict=False)
    )
    return len(words) == len(others) and all(same)
