"""Match texts against the words of a query, ignoring case, accents and spaces; and find repetitions of a text."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate, islice, product

from crystal.forgetting.match.multi_pattern import MAX_LENGTH, MIN_LENGTH, MultiPatternMatcher, contains_any
from crystal.forgetting.request import Selection
from crystal.redact.regex_engines import scanner
from crystal.redact.views import unescaped
from crystal.store.forget.forgotten_rows import ForgottenSource
from crystal.text.lazy_pattern import lazy_pattern

SAME = 12
"""Minimum characters of a text whose repetition is no coincidence, unlike "yes" or "go on". Half if it has a digit."""

QUOTE = 24
"""Minimum characters: a text that contains one of this length as a whole quotes it."""

BATCH = 500
"""Texts that are searched in one pass."""

_QUOTED = re.compile('"([^"]+)"')
_SCRIPTS_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(f"[{_SCRIPTS_WITHOUT_SPACES}]")
RUN = re.compile(f"[^\\W_{_SCRIPTS_WITHOUT_SPACES}]+")
"""A stretch between two borders of words, as ``goes_on`` sees them; it has nothing of such a script."""


def folded(text: str) -> str:
    """Return a text without differences of case, accents, width and kinds of spaces."""
    if text.isascii():
        return " ".join(text.lower().split())
    apart = unicodedata.normalize("NFKD", text.casefold())
    for mark in filter(unicodedata.combining, set(apart)):  # few are different: to ask for each takes most of a search
        apart = apart.replace(mark, "")
    return " ".join(apart.split())


@dataclass(frozen=True, slots=True)
class Terms:
    """Words and quoted phrases of a query, folded. A word must be separate, a phrase may be anywhere."""

    words: tuple[str, ...]
    phrases: tuple[str, ...]

    @classmethod
    def of(cls, query: str) -> Terms:
        """Parse a query."""
        phrases = [folded(phrase) for phrase in _QUOTED.findall(query)]
        rest = folded(_QUOTED.sub(" ", query).replace('"', " "))
        words = [word.strip(".,;:!?()[]{}'«»„“”¿¡、。") for word in rest.split()]
        return cls(tuple(dict.fromkeys(filter(None, words))), tuple(dict.fromkeys(filter(None, phrases))))

    @property
    def is_empty(self) -> bool:
        """True if the query is empty."""
        return not self.words and not self.phrases

    def are_in(self, text: str) -> bool:
        """Return True if a folded text has all of them."""
        return all(each in text for each in (*self.words, *self.phrases)) and all(
            any(True for _ in _places(word, text)) for word in self.words
        )

    def are_within(self, text: str) -> bool:
        """Return True if every text that contains this one has all of them: no word is only at its ends."""
        whole = folded(text)
        return all(phrase in whole for phrase in self.phrases) and all(
            any(0 < at < len(whole) - len(word) for at in _places(word, whole)) for word in self.words
        )


def _places(word: str, text: str) -> Iterator[int]:
    """Yield where a word occurs at word borders. Scripts without spaces have no such borders."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        before, after = text[at - 1 : at], text[end : end + 1]
        if not (goes_on(before, word[0]) or goes_on(word[-1], after)):
            yield at
        at = text.find(word, at + 1)


def goes_on(one: str, other: str) -> bool:
    """Return True if there is no border between two neighbouring characters."""
    return one.isalnum() and other.isalnum() and not (_UNSPACED.match(one) or _UNSPACED.match(other))


def readable(line: bytes) -> str:
    """Return the readable texts of a JSON line, folded; also of JSON nested in a text."""
    levels = []
    for _ in range(3):
        view = unescaped(line)
        line = line if view is None else view.text
        levels.append(line.decode("utf-8", "replace"))
        if view is None or b"\\" not in line:
            break
    return folded("\n".join(levels))


def may_hold(terms: Terms, data: bytes) -> bool:
    """Return False if some lines certainly lack one of the words. A fast check without false negatives."""
    pieces = [(_longest_piece(word), True) for word in terms.words]
    pieces += [(_longest_piece(phrase), False) for phrase in terms.phrases]
    if any(_certainly_lack(piece, data) for piece, _ in pieces):
        return False
    return all(_may_say(piece, data, is_word=is_word) for piece, is_word in pieces)


@cache
def _longest_piece(term: str) -> str:
    return max(re.findall(r"[\w.:-]+", term), key=len, default="")


