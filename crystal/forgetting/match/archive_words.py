"""Skip archived lines that lack a word of a query, without reading them.

The words of a block of lines are kept in a Bloom filter: a word that it does not have is in none of the lines. They are
the words that ``archive_lines`` compares with a query, so nothing is missed. A block is some megabytes, because the
same words come again and again: filters of real transcripts take 0.3 % of them.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crystal.forgetting.match.archive_lines import readable_texts, text_of_row
from crystal.forgetting.match.patterns import TextMatcher
from crystal.forgetting.match.query_terms import RUN, Terms
from crystal.store import Store
from crystal.store.forget import word_blocks
from crystal.store.forget.forgotten_rows import KeptRow

EDGE = 4
"""Characters of both ends of a word that are also entries: a phrase may begin and end within words."""
MAX_QUERIES, MAX_ENTRIES = 300, 16
"""Queries of which a look into the filters takes less than to search everything, and entries that are looked up."""
BITS, HASHES = 5, 3
"""Bits of the filter for each entry, and bits that an entry sets: 9 % false positives."""
FORM = b"\x02"
"""First byte of each filter; filters with another are rebuilt. Change it if lines are read or split differently."""
UNKNOWN = FORM
"""Filter of lines that could not be read: every word may be in them."""

Hashes = npt.NDArray[np.uint64]
_ODD, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


def bring_up_to_date(store: Store, ldm_home: Path, should_stop: Callable[[], bool]) -> None:
    """Make the filters of archived lines that have none yet, block by block."""
    if any(not block.words.startswith(FORM) for block in word_blocks.all_blocks(store)):
        with store.transaction():
            word_blocks.drop_blocks(store, FORM)
    while not should_stop() and (rows := word_blocks.rows_due(store)):
        words = _words_of_rows(rows, ldm_home)
        with store.transaction():
            word_blocks.add_block(store, rows, words)


def rows_repeating(
    store: Store, rows: Sequence[KeptRow], texts: TextMatcher | None, terms: Terms | None = None
) -> Sequence[KeptRow]:
    """Return the rows whose lines may quote one of some texts, or have the words and phrases of a query."""
    queries = [Terms((), (text,)) for text in texts.quotable] if texts is not None else []
    queries += [terms] if terms is not None else []
    if len(queries) > MAX_QUERIES:
        return rows
    blocks, sought = word_blocks.all_blocks(store), [hashes_of(terms) for terms in queries]
    lasts, may = [block.last for block in blocks], [may_have(block.words, sought) for block in blocks]

    def is_worth_it(row: KeptRow) -> bool:
        at = bisect_left(lasts, row.id)
        return at == len(blocks) or row.id < blocks[at].first or may[at]

    return [row for row in rows if is_worth_it(row)]


def filter_of(texts: Iterable[str]) -> bytes:
    """Return the filter of the words of folded texts."""
    words = {word for text in texts for word in RUN.findall(text)}
    entries = words.union(*map(_edges, words))
    bits = np.zeros((1 + len(entries) * BITS // 8) * 8, np.bool_)
    bits[_places(_hashed(entries), len(bits))] = True
    return FORM + np.packbits(bits).tobytes()


def hashes_of(terms: Terms) -> Hashes:
    """Return the hashes of entries that the filter of every text with these words and phrases contains."""
    return _hashed(sorted(set(_entries_of(terms)), key=len)[-MAX_ENTRIES:])


def may_have(words: bytes, sought: Iterable[Hashes]) -> bool:
    """Return False if no text of a filter has all entries of one of some queries, each given by ``hashes_of``."""
    if not words.startswith(FORM) or words == UNKNOWN:
        return True
    bits = np.unpackbits(np.frombuffer(words, np.uint8, offset=len(FORM)))
    return any(bits[_places(hashes, len(bits))].all() for hashes in sought)


def _words_of_rows(rows: Sequence[KeptRow], ldm_home: Path) -> bytes:
    """Return the filter of the words in some rows."""
    texts = [text_of_row(row, ldm_home) for row in rows]
    lines = ((line, row.harness) for row, text in zip(rows, texts, strict=True) for line in (text or b"").split(b"\n"))
    return UNKNOWN if None in texts else filter_of(text for one in lines for text in readable_texts(*one))


def _edges(word: str) -> tuple[str, str]:
    return f"{word[:EDGE]}…", f"…{word[-EDGE:]}"


def _entries_of(terms: Terms) -> Iterator[str]:
    """Yield the entries that the filter of every matching text contains."""
    for word in terms.words:
        yield from RUN.findall(word)
    for phrase in terms.phrases:
        runs = [(run.start(), run.end(), run[0]) for run in RUN.finditer(phrase)]
        for start, end, run in runs:
            if start > 0 and end < len(phrase):
                yield run
            elif start > 0 and len(run) >= EDGE:
                yield _edges(run)[0]
            elif end < len(phrase) and len(run) >= EDGE:
                yield _edges(run)[1]


def _hashed(entries: Iterable[str]) -> Hashes:
    return np.array([zlib.crc32(entry.encode("utf-8", "replace")) for entry in entries], np.uint64)


def _places(mixed: Hashes, size: int) -> npt.NDArray[np.int64]:
    """Return the numbers of the bits that some entries set in a filter of ``size`` bits."""
    places = []
    for _ in range(HASHES):
        mixed = (mixed + np.uint64(1)) * _ODD
        places.append((mixed >> _HALF) * np.uint64(size) >> _HALF)
    return np.concatenate(places).astype(np.int64)
