"""Encode bits as words for people to copy: the pairing code, the verification words and the paper key.

All are from the 2048 English words of BIP39. Misspelt words are refused with similar ones.
"""

from __future__ import annotations

import difflib
import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from mnemonic import Mnemonic

from crystal.errors import UsageError
from crystal.sync.keys.derive import SECRET_BYTES, Random

BITS = 11
CODE_WORDS = 3
PAPER_WORDS = 24
MAX_NAMEPLATE = 2**31 - 1
_MAX_LENGTH = 8
_UNIQUE_START = 4
_MAX_CODE_CHARS = 200
_MAX_PAPER_CHARS = 4096
_BETWEEN = re.compile(r"[\s\-_,.;:/|\u2010-\u2015\u2212]+")
_NUMBER = re.compile(r"\d{1,2}[.):]?")
_SHAPE = "a code looks like 7-apple-river-stone; it is shown by: crystal relay pair"


@functools.cache
def _bip39() -> Mnemonic:
    """Return the package with its English list, which is installed with its code: nothing is fetched."""
    return Mnemonic("english")


def word_list() -> list[str]:
    """Return the words in alphabetical order. Do not change the list."""
    return _bip39().wordlist


def words_of_bits(data: bytes, count: int) -> tuple[str, ...]:
    """Return the words for the first ``count`` times 11 bits of ``data``, which has at least that many."""
    number = int.from_bytes(data, "big") >> (len(data) * 8 - count * BITS)
    places = [number >> (BITS * (count - 1 - place)) & 2047 for place in range(count)]
    return tuple(word_list()[place] for place in places)


def _typed_words(text: str) -> list[str]:
    """Split a text at white space and punctuation into plain letters: no case, no full-width forms, no joiners."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    letters = "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")
    return [word for word in _BETWEEN.split(letters) if word]


def _known_words(typed: Sequence[str], *, name: str) -> tuple[str, ...]:
    """Find each typed word in the list; four letters or more are enough.

    Raises:
        UsageError: A word is not in the list. The message names it and similar ones, unless it is too long to be a
            word: then it may be another secret.
    """
    return tuple(_known_word(word, number, name) for number, word in enumerate(typed, 1))


def _known_word(typed: str, number: int, name: str) -> str:
    starting = [word for word in word_list() if word.startswith(typed)]
    if typed in starting:
        return typed
    if starting and len(typed) >= _UNIQUE_START:
        return starting[0]
    if len(typed) > _MAX_LENGTH + 4 or not typed.isprintable():
        problem = f"{name}: word {number} is {len(typed)} characters long, no word has more than {_MAX_LENGTH}"
        raise UsageError(problem, hint="put a space between the words, and nothing else")
    near = starting[:4] if len(typed) >= 2 else []
    near += [word for word in difflib.get_close_matches(typed, word_list(), n=3, cutoff=0.6) if word not in near]
    hint = f"near it: {', '.join(near)}" if near else "the words are those of the English BIP39 list"
    raise UsageError(f"{name}: word {number}, {typed!r}, is not in the list of words", hint=hint)


# --------------------------------------------------------------------------------------------------- the pairing code


@dataclass(frozen=True, slots=True, repr=False)
class PairingCode:
    """The mailbox's number, which the relay knows, and three words (33 bits), which it must not learn.

    Valid for one attempt: make a new one after any failure.
    """

    nameplate: int
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the text that is shown to the person and typed: ``7-word-word-word``."""
        return "-".join([str(self.nameplate), *self.words])

    def __repr__(self) -> str:
        return f"PairingCode({self.nameplate}-***)"


def new_code(nameplate: int, random: Random) -> PairingCode:
    """Make the code for a mailbox.

    Raises:
        ValueError: ``nameplate`` is not 1 to 2^31 - 1.
    """
    if not 1 <= nameplate <= MAX_NAMEPLATE:
        raise ValueError(f"nameplate {nameplate} is not 1 to {MAX_NAMEPLATE}")
    return PairingCode(nameplate, words_of_bits(random(5), CODE_WORDS))


def parse_code(text: str) -> PairingCode:
    """Parse a code as a person types it: any case, spaces for hyphens, words cut after four letters or more.

    Raises:
        UsageError: It is not a code. The message names an unknown word and similar ones.
    """
    if len(text) > _MAX_CODE_CHARS:
        raise UsageError(f"the code is {len(text)} characters long", hint=_SHAPE)
    number, *typed = _typed_words(text) or [""]
    if not number:
        raise UsageError("the code is empty", hint=_SHAPE)
    if not (number.isascii() and number.isdigit() and len(number) <= 10 and 1 <= int(number) <= MAX_NAMEPLATE):
        raise UsageError("the code does not begin with the number of a mailbox", hint=_SHAPE)
    if len(typed) != CODE_WORDS:
        raise UsageError(f"the code has {len(typed)} words after its number, not {CODE_WORDS}", hint=_SHAPE)
    return PairingCode(int(number), _known_words(typed, name="the code"))


# ------------------------------------------------------------------------------------------------------ the paper key


def paper_words(root: bytes) -> tuple[str, ...]:
    """Encode the root, 32 bytes, as 24 words; the last carries 8 bits of checksum.

    Raises:
        ValueError: ``root`` has another length.
    """
    if len(root) != SECRET_BYTES:
        raise ValueError(f"root is {len(root)} bytes long, not {SECRET_BYTES}")
    return tuple(_bip39().to_mnemonic(root).split())


def parse_paper(text: str) -> bytes:
    """Decode a paper key to the root.

    The words may be in any case, on any number of lines, with commas or their numbers between them, and shortened to
    their first four letters or more.

    Raises:
        UsageError: A word is not in the list (the message names it and similar ones), the number of words is wrong,
            or the checksum fails: a word was misread, or two were swapped.
    """
    if len(text) > _MAX_PAPER_CHARS:
        raise UsageError(f"the paper key is {len(text)} characters long, too long for {PAPER_WORDS} words")
    typed = [word for word in _typed_words(text) if not _NUMBER.fullmatch(word)]
    if not typed:
        raise UsageError("the paper key is empty", hint=f"type its {PAPER_WORDS} words")
    words = _known_words(typed, name="the paper key")
    if len(words) != PAPER_WORDS:
        problem = f"the paper key has {PAPER_WORDS} words, these are {len(words)}"
        raise UsageError(problem, hint="type all of them in their order; a root key cannot be guessed from fewer")
    try:
        return bytes(_bip39().to_entropy(list(words)))
    except ValueError as error:
        hint = "compare each with the paper: one is another word, or two are swapped"
        raise UsageError("the checksum of the paper key is wrong", hint=hint) from error
