"""Runs of the summaries, with a model that answers as a test says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crystal.errors import CrystalError
from crystal.llm.ask import Completion, LanguageModel, PaidModel, Prompt
from crystal.store import Store
from crystal.store.sessions.conversations import Session
from crystal.store.sessions.sessions import session_named
from crystal.summarize.due import SummaryReport, SummaryRun
from tests.support.chat_server import CARD
from tests.support.summary_store import HOUR, MINUTE, SESSION, START

IDLE = 30 * MINUTE
LATER = START + 5 * HOUR
NAME = f"2026-11-21--{SESSION}.md"
CHAT = [
    ("user", "Please repair the spool."),
    ("assistant", "The spool is repaired."),
    ("tool_call", "Bash: make test", "Bash"),
]


def run(
    store: Store, folder: Path, model: LanguageModel | None = None, *, now: int = LATER, cap: float = 0.5, **more: Any
) -> SummaryReport:
    paid = None if model is None else PaidModel(store, model, "summary", cap)
    return SummaryRun(store, lambda agent: folder / agent, paid, now).write_due(IDLE, **more)


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in sorted((folder / "cc-test/sessions").glob("*"))}


def session(store: Store, name: str = SESSION) -> Session:
    found = session_named(store, name)
    assert found is not None
    return found


@dataclass
class Fake:
    """A model that answers what it is told to, or raises it."""

    answers: list[str | CrystalError | Callable[[], str]] = field(default_factory=lambda: [json.dumps(CARD)])
    provider: str = "openai"
    model: str = "gpt-4o-mini"
    most_output_tokens: int = 900
    asked: list[Prompt] = field(default_factory=list)

    def complete(self, prompt: Prompt) -> Completion:
        self.asked.append(prompt)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, CrystalError):
            raise answer
        return Completion(answer if isinstance(answer, str) else answer(), 1000, 100)
