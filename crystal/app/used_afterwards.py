"""Measure how many memories a session used after it was told them: whether their distinguishing words were said.

Words are compared, not meanings: a memory that is followed silently counts as unused, and words that would have been
said anyway count as use. Nothing is stored; a forgotten memory or session is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from crystal.model.named_tuple import NamedTuple
from crystal.store import Store
from crystal.store.sessions.contexts import Injection
from crystal.store.sessions.conversations import said_after
from crystal.text.query import STOP_WORDS

MAX_SESSIONS, MAX_TURNS = 50, 200
"""Limits: the latest sessions of a period that are read, and the turns of each, the first after it was told."""
MIN_WORDS, MIN_LETTERS = 2, 4
_WORD = re.compile(r"\w(?:[\w./:-]*\w)?")
IS_NAME = re.compile(r"[\d_./:]")


class Used(NamedTuple):
    """Memories that one session was told at a moment, and how many of them were used after it."""

    at: int
    memories: int
    used: int


def told_and_used(store: Store, log: Sequence[Injection], texts: Mapping[str, str]) -> list[Used]:
    """Return for the latest sessions of a log how many memories were told and used; ``texts`` are those by id."""
    found: list[Used] = []
    for one in log:
        told = {ident: texts[ident] for ident in one.chosen if ident in texts}
        if told and len(found) < MAX_SESSIONS:
            said = [text for _, text in said_after(store, one.session_id, one.at, MAX_TURNS)]
            if said:
                found.append(Used(one.at, len(told), len(used_of(told, said))))
    return found


def used_of(told: Mapping[str, str], said: Iterable[str]) -> list[str]:
    """Return the ids of the memories of which a text says one name, such as a file's, or two other words.

    Only words count that no other of the memories has.
    """
    heard, words = words_of(" ".join(said)), {ident: words_of(text) for ident, text in told.items()}
    used = []
    for ident, own in words.items():
        common = set().union(*(words[other] for other in words if other != ident))
        hits = (own - common) & heard
        if any(map(IS_NAME.search, hits)) or len(hits) >= min(MIN_WORDS, max(1, len(own))):
            used.append(ident)
    return used


def words_of(text: str) -> set[str]:
    """Return the names in a text, and its words that are long and not common."""
    words = set(_WORD.findall(text.casefold()))
    return {word for word in words - STOP_WORDS if len(word) >= MIN_LETTERS or IS_NAME.search(word)}
