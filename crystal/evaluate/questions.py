"""Make questions from known turns, and score the ranks at which search finds these turns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crystal.store.search.trials import Sampled

MIN_CHARACTERS = 120
"""Minimum length of a text that a question is made from."""
MAX_REPLY_CHARACTERS = 300

_SENTENCE = re.compile(r"[^\n.!?。！？]+[.!?。！？]*")  # noqa: RUF001 - full-width marks end sentences too
_WORD = re.compile(r"\w{2,}")


@dataclass(frozen=True, slots=True)
class Score:
    """Share of targets found first, among the first five, and the mean reciprocal rank."""

    hit_at_1: float
    hit_at_5: float
    mrr: float


def score_of(ranks: Sequence[float]) -> Score:
    """Return the score of targets found at these ranks, from 1; a rank is infinite if the target was not found."""
    count = max(1, len(ranks))
    return Score(
        sum(rank <= 1 for rank in ranks) / count,
        sum(rank <= 5 for rank in ranks) / count,
        sum(1 / rank for rank in ranks) / count,
    )


def words_of(text: str) -> list[str]:
    """Return the words of at least two characters, in their order."""
    return _WORD.findall(text)


def hide_question(one: Sampled, *, prefers_reply: bool) -> tuple[str, str] | None:
    """Return a question and the turn's text without it; None if the turn is unsuitable."""
    reply = asked_before(one)
    answer = (reply, one.text) if reply is not None else None
    return (answer or _cut_sentence(one.text)) if prefers_reply else (_cut_sentence(one.text) or answer)


def asked_before(one: Sampled) -> str | None:
    """Return the user's question before an answer; None if the answer repeats it, or it has fewer than four words."""
    asked = " ".join((one.before or "").split())[:MAX_REPLY_CHARACTERS]
    if len(set(words_of(asked))) < 4 or asked in " ".join(one.text.split()):
        return None
    return (one.before or "").strip()[:MAX_REPLY_CHARACTERS]


def telling_sentence(text: str) -> str | None:
    """Return the sentence of 5 to 30 words with the most different long words; None if fewer than two are so long."""
    found = [match[0].strip() for match in _SENTENCE.finditer(text)]
    fit = [each for each in found if 5 <= len(words_of(each)) <= 30]
    if len(fit) < 2:
        return None
    return max(fit, key=lambda each: (len({word.lower() for word in words_of(each) if len(word) > 4}), each))


def _cut_sentence(text: str) -> tuple[str, str] | None:
    best = telling_sentence(text)
    rest = text.replace(best, " ") if best is not None else ""
    return (best, rest) if best is not None and len(words_of(rest)) >= 10 else None
