"""The 2048 English words of BIP39: words for people to copy instead of bits, and correction of misspelt ones."""

from __future__ import annotations

import difflib
import functools
import unicodedata
from collections.abc import Sequence

from mnemonic import Mnemonic

from crystal.errors import UsageError

BITS = 11
_MAX_LENGTH = 8
_UNIQUE_START = 4


@functools.cache
def bip39() -> Mnemonic:
    """Return the package with its English list, which is installed with its code: nothing is fetched."""
    return Mnemonic("english")


@functools.cache
def word_list() -> tuple[str, ...]:
    """Return the words in alphabetical order."""
    return tuple(bip39().wordlist)


@functools.cache
def _starts() -> dict[str, str]:
    """Map the first four letters, which are unique, to the word."""
    return {word[:_UNIQUE_START]: word for word in word_list()}


def words_of_bits(data: bytes, count: int) -> tuple[str, ...]:
    """Return the words for the first ``count`` times 11 bits of ``data``, which has at least that many."""
    number = int.from_bytes(data, "big") >> (len(data) * 8 - count * BITS)
    places = [number >> (BITS * (count - 1 - place)) & 2047 for place in range(count)]
    return tuple(word_list()[place] for place in places)


def fold(text: str) -> str:
    """Reduce a text to its plain letters: no case, no full-width forms, no soft hyphens or joiners."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")


def known_words(typed: Sequence[str], *, name: str) -> tuple[str, ...]:
    """Find each typed word in the list; four letters or more are enough.

    Raises:
        UsageError: A word is not in the list. The message names it and similar ones, unless it is too long to be a
            word: then it may be another secret.
    """
    return tuple(_known(word, number, name) for number, word in enumerate(typed, 1))


def _known(typed: str, number: int, name: str) -> str:
    if typed in word_list():
        return typed
    full = _starts().get(typed[:_UNIQUE_START], "")
    if len(typed) >= _UNIQUE_START and full.startswith(typed):
        return full
    if len(typed) > _MAX_LENGTH + 4 or not typed.isprintable():
        problem = f"{name}: word {number} is {len(typed)} characters long, no word has more than {_MAX_LENGTH}"
        raise UsageError(problem, hint="put a space between the words, and nothing else")
    near = [word for word in word_list() if word.startswith(typed)][:4] if len(typed) >= 2 else []
    near += [word for word in difflib.get_close_matches(typed, word_list(), n=3, cutoff=0.6) if word not in near]
    hint = f"near it: {', '.join(near)}" if near else "the words are those of the English BIP39 list"
    raise UsageError(f"{name}: word {number}, {typed!r}, is not in the list of words", hint=hint)
