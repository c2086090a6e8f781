"""The benchmark of what a session knows at its start counts only what was said before the question."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from retrieval_data import DataSet, Message, Question
from told import score


def said(session: str, when: int, text: str) -> Message:
    return Message(f"{session}-{when}", "shop", session, when, "user", "user", text)


def asked(now: int, *sessions: str) -> Question:
    return Question(f"q{now}", "shop", "how?", "any", now, frozenset(), frozenset(sessions))


def test_a_memory_or_a_session_counts_only_if_it_answers_and_was_there() -> None:
    messages = [
        said("old", 1, "The main branch is called trunk"),
        *(said(f"s{at}", at, "hello you") for at in range(2, 9)),
    ]
    assert score(DataSet("d", messages, [asked(9, "old")]))["memory"] == 1
    assert score(DataSet("d", messages, [asked(9, "old")]))["sessions"] == 0, "it is not among the last"
    assert score(DataSet("d", messages, [asked(1, "old")]))["memory"] == 0, "it was not said yet"
    found = score(DataSet("d", messages, [asked(9, "s8"), asked(9, "nowhere"), asked(9)]))
    assert (found["questions"], found["memory"], found["sessions"]) == (2, 0, 0.5)
