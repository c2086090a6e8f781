"""Split text into the words of the search index: without accents, as Porter stems."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import apsw

from crystal.store.connection import Store

TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2"])
"""Tokenizer of SQLite's FTS5, with its arguments; no FTS5 table is used."""


def tokenizer(store: Store) -> Callable[[str], list[str]]:
    """Return a function that splits a text into words: folded, Porter stems, in order."""
    tokenize = store.db.fts5_tokenizer(*TOKENIZER)

    def words(text: str) -> list[str]:
        data = text.encode("utf-8", "replace")
        found = tokenize(data, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
        return cast("list[str]", found)

    return words
