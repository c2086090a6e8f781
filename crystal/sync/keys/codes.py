"""Pairing code that a person carries from the home machine to the device: ``7-word-word-word``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crystal.errors import UsageError
from crystal.sync.keys.derive import Random
from crystal.sync.keys.words import fold, known_words, words_of_bits

CODE_WORDS = 3
MAX_NAMEPLATE = 2**31 - 1
_MAX_CHARS = 200
_BETWEEN = re.compile(r"[\s\-_,.;:/\u2010-\u2015\u2212]+")
_SHAPE = "a code looks like 7-apple-river-stone; it is shown by: crystal relay pair"


@dataclass(frozen=True, slots=True, repr=False)
class PairingCode:
    """The mailbox's number, which the relay knows, and three words (33 bits), which it must not learn.

    Valid for one attempt: make a new one after any failure.
    """

    nameplate: int
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """Text that is shown to the person and typed."""
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
    if len(text) > _MAX_CHARS:
        raise UsageError(f"the code is {len(text)} characters long", hint=_SHAPE)
    number, *typed = [part for part in _BETWEEN.split(fold(text)) if part] or [""]
    if not number:
        raise UsageError("the code is empty", hint=_SHAPE)
    if not (number.isascii() and number.isdigit() and len(number) <= 10 and 1 <= int(number) <= MAX_NAMEPLATE):
        raise UsageError("the code does not begin with the number of a mailbox", hint=_SHAPE)
    if len(typed) != CODE_WORDS:
        raise UsageError(f"the code has {len(typed)} words after its number, not {CODE_WORDS}", hint=_SHAPE)
    return PairingCode(int(number), known_words(typed, name="the code"))
