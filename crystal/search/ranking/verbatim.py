"""Find chunks that contain a quoted phrase or a name exactly as written.

The index knows which chunks have all the words. Whether these stand together is read in the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from crystal.search.index.attributes import distinct
from crystal.search.index.open_index import Floats, Index, Mask, Ordinals
from crystal.search.index.terms import Tokenize, beginning_of, normalised
from crystal.store import Store
from crystal.store.search.candidates import texts_of
from crystal.store.search.tokenizer import tokenizer
from crystal.text.query import UNSPACED, Query

MAX_READ = 10_000
"""So many texts are read for a phrase or a name. What very many chunks have needs no more."""
MAX_PHRASED = 1_000
"""So many chunks with a phrase are enough."""
FIRST_PAGE = 250
"""So many texts are read at first, then four times as many: of many at once each block is read once."""

_VERSION = re.compile(r"[vV]?([0-9]+\.[0-9].*)")


@dataclass(frozen=True)
class Phrase:
    """Words that stand together; of a script without spaces, characters that may stand inside a run.

    Attributes:
        written: The phrase as it was typed.
        stems: Its words as the index has them.
        tokenize: Splits a text into such words.
    """

    written: str
    stems: tuple[str, ...]
    tokenize: Tokenize

    @classmethod
    def of(cls, written: str, tokenize: Tokenize) -> Phrase:
        """Take a phrase apart."""
        return cls(written, tuple(tokenize(normalised(written))), tokenize)

    @property
    def looked_up(self) -> list[str]:
        """Return the words that every text with the phrase has.

        Beside characters that may stand inside a run every other word may be a part of a longer one, and a lone
        character a part of a pair.
        """
        is_inside = UNSPACED.search(self.written)
        return [stem for stem in self.stems if not is_inside or (len(stem) > 1 and UNSPACED.fullmatch(stem))]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Return what every text of ASCII in small letters with the phrase has: the beginnings of its words."""
        return re.compile("[^0-9a-z]+".join(f"{re.escape(beginning_of(stem))}[0-9a-z]*" for stem in self.stems))

    def is_written_in(self, text: str) -> bool:
        """Return True if a text has the phrase as it was typed, in any case and with any white space."""
        return " ".join(self.written.lower().split()) in " ".join(text.lower().split())

    def is_in(self, text: str) -> bool:
        """Return True if a text has the phrase, in any form of its words."""
        if UNSPACED.search(self.written):
            return self.written.lower() in text.lower()
        if text.isascii() and not self.pattern.search(text.lower()):
            return False
        return f" {' '.join(self.stems)} " in f" {' '.join(self.tokenize(normalised(text)))} "


def with_phrases(
    store: Store, index: Index, phrases: Sequence[str], mask: Mask | None, scores: Floats
) -> tuple[Mask, dict[int, int]]:
    """Find the documents that have all of some phrases: of very many those with the best scores.

    Returns:
        Which documents have them, and the chunks that have them as they are written, each as tier 0.
    """
    tokenize = tokenizer(store)
    wanted = [Phrase.of(phrase, tokenize) for phrase in phrases]
    places = index.with_all([word for phrase in wanted for word in phrase.looked_up], mask)
    read = _texts(store, index, places[np.argsort(-scores[places], kind="stable")])
    found = list(islice((one for one in read if all(phrase.is_in(one[1]) for phrase in wanted)), MAX_PHRASED))
    having = np.zeros(index.size, np.bool_)
    having[index.find([ident for ident, _ in found])] = True
    return having, {ident: 0 for ident, text in found if all(phrase.is_written_in(text) for phrase in wanted)}


def exact_chunks(store: Store, index: Index, asked: Query, mask: Mask | None, limit: int) -> dict[int, int]:
    """Return the chunks with the identifier that is the question: 0 to the letter, 1 in any case, 2 nearly.

    Of very many those of a tier that are most about it.
    """
    if not asked.is_literal:
        return {}
    name = asked.compounds[0]
    variants = _variants(store, name)
    found = {
        ident: 0 if name in text else 1 if name.lower() in text.lower() else 2
        for ident, text in _newest(store, index, variants, mask)
        if any(variant.is_in(text) for variant in variants)
    }
    scores = index.scores([(variants[0].stems, 1.0)], mask)[0][index.find(list(found))]
    best = sorted(zip(found.values(), (-scores).tolist(), (-ident for ident in found), strict=True))[:limit]
    return {-ident: tier for tier, _, ident in best}


def naming_chunks(store: Store, index: Index, name: str, mask: Mask | None, limit: int) -> list[int]:
    """Return the newest chunks that have a name of the question as it is written, in any case."""
    variants, lower = _variants(store, name), name.lower()
    found = (
        ident
        for ident, text in _newest(store, index, variants, mask)
        if lower in text.lower() and any(variant.is_in(text) for variant in variants)
    )
    return list(islice(found, limit))


def _variants(store: Store, name: str) -> list[Phrase]:
    """Return a name as a phrase, a version with and without the ``v`` before it."""
    version, tokenize = _VERSION.match(name), tokenizer(store)
    return [Phrase.of(one, tokenize) for one in ([name, version[1], f"v{version[1]}"] if version else [name])]


def _newest(store: Store, index: Index, variants: Sequence[Phrase], mask: Mask | None) -> Iterator[tuple[int, str]]:
    """Yield the newest chunks with all words of a variant, with their texts."""
    places = distinct(np.concatenate([index.with_all(variant.looked_up, mask) for variant in variants]))
    return _texts(store, index, places[np.argsort(-index.take("id", places), kind="stable")])


def _texts(store: Store, index: Index, places: Ordinals) -> Iterator[tuple[int, str]]:
    """Yield the chunks of some documents with their texts."""
    ids, at, size = index.take("id", places[:MAX_READ]).tolist(), 0, FIRST_PAGE
    while at < len(ids):
        yield from texts_of(store, ids[at : at + size])
        at, size = at + size, 4 * size
