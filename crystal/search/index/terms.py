"""Split a text into terms: stems, parts and joints of compound names, pairs of characters, its date.

A joint is a sign between two letters, as in ``get_user`` and ``src/main.py``. With the letters beside it it is one of
1,024 words: a text that has a name as it is written has those of all its joints; a text of code has some thirty, and
most others none.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
import zlib
from collections.abc import Callable
from functools import lru_cache

from crystal.model.quick_dataclass import dataclass
from crystal.store import Store
from crystal.store.search.tokenizer import tokenizer
from crystal.text.lazy_pattern import lazy_pattern
from crystal.text.query import MARKS, UNSPACED, character_pairs

Tokenize = Callable[[str], list[str]]

_HUMP = re.compile("[a-z][A-Z]")
# A run of letters with a small one before a capital; written so that a long run is looked at once.
_CAMEL = re.compile(r"(?<![A-Za-z])[A-Z]*[a-z]+[A-Z][A-Za-z]*")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_MARKS = lazy_pattern(f"[{MARKS}\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")
# A letter beside a mark that joins it to nothing: a reader sees a border there.
_BORDER = r"[0-9A-Za-z\u00c0-\u024f\u0370-\u052f]"
_JOINED = lazy_pattern(rf"\S*(?:{_BORDER}[{MARKS}]|[{MARKS}]{_BORDER})\S*")
# To the tokenizer a private character (the icons of a terminal's font) is a letter.
_PRIVATE = lazy_pattern("[\ue000-\uf8ff\U000f0000-\U0010ffff]+")
_LETTERS = str.maketrans({
    "\u00df": "ss", "\u1e9e": "ss", "\u0131": "i", "\u00f8": "o", "\u00d8": "O", "\u0142": "l", "\u0141": "L",
    "\u0111": "d", "\u0110": "D", "\u0127": "h", "\u0126": "H", "\u00e6": "ae", "\u00c6": "Ae", "\u0153": "oe",
    "\u0152": "Oe", "\u00fe": "th", "\u00de": "Th", "\u00f0": "d", "\u00d0": "D",
})  # fmt: skip
# With three characters before it and two after, and a letter on either side; written so that few places are looked at.
_JOINT = re.compile("[-._/:](?<=[a-z].)(?=[a-z].(?<=(.{6})))", re.DOTALL)
_FAR = re.compile("^.*[^0-9a-z](?=.{4})|[^0-9a-z]$", re.DOTALL)
"""Characters beside a joint that belong to another word. Letters farther away may be of another form of a word."""
_DAY_MS = 86_400_000
_MONTHS = "january february march april may june july august september october november december".split()
_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()


@dataclass(frozen=True, slots=True)
class DocumentWords:
    """The words of one document: of its date, of its text in order, and the parts of compound names, each once.

    All of them are indexed and counted, but only those of the text count for its length. ``parts`` also has the last
    characters of runs without spaces.
    """

    header: list[str]
    text: list[str]
    parts: list[str]


def document_words(tokenize: Tokenize, text: str, ts: int | None) -> DocumentWords:
    """Split a document into its words; ``ts`` is its time in ms, or None."""
    header = [word for one in date_words(ts).split() for word in tokenize(one)]
    parts = [*camel_parts(text), *last_characters(text), *_beside_marks(text)]
    return DocumentWords(header, tokenize(normalised(text)), tokenize(" ".join(parts)) if parts else [])


def beginning_of(stem: str) -> str:
    """Return the common beginning of all words with a Porter stem, which may differ in the stem's last letters."""
    return stem[:-2] if len(stem) > 4 else stem[:-1] if stem[-1] in "iel" else stem


def query_terms(store: Store, text: str) -> list[str]:
    """Return the words of a question as the index stores them, in order, with repeats."""
    tokenize = tokenizer(store)
    return [*tokenize(normalised(text)), *tokenize(" ".join(camel_parts(text)))]


def normalised(text: str) -> str:
    """Normalise a text for the tokenizer: runs of Han, kana, Hangul, Thai and similar become pairs of characters.

    Wide, narrow and composed forms of a character become equal, accents and vowel signs are removed, and letters such
    as ``ß`` and ``ø`` become the ASCII letters that people type for them.
    """
    return text if text.isascii() else UNSPACED.sub(_pairs, _folded(text))


def last_characters(text: str) -> list[str]:
    """Return the last character of each run without spaces, each once; all others begin a pair."""
    if text.isascii():
        return []
    runs = UNSPACED.findall(_folded(text))
    return list(dict.fromkeys(run[-1] for run in runs if len(run) > 1))


def _beside_marks(text: str) -> list[str]:
    """Return the pieces of words between separate marks, such as a joiner between two letters."""
    if text.isascii():
        return []
    return [
        piece
        for run in _JOINED.findall(text.casefold())
        for piece in _split_at_marks(unicodedata.normalize("NFKD", run))
    ]


def _split_at_marks(run: str) -> list[str]:
    """Return the pieces of a run between its marks; a mark that only changes a letter (an accent) separates nothing."""
    bare = "".join(char for char in run if not unicodedata.combining(char))
    pieces = _MARKS.split(bare)
    return pieces if len(pieces) > 1 else []


def _folded(text: str) -> str:
    bare = _MARKS.sub("", unicodedata.normalize("NFKD", _PRIVATE.sub(" ", text.casefold())))
    return unicodedata.normalize("NFC", bare).translate(_LETTERS)


def camel_parts(text: str) -> list[str]:
    """Return the parts of names like ``FindMostRecentSession``, each once, in order."""
    if _HUMP.search(text) is None:
        return []
    found = (part for name in _CAMEL.findall(text) for part in _PART.findall(name))
    return list(dict.fromkeys(found))


def date_words(ts: int | None) -> str:
    """Return the day in words, as people name it: ``8 may 2023 monday`` (UTC)."""
    return "" if ts is None else _day_words(ts // _DAY_MS)


@lru_cache(maxsize=4096)
def _day_words(day: int) -> str:
    try:
        date = dt.date(1970, 1, 1) + dt.timedelta(days=day)
    except OverflowError:
        return ""
    return f"{date.day} {_MONTHS[date.month - 1]} {date.year} {_DAYS[date.weekday()]}"


def _pairs(match: re.Match[str]) -> str:
    return f" {' '.join(character_pairs(match[0]))} "


# ---------------------------------------------------------------------------------------------------- joints of names


def joint_words(text: str) -> list[str]:
    """Return the words for the joints in a text, each once: two control characters, which no other word has."""
    return list(set(map(_word, set(_JOINT.findall(f"  {text.lower()} ")))))


@lru_cache(1 << 15)
def _word(joint: str) -> str:
    high, low = divmod(zlib.crc32(_FAR.sub("", joint).encode("utf-8", "replace")) % 1024, 32)
    return chr(high) + chr(low)
