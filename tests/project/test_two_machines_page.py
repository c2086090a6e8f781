"""The page that sets two machines up, run as it is written: two homes, a real relay, a code that is typed at a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.app.test_processes import end
from tests.support.docs_blocks import ROOT, Step, agrees, blocks_of, steps_of
from tests.support.docs_sample import PRICES, TESTS, write_sample
from tests.support.whole_memory import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="terminals of Windows are others"),
]

PAGE = ROOT / "docs" / "how-to" / "two-machines.md"
HERE = re.compile(r"tests/project/test_two_machines_page\.py runs it on the (\w+)")
CODE = "7-apple-river-stone"
WORDS = "acid bridge copper dune"
SERVES, PAIRS, JOINS = "crystal-relay serve", "crystal relay pair", "crystal relay join"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Terminal:
    """A command at a terminal of its own, and what stands on it."""

    def __init__(self, command: str, env: dict[str, str]) -> None:
        self._screen, theirs = pty.openpty()
        self.process = subprocess.Popen(
            ["bash", "-c", command], env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        os.set_blocking(self._screen, False)
        self._text = b""

    @property
    def text(self) -> str:
        """All that was printed or typed so far, without colours."""
        with contextlib.suppress(OSError):  # nothing there, or the other end is closed
            while piece := os.read(self._screen, 65_536):
                self._text += piece
        return re.sub(r"\x1b\[[0-9;]*m", "", self._text.decode("utf-8", "replace")).replace("\r\n", "\n")

    def wait_for(self, pattern: str) -> str:
        """Wait until something stands there; gives its group."""
        wait_until(lambda: re.search(pattern, self.text), lambda: f"{pattern!r} on:\n{self.text}", 30)
        found = re.search(pattern, self.text)
        assert found is not None
        return found[1]

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._screen, f"{line}\n".encode())

    def end(self) -> str:
        """Wait until the command has ended; gives all that it printed."""
        wait_until(lambda: self.text and self.process.poll() is not None, lambda: f"the end of:\n{self.text}", 60)
        assert self.process.returncode == 0, self.text
        text = self.text
        os.close(self._screen)
        return text


@dataclass
class Rehearsal:
    """Both machines, and what the page has brought about so far."""

    folder: Path
    port: int = field(default_factory=free_port)
    waiting: Terminal | None = None
    pairing: Step | None = None
    relay: subprocess.Popen[bytes] | None = None
    code: str = ""
    words: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        tools = self.folder / "bin"
        tools.mkdir()
        for name, module in (("crystal", "crystal"), ("crystal-relay", "relay_worker")):
            (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
            (tools / name).chmod(0o755)
        for name, other in (("desktop", TESTS), ("laptop", PRICES)):
            home = self.folder / name
            (home / "shop").mkdir(parents=True)
            write_sample(home, datetime.now(timezone.utc))
            next(home.glob(f".claude/projects/*/{other}.jsonl")).unlink()

    def env(self, machine: str) -> dict[str, str]:
        """Somebody at one of the machines."""
        return {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder / machine),
            "CRYSTAL_DEVICE": machine,
            "CRYSTAL_AGENT_ID": f"cc-{machine}",  # in place of the host's name, which both share here
            "CRYSTAL_RELAY_LISTEN": f"127.0.0.1:{self.port}",
            "CRYSTAL_RELAY_METRICS_LISTEN": "off",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TZ": "UTC",
        }

    def do(self, machine: str, step: Step) -> None:
        """One command of the page, and what it prints."""
        started = time.monotonic()
        command = step.command.replace(":8600", f":{self.port}")
        env = self.env(machine)
        if command == SERVES:
            self.relay = subprocess.Popen(command.split(), env=env, stderr=subprocess.DEVNULL, start_new_session=True)
            wait_until(self._is_served, "the relay", 30)
            return
        terminal = Terminal(command, env)
        if command == PAIRS:
            self.code = terminal.wait_for(r"code: (\S+)\n")
            terminal.wait_for("(at most ten minutes)")
            self.waiting, self.pairing = terminal, step
            return
        if command.startswith(JOINS):
            terminal.wait_for("(string that home shows: )")
            terminal.type(self.code)
        if command.endswith("--paper"):
            terminal.wait_for("(show the root key.*: )")
            terminal.type("y")
        self.compare(step, machine, terminal.end())
        if command.startswith(JOINS):
            assert self.waiting is not None
            assert self.pairing is not None
            self.compare(self.pairing, "desktop", self.waiting.end())
        self.seconds += time.monotonic() - started

    def compare(self, step: Step, machine: str, printed: str) -> None:
        """What a command printed is what the page shows; both machines show the same words."""
        words = re.search(r"^words:  ((?:\w+ ){3}\w+)$", printed, re.MULTILINE)
        if words:
            self.words = self.words or words[1]
            printed = printed.replace(self.words, WORDS)
        shown = printed.replace(str(self.folder / machine), "/home/you").replace(f":{self.port}", ":8600")
        shown = shown.replace(self.code or CODE, CODE)
        shown = re.sub(r"\n {15}(?=\S)", " ", shown)  # where a note was wrapped
        assert agrees(step.expected, shown), f"on the {machine}: $ {step.command}\n{shown}"

    def _is_served(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def rehearsal(tmp_path: Path) -> Iterator[Rehearsal]:
    rehearsal = Rehearsal(tmp_path)
    yield rehearsal
    if rehearsal.relay is not None:
        end(rehearsal.relay)
    if rehearsal.waiting is not None:
        end(rehearsal.waiting.process)  # type: ignore[arg-type]


def test_two_machines_are_set_up_as_the_page_says(rehearsal: Rehearsal) -> None:
    machines = []
    for block in blocks_of(PAGE):
        where = HERE.search(block.why_not or "")
        if where is None:
            continue
        for step in steps_of(block):
            rehearsal.do(where[1], step)
        machines.append(where[1])
    assert machines.count("desktop") >= 5
    assert machines.count("laptop") >= 4
    assert rehearsal.words
    assert rehearsal.seconds < 300, "five minutes, of which the machines may take a part"
