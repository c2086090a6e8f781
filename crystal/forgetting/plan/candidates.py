"""Find turns that may hold some words with the search index, instead of reading every text.

The index may return too many turns, never too few: the caller reads those texts and compares. If it cannot answer
(missing, behind, or none of the words is indexed) the result is None: read everything.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from crystal.forgetting.match.terms import QUOTE, Terms, folded
from crystal.search.index import folder_of
from crystal.search.index.files import IndexDamaged
from crystal.search.index.reader import Absent, Index, open_index
from crystal.search.index.terms import Tokenize, normalised
from crystal.store import Store
from crystal.store.search.words import tokenizer
from crystal.text.query import ENDINGS

Turns = npt.NDArray[np.int64]

MAX_WORD = 200
"""Maximum characters; a longer word may be cut in two by the border of a chunk."""

MAX_WORDS = 6
"""Maximum number of words of a text that are looked up: the longest, which are the rarest."""

MAX_TEXTS = 500
"""For more texts than this, reading everything once is faster."""

MIN_PART = 3
"""Minimum characters of a part of a word that is looked up."""

MIN_PIECES = 3
"""A text of fewer words may contain no complete word."""

BEFORE = "tatata"
"""Stands for any text before a part of a word: stemming shortens a long word the most."""

_WORD = re.compile(r"[^\W_]+")
# Scripts with vowel signs, which byte matching treats as borders and the index not as letters: every text is read.
_UNUSUAL = re.compile(
    "[^\0-\u036f\u0370-\u0482\u048a-\u052f\u1100-\u11ff\u1e00-\u20cf\u2100-\u303f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]|[\u0300-\u036f\u200b-\u200f\u2060-\u206f]"
)


class Candidates:
    """Queries one state of the index. Use it inside the ``store.reading()`` that ``opened`` holds."""

    def __init__(self, index: Index, tokenize: Tokenize) -> None:
        self._index, self._tokenize = index, tokenize

    def with_terms(self, terms: Terms) -> set[int] | None:
        """Return the turns that may have all words and phrases of a query."""
        found = [self._whole(word) for word in terms.words]
        found += [self._anywhere(phrase) for phrase in terms.phrases]
        return self._in_all(found)

    def repeating(self, texts: Sequence[str]) -> set[int] | None:
        """Return the turns that may equal, or contain, one of some texts."""
        sought = {text for text in map(folded, texts) if text}
        if len(sought) > MAX_TEXTS:
            return None
        turns: set[int] = set()
        for text in sought:
            found = self._in_all([self._anywhere(text) if len(text) >= QUOTE else self._whole(text)])
            if found is None:
                return None
            turns |= found
        return turns

    @staticmethod
    def _in_all(found: Sequence[Turns | None]) -> set[int] | None:
        known = [turns for turns in found if turns is not None]
        if not known:
            return None
        left = known[0]
        for turns in known[1:]:
            left = np.intersect1d(left, turns, assume_unique=True)
        return {int(turn) for turn in left if turn}

    def _whole(self, text: str) -> Turns | None:
        """Return the turns that have every word of a text that starts and ends at word borders."""
        words = sorted(set(self._tokenize(normalised(text))), key=lambda word: (-len(word), word))[:MAX_WORDS]
        return self._having([self._one(word) for word in words]) if words and _is_usual(text) else None

    def _anywhere(self, text: str) -> Turns | None:
        """Return the turns that may have a text that may start and end within a word."""
        pieces = text.split(" ")
        inner = None if len(pieces) < MIN_PIECES else self._whole(" ".join(pieces[1:-1]))
        if inner is not None or not _is_usual(text):
            return inner
        parts = [self._kept_by_stems(word) for word in _WORD.findall(normalised(text))]
        found = [self._index.turns_with_part(part) for part in parts if len(part) >= MIN_PART]
        return self._having(found) if found else None

    def _kept_by_stems(self, word: str) -> str:
        """Return the beginning of a word that the stem of every word containing it also contains."""
        if _is_ending(word):
            return ""
        stems = self._tokenize(" ".join(f"{BEFORE}{word}{ending}" for ending in _endings()))
        whole = BEFORE + word
        kept = min(next((at for at in range(len(stem)) if stem[at] != whole[at : at + 1]), len(stem)) for stem in stems)
        return word[: max(0, kept - len(BEFORE))]

    @staticmethod
    def _having(found: Sequence[Turns]) -> Turns:
        left = found[0]
        for turns in found[1:]:
            left = np.intersect1d(left, turns, assume_unique=True)
        return left

    def _one(self, word: str) -> Turns:
        # A single character of a script without spaces is the start or the end of a pair.
        return self._index.turns_with(word) if len(word) > 1 or word.isascii() else self._index.turns_with_part(word)


def _is_usual(text: str) -> bool:
    """Return True if the index splits the words of a text as a reader does."""
    return max(map(len, text.split()), default=0) <= MAX_WORD and _UNUSUAL.search(text) is None


@cache
def _endings() -> tuple[str, ...]:
    """Return possible endings of a part of a word such that stemming removes more than the ending."""
    return tuple(sorted({ending[at:] for ending in ENDINGS for at in range(len(ending))} | {"", "y"}))


def _is_ending(word: str) -> bool:
    """Return True if a part of a word may lie entirely in its endings: the text before it then decides the stem."""
    return _endings_pattern().fullmatch(word) is not None


@cache
def _endings_pattern() -> re.Pattern[str]:
    whole = {*ENDINGS, "y"}
    begins = {ending[:at] for ending in whole for at in range(1, len(ending) + 1)}
    ends = {ending[at:] for ending in whole for at in range(len(ending))}
    within = {ending[at:] for ending in begins for at in range(len(ending))}
    first, between, last, inner = ("|".join(sorted(group)) for group in (ends, whole, begins, within))
    return re.compile(f"(?:{first})?(?:{between})*(?:{last})?|{inner}")


@contextlib.contextmanager
def opened(store: Store) -> Iterator[Candidates | None]:
    """Open the index of a store; None if it cannot be used."""
    with store.reading():
        index = open_index(store, folder_of(store.path))
        yield None if isinstance(index, Absent) else Candidates(index, tokenizer(store))


def turns_with_terms(store: Store, terms: Terms) -> set[int] | None:
    """Return the turns that may have all words and phrases of a query; None for all turns."""
    with opened(store) as candidates, contextlib.suppress(IndexDamaged):
        return None if candidates is None else candidates.with_terms(terms)
    return None


def turns_repeating(store: Store, texts: Sequence[str]) -> set[int] | None:
    """Return the turns that may equal, or contain, one of some texts; None for all turns."""
    with opened(store) as candidates, contextlib.suppress(IndexDamaged):
        return None if candidates is None else candidates.repeating(texts)
    return None
