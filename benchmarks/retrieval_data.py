"""Sets of messages and questions with their gold, as ``retrieval.py`` takes them.

A set is a folder with ``messages.jsonl[.gz]`` and ``queries.jsonl[.gz]``. A message is ``{id, conv, session, seq, ts,
role, speaker, text, tools?}``, a question ``{qid, conv, query, category, now, gold: [message ids], gold_sessions}``.
A JSON file is read as LongMemEval's, see ``retrieval_longmemeval.py``.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

NAMELESS = frozenset(("", "user", "assistant", "system", "tool"))
"""Speakers that are roles: no name stands before what they say."""


@dataclass(frozen=True)
class Message:
    """One message; ``when`` is ms since the epoch, UTC. ``ident`` is its own in the set."""

    ident: str
    conv: str
    session: str
    when: int
    role: str
    speaker: str
    text: str
    tools: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The text as the transcript has it: where people talk, the name stands before it."""
        return self.text if self.speaker in NAMELESS or not self.text else f"{self.speaker}: {self.text}"

    @property
    def whole(self) -> str:
        """What was said and done."""
        return "\n".join(part for part in (self.said, *self.tools) if part)


@dataclass(frozen=True)
class Question:
    """A question; ``gold`` and ``gold_sessions`` are what answers it, one of them may be empty."""

    ident: str
    conv: str
    text: str
    category: str
    now: int
    gold: frozenset[str]
    gold_sessions: frozenset[str]


@dataclass(frozen=True)
class DataSet:
    """A set, its messages in the order in which they were said within each session, sessions and conversations whole.

    ``kind`` is ``messages`` or ``longmemeval``, which is scored in two ways more.
    """

    name: str
    messages: Sequence[Message]
    questions: Sequence[Question]
    kind: str = "messages"
    notes: Sequence[str] = field(default=())


def read_sets(paths: Iterable[Path]) -> list[DataSet]:
    """The sets at these places: folders of a set, folders of such folders, LongMemEval's files.

    Raises:
        SystemExit: There is no set at one of them, or two sets have one name.
    """
    from retrieval_longmemeval import read_longmemeval

    found: list[DataSet] = []
    for path in paths:
        if path.is_file():
            found.append(read_longmemeval(path))
        elif _file(path, "messages"):
            found.append(_read_folder(path))
        else:
            inner = [below for below in sorted(path.glob("*/")) if _file(below, "messages")]
            if not inner:
                raise SystemExit(f"{path} holds no messages.jsonl.gz, and no folder in it does")
            found += [_read_folder(below) for below in inner]
    for one in found:
        if not one.messages or not one.questions:
            raise SystemExit(f"{one.name} has {len(one.messages)} messages and {len(one.questions)} questions")
    names = [one.name for one in found]
    if len(set(names)) != len(names):
        raise SystemExit(f"two sets have one name: {', '.join(sorted(names))}")
    return found


def sample(dataset: DataSet, count: int | None) -> DataSet:
    """The set with so many of its questions, evenly spread; None for all."""
    if count is None or count >= len(dataset.questions):
        return dataset
    step = len(dataset.questions) / count
    kept = [dataset.questions[int(place * step)] for place in range(count)]
    return DataSet(dataset.name, dataset.messages, kept, dataset.kind, dataset.notes)


def ms(text: str) -> int:
    """ISO 8601 as ms since the epoch; without a zone it is UTC."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return round((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp() * 1000)


def iso(when: int) -> str:
    """As a transcript writes it."""
    moment = datetime.fromtimestamp(when / 1000, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when % 1000:03d}Z"


def ordered(messages: Iterable[tuple[Message, int]]) -> list[Message]:
    """Messages with their numbers, conversation by conversation and session by session, in the order they came in."""
    convs: dict[str, dict[str, list[tuple[int, int, Message]]]] = {}
    for place, (message, seq) in enumerate(messages):
        convs.setdefault(message.conv, {}).setdefault(message.session, []).append((seq, place, message))
    return [
        message
        for sessions in convs.values()
        for session in sessions.values()
        for _, _, message in sorted(session, key=lambda one: one[:2])
    ]


def _read_folder(folder: Path) -> DataSet:
    messages = ordered(
        (
            Message(
                row["id"],
                row["conv"],
                row["session"],
                ms(row["ts"]),
                row.get("role") or "user",
                row.get("speaker") or "",
                clean(row.get("text")),
                tuple(map(clean, row.get("tools") or ())),
            ),
            row.get("seq") or 0,
        )
        for row in _rows(folder, "messages")
    )
    session_of = {message.ident: message.session for message in messages}
    last = max((message.when for message in messages), default=0)
    questions = [
        Question(
            row["qid"],
            row["conv"],
            clean(row["query"]),
            row.get("category") or "all",
            ms(row["now"]) if row.get("now") else last,
            frozenset(row.get("gold") or ()),
            frozenset(
                row.get("gold_sessions") or (session_of[one] for one in row.get("gold") or () if one in session_of)
            ),
        )
        for row in _rows(folder, "queries")
    ]
    notes = list(_missing(messages, questions))
    return DataSet(folder.resolve().name, messages, questions, notes=notes)


def _missing(messages: Sequence[Message], questions: Sequence[Question]) -> Iterable[str]:
    known, sessions = {one.ident for one in messages}, {one.session for one in messages}
    if len(known) < len(messages):
        yield f"{len(messages) - len(known)} messages have the id of another"
    lost = sum(not (one.gold <= known and one.gold_sessions <= sessions) for one in questions)
    if lost:
        yield f"{lost} questions have gold that is in no message: it counts as not found"


def clean(text: str | None) -> str:
    """Valid Unicode: half a character may stand in JSON, but in no index."""
    return (text or "").encode("utf-8", "replace").decode()


def _file(folder: Path, name: str) -> Path | None:
    return next((path for end in (".jsonl.gz", ".jsonl") if (path := folder / (name + end)).is_file()), None)


def _rows(folder: Path, name: str) -> Iterable[dict[str, Any]]:
    path = _file(folder, name)
    if path is None:
        raise SystemExit(f"{folder} has no {name}.jsonl.gz")
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in raw.split(b"\n") if line.strip()]
