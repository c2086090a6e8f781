"""The tokenizer of the keyword index, for indexes outside SQLite: the same words in the same form."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import apsw

from crystal.store.connection import Store


def tokenizer(store: Store) -> Callable[[str], list[str]]:
    """Return a function that splits a text into words as the keyword index does: folded, Porter stems, in order."""
    tokenize = store.db.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])

    def words(text: str) -> list[str]:
        data = text.encode("utf-8", "replace")
        found = tokenize(data, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
        return cast("list[str]", found)

    return words
