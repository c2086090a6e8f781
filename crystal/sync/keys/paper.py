"""Paper key: the root as 24 words of BIP39, for a printed backup."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crystal.errors import UsageError
from crystal.sync.keys.derive import SECRET_BYTES
from crystal.sync.keys.words import bip39, fold, known_words

WORDS = 24
_MAX_CHARS = 4096
_BETWEEN = re.compile(r"[\s,;.:|/_-]+")
_NUMBER = re.compile(r"\d{1,2}[.):]?")


def to_words(root: bytes) -> tuple[str, ...]:
    """Encode the root, 32 bytes, as 24 words; the last carries 8 bits of checksum.

    Raises:
        ValueError: ``root`` has another length.
    """
    if len(root) != SECRET_BYTES:
        raise ValueError(f"root is {len(root)} bytes long, not {SECRET_BYTES}")
    return tuple(bip39().to_mnemonic(root).split())


def from_words(text: str | Sequence[str]) -> bytes:
    """Decode a paper key.

    The words may be in any case, on any number of lines, with commas or their numbers between them, and shortened to
    their first four letters or more.

    Raises:
        UsageError: A word is not in the list (the message names it and similar ones), the number of words is wrong,
            or the checksum fails: a word was misread, or two were swapped.
    """
    joined = text if isinstance(text, str) else " ".join(text)
    if len(joined) > _MAX_CHARS:
        raise UsageError(f"the paper key is {len(joined)} characters long, too long for {WORDS} words")
    typed = [word for word in _BETWEEN.split(fold(joined)) if word and not _NUMBER.fullmatch(word)]
    if not typed:
        raise UsageError("the paper key is empty", hint=f"type its {WORDS} words")
    words = known_words(typed, name="the paper key")
    if len(words) != WORDS:
        problem = f"the paper key has {WORDS} words, these are {len(words)}"
        raise UsageError(problem, hint="type all of them in their order; a root key cannot be guessed from fewer")
    try:
        return bytes(bip39().to_entropy(list(words)))
    except ValueError as error:
        hint = "compare each with the paper: one is another word, or two are swapped"
        raise UsageError("the paper key's words are all real, but do not belong together", hint=hint) from error
