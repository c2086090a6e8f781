"""Find chunks that contain a quoted phrase or a name exactly as written.

The index finds the chunks that have all the words, and those that may have them in a row; the texts are then checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from crystal.model.quick_dataclass import dataclass
from crystal.search.index.array_types import Mask, Ordinals
from crystal.search.index.attributes import distinct
from crystal.search.index.open_index import Index
from crystal.search.index.terms import Tokenize, beginning_of, camel_parts, joint_words, normalised, query_terms
from crystal.store import Store
from crystal.store.search.candidates import text_hashes, texts_of
from crystal.store.search.tokenizer import tokenizer
from crystal.text.query import UNSPACED, Query

MAX_READ = 10_000
"""Maximum number of texts that are read for a phrase or a name: the best of those with all its words."""
ENOUGH_CHUNKS = 1_000
"""Number of chunks with a phrase or a name, in any spelling, at which reading ends."""
MANY_READ = 250
"""Number of texts that are read after which a quarter of the requested hits is enough."""
FIRST_PAGE = 50
"""Number of texts that are read first; each further page is twice as long, because a page reads each block once, but
one page ends at ``MANY_READ``."""

Terms = Sequence[tuple[Sequence[str], float]]
"""Words with their weights, as ``Index.scores`` takes them."""
TierOf = Callable[[str], int | None]
"""Degree of a match: 0 is as written, None is no match."""

_VERSION = re.compile(r"[vV]?([0-9]+\.[0-9].*)")


@dataclass(frozen=True)
class Phrase:
    """Words in a row or, in a script without spaces, characters that may be inside a longer run.

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
        """Parse a phrase."""
        return cls(written, tuple(tokenize(normalised(written))), tokenize)

    @property
    def looked_up(self) -> list[str]:
        """Return the words that every text with the phrase has.

        If some characters may be inside a run, other words may be parts of longer ones, and a single character a part
        of a pair; these are left out.
        """
        is_inside = UNSPACED.search(self.written)
        return [stem for stem in self.stems if not is_inside or (len(stem) > 1 and UNSPACED.fullmatch(stem))]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Return a pattern that matches every lower-case ASCII text with the phrase, by the beginnings of its words."""
        return re.compile("[^0-9a-z]+".join(f"{re.escape(beginning_of(stem))}[0-9a-z]*" for stem in self.stems))

    def among(self, index: Index, places: Ordinals) -> Ordinals:
        """Return the documents that may have the phrase."""
        is_inside, is_one = UNSPACED.search(self.written), len(self.stems) < 2
        return places if is_inside or is_one else index.with_row(self.stems, places)

    def is_written_in(self, text: str) -> bool:
        """Return True if a text has the phrase as it was typed, ignoring case and white space."""
        return " ".join(self.written.lower().split()) in " ".join(text.lower().split())

    def is_in(self, text: str) -> bool:
        """Return True if a text has the phrase, in any form of its words."""
        if UNSPACED.search(self.written):
            return self.written.lower() in text.lower()
        if text.isascii() and not self.pattern.search(text.lower()):
            return False
        return f" {' '.join(self.stems)} " in f" {' '.join(self.tokenize(normalised(text)))} "


def with_phrases(
    store: Store, index: Index, phrases: Sequence[str], mask: Mask | None, terms: Terms, enough: int
) -> tuple[Mask, dict[int, int], bool]:
    """Find the documents that have all phrases; if there are very many, those with the best scores for ``terms``.

    Returns:
        A mask of these documents, the chunks that have the phrases as written, each with tier 0, and True if more texts
        have the words than were read.
    """
    tokenize = tokenizer(store)
    wanted = [Phrase.of(phrase, tokenize) for phrase in phrases]

    def tier_of(text: str) -> int | None:
        is_in = all(phrase.is_in(text) for phrase in wanted)
        return (0 if all(phrase.is_written_in(text) for phrase in wanted) else 1) if is_in else None

    places = index.with_all([word for phrase in wanted for word in phrase.looked_up], mask)
    for phrase in wanted:
        places = phrase.among(index, places)
    found = _found(_tiers(store, index, places, terms, tier_of), enough, good=1)
    return index.having(found), {ident: tier for ident, tier in found.items() if not tier}, len(places) > MAX_READ


def exact_chunks(store: Store, index: Index, asked: Query, mask: Mask | None, limit: int) -> dict[int, int]:
    """Return the chunks with the identifier that the question consists of, and their tiers.

    Tier 0 has it as written, 1 in another case, 2 in another form. If a tier has very many, the best by score are kept.
    """
    if not asked.is_literal:
        return {}
    name = asked.compounds[0]
    variants = _variants(store, name)

    def tier_of(text: str) -> int | None:
        tier = 0 if name in text else 1 if name.lower() in text.lower() else 2
        return tier if any(variant.is_in(text) for variant in variants) else None

    terms = [(variants[0].stems, 1.0)]

    def read(words: Sequence[str]) -> Iterator[tuple[int, int | None, bool]]:
        return _tiers(store, index, _having(index, variants, mask, words), terms, tier_of)

    # A text with ``x.getUser`` also has the words get and user: it is read before those with ``x.getuser``.
    parts = [*query_terms(store, " ".join(camel_parts(name))), *_joints(variants)]
    found = _found(read(parts), limit, best=0, good=0)
    if parts and len(found := {ident: tier for ident, tier in found.items() if tier < 2}) < limit:
        found |= {ident: tier for ident, tier in _found(read(()), limit, best=2, good=2).items() if ident not in found}
    return dict(sorted(found.items(), key=lambda one: one[1])[:limit])


def _found(read: Iterable[tuple[int, int | None, bool]], enough: int, *, best: int = 0, good: int) -> dict[int, int]:
    """Return the matching chunks with their tiers, in the order of reading, the first of each text before its copies.

    Reading ends when enough different texts have a tier up to ``best`` or, after many texts, a quarter of them a tier
    up to ``good``.
    """
    found: dict[int, int] = {}
    copies: dict[int, int] = {}
    different = [0, 0, 0]
    for count, (ident, tier, is_copy) in enumerate(read, 1):
        if tier is not None:
            (copies if is_copy else found)[ident] = tier
            different[tier] += not is_copy
        is_enough = count >= MANY_READ and 4 * sum(different[: good + 1]) >= enough
        if is_enough or sum(different[: best + 1]) >= enough or len(found) + len(copies) >= ENOUGH_CHUNKS:
            break
    return found | copies


def naming_chunks(store: Store, index: Index, name: str, mask: Mask | None, limit: int) -> list[int]:
    """Return the newest chunks that contain a name of the question as written, in any case."""
    variants, lower = _variants(store, name), name.lower()

    def tier_of(text: str) -> int | None:
        return 0 if lower in text.lower() and any(one.is_in(text) for one in variants) else None

    read = _tiers(store, index, _having(index, variants, mask, _joints(variants)), [], tier_of)
    return list(islice((ident for ident, tier, _ in read if tier == 0), limit))


def _variants(store: Store, name: str) -> list[Phrase]:
    """Return a name as a phrase; a version number also with and without a ``v`` before it."""
    version, tokenize = _VERSION.match(name), tokenizer(store)
    return [Phrase.of(one, tokenize) for one in ([name, version[1], f"v{version[1]}"] if version else [name])]


def _joints(variants: Sequence[Phrase]) -> list[str]:
    """Return the words of the index that every text with a name has beside its stems; a version may have a ``v``."""
    return joint_words(variants[0].written) if len(variants) == 1 else []


def _having(index: Index, variants: Sequence[Phrase], mask: Mask | None, words: Sequence[str]) -> Ordinals:
    """Return the documents with all words of a variant, and some more words."""
    found = [variant.among(index, index.with_all([*variant.looked_up, *words], mask)) for variant in variants]
    return distinct(np.concatenate(found))


def _tiers(
    store: Store, index: Index, places: Ordinals, terms: Terms, tier_of: TierOf
) -> Iterator[tuple[int, int | None, bool]]:
    """Yield the chunks of some documents, each with its tier, and True if an equal text came before.

    The documents with the best scores for ``terms`` come first, then the newest. Each text is read once.
    """
    known: dict[bytes, int | None] = {}
    for ids in _pages(index, places, terms):
        hashes = dict(text_hashes(store, ids))
        first = {text_hash: ident for ident in reversed(ids) if (text_hash := hashes.get(ident)) not in known}
        texts = dict(texts_of(store, list(first.values())))
        for ident in ids:
            text_hash = hashes.get(ident)
            if text_hash is None:  # gone
                continue
            is_copy = text_hash in known
            if not is_copy:
                known[text_hash] = tier_of(texts.get(ident, ""))
            yield ident, known[text_hash], is_copy


def _pages(index: Index, places: Ordinals, terms: Terms) -> Iterator[list[int]]:
    """Yield the chunks of some documents, ordered by their scores for ``terms``, then the newest first."""
    scores, newest = index.own_scores(terms, places), -index.take("id", places)
    ids, at, size = (-newest[np.lexsort((newest, -scores))][:MAX_READ]).tolist(), 0, FIRST_PAGE
    while at < len(ids):
        yield ids[at : at + size]
        at += size
        size = min(2 * size, MANY_READ - at) if at < MANY_READ else 2 * size
