"""A question without accents, and whether it may name a time at all: so most questions cost next to nothing. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from crystal.timewords.vocabulary import CUES

LOOKED_AT = 2_000
"""Characters of a question that are looked at; what is longer is pasted text."""

# a character with the marks, or the parts of a Hangul syllable, that follow it
_CLUSTER = re.compile("(?s:.[\u0300-\u036f\u3099\u309a\u1161-\u1175\u11a8-\u11c2]*)")
_FULLWIDTH = {0xFF10 + digit: str(digit) for digit in range(10)}
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_DIGIT = re.compile("[0-9]")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Folded:
    """A question without accents and with plain digits; ``back[i]`` is where character ``i`` was, one more its end."""

    text: str
    back: tuple[int, ...]

    @property
    def has_cue(self) -> bool:
        """Whether a rule for languages with spaces may find something."""
        return bool(_DIGIT.search(self.text)) or any(word.lower() in CUES for word in _WORD.findall(self.text))

    @property
    def has_unspaced(self) -> bool:
        """Whether there is Chinese, Japanese or Korean in it."""
        return not self.text.isascii() and _UNSPACED.search(self.text) is not None


def fold(question: str) -> Folded:
    """Fold the beginning of a question."""
    return Folded(*_folded(question[:LOOKED_AT]))


def _folded(text: str) -> tuple[str, tuple[int, ...]]:
    if text.isascii():
        return text.replace("\0", " "), tuple(range(len(text) + 1))
    kept: list[str] = []
    back: list[int] = []
    for match in _CLUSTER.finditer(text.translate(_FULLWIDTH)):
        character = unicodedata.normalize("NFC", match[0])[0]
        plain = unicodedata.normalize("NFD", character)[0] if character < "\u0250" else character
        kept.append(
            "'" if plain == "\u2019" and _inside(text, match.start()) else " " if plain in "\0\u00a0" else plain
        )
        back.append(match.start())
    return "".join(kept), (*back, len(text))


def _inside(text: str, at: int) -> bool:
    return 0 < at < len(text) - 1 and text[at - 1].isalpha() and text[at + 1].isalpha()
