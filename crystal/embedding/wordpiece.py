"""Convert text to token numbers, like BERT's uncased WordPiece.

Implemented here because the package ``tokenizers`` requires sixteen others for a model hub that crystal does not use.
Words repeat, so each is split once and cached; tests compare the results with the reference.

Source: https://github.com/google-research/bert, tokenization.py, with the one deviation of the ``tokenizers`` package:
every line or paragraph separator counts as white space.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from itertools import chain, count

from crystal.text.lazy_pattern import lazy_pattern

MAX_WORD = 100
"""Maximum characters of a word; a longer word is one unknown token, as in the reference."""
CACHED_WORDS = 200_000
"""Maximum cached words, after which the cache is emptied: a bound on memory, not a tuning knob."""

_ASCII_DROPPED = {code: None for code in (*range(32), 127) if chr(code) not in "\t\n\r"}
_ASCII_WORDS = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_CJK = lazy_pattern(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f]"
)


class WordPiece:
    """A vocabulary, and the tokens of words.

    Args:
        tokens: The vocabulary; a token's number is its index.
        unknown: The number of the token for words that the vocabulary cannot represent.
    """

    def __init__(self, tokens: Iterable[str], unknown: int) -> None:
        self._numbers = dict(zip(tokens, count(), strict=False))
        self._unknown = unknown
        self._words = _Remembered(self._cut)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of any text, without those that mark its beginning and end."""
        if len(self._words) > CACHED_WORDS:
            self._words.clear()
        return list(chain.from_iterable(map(self._words.__getitem__, words_of(text))))

    def _cut(self, word: str) -> tuple[int, ...]:
        """Split a word greedily: the longest token at its beginning, then the longest that continues it, and so on."""
        if len(word) > MAX_WORD:
            return (self._unknown,)
        pieces: list[int] = []
        number_of, rest = self._numbers.get, word
        while rest not in ("", "##"):
            for stop in range(len(rest), 0 if rest is word else 2, -1):
                number = number_of(rest[:stop])
                if number is not None:
                    pieces.append(number)
                    rest = "##" + rest[stop:]
                    break
            else:
                return (self._unknown,)
        return tuple(pieces)


def words_of(text: str) -> list[str]:
    """Return the words and punctuation of a text, as the tokenizer splits it."""
    if text.isascii():
        return _ASCII_WORDS.findall(text.translate(_ASCII_DROPPED).lower())
    return text.translate(_CHARACTERS).split(" ")


class _Remembered(dict[str, tuple[int, ...]]):
    """A cache of the tokens of each word."""

    def __init__(self, cut: Callable[[str], tuple[int, ...]]) -> None:
        super().__init__()
        self._cut = cut

    def __missing__(self, word: str) -> tuple[int, ...]:
        made = self[word] = self._cut(word)
        return made


class _Characters(dict[int, str]):
    """A cache of the replacement of each character, for ``str.translate``."""

    def __missing__(self, code: int) -> str:
        made = self[code] = _character(chr(code))
        return made


def _character(char: str) -> str:
    """Return the lower case without accents, a space for white space and word breaks, or "" for dropped characters."""
    category = unicodedata.category(char)
    if char in "\t\n\r" or category[0] == "Z":
        return " "
    if (category[0] == "C" and category != "Cn") or char == "\ufffd":
        return ""
    if _CJK.match(char):
        return f" {unicodedata.normalize('NFD', char)} "
    bare = "".join(part for part in unicodedata.normalize("NFD", char) if unicodedata.category(part) != "Mn")
    return "".join(f" {part} " if _is_punctuation(part) else part.lower() for part in bare)


def _is_punctuation(char: str) -> bool:
    return (_ASCII_WORDS.fullmatch(char) is not None and not char.isalnum()) or unicodedata.category(char)[0] == "P"


_CHARACTERS = _Characters()
