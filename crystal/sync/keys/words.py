"""The 2048 English words of BIP39: what people copy instead of bits, and how a misspelt one is found."""

from __future__ import annotations

import difflib
import functools
import unicodedata
from collections.abc import Sequence

from mnemonic import Mnemonic

from crystal.errors import UsageProblem

BITS = 11
_LONGEST = 8
_UNIQUE_START = 4


@functools.cache
def bip39() -> Mnemonic:
    """The package with its English list, which lies beside its code: nothing is fetched."""
    return Mnemonic("english")


@functools.cache
def word_list() -> tuple[str, ...]:
    """The words in their order, which is the alphabet's."""
    return tuple(bip39().wordlist)


@functools.cache
def _places() -> dict[str, int]:
    return {word: place for place, word in enumerate(word_list())}


@functools.cache
def _starts() -> dict[str, str]:
    """The first four letters, which tell all words apart, to the word."""
    return {word[:_UNIQUE_START]: word for word in word_list()}


def words_of_bits(data: bytes, count: int) -> tuple[str, ...]:
    """The words that the first ``count`` times 11 bits of ``data`` stand for, at least so many bits long."""
    number = int.from_bytes(data, "big") >> (len(data) * 8 - count * BITS)
    places = [number >> (BITS * (count - 1 - place)) & 2047 for place in range(count)]
    return tuple(word_list()[place] for place in places)


def fold(text: str) -> str:
    """The same text as its plain letters: no case, no full-width forms, no soft hyphens or joiners."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")


def known_words(typed: Sequence[str], *, name: str) -> tuple[str, ...]:
    """Find each typed word in the list; its first four letters, or more of it, are enough.

    Raises:
        UsageProblem: One is not in the list. It is named with what is near, unless it is too long to be a word at
            all: then it may be a secret that belongs elsewhere.
    """
    return tuple(_known(word, number, name) for number, word in enumerate(typed, 1))


def _known(typed: str, number: int, name: str) -> str:
    if typed in _places():
        return typed
    full = _starts().get(typed[:_UNIQUE_START], "")
    if len(typed) >= _UNIQUE_START and full.startswith(typed):
        return full
    if len(typed) > _LONGEST + 4 or not typed.isprintable():
        problem = f"{name}: word {number} is {len(typed)} characters long, no word has more than {_LONGEST}"
        raise UsageProblem(problem, hint="put a space between the words, and nothing else")
    near = [word for word in word_list() if word.startswith(typed)][:4] if len(typed) >= 2 else []
    near += [word for word in difflib.get_close_matches(typed, word_list(), n=3, cutoff=0.6) if word not in near]
    hint = f"near it: {', '.join(near)}" if near else "the words are those of the English BIP39 list"
    raise UsageProblem(f"{name}: word {number}, {typed!r}, is not in the list of words", hint=hint)
