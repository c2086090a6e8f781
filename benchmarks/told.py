"""Measure how often a session is told at its start what answers a question: a memory, one of the last sessions.

For each question of a set (see `retrieval_data.py`): of the messages said before it, what the rules learn becomes
memories, and the context of a new session is composed of them and of the last sessions, as the product does. Counted
is how often it has a memory or a session that comes from one of those which answer the question.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from retrieval_data import DataSet, Message, Question, read_sets, sample

from crystal.context.choosing import LastSession, MemoryCandidate, choose, count_tokens, rank, user_title
from crystal.model.recall import Remembered
from crystal.reflect.own_words import own_sentences
from crystal.reflect.statement_patterns import CATEGORY, Statement, find_statement
from crystal.summarize.simple import first_words

BUDGET = 1_500


class Taught(NamedTuple):
    """Something that a message taught."""

    message: Message
    memory: Remembered


def learn(messages: Sequence[Message]) -> list[Taught]:
    """Return what the user's messages teach, the first time that it is said."""
    found: dict[str, Taught] = {}
    for message in messages:
        said: list[Statement | None] = []
        if message.role == "user":
            said = [find_statement(sentence) for sentence in own_sentences(message.text)]
        for one in (one for one in said if one is not None):
            ident = f"mem-{len(found):012x}"
            memory = Remembered(
                ident, one.text, CATEGORY[one.kind], None, "project", "/project", "active", "reviewed", "cc-mini",
                "box", message.session, message.when, message.when,
            )  # fmt: skip
            found.setdefault(one.text, Taught(message, memory))
    return list(found.values())


def last_sessions(messages: Sequence[Message], now: int) -> list[LastSession]:
    """Return the sessions before a moment, the latest first, each by the user's first words."""
    ended: dict[str, int] = defaultdict(int)
    words: dict[str, str] = {}
    for message in messages:
        if message.when < now:
            ended[message.session] = max(ended[message.session], message.when)
            if message.role == "user":
                words.setdefault(message.session, message.text)
    titled = ((name, user_title(words.get(name), first_words)) for name in sorted(ended, key=ended.__getitem__))
    return [LastSession(name, title, ended[name], None, "box") for name, title in titled if title][::-1]


def score(dataset: DataSet) -> dict[str, float]:
    """Return the figures of a set, over the questions that have an answer before they are asked."""
    by_project: dict[str, list[Message]] = defaultdict(list)
    for message in dataset.messages:
        by_project[message.conv].append(message)
    taught = {conv: learn(messages) for conv, messages in by_project.items()}
    counts = dict.fromkeys(("questions", "learned", "memory", "memory_alone", "sessions", "tokens"), 0)
    for question in dataset.questions:
        if question.gold_sessions and question.category != "abstention":
            _count(counts, question, by_project[question.conv], taught[question.conv])
    asked = counts.pop("questions")
    return {"questions": asked, **{name: round(count / max(1, asked), 4) for name, count in counts.items()}}


def _count(counts: dict[str, int], question: Question, messages: Sequence[Message], taught: Sequence[Taught]) -> None:
    known = [one for one in taught if one.message.when < question.now]
    right = {one.memory.id for one in known if _answers(question, one.message)}
    candidates = rank(MemoryCandidate(one.memory, here=True) for one in known)
    sessions = last_sessions(messages, question.now)
    both, alone = (choose(candidates, some, BUDGET, "crystal", None) for some in (sessions, []))
    counts["questions"] += 1
    counts["learned"] += bool(right)
    counts["memory"] += bool(right.intersection(both.chosen))
    counts["memory_alone"] += bool(right.intersection(alone.chosen))
    counts["sessions"] += bool(question.gold_sessions.intersection(both.chosen))
    counts["tokens"] += count_tokens(both.body)


def _answers(question: Question, message: Message) -> bool:
    return message.ident in question.gold if question.gold else message.session in question.gold_sessions


def main() -> int:
    """Measure each set and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", type=Path, help="folders or files of sets, see retrieval_data.py")
    parser.add_argument("--questions", type=int, default=None, help="only so many of each set")
    options = parser.parse_args()
    for dataset in read_sets(options.sets):
        print(f"{dataset.name}: {json.dumps(score(sample(dataset, options.questions)))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
