"""LongMemEval's files (``longmemeval_s``, ``_m``, ``_oracle``) as a set: every question has a haystack of its own.

A file is a list of ``{question_id, question_type, question, question_date, answer_session_ids, haystack_session_ids,
haystack_dates, haystack_sessions: [[{role, content, has_answer?}]]}``. Scored as published: recall_all@5 on the
questions that have an answer (``question_id`` without ``_abs``, 470 of them) and recall_any@5 on all 500.
Source: Wu et al., LongMemEval: Benchmarking Chat Assistants on Long-Term Interactive Memory (ICLR 2025).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from retrieval_data import DataSet, Message, Question, clean, ordered

ABSTENTION = "_abs"
DAY = 86_400_000
STEP = 30_000
"""ms between two messages: a file dates sessions, not messages."""

_DATE = re.compile(r"(\d{4})[/-](\d{1,2})[/-](\d{1,2})(?:\D+?(\d{1,2}):(\d{2}))?")


def read_longmemeval(path: Path) -> DataSet:
    """The file as a set. A question's own id is its conversation; sessions and messages get ids below it."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    entries: list[dict[str, Any]] = json.loads(raw)
    messages: list[tuple[Message, int]] = []
    questions: list[Question] = []
    for entry in entries:
        haystack = list(_haystack(entry))
        messages += [(message, 0) for message, _ in haystack]
        own = entry["question_id"]
        sessions = {_session(own, name) for name in entry.get("answer_session_ids") or ()}
        gold = {message.ident for message, answers in haystack if answers}
        questions.append(
            Question(
                own,
                own,
                clean(entry["question"]),
                "abstention" if own.endswith(ABSTENTION) else entry["question_type"],
                _end_of_day(_moment(entry["question_date"])),
                frozenset(gold),
                frozenset(sessions),
            )
        )
    unanswered = sum(not question.gold_sessions for question in questions)
    notes = [f"{unanswered} questions name no session: they count as not found"] if unanswered else []
    name = path.name.partition(".")[0]
    return DataSet(name, ordered(messages), questions, kind="longmemeval", notes=notes)


def _haystack(entry: dict[str, Any]) -> Iterator[tuple[Message, bool]]:
    own = entry["question_id"]
    sessions = zip(entry["haystack_session_ids"], entry["haystack_dates"], entry["haystack_sessions"], strict=True)
    for place, (name, date, said) in enumerate(sessions):
        start, session = _moment(date), _session(own, name)
        for number, turn in enumerate(said):
            message = Message(
                f"{session}/{place}.{number}",
                own,
                session,
                start + number * STEP,
                turn["role"],
                turn["role"],
                clean(turn.get("content")),
            )
            yield message, bool(turn.get("has_answer"))


def _session(question: str, name: str) -> str:
    return f"{question}/{name}"


def _moment(text: str) -> int:
    match = _DATE.search(text)
    if match is None:
        raise SystemExit(f"{text!r} is no date as LongMemEval writes it, like 2023/05/30 (Tue) 23:40")
    year, month, day, hour, minute = (int(part or 0) for part in match.groups())
    return round(datetime(year, month, day, hour, minute, tzinfo=timezone.utc).timestamp() * 1000)


def _end_of_day(moment: int) -> int:
    """The last moment of a day: by the dates of the file, an answer may be said later on the question's day."""
    return moment - moment % DAY + DAY - 2000


def published(rows: Iterable[tuple[str, list[int], int]]) -> dict[str, tuple[float, int]]:
    """Both scorings as ``{name: (value, questions)}``, from ``(question id, ranks of its sessions, their number)``."""
    found = list(rows)
    answered = [row for row in found if not row[0].endswith(ABSTENTION)]
    every = [bool(count) and sum(rank <= 5 for rank in ranks) == count for _, ranks, count in answered]
    some = [any(rank <= 5 for rank in ranks) for _, ranks, _ in found]
    return {
        "recall_all@5": (sum(every) / max(1, len(every)), len(every)),
        "recall_any@5": (sum(some) / max(1, len(some)), len(some)),
    }
