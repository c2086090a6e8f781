"""Compare statements: whether two say the same, or one replaces the other. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from crystal.text.lazy_pattern import lazy_pattern

SAME_WORDS = 0.75
"""Minimum Jaccard overlap of the words of two statements that are the same."""
SAME_TOPIC = 0.5
"""Minimum overlap of opposite statements that contradict each other, and of statements compared by their vectors."""
SAME_MEANING = 0.93
"""Minimum cosine of the vectors of two statements on one topic that are the same."""

Similarity = Callable[[str, str], float]
"""Returns the cosine of two texts' vectors; 0 without vectors."""

_WORD = lazy_pattern(r"[^\W_]+(?:[./:@-][^\W_]+)*")
_NO = lazy_pattern(
    r"\b(?:never|not|no|don'?t|doesn'?t|mustn'?t|shouldn'?t|avoid|stop|without|hate|dislike|can'?t stand)\b",
    re.IGNORECASE,
)
_REPLACED = lazy_pattern(
    r"(?:instead of|rather than|, not|, never|no more|over|stopped using|no longer use|moved from|switched"
    r" from|don'?t use|(?:do not|don'?t)(?=[^,;]{2,60} any ?more[,;])|no longer(?=[^,;]{2,60}[,;] we\b))"
    r"\s+([\w`./@ -]{2,40}?)"
    r"(?=$|[.,;!]|\s(?:in|here|because|since|to|for|everywhere|any ?more|it'?s)\b)",
    re.IGNORECASE,
)
_FRAME = lazy_pattern(
    r"^(.{3,60}?\b(?:is|are) (?:\w+ )?(?:called|named|with|by|in|on|at|via|using)|.{3,60}?\b(?:lives? in"
    r"|runs? on|goe?s? (?:to|in|into)|use))\s+(.+)$",
    re.IGNORECASE,
)
_ORDER = lazy_pattern(r"\b(over|before|after|instead of|rather than|than|not)\b", re.IGNORECASE)
_PLAIN = frozenset(
    "a an the we i you it is are be to of in on at for and or with by this that our my all any please"
    " always never not no do does don"
    " t s d m ll re ve have has use uses using used should must from now here so as into only just when"
    " before after also every each"
    " us your them they there will would can could stop avoid without prefer instead rather than over"
    " more repo project code base".split()
)


def words_of(text: str) -> frozenset[str]:
    """Return the words that carry the meaning of a statement, without common endings."""
    found = (word.casefold() for word in _WORD.findall(text))
    return frozenset(_stem(word) for word in found if word not in _PLAIN)


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.isalpha() and word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def overlap(one: str, other: str) -> float:
    """Return the Jaccard overlap of the words of two statements, 0 to 1."""
    mine, theirs = words_of(one), words_of(other)
    return len(mine & theirs) / len(mine | theirs) if mine | theirs else 0.0


def is_same(one: str, other: str, similarity: Similarity) -> bool:
    """Return True if two statements say the same."""
    if _is_negative(one) != _is_negative(other) or contradicts(one, other):
        return False
    shared = overlap(one, other)
    return shared >= SAME_WORDS or (shared >= SAME_TOPIC and similarity(one, other) >= SAME_MEANING)


def contradicts(new: str, old: str) -> bool:
    """Return True if the newer of two statements replaces the older."""
    if _is_negative(new) != _is_negative(old) and not _REPLACED.search(new) and overlap(new, old) >= SAME_TOPIC:
        return True
    return _names_as_replaced(new, old) or _fills_otherwise(new, old) or _is_reversed(new, old)


def _is_negative(text: str) -> bool:
    return _NO.search(_REPLACED.sub("", text)) is not None


def _names_as_replaced(new: str, old: str) -> bool:
    """Return True if ``new`` names the thing that ``old`` demands as the one not to use: ``X instead of Y``."""
    kept, positive = words_of(_REPLACED.sub("", new)), words_of(_REPLACED.sub("", old))
    named = [words_of(found) for found in _REPLACED.findall(new)]
    return not _is_negative(old) and any(
        gone and gone <= positive and len(gone) * 3 >= len(positive) and not (kept - gone) & positive - gone and kept
        for gone in named
    )


def _is_reversed(new: str, old: str) -> bool:
    """Return True if two statements order the same things differently: ``tabs over spaces``, ``spaces over tabs``."""
    mine, theirs = _ORDER.split(new, 1), _ORDER.split(old, 1)
    if len(mine) < 3 or len(theirs) < 3 or overlap(new, old) < SAME_TOPIC:
        return False
    (left, right), (first, last) = ((words_of(one[0]), words_of(one[2])) for one in (mine, theirs))
    is_exchanged = bool(left & last - first and right & first - last)
    is_turned = {mine[1].casefold(), theirs[1].casefold()} == {"before", "after"}
    return is_exchanged != is_turned


def _fills_otherwise(new: str, old: str) -> bool:
    """Return True if both complete the same sentence in another way: ``the branch is called main``, then ``trunk``."""
    mine, theirs = _FRAME.match(new), _FRAME.match(old)
    if mine is None or theirs is None or not words_of(mine[1]) or words_of(mine[1]) != words_of(theirs[1]):
        return False
    return not words_of(mine[2]) & words_of(theirs[2]) and _is_negative(new) == _is_negative(old)
