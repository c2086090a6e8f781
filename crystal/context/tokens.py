"""Estimate the tokens of a text without a tokenizer, rather too high than too low.

Three letters of a word count as one token (English has more than four), every sign as one, and a non-Latin letter as
two, because Chinese, Japanese and Korean letters take one or two and rarer scripts more.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]|\n")
LATIN = "\u0250"
ASTRAL = "\U00010000"


def count_tokens(text: str) -> int:
    """Estimate the maximum number of tokens."""
    return sum(_of(found.group()) for found in _WORD.finditer(text))


def _of(word: str) -> int:
    if word[0].isascii():
        return -(-len(word) // (2 if word[0].isdecimal() else 3))
    if word < LATIN:
        return 1
    return 2 if word < ASTRAL else 4
