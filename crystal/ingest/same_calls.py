"""Match the tool calls that an export shows with those of the agent's transcript, one with one. Pure.

An export shows a call in words of its own, with its result; what was asked of the tool is quoted in it, with shorter
paths at most. A call that quotes something else, though it has all words of another one, is not that one.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, takewhile

from crystal.model.named_tuple import NamedTuple

MAX_CALLS = 200
"""Calls of the agent that one in an export is compared with, if it quotes none: the first that are left of its tool."""
MAX_QUOTES = 8
MIN_SHARE = 0.5
"""Share of a call's words that an export must have which does not quote it."""
_WORD = re.compile(r"\w+")
_ARGUMENT = re.compile(r"[\w.-]+: ")
_QUOTE = re.compile(
    r"(`{3,})[^\n`]*\n(?P<block>.*?)\n\1(?!`)|(?<!`)`(?P<code>[^`\n]+)`(?!`)|(?P<json>\"(?:[^\"\\]|\\.)*\")", re.DOTALL
)


class CallText(NamedTuple):
    """A tool call: its line, the tool if it is named, and the text."""

    line: str
    tool: str | None
    text: str


class _Known(NamedTuple):
    """A call of the agent: what was asked of the tool, in its first line, and the other lines of its text.

    ``file`` are the words in the name of the file that it names.
    """

    number: int
    call: CallText
    main: str
    rest: list[str]
    file: frozenset[str]

    def share_in(self, said: Collection[str]) -> float:
        """Return the share of the call's words among some, 0 to 1; 1 if the name of its file is among them."""
        words = {*_WORD.findall(self.main)}
        if not words or (self.file and self.file.issubset(said)):
            return 1.0
        return len(words.intersection(said)) / len(words)

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
    said, quote = {*_WORD.findall(call.text)}, next(_quotes(call.text), "")
    for known in islice((one for one in left if _is_of(call, one)), MAX_CALLS):
        share = known.share_in(said)
        if share >= MIN_SHARE and not (quote and known.main and _is_other(call.text, quote, known)):
            yield share, known


def _is_other(text: str, quote: str, known: _Known) -> bool:
    """Return whether an export quotes a call that has all of another one, and more; or all of it but a part."""
    main = known.main_of(quote)
    if main is None:
        return True
    main = "\n".join(takewhile(lambda line: not _ARGUMENT.match(line), main.split("\n"))) or known.main
    if f"`{main}`" in text or _is_cut(quote, main):  # with marks of quotes in it
        return False
    quoted, words = Counter(_WORD.findall(quote)), Counter(_WORD.findall(main))
    return quoted != words and (quoted <= words or words <= quoted)


def _known(number: int, call: CallText) -> _Known:
    head, *rest = call.text.split("\n")
    main = head.partition(": ")[2]
    if not main:
        main, rest = " ".join(rest), []
    file = main.rpartition("/")[2] if "/" in main and not re.search(r"\s", main) else ""
    return _Known(number, call, main, rest, frozenset(_WORD.findall(file)))


def _is_of(call: CallText, known: _Known) -> bool:
    """Return whether an export may show a call: one of the same tool, or of one that the export does not name."""
    return call.tool == known.call.tool or (call.tool is None and bool(_WORD.search(known.main)))


def _quotes(text: str) -> Iterator[str]:
    for found in islice(_QUOTE.finditer(text), MAX_QUOTES):
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


def _is_cut(quote: str, main: str) -> bool:
    shorter = re.sub(r"(?:\.{3}|…)$", "", quote.rstrip())
    return len(shorter) < len(quote.rstrip()) and main.startswith(shorter)
