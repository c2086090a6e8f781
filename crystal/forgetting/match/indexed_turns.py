"""Find turns that may hold some words with the search index, instead of reading every text.

The index may return too many turns, never too few: the caller reads those texts and compares. If it cannot answer
(missing, behind, or none of the words is indexed) the result is None: read everything.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from crystal.forgetting.match.query_terms import QUOTE, Terms, folded
from crystal.search.index import folder_of
from crystal.search.index.index_files import IndexDamagedError
from crystal.search.index.open_index import Absent, Index, open_index
from crystal.search.index.terms import Tokenize, beginning_of, normalised
from crystal.store import Store
from crystal.store.search.tokenizer import tokenizer
from crystal.text.query import ENDINGS

Turns = npt.NDArray[np.int64]

MAX_WORD = 200
"""Maximum characters; a longer word may be cut in two by the border of a chunk."""

MAX_WORDS = 6
"""Maximum number of words of a text that are looked up: the longest, which are the rarest."""

MAX_TEXTS = 500
DOCUMENTS_PER_TEXT = 100
"""To look a text up takes as long as to read about so many. Reading everything once is faster for more texts than that
makes, and than ``MAX_TEXTS``."""

FEW = 4
"""Number of turns up to which reading them is faster than looking up another word."""

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
    """Queries one state of the index, inside one ``store.reading()``."""

    def __init__(self, index: Index, tokenize: Tokenize) -> None:
        self._index, self._tokenize = index, tokenize

    def with_terms(self, terms: Terms) -> set[int] | None:
        """Return the turns that may have all words and phrases of a query."""
        return _turns(_common([*map(self._whole, terms.words), *map(self._anywhere, terms.phrases)]))

    def repeating(self, texts: Sequence[str]) -> set[int] | None:
        """Return the turns that may equal, or contain, one of some texts."""
        sought = {text for text in map(folded, texts) if text}
        if len(sought) > max(MAX_TEXTS, self._index.size // DOCUMENTS_PER_TEXT):
            return None
        found = [_turns(self._anywhere(text) if len(text) >= QUOTE else self._whole(text)) for text in sought]
        known = [turns for turns in found if turns is not None]
        return set().union(*known) if len(known) == len(found) else None

    def saying(self, word: str) -> set[int] | None:
        """Return the turns that may say a word in some form, or have it as a term; 0 stands for memories and files."""
        if (said := self._whole(word)) is None:
            return None
        found = [said, self._index.turns_with(word)]
        if normalised(word) != word:  # the index has other letters, whose stem may be another: "straße", "strasse"
            found += [self._index.turns_with_part(beginning_of(normalised(stem))) for stem in self._tokenize(word)]
        return {turn for turns in found for turn in turns.tolist()}

    def _whole(self, text: str) -> Turns | None:
        """Return the turns that have every word of a text that starts and ends at word borders."""
        if not _is_usual(text):
            return None
        words = sorted(set(self._tokenize(normalised(text))), key=lambda word: (-len(word), word))[:MAX_WORDS]
        return _common(map(self._one, words))

    def _anywhere(self, text: str) -> Turns | None:
        """Return the turns that may have a text that may start and end within a word."""
        pieces = text.split(" ")
        inner = None if len(pieces) < MIN_PIECES else self._whole(" ".join(pieces[1:-1]))
        if inner is not None or not _is_usual(text):
            return inner
        parts = [self._kept_by_stems(word) for word in _WORD.findall(normalised(text))]
        return _common(self._index.turns_with_part(part) for part in parts if len(part) >= MIN_PART)

    def _kept_by_stems(self, word: str) -> str:
        """Return the beginning of a word that the stem of every word containing it also contains."""
        if _is_ending(word):
            return ""
        whole = BEFORE + word
        stems = self._tokenize(" ".join(f"{whole}{ending}" for ending in _endings()))
        kept = max(at for at in range(len(whole) + 1) if all(stem.startswith(whole[:at]) for stem in stems))
        return word[: max(0, kept - len(BEFORE))]

    def _one(self, word: str) -> Turns:
        # A single character of a script without spaces is the start or the end of a pair.
        return self._index.turns_with(word) if len(word) > 1 or word.isascii() else self._index.turns_with_part(word)


def _common(found: Iterable[Turns | None]) -> Turns | None:
    """Return the turns that all known results share; stop at ``FEW``. None if no result is known."""
    common: Turns | None = None
    for turns in found:
        if turns is not None:
            common = turns if common is None else np.intersect1d(common, turns, assume_unique=True)
        if common is not None and len(common) <= FEW:
            break
    return common


def _turns(found: Turns | None) -> set[int] | None:
    return None if found is None else {int(turn) for turn in found if turn}


def _is_usual(text: str) -> bool:
    """Return True if the index splits the words of a text as a reader does."""
    return max(map(len, text.split()), default=0) <= MAX_WORD and _UNUSUAL.search(text) is None


@functools.cache
def _endings() -> tuple[str, ...]:
    """Return possible endings of a part of a word such that stemming removes more than the ending."""
    return tuple(sorted({ending[at:] for ending in ENDINGS for at in range(len(ending))} | {"", "y"}))


def _is_ending(word: str) -> bool:
    """Return True if a part of a word may lie entirely in its endings: the text before it then decides the stem."""
    return _endings_pattern().fullmatch(word) is not None


@functools.cache
def _endings_pattern() -> re.Pattern[str]:
    whole = {*ENDINGS, "y"}
    begins = {ending[:at] for ending in whole for at in range(1, len(ending) + 1)}
    ends = {ending[at:] for ending in whole for at in range(len(ending))}
    within = {ending[at:] for ending in begins for at in range(len(ending))}
    first, between, last, inner = ("|".join(sorted(group)) for group in (ends, whole, begins, within))
    return re.compile(f"(?:{first})?(?:{between})*(?:{last})?|{inner}")


def turns_with_terms(store: Store, terms: Terms) -> set[int] | None:
    """Return the turns that may have all words and phrases of a query; None for all turns."""
    return _ask(store, lambda candidates: candidates.with_terms(terms))


def turns_repeating(store: Store, texts: Sequence[str]) -> set[int] | None:
    """Return the turns that may equal, or contain, one of some texts; None for all turns."""
    return _ask(store, lambda candidates: candidates.repeating(texts))


def _ask(store: Store, question: Callable[[Candidates], set[int] | None]) -> set[int] | None:
    with contextlib.suppress(IndexDamagedError), candidates_of(store) as candidates:
        return None if candidates is None else question(candidates)
    return None


@contextlib.contextmanager
def candidates_of(store: Store) -> Iterator[Candidates | None]:
    """Yield what the index knows of one state of the store; None if it cannot be used."""
    with store.reading():
        index = open_index(store, folder_of(store.path))
        yield None if isinstance(index, Absent) else Candidates(index, tokenizer(store))
