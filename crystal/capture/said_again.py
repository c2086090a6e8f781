"""Match the records of a copy with the same messages in a better file of the conversation, by their text. Pure.

The records of such copies have neither the ids nor the times of those in the better file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

Gists: TypeAlias = Counter[tuple[str, str]]
"""What a record says, with how often: (role, words)."""


def gists(turns: Iterable[tuple[str, str]]) -> Gists:
    """Return a form of turns, given as (role, text), that is equal in both files."""
    return Counter((role, _gist(role, text)) for role, text in turns)


def said_again(copies: Mapping[str, Gists], here: Mapping[str, Gists]) -> dict[str, tuple[str, ...]]:
    """Return which copies are said again whole, by the record that says the last of each.

    A text that stands twice in the copies must stand twice here.
    """
    left, found = sum(here.values(), Gists()), dict[str, tuple[str, ...]]()
    for name, said in copies.items():
        if said and said <= left:
            left -= said
            last = [ident for ident, own in here.items() if own & said][-1]
            found[last] = (*found.get(last, ()), name)
    return found


def says_less(here: Sequence[tuple[str, str]], before: Sequence[tuple[str, str]]) -> bool:
    """Return whether a record, given as (role, text), says only a part of what it said before.

    So it is in a file from a backup, in one that was cut short, and where a program deleted what a message said.
    """
    left = [(role, _gist(role, text)) for role, text in before]
    for role, text in here:
        gist = _gist(role, text)
        longer = next((one for one in left if one[0] == role and one[1].startswith(gist)), None)
        if longer is None:
            return False
        left.remove(longer)
    return gists(here) != gists(before)


def _gist(role: str, text: str) -> str:
    """Return a text without its white space; of a tool's call its main argument, because each file names tools anew."""
    line, _, _ = text.partition("\n")
    return " ".join((line.partition(": ")[2] or line if role == "tool_call" else text).split())
