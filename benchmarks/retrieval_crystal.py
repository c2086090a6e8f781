"""crystal in a temporary HOME: a set imported by ``crystal backfill``, and asked through Python and by command."""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from machine import Machine
from retrieval_data import DataSet, Question, iso
from retrieval_transcripts import Written, write_transcripts

from crystal import Crystal as PublicCrystal
from crystal.text.query import STOP_WORDS

CRYSTAL = ("-m", "crystal")
ASK = Path(__file__).with_name("retrieval_ask.py")
Vectors = npt.NDArray[np.float32]
LONGEST = 4
LIMIT = 50
"""Hits asked for, of crystal and of every baseline."""


def other_wordings(question: str) -> list[str]:
    """Reword a question by rule: its words that tell something, then the longest of these, the last first.

    An agent would find synonyms too, which no rule does: this measures what asking in several ways costs and gives.
    """
    words = [word for word in re.findall(r"\w[\w'.-]*", question) if word.casefold() not in STOP_WORDS]
    longest = sorted(words, key=len)[-LONGEST:]
    return [" ".join(words), " ".join(word for word in reversed(words) if word in longest)] if words else []


@dataclass(frozen=True)
class Answer:
    """What came back, best first, in the ids of the set. ``hits`` is as crystal named them: (chunk, line, session).

    ``mode`` is ``hybrid``, or ``keywords`` where vectors did not help.
    """

    turns: list[str]
    sessions: list[str]
    milliseconds: float
    hits: list[list[Any]]
    mode: str


class HitsDifferError(AssertionError):
    """The command and the Python API gave different hits."""


def _time_name() -> str | None:
    """The argument of ``Crystal.search`` that takes the time of a question; the option has the same name."""
    known = inspect.signature(PublicCrystal.search).parameters
    return next((name for name in ("now", "as_of") if name in known), None)


class Crystal:
    """A memory that holds one set."""

    def __init__(
        self,
        dataset: DataSet,
        home: Path,
        embedding: str,
        *,
        reuse: bool = False,
        today: bool = False,
        reworded: bool = False,
    ) -> None:
        self.dataset, self.embedding, self.reworded = dataset, embedding, reworded
        self.time_name = None if today else _time_name()
        self.machine = Machine(home)
        self.machine.env |= {"CRYSTAL_SUMMARY_MODE": "simple", "TZ": "UTC"}
        self.written: Written = write_transcripts(dataset, self.machine.projects)
        self.import_seconds = 0.0
        if self.machine.db.exists() and not reuse:
            raise SystemExit(f"{home} holds a memory already: give --reuse, or another folder")
        if not self.machine.db.exists():
            self._import()

    def _import(self) -> None:
        if self.embedding != "embedded":
            told = self._process([*CRYSTAL, "models", "install", self.embedding, "--json"])
            self._process([*CRYSTAL, "models", "use", json.loads(told)["name"], "--yes"])
        start = time.perf_counter()
        self._process([*CRYSTAL, "backfill", "--wait"])
        self.import_seconds = time.perf_counter() - start
        waiting = json.loads(self._process([*CRYSTAL, "status", "--json"]))["queues"]["chunks_without_vector"]
        if waiting:
            raise RuntimeError(f"{waiting} chunks have no vector after the import")

    def said(self) -> str:
        """What was imported, in words."""
        chunks = self.machine.value("SELECT count(*) FROM chunks")
        took = f"imported as {chunks:,} chunks in {self.import_seconds:.1f} s"
        return (
            f"{len(self.dataset.messages):,} messages of {len(self.written.sessions)} sessions "
            f"({self.written.size / 1e6:.1f} MB) {took if self.import_seconds else f'are {chunks:,} chunks already'}"
        )

    def ask(self, *, everywhere: bool) -> dict[str, Answer]:
        """Ask every question through ``Crystal().search``, in one process; in the set's order."""
        asked = "".join(
            json.dumps({
                "qid": one.ident,
                "queries": [one.text, *(other_wordings(one.text) if self.reworded else ())],
                "project": self._project(one, everywhere),
                "now": self._asked_at(one),
            }) + "\n"
            for one in self.dataset.questions
        )  # fmt: skip
        done = self._process([str(ASK), "ask", str(LIMIT), self.time_name or "-"], asked)
        rows = [json.loads(line) for line in done.splitlines()]
        return {row["qid"]: self._answer(row) for row in rows}

    def ask_by_command(self, answers: dict[str, Answer], count: int | None, *, everywhere: bool) -> list[float]:
        """Ask some questions with ``crystal search --json``, each in a process of its own; gives the ms of each.

        Raises:
            HitsDifferError: It gave other hits than the API, or in another order.
        """
        questions = [one for one in self.dataset.questions if one.text.strip() and "\0" not in one.text]
        chosen = questions if count is None else random.Random(7).sample(questions, min(count, len(questions)))
        taken = []
        for one in chosen:
            project = self._project(one, everywhere)
            where = ["--all"] if project is None else ["--project", project]
            if self.time_name is not None:
                where += [f"--{self.time_name.replace('_', '-')}", iso(self._asked_at(one))]
            start = time.perf_counter()
            printed = self._process([*CRYSTAL, "search", "--json", "-n", str(LIMIT), *where, "--", one.text])
            taken.append((time.perf_counter() - start) * 1000)
            hits = [[hit["id"], hit["uuid"] or "", hit["session_id"] or ""] for hit in json.loads(printed)["hits"]]
            if hits != answers[one.ident].hits:
                raise HitsDifferError(f"{one.ident}: the command and the API differ\n{hits}\n{answers[one.ident].hits}")
        return taken

    def vectors(self, documents: Sequence[str], questions: Sequence[str]) -> tuple[Vectors, Vectors]:
        """The vectors that this memory's own model gives, a row for each text. Kept in the home."""
        places = {text: place for place, text in enumerate(dict.fromkeys(documents))}
        lines = [json.dumps(["document", text]) for text in places]
        lines += [json.dumps(["question", text]) for text in questions]
        named = hashlib.sha256("\n".join([self.embedding, *lines]).encode()).hexdigest()[:16]
        target = self.machine.home / f"vectors-{named}"
        if not target.exists():
            texts, growing = self.machine.home / "texts.jsonl", target.with_suffix(".part")
            texts.write_text("\n".join(lines) + "\n", "utf-8")
            self._process([str(ASK), "embed", str(texts), str(growing)])
            growing.replace(target)
        rows = np.memmap(target, "<f4", "r").reshape(len(lines), -1)
        return rows[[places[text] for text in documents]], rows[len(places) :]

    def _project(self, question: Question, everywhere: bool) -> str | None:
        return None if everywhere else self.written.folders.get(question.conv, "/nowhere")

    def _asked_at(self, question: Question) -> int:
        """Just after the last message that it may know."""
        return question.now + 1000

    def _answer(self, row: dict[str, Any]) -> Answer:
        turns = [self.written.messages[line] for _, line, _ in row["hits"] if line in self.written.messages]
        sessions = [self.written.sessions[own] for _, _, own in row["hits"] if own in self.written.sessions]
        return Answer(turns, sessions, row["ms"], row["hits"], row["mode"])

    def _process(self, arguments: list[str], given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=self.machine.env,
            cwd=self.machine.home,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        # 1 is the answer of a status without hooks: nothing is captured in this memory.
        if done.returncode not in ((0, 1) if "status" in arguments else (0,)):
            raise RuntimeError(f"{arguments[:4]} ended with {done.returncode}: {done.stderr[-3000:]}")
        return done.stdout
