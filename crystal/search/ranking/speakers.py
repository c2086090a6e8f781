"""Detect who speaks: a person with an assistant that answers at length, or people with each other.

With an assistant, what is asked for was mostly said by the person, in few words. Among people, both say it, and a reply
answers better than the question before it, which has the words of every later question. No setting says which of both
a conversation is: the lengths of its passages do. What these preferences are worth: docs/adr/0018-ranking.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crystal.search.index.open_index import Index
from crystal.search.results import RankedAnswer

AROUND = 150
"""So many passages of a conversation before and after an answer are counted."""
PRIOR = 10
"""As many passages of all conversations are counted with those of each: a short one tells little."""
AT_LENGTH = (0.5, 1.5)
"""Where an assistant's passages begin to be longer than a person's, and where they are for certain: the difference of
the mean logarithms of their words. Measured: 1.2 to 1.7 with an assistant, -0.4 to 0.3 among people."""
ALIKE = 0.35
"""Up to here the passages of both sides are alike."""
PERSON = 0.15
"""How much more is worth what a person said to an assistant, as a share of its score,"""
PERSON_LATE = 0.2
"""and what is added after late interaction."""
REPLY = 0.3
"""Among people, what a reply gets of the lead that the question before it has over the last answer;"""
QUESTION = 0.1
"""and what a question loses."""
ENDING = 80
"""A text that has a question mark among its last so many characters asks."""


@dataclass(frozen=True, slots=True)
class _Talk:
    """The passages around an answer: how many are the user's, the assistant's and tools', and sums of log lengths."""

    users: float = 0.0
    user_words: float = 0.0
    assistants: float = 0.0
    assistant_words: float = 0.0
    tools: float = 0.0

    def excess(self, all_talk: _Talk) -> float:
        """Return by how much the assistant's passages are longer: a difference of mean logarithms."""
        if not (all_talk.users and all_talk.assistants):
            return 0.0
        user, assistant = all_talk.user_words / all_talk.users, all_talk.assistant_words / all_talk.assistants
        user = (self.user_words + PRIOR * user) / (self.users + PRIOR)
        return (self.assistant_words + PRIOR * assistant) / (self.assistants + PRIOR) - user


def note_speakers(answers: Sequence[RankedAnswer], places: Sequence[tuple[Index, int]]) -> None:
    """Note who speaks in the conversation of each answer; ``places`` are their indexes and their ordinals there."""
    known: dict[tuple[int, int], _Talk] = {}
    keys = []
    for index, ordinal in places:
        start, end = index.conversation(ordinal)
        key = (id(index), start)
        keys.append(key)
        if key not in known:
            known[key] = _talk_of(index, max(start, ordinal - AROUND), min(end, ordinal + AROUND + 1))
    sums = [(one.users, one.user_words, one.assistants, one.assistant_words) for one in known.values()]
    together = _Talk(*np.sum(sums, axis=0).tolist()) if sums else _Talk()
    low, high = AT_LENGTH
    for one, key in zip(answers, keys, strict=True):
        excess = known[key].excess(together)
        one.assisted = min(1.0, max(0.0, (excess - low) / (high - low)))
        one.among_people = abs(excess) < ALIKE and not known[key].tools


def _talk_of(index: Index, start: int, end: int) -> _Talk:
    here = np.arange(start, end)
    roles, words = index.take("role", here), np.log1p(index.take("length", here))
    user, assistant = roles == "user", roles == "assistant"
    tools = len(here) - int(user.sum()) - int(assistant.sum())
    return _Talk(int(user.sum()), float(words[user].sum()), int(assistant.sum()), float(words[assistant].sum()), tools)


def with_speakers(
    scores: Sequence[float], answers: Sequence[RankedAnswer], before: Sequence[int | None]
) -> list[float]:
    """Prefer what a person said to an assistant, and among people replies to the questions before them.

    Args:
        scores: The scores after late interaction.
        answers: The answers.
        before: The place of what was said just before each, if it is among them.
    """
    lowest = min(scores, default=0.0)
    found = []
    for score, one, place in zip(scores, answers, before, strict=True):
        more = PERSON_LATE * one.assisted if one.chunk.role == "user" else 0.0
        if one.among_people:
            question = None if place is None else answers[place].chunk
            if place is not None and question is not None and question.role != one.chunk.role and _asks(question.text):
                more += REPLY * (scores[place] - lowest)
            if _asks(one.chunk.text):
                more -= QUESTION
        found.append(score + more)
    return found


def _asks(text: str) -> bool:
    return "?" in text[-ENDING:]
