"""Summarize a session with its own sentences: no model, key or network; the same turns give the same text.

The summary has the first request, the last answer, and between them the sentences whose terms the session uses most
(frequency and position, after Luhn 1958 and Edmundson 1969).
"""

# ruff: noqa: RUF001  punctuation of other scripts looks like ASCII

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crystal.store.sessions.sessions import SummaryTurn
from crystal.summarize.markdown import Paragraph, SummaryText
from crystal.summarize.topics import folded, topics, words
from crystal.summarize.wording import cut, has_words, one_line, sentences, without_introduction

TITLE_CHARACTERS = 80
REQUEST_CHARACTERS = 400
ANSWER_CHARACTERS = 500
SENTENCE_CHARACTERS = 240
HIGHLIGHTS = 4
TOPICS = 8

_MAX_SENTENCES = 4000
_SHORT_ANSWER = 60
_TOPIC_CHARACTERS = 200_000


@dataclass(frozen=True, slots=True)
class _Candidate:
    text: str
    place: int
    weight: float
    terms: frozenset[str]


def summarize_simply(said: Sequence[SummaryTurn], *, title: str | None, session_id: str) -> SummaryText:
    """Return an extractive summary of the conversation.

    Args:
        said: The turns of the session, in order; roles other than user, assistant, subagent and summary are ignored.
        title: The given title, or None.
        session_id: Replaces the title of an empty session.
    """
    human, answers = _by_speaker(said)
    first, last = next((turn for turn in human if has_words(turn.text)), None), _last_answer(answers)
    headlines = [title or "", *(_headline(turn) for turn in (first, last) if turn)]
    made = cut(one_line(next(filter(None, headlines), "")), TITLE_CHARACTERS)
    asked = first_words(first.text, REQUEST_CHARACTERS) if first else ""
    ended = _closing(last) if last else ""
    paragraphs = [Paragraph(asked, "Asked"), *_between(human, answers, asked, ended), Paragraph(ended, "Ended with")]
    return SummaryText(
        made or f"Session {one_line(session_id)[:8]}",
        tuple(paragraph for paragraph in paragraphs if paragraph.text),
        _topics(human, answers),
    )


def _by_speaker(said: Sequence[SummaryTurn]) -> tuple[list[SummaryTurn], list[SummaryTurn]]:
    """Return the turns of the user and of the assistant; if both are missing, those of subagents and summaries."""
    human = [turn for turn in said if turn.role == "user" and turn.subagent is None]
    answers = [turn for turn in said if turn.role == "assistant" and turn.subagent is None]
    if human or answers:
        return human, answers
    return [turn for turn in said if turn.role in ("subagent", "summary")], []


def _topics(human: Sequence[SummaryTurn], answers: Sequence[SummaryTurn]) -> tuple[str, ...]:
    weighed = [(text, 2.0) for text in _up_to(human, _TOPIC_CHARACTERS)]
    weighed += [(text, 1.0) for text in _up_to(answers[::-1], _TOPIC_CHARACTERS)]
    return tuple(term.text for term in topics(weighed, TOPICS))


def first_words(text: str, limit: int) -> str:
    """Return the beginning of a turn as one line without code, or of the code if there is nothing else."""
    text = without_introduction(text[: limit * 20])
    return cut(" ".join(sentences(text)) or one_line(text[: limit * 4]), limit)


def _up_to(turns: Sequence[SummaryTurn], characters: int) -> Iterator[str]:
    """Yield the texts of turns up to a total number of characters."""
    for turn in turns:
        if characters <= 0:
            return
        characters -= len(turn.text)
        yield turn.text


def _headline(turn: SummaryTurn) -> str:
    """Return the first meaningful sentence ("Hi!" is not) without its final punctuation, and what it introduces."""
    found = [sentence for sentence in sentences(without_introduction(turn.text)) if has_words(sentence)]
    telling = (sentence for sentence in found if words(sentence))
    line = next(telling, found[0] if found else one_line(turn.text[:1000]))
    if line.endswith((":", "：")) and line != found[-1]:
        line = f"{line} {found[found.index(line) + 1]}"
    return line.replace("`", "").rstrip(" .:;,。：；") if has_words(line) else ""


def _closing(turn: SummaryTurn) -> str:
    """Return the first sentences of an answer and, if there is more, its last one."""
    found, limit = sentences(turn.text), ANSWER_CHARACTERS
    if not found:
        return cut(one_line(turn.text), limit)
    whole = " ".join(found)
    if len(whole) <= limit:
        return whole
    end = cut(found[-1], limit // 3) if turn.length <= len(turn.text) else ""
    return f"{cut(whole, limit - len(end) - 1)} {end}".strip()


def _last_answer(answers: Sequence[SummaryTurn]) -> SummaryTurn | None:
    """Return the last meaningful answer; a mere "you're welcome" is skipped."""
    recent = [turn for turn in answers[-6:] if has_words(turn.text)][::-1]
    return next((turn for turn in recent if len(turn.text) >= _SHORT_ANSWER), recent[0] if recent else None)


def _between(human: Sequence[SummaryTurn], answers: Sequence[SummaryTurn], asked: str, ended: str) -> list[Paragraph]:
    """Return the most salient sentences between the first request and the last answer, in their order."""
    candidates = _candidates(sorted((*human, *answers), key=lambda turn: (turn.ts is None, turn.ts or 0, turn.id)))
    frequency: Counter[str] = Counter(term for candidate in candidates for term in candidate.terms)
    scored = sorted(candidates, key=lambda candidate: (-_score(candidate, frequency), candidate.place))
    told = [frozenset(map(folded, words(text))) for text in (asked, ended)]
    chosen: list[_Candidate] = []
    for candidate in scored:
        if len(chosen) == HIGHLIGHTS:
            break
        if candidate.text in asked or candidate.text in ended:
            continue
        if not any(_alike(candidate.terms, other) for other in told):
            chosen.append(candidate)
            told.append(candidate.terms)
    chosen.sort(key=lambda candidate: candidate.place)
    return [Paragraph(candidate.text) for candidate in chosen]


def _candidates(turns: Sequence[SummaryTurn]) -> list[_Candidate]:
    found: list[_Candidate] = []
    for turn in turns:
        said = sentences(turn.text)
        for index, sentence in enumerate(said):
            line = cut(sentence, SENTENCE_CHARACTERS)
            carried = frozenset(map(folded, words(line)))
            if len(carried) < 3:
                continue
            edge = 1.3 if index == 0 or index == len(said) - 1 else 1.0
            found.append(_Candidate(line, len(found), edge * (1.5 if turn.role == "user" else 1.0), carried))
    # For a very long session use only both ends: the summary can do without its middle.
    half = _MAX_SENTENCES // 2
    return found if len(found) <= _MAX_SENTENCES else found[:half] + found[-half:]


def _score(candidate: _Candidate, frequency: Counter[str]) -> float:
    """Return the mean salience of the terms, damped so that length alone favours neither short nor long sentences."""
    salience = math.fsum(math.log1p(frequency[term]) for term in candidate.terms)
    return candidate.weight * salience / math.pow(len(candidate.terms) + 4, 0.7)


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) > 0.5 * min(len(one), len(other))
