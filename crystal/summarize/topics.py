"""Count the terms of a text: words and identifiers, in any language. Pure.

Scripts without spaces between words (Han, kana, Thai and similar) are counted in short runs of characters; repeated
runs are treated as words.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_TERM = 48

_WORD = re.compile(r"\w+(?:[-./_:]{1,2}\w+)*")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE)
_REDACTED = re.compile(r"\[redacted:[^\]\s]{0,80}\]")
_NUMBER = re.compile(r"[\d._:/-]+|(?=.*\d)[0-9a-f-]{7,}|v?\d[\w.]*", re.IGNORECASE)
_UNSPACED = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"  # Han
    "|[\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f]+|[\u3040-\u309f]+"  # katakana; hiragana
    "|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"  # Thai, Lao, Burmese, Khmer
)
_KATAKANA = re.compile("[\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f]+")
_HIRAGANA = re.compile("[\u3040-\u309f]+")
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")

_PHRASES = (2, 3, 4, 5, 6)

STOP_WORDS = frozenset(Path(__file__).with_name("stop_words.txt").read_text("utf-8").split())
"""Words that name no topic, in ten languages."""


@dataclass(frozen=True, slots=True)
class Term:
    """A term in its most frequent spelling, and its weight."""

    text: str
    weight: float


def words(text: str, *, sizes: Sequence[int] = (2,)) -> list[str]:
    """Return the terms of a text in order, as written; without stop words, numbers, addresses and redacted text.

    ``sizes`` are the lengths of the pieces into which long runs of an unspaced script are split.
    """
    found: list[str] = []
    for match in _WORD.finditer(_REDACTED.sub(" ", _URL.sub(" ", text))):
        word = match[0].strip("_")
        if _UNSPACED.search(word):
            found.extend(_runs(word, sizes))
        elif _counts(word):
            deep = word.count("/") > 2 or len(word) > MAX_TERM
            found.append(word.rpartition("/")[2] if deep else word)
    return [word for word in found if len(word) <= MAX_TERM]


def folded(word: str) -> str:
    """Return the common form of two spellings of one term: no case, no English plural."""
    key = word.casefold()
    if len(key) > 4 and key.isascii() and key.isalpha() and key.endswith("s") and key[-2] not in "aisu":
        return key[:-1]
    return key


def is_identifier(word: str) -> bool:
    """Return True if a term looks like an identifier: a path, a function, CamelCase or an option."""
    return bool(_CAMEL.search(word)) or any(mark in word for mark in "_./:") or any(map(str.isdigit, word))


def topics(texts: Sequence[tuple[str, float]], limit: int) -> list[Term]:
    """Return the terms with the highest weight, in descending order.

    Args:
        texts: Each text with its weight.
        limit: Maximum number of terms.
    """
    weight: defaultdict[str, float] = defaultdict(float)
    spread: Counter[str] = Counter()
    spellings: dict[str, Counter[str]] = {}
    alone: set[str] = set()
    for text, factor in texts:
        here = words(text, sizes=_PHRASES)
        alone.update(_UNSPACED.findall(text))
        for word, count in Counter(map(folded, here)).items():
            weight[word] += factor * (1 + math.log(count))
            spread[word] += 1
        for word in here:
            spellings.setdefault(folded(word), Counter())[word] += 1
    terms = []
    for key, value in weight.items():
        spelled = max(spellings[key].items(), key=lambda item: (item[1], item[0]))[0]
        often = sum(spellings[key].values())
        if often == 1 and _unspaced(spelled) and spelled not in alone:
            continue  # a run that occurs once may begin and end inside words
        score = value * (1 + math.log(spread[key])) * _likelihood(spelled)
        terms.append(Term(spelled, score))
    terms.sort(key=lambda term: (-term.weight, term.text))
    return _without_parts(terms[: limit * 8])[:limit]


def _likelihood(spelled: str) -> float:
    """Return the likelihood of a term by its form: higher for identifiers and long repeated runs."""
    if _unspaced(spelled):
        return 1 + len(spelled) / 10
    if is_identifier(spelled):
        return 1.4
    return 0.5 if len(spelled) < 3 and spelled.isascii() else 1.0


def _counts(word: str) -> bool:
    return len(word) > 1 and word.casefold() not in STOP_WORDS and not _NUMBER.fullmatch(word)


def _runs(word: str, sizes: Sequence[int]) -> Iterable[str]:
    """Return the runs of a word in an unspaced script, long ones as all pieces of some sizes; and the rest."""
    for match in _UNSPACED.finditer(word):
        run = match[0]
        if len(run) < 2 or _HIRAGANA.fullmatch(run):
            continue
        if len(run) <= 3 or _KATAKANA.fullmatch(run):
            stretches = [run]
        else:
            stretches = [run[at : at + size] for size in sizes for at in range(len(run) - size + 1)]
        yield from (stretch for stretch in stretches if stretch not in STOP_WORDS)
    yield from (part for part in _UNSPACED.sub(" ", word).split() if _counts(part))


def _without_parts(terms: list[Term]) -> list[Term]:
    """Drop terms that are part of another of about the same weight, and fragments that overlap with a heavier one."""
    kept: list[Term] = []
    for term in terms:
        whole = any(_is_part(term, other) for other in terms)
        if not whole and not any(_overlap(term.text, other.text) for other in kept):
            kept.append(term)
    return kept


def _is_part(term: Term, other: Term) -> bool:
    part, whole = term.text.casefold(), other.text.casefold()
    if len(whole) <= len(part) or other.weight < term.weight * 0.7:
        return False
    return part in whole if _unspaced(part) else whole.startswith(part) or whole.endswith(part)


def _overlap(one: str, other: str) -> bool:
    both = _unspaced(one) and _unspaced(other)
    return both and any(one[at : at + 2] in other for at in range(len(one) - 1))


def _unspaced(word: str) -> bool:
    return _UNSPACED.fullmatch(word) is not None
