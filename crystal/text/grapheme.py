"""Find positions to cut a text: never inside what a reader sees as one character.

A small part of Unicode's rules for grapheme clusters (UAX #29), enough for combining marks, emoji sequences,
flags, Hangul and CR LF. Pure, knows nothing of chunks or transcripts, and reads at most ``REACH`` characters around
the position, so that hostile text (a million accents on one letter) costs no more than other text.
"""

from __future__ import annotations

import unicodedata

REACH = 256
"""Maximum distance of a boundary, in characters. Beyond it the text is cut anyway."""

_ZWJ = "\u200d"


def boundary_before(text: str, at: int, floor: int) -> int:
    """Return the last boundary in ``(floor, at]``, or ``floor`` if there is none within ``REACH``.

    ``floor`` itself must be a boundary.
    """
    if at <= floor or at >= len(text):
        return max(floor, min(at, len(text)))
    lowest = max(floor, at - REACH)
    place = at
    while place > lowest and not is_boundary(text, place, floor):
        place -= 1
    if place == lowest and lowest > floor:
        return at
    return place


def boundary_after(text: str, at: int, floor: int) -> int:
    """Return the first boundary at or after ``at``, or ``at + REACH`` if there is none before it."""
    end = min(len(text), at + REACH)
    place = at
    while place < end and not is_boundary(text, place, floor):
        place += 1
    return place


def is_boundary(text: str, at: int, floor: int = 0) -> bool:
    """Return whether the text may be cut before the character at ``at``; ``floor`` is an earlier boundary."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return not (before == "\r" and after == "\n")
    if before in "\n\r":
        return True
    return not (
        _extends(after)
        or before == _ZWJ
        or (_is_virama(before) and after.isalpha())
        or (_is_flag_letter(before) and _is_flag_letter(after) and _flag_letters_before(text, at, floor) % 2 == 1)
        or _hangul_joins(before, after)
    )


def _extends(char: str) -> bool:
    """Return whether the character belongs to the one before it: marks, joiners, selectors, skin tones, tags."""
    if char in "\u200c\u200d" or "\U0001f3fb" <= char <= "\U0001f3ff" or "\U000e0020" <= char <= "\U000e007f":
        return True
    return unicodedata.category(char)[0] == "M"


def _is_virama(char: str) -> bool:
    return unicodedata.combining(char) == 9


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flag_letters_before(text: str, at: int, floor: int) -> int:
    place = at
    while place > floor and _is_flag_letter(text[place - 1]):
        place -= 1
    return at - place


def _hangul_joins(before: str, after: str) -> bool:
    """Return whether two Hangul characters make one syllable: leading consonant, vowel, trailing consonant."""
    if "\u1100" <= before <= "\u115f":
        return "\u1100" <= after <= "\u11a7" or "\uac00" <= after <= "\ud7a3"
    if "\u1160" <= before <= "\u11a7" or "\uac00" <= before <= "\ud7a3":
        return "\u1160" <= after <= "\u11ff"
    return "\u11a8" <= before <= "\u11ff" and "\u11a8" <= after <= "\u11ff"
