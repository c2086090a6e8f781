"""Match records with those seen before that have other ids, by what they say. Pure.

So it is where a file has less of a conversation than another, without the ids and the times of the better one; and
where an agent deletes messages, and the ids of the others tell their place, or the first prompt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import TypeAlias

from crystal.store.capture.snapshots import SeenRecord

Gists: TypeAlias = Counter[tuple[str, str]]
"""Words of a record, each with its count: (role, words)."""


Said: TypeAlias = tuple[str, str, str | None]
"""Compared values of a turn: role, text, tool."""


def gists(turns: Iterable[Said]) -> Gists:
    """Return a form of turns that is equal in both files."""
    return Counter((role, _gist(role, text)) for role, text, _ in turns)


def said_again(copies: Mapping[str, Gists], here: Mapping[str, Gists]) -> dict[str, tuple[str, ...]]:
    """Return which copies are said again whole, by the record that says the last of each.

    A text that is in the copies twice must be here twice.
    """
    left, found = sum(here.values(), Gists()), dict[str, tuple[str, ...]]()
    for name, said in copies.items():
        if said and said <= left:
            left -= said
            last = [ident for ident, own in here.items() if own & said][-1]
            found[last] = (*found.get(last, ()), name)
    return found


def known_ids(
    records: Sequence[tuple[str, bytes]], known: Mapping[str, bytes | None], lasting: Callable[[str], str]
) -> list[str]:
    """Return under which id each record of a conversation was seen; a new id for one that was not.

    A record is the one with its id and its content; else one with its content; else the one with its id, or with what
    lasts of it. No two are the same one.

    Args:
        records: Their ids and the hashes of their contents.
        known: The same of those that were seen; None where the hash is not known.
        lasting: Returns what of an id stays when the agent deletes other records.
    """
    found = {ident: ident for ident, digest in records if known.get(ident) == digest}
    for key in (lambda _, digest: digest), (lambda ident, _: lasting(ident)):
        left = defaultdict[object, list[str]](list)
        for ident in known.keys() - found.values():
            left[key(ident, known[ident])].append(ident)
        for ident, digest in records:
            if ident not in found and (same := left[key(ident, digest)]):
                found[ident] = min(same)
                same.remove(found[ident])
    taken = known.keys() | found.values()
    for ident, _ in records:
        names = chain([ident], (f"{ident}-{number}" for number in count(2)))
        found[ident] = found.get(ident) or next(name for name in names if name not in taken)
        taken.add(found[ident])
    return [found[ident] for ident, _ in records]


def says_less(here: Sequence[Said], before: Sequence[Said]) -> bool:
    """Return whether a record says only a part of what it said before, or no longer names a tool.

    So it is in a file from a backup, in one that was cut short, and where a program deleted what a message said, or
    the call of a tool.
    """
    left = [(role, _gist(role, text)) for role, text, _ in before]
    for role, text, _ in here:
        gist = _gist(role, text)
        wholes = (one for one in left if one[0] == role and (one[1].startswith(gist) or one[1].endswith(gist)))
        longer = next(wholes, None)
        if longer is None:
            return False
        left.remove(longer)
    return gists(here) != gists(before) or _named_tools(here) < _named_tools(before)


def _named_tools(turns: Sequence[Said]) -> int:
    return sum(tool is not None for *_, tool in turns)


def _gist(role: str, text: str) -> str:
    """Return a text without its white space; of a tool's call its main argument, because each file names tools anew."""
    line, _, _ = text.partition("\n")
    return " ".join((line.partition(": ")[2] or line if role == "tool_call" else text).split())


def is_wanted(old: SeenRecord | None, digest: bytes, *, skipped_too: bool) -> bool:
    """Return whether a record is to be captured, by what was seen of it before. What was private stays private."""
    if old is None:
        return True
    if old.state == "skipped":
        return skipped_too
    return old.state != "private" and old.hash != digest