def _may_say(piece: str, data: bytes, *, is_word: bool) -> bool:
    """Return False if no text of some lines has a piece of a word, nor one that reads like it.

    A piece of a phrase may be within a word; another one has borders of words where it begins and ends.
    """
    sought = _as_word(piece) if is_word else re.escape(piece.encode())
    plain = (rb"(?i)" + sought,) if piece.isascii() else ()
    if scanner((*plain, *_UNUSUAL))(data) is None:
        return False
    return bool(plain and scanner(plain)(data)) or any(_may_be_in(piece, char) for char in _unusual_chars(data))


MANY_BYTES = 1 << 16
"""Lines of fewer bytes are read by the pattern at once."""
MIN_CASED, MAX_CASED = 3, 5
"""Letters at the beginning of a piece that are sought in every case."""


def _certainly_lack(piece: str, data: bytes) -> bool:
    """Return True if many lines in plain ASCII lack the beginning of a piece: a fifth of what the pattern takes."""
    if len(data) < MANY_BYTES or len(piece) < MIN_CASED or not piece.isascii():
        return False
    is_plain = data.isascii() and b"\x1b" not in data
    return is_plain and not (_in_any_case(piece[:MAX_CASED])(data) or _has_escape()(data))


@cache
def _in_any_case(letters: str) -> Callable[[bytes], bool]:
    cased = product(*({letter.lower(), letter.upper()} for letter in letters))
    return contains_any(["".join(one).encode() for one in cased])


@cache
def _has_escape() -> Callable[[bytes], bool]:
    return contains_any([b"\\u"])


@cache
def _as_word(piece: str) -> bytes:
    """Return a pattern for a piece that no letter or digit continues. One that ends an escape does not continue it."""
    before = rb"(?:^|[^a-z0-9]|\\[a-z]|\\u[0-9a-f]{4})" if piece[:1].isalnum() else b""
    after = rb"(?:[^a-z0-9]|$)" if piece[-1:].isalnum() else b""
    return before + re.escape(piece.encode()) + after


_UNUSUAL = (rb"[\x80-\xff\x1b]", rb"\\u")
_USUAL = bytes(code for code in range(128) if code != 0x1B)
_JOINING = "\x1b\ufffd"
"""Prefix of a colour, which is left out; the character for bytes that are no text."""
_ESCAPE = lazy_pattern(rb"\\u([0-9a-fA-F]{4})")


def _unusual_chars(data: bytes) -> set[str]:
    """Return the characters of some lines that are not in ASCII, and those that are written as escapes."""
    escaped = {chr(int(digits, 16)) for digits in set(_ESCAPE.findall(data))}
    return escaped.union(data.translate(None, _USUAL).decode("utf-8", "replace"))


@lru_cache(maxsize=4096)
def _may_be_in(piece: str, char: str) -> bool:
    """Return whether a character may stand for one of a piece, or for nothing between two of them."""
    apart = [part for part in unicodedata.normalize("NFKD", char.casefold()) if not unicodedata.combining(part)]
    return char in _JOINING or "\ud800" <= char <= "\udfff" or not apart or not set(piece).isdisjoint(apart)


# ------------------------------------------------------------------------------------------------------- repetition


def repetitions(texts: Iterable[str], others: Iterable[ForgottenSource]) -> tuple[Selection, Selection]:
    """Return what equals one of some texts, and what contains one. Texts too short to be distinctive have none."""
    same, quoting = Selection(), Selection()
    sought = {text.encode("utf-8", "replace") for text in map(folded, texts) if _says_something(text)}
    quotable = sorted(text for text in sought if len(text.decode()) >= QUOTE and len(text) <= MAX_LENGTH)
    matcher, left = MultiPatternMatcher(quotable), iter(others)
    while sought and (batch := list(islice(left, BATCH))):
        found = [folded(said.text).encode("utf-8", "replace") for said in batch]
        ends = list(accumulate(len(text) + 1 for text in found))
        holding = {bisect_right(ends, place) for place, _ in matcher.find(b"\0".join(found))}
        for number, (said, text) in enumerate(zip(batch, found, strict=True)):
            if text in sought:
                same.add(said)
            elif number in holding:
                quoting.add(said)
    return same, quoting


def _says_something(text: str) -> bool:
    least = SAME // 2 if any(char.isdigit() for char in text) else SAME
    if any(_UNSPACED.match(char) for char in text):
        least = min(least, 5)
    return len(text) >= least and len(text.encode("utf-8", "replace")) >= MIN_LENGTH
