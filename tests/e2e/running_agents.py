"""Install and run the agents of the table in ``agents.py``, each in a home of its own and with a model of ours."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.agents import Agent
from tests.e2e.client import PASSED_ON, SECONDS
from tests.e2e.fake_models import FakeModels
from tests.e2e.programs import ENVIRON, NoClient, cache_folder, installed, run_to_end

UNTIL_WRITTEN = 1.0
"""Seconds that a program gets to write what the model has said so far."""

QUICK = ("codex", "goose", "pi")
"""Agents that run with every CI: seconds to half a minute each. All of them take a quarter of an hour."""


def install_agent(agent: Agent) -> Path:
    """Return the program's path; installed with npm if it is asked for (``CRYSTAL_E2E=1``, ``all``).

    Raises:
        NoClient: It was not asked for, or cannot be had.
        NoAnswer: It is there, and does not answer.
    """
    if ENVIRON.get("CRYSTAL_E2E", "0") in ("", "0"):
        raise NoClient("runs real agents; set CRYSTAL_E2E=1 to have them installed and run")
    if agent.name not in QUICK and ENVIRON["CRYSTAL_E2E"] != "all":
        raise NoClient(f"{agent.name} takes minutes; set CRYSTAL_E2E=all to run it, too")

    def answers(program: Path) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, FakeModels() as models:
            models.when("are you there", "Yes, I am.")
            running = Running(agent, program, Path(home), models.url)
            assert "Yes, I am." in running.ask("are you there")
            running.close()

    return installed(agent.name, agent.packages, agent.program, cache_folder(), answers)


class Ended(NamedTuple):
    """How a run ended: its exit code, and what it printed."""

    code: int
    out: str


class Running:
    """An agent in one home folder, talking to one model."""

    def __init__(self, agent: Agent, program: Path, home: Path, url: str) -> None:
        self.agent, self.program, self.home, self._url = agent, program, home, url
        self.project = home / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        for name, text in agent.files(url).items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            path.chmod(0o755 if text.startswith("#!") else 0o600)
        for arguments in filter(None, [agent.first(url)]):
            self._run(*arguments)

    def env(self) -> dict[str, str]:
        """The environment of a user of this home."""
        kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return {
            **kept,
            "PATH": f"{self.program.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "NO_PROXY": "127.0.0.1",
            "DO_NOT_TRACK": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            **self.agent.env(self._url),
        }

    def ask(self, prompt: str) -> str:
        """Ask one thing, and return what the program printed."""
        done = self._run(*self.agent.arguments, prompt)
        assert done.returncode == 0, f"{self.agent.name} gave {done.stdout[-800:]!r} {done.stderr[-800:]!r}"
        return done.stdout

    def go(self, prompt: str, more: Sequence[str] = ()) -> Ended:
        """Ask one thing, with more arguments than usual."""
        done = self._run(*self._command(prompt, more))
        return Ended(done.returncode, self._plain(done.stdout))

    def cut_short(self, prompt: str, end: signal.Signals, when: threading.Event) -> Ended:
        """Ask one thing, and end the program with a signal to it and its children once something has happened."""
        command = [str(self.program), *self._command(prompt, ())]
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(
            command, cwd=self.project, env=self.env(), start_new_session=True, text=True, encoding="utf-8", **pipes
        ) as process:
            assert when.wait(3 * SECONDS), "the program never asked the model"
            when.clear()
            time.sleep(UNTIL_WRITTEN)
            os.killpg(process.pid, end)
            try:
                out, _ = process.communicate(timeout=3 * SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return Ended(process.returncode, self._plain(out))

    def _command(self, prompt: str, more: Sequence[str]) -> tuple[str, ...]:
        """Return the arguments; ``more`` stands behind the subcommand, if there is one."""
        given = self.agent.arguments
        at = 0 if given[0].startswith("-") else 1
        return (*given[:at], *more, *given[at:], prompt)

    def _plain(self, out: str) -> str:
        """Return what was printed, without what differs from run to run."""
        return re.sub(
            r"[0-9a-f]{8}(?:-[0-9a-f]{4,12}){4}|[0-9a-f]{8,}|[0-9]+(?:\.[0-9]+)?", "#", out.replace(str(self.home), "~")
        )

    def close(self) -> None:
        """End what the program leaves running."""
        if self.agent.last:
            self._run(*self.agent.last)

    def configuration(self) -> dict[str, bytes]:
        """Every file that its user has written, and any beside them."""
        folders = {(self.home / name).parent for name in self.agent.files(self._url)}
        files = [path for folder in folders for path in folder.iterdir() if path.is_file()]
        return {str(path): path.read_bytes() for path in files}

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_to_end([self.program, *arguments], 3 * SECONDS, self.project, self.env())
