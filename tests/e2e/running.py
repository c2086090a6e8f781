"""Run another agent's real program: install it, ask it in a home of its own, end it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.agents import Agent
from tests.e2e.client import PASSED_ON, SECONDS, NoClient, npm_install

UNTIL_WRITTEN = 1.0
"""Seconds that a program gets to write what the model has said so far."""

QUICK = ("codex", "goose", "pi")
"""Agents that run with every CI: seconds to half a minute each. All of them take a quarter of an hour."""


def install_agent(agent: Agent, environ: Mapping[str, str], cache: Path) -> Path:
    """The program's path; installed with npm if it is asked for (``CRYSTAL_E2E=1``, ``all``) and not there yet.

    Raises:
        NoClient: It was not asked for, or cannot be had.
    """
    if environ.get("CRYSTAL_E2E", "0") in ("", "0"):
        raise NoClient("runs real agents; set CRYSTAL_E2E=1 to have them installed and run")
    if agent.name not in QUICK and environ["CRYSTAL_E2E"] != "all":
        raise NoClient(f"{agent.name} takes minutes; set CRYSTAL_E2E=all to run it, too")
    folder = cache / f"{agent.name}-{agent.packages[-1].rpartition('@')[2]}"
    program = folder / "node_modules" / ".bin" / agent.program
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("wb") as lock:  # tests in other processes may ask for it just now
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = "" if program.exists() else npm_install(folder, *agent.packages)
    if not program.exists():
        raise NoClient(f"npm could not install {agent.packages[-1]}: {told}")
    return program


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
                out, _ = process.communicate(timeout=SECONDS)
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
        return re.sub(r"[0-9a-f]{8,}|[0-9]+(\.[0-9]+)?", "#", out.replace(str(self.home), "~"))

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
        return subprocess.run(
            [str(self.program), *arguments],
            cwd=self.project,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=3 * SECONDS,
            check=False,
        )
