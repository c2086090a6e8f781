"""Detect who speaks: a person with an assistant that answers at length, or people with each other.

With an assistant, the person usually says what is searched for, in few words. Among people, both do, and a reply is a
better answer than the question before it, although that has more words of a later question. The kind of a conversation
is detected from the lengths of its passages. Measurements: docs/adr/0018-ranking.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crystal.search.index.open_index import Index
from crystal.search.results import RankedAnswer

MAX_NEIGHBOURS = 150
"""Maximum number of passages that are counted before an answer, and after it."""
PRIOR = 10
"""Number of average passages that are added to each conversation, because a short one is not representative."""
AT_LENGTH = (0.5, 1.5)
"""Difference of the mean logarithms of words between assistant and user: below the first limit the conversation is not
with an assistant, above the second it is. Measured: 1.2 to 1.7 with an assistant, -0.4 to 0.3 among people."""
ALIKE = 0.35
"""Maximum difference at which the passages of both sides count as equally long."""
PERSON_BONUS = 0.15
"""Bonus for a person's message to an assistant, as a share of its score."""
PERSON_BONUS_LATE = 0.2
"""The same, added after late interaction."""
REPLY_SHARE = 0.3
"""Among people: share of the question's lead over the lowest score that is added to the reply's score."""
QUESTION_PENALTY = 0.1
"""Among people: penalty for a question."""
ENDING_CHARS = 80
"""Number of last characters in which a question mark makes a text a question."""
OTHER_SPEAKER_PENALTY = 0.1
"""Among people: penalty for a text of another speaker than the one whom the question names."""
THINKING_PENALTY = 0.2
"""Penalty for an agent's thinking, because its answer says the same."""

Sides = npt.NDArray[np.float64]
"""For the user and the assistant: the number of passages, and the sum of the logarithms of their words."""

_SPEAKER = re.compile(r"([^\W\d_]\w{0,20})(?: [^\W\d_]\w{0,20})?: ")
"""Pattern of a name before a message, as in chats."""


def note_speakers(answers: Sequence[RankedAnswer], places: Sequence[tuple[Index, int]]) -> None:
    """Record who speaks in the conversation of each answer; ``places`` are the index and the ordinal of each."""
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
    """Count the passages of user and assistant, with their log lengths; and return True if there are others."""
    lengths = [end - start for start, end in spans]
    begins = np.cumsum([0, *lengths[:-1]])
    here = np.concatenate([np.arange(*span) for span in spans])
    found = index.columns(("is_user", "is_assistant", "length"), here)
    words = np.log1p(found.pop("length"))
    numbers = [one for side in found.values() for one in (side, side * words)]
    sides = np.stack([np.add.reduceat(one, begins, dtype=np.float64) for one in numbers], axis=1).reshape(-1, 2, 2)
    return [(one, length > one[:, 0].sum()) for one, length in zip(sides, lengths, strict=True)]


def _length_difference(sides: Sides, together: Sides) -> float:
    """Return how much longer the assistant's passages are, as a difference of mean logarithms."""
    if not together[:, 0].all():
        return 0.0
    counts, words = (sides + PRIOR * together / together[:, :1]).T
    user, assistant = words / counts
    return float(assistant - user)


def with_speakers(
    scores: Sequence[float], answers: Sequence[RankedAnswer], before: Sequence[int | None], question: str
) -> list[float]:
    """Return scores that prefer a person's messages to an assistant and, among people, replies and the named speaker.

    Args:
        scores: The scores after late interaction.
        answers: The answers.
        before: For each answer the index of the passage before it, if that is an answer too.
        question: The question.
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
