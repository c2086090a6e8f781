"""Detect who speaks: a person with an assistant that answers at length, or people with each other.

With an assistant, the person mostly says what is searched for, in few words. Among people, both say it, and a reply
answers better than the question before it, which has the words of every later question. No setting says which kind a
conversation is: the lengths of its passages do. Measurements: docs/adr/0018-ranking.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crystal.search.index.open_index import Index
from crystal.search.results import RankedAnswer

MAX_NEIGHBOURS = 150
"""Passages of a conversation that are counted before and after an answer, each."""
PRIOR = 10
"""Average passages that are added to the count of each conversation, because a short one tells little."""
AT_LENGTH = (0.5, 1.5)
"""Limits above which an assistant's passages may be, and certainly are, longer than a person's: the difference of
the mean logarithms of their words. Measured: 1.2 to 1.7 with an assistant, -0.4 to 0.3 among people."""
ALIKE = 0.35
"""Up to this difference, the passages of both sides count as equally long."""
PERSON_BONUS = 0.15
"""Bonus for what a person said to an assistant, as a share of its score."""
PERSON_BONUS_LATE = 0.2
"""The same, added after late interaction."""
REPLY_SHARE = 0.3
"""Among people: the share that a reply gets of the lead that the question before it has over the last answer."""
QUESTION_PENALTY = 0.1
"""Among people: what a question loses."""
ENDING_CHARS = 80
"""A text with a question mark in its last characters, as many as this, is a question."""
OTHER_SPEAKER_PENALTY = 0.1
"""Among people: what a text loses whose speaker is not the one whom the question names."""
THINKING_PENALTY = 0.2
"""Penalty for an agent's thinking: its answer says the same to the user."""

Sides = npt.NDArray[np.float64]
"""For the user and the assistant: how many passages, and the sum of the logarithms of their words."""

_SPEAKER = re.compile(r"([^\W\d_]\w{0,20})(?: [^\W\d_]\w{0,20})?: ")
"""A name before what is said, as chats have it."""


def note_speakers(answers: Sequence[RankedAnswer], places: Sequence[tuple[Index, int]]) -> None:
    """Note who speaks in the conversation of each answer; ``places`` are their indexes and their ordinals there."""
    keys, spans = [], dict[tuple[Index, int], tuple[int, int]]()
    for index, ordinal in places:
        start, end = index.conversation(ordinal)
        keys.append((index, start))
        spans.setdefault(keys[-1], (max(start, ordinal - MAX_NEIGHBOURS), min(end, ordinal + MAX_NEIGHBOURS + 1)))
    known: dict[tuple[Index, int], tuple[Sides, bool]] = {}
    for index in {index for index, _ in spans}:
        own = {key: span for key, span in spans.items() if key[0] is index}
        known.update(zip(own, _sides(index, list(own.values())), strict=True))
    together = sum((sides for sides, _ in known.values()), np.zeros((2, 2)))
    low, high = AT_LENGTH
    for one, key in zip(answers, keys, strict=True):
        sides, has_tools = known[key]
        excess = _length_difference(sides, together)
        one.assisted = min(1.0, max(0.0, (excess - low) / (high - low)))
        one.among_people = abs(excess) < ALIKE and not has_tools


def _sides(index: Index, spans: Sequence[tuple[int, int]]) -> list[tuple[Sides, bool]]:
    """Count passages: how many are the user's and the assistant's, their log lengths; and whether others are."""
    lengths = [end - start for start, end in spans]
    begins = np.cumsum([0, *lengths[:-1]])
    here = np.concatenate([np.arange(*span) for span in spans])
    found = index.columns(("is_user", "is_assistant", "length"), here)
    words = np.log1p(found.pop("length"))
    numbers = [one for side in found.values() for one in (side, side * words)]
    sides = np.stack([np.add.reduceat(one, begins, dtype=np.float64) for one in numbers], axis=1).reshape(-1, 2, 2)
    return [(one, length > one[:, 0].sum()) for one, length in zip(sides, lengths, strict=True)]


def _length_difference(sides: Sides, together: Sides) -> float:
    """Return by how much the assistant's passages are longer: a difference of mean logarithms."""
    if not together[:, 0].all():
        return 0.0
    counts, words = (sides + PRIOR * together / together[:, :1]).T
    user, assistant = words / counts
    return float(assistant - user)


def with_speakers(
    scores: Sequence[float], answers: Sequence[RankedAnswer], before: Sequence[int | None], question: str
) -> list[float]:
    """Prefer what a person said to an assistant, and among people replies, and the one whom the question names.

    Args:
        scores: The scores after late interaction.
        answers: The answers.
        before: The place of what was said just before each, if it is among them.
        question: What is asked.
    """
    lowest, asks = min(scores, default=0.0), ["?" in one.text[-ENDING_CHARS:] for one in answers]
    speakers = [_speaker(one.text) if one.among_people else "" for one in answers]
    named = set(re.findall(r"\w+", question.casefold())).intersection(speakers)
    found = []
    for score, one, place, speaker, is_question in zip(scores, answers, before, speakers, asks, strict=True):
        more = PERSON_BONUS_LATE * one.assisted if one.chunk.role == "user" else 0.0
        more -= THINKING_PENALTY if one.chunk.role == "thinking" else 0.0
        more -= OTHER_SPEAKER_PENALTY if named and speaker and speaker not in named else 0.0
        if one.among_people:
            if place is not None and asks[place] and answers[place].chunk.role != one.chunk.role:
                more += REPLY_SHARE * (scores[place] - lowest)
            more -= QUESTION_PENALTY if is_question else 0.0
        found.append(score + more)
    return found


def _speaker(text: str) -> str:
    name = _SPEAKER.match(text)
    return name[1].casefold() if name else ""
