"""One machine whose forgetting is proved: conversations, archives, summaries, an index, a log, all in one folder."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from crystal.config.harnesses import Root
from crystal.forgetting.match.forgotten_text import ForgottenText, forgotten_text
from crystal.forgetting.request import ForgetContext, ForgetPlan, ForgetRequest
from crystal.search.index import bring_up_to_date
from crystal.store import Store
from crystal.summarize.daily import DailyLog
from crystal.summarize.due import SummaryRun
from tests.support.capture_machine import NOW, CaptureMachine, line
from tests.support.store_factory import Meaning, embed_all

SYLLABLES = "ka lo mi ru te zo ba ne pi su".split()


def chatter(dice: random.Random, words: int) -> str:
    """Words that mean nothing, and that come again and again."""
    return " ".join("".join(dice.choice(SYLLABLES) for _ in range(dice.randint(1, 3))) for _ in range(words))


@dataclass
class Ground:
    """A machine, and what forgetting needs to know of it."""

    machine: CaptureMachine
    mirror: Store | None = None
    outbox: object = None

    @property
    def home(self) -> Path:
        return self.machine.home

    @contextlib.contextmanager
    def _mirror(self) -> Iterator[Store | None]:
        yield self.mirror

    @property
    def grounds(self) -> ForgetContext:
        return ForgetContext(
            self.machine.store,
            self.home,
            self.home / "memory",
            self.agent_folder,
            self.machine.device,
            (Root(self.machine.root),),
            self._mirror,
            contextlib.nullcontext,
            self.outbox,  # type: ignore[arg-type]
        )

    def agent_folder(self, agent: str) -> Path:
        return self.home / "agents" / agent / "memory"

    def say(self, session: str, *lines: bytes) -> None:
        with self.machine.transcript(session).open("ab") as file:
            file.writelines(lines)
        self.machine.capture().sweep()

    def keep_up(self) -> None:
        """Do what the worker does after capture."""
        embed_all(self.machine.store, Meaning())
        store, now = self.machine.store, self.machine.now
        SummaryRun(store, self.agent_folder, None, now + 10**9).write_due(1)
        DailyLog(store, self.agent_folder, now, 10**7, dt.timezone.utc).write_missing()
        bring_up_to_date(self.machine.store, now=self.machine.now)


def ground(folder: Path, *, sessions: int = 2, turns: int = 8) -> Ground:
    """A machine where something was said."""
    machine = CaptureMachine.at(folder)
    machine.store.execute("PRAGMA synchronous = OFF")
    machine.capture().meet()
    found = Ground(machine)
    dice = random.Random(folder.name)
    for session in range(sessions):
        found.say(
            f"5e551011-{session}",
            *(line(chatter(dice, 20), role="user assistant".split()[at % 2], at=NOW + at) for at in range(turns)),
        )
    return found


def plan_of(*texts: str, lines: tuple[str, ...] = (), sessions: tuple[str, ...] = ()) -> ForgetPlan:
    """A plan as far as a proof looks at it."""
    return ForgetPlan(
        ForgetRequest(), kinds=(("lines", {"lines": list(lines)}, None),), sessions=sessions, needles=texts
    )


def forgotten(found: Ground, *texts: str, lines: tuple[str, ...] = ()) -> ForgottenText:
    """What is said to be forgotten: texts, and lines by their ids."""
    read = forgotten_text(found.grounds, plan_of(lines=lines))
    return replace(read, texts=(*texts, *read.texts))
