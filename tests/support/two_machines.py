"""Whole machines with homes of their own, and a real relay process that they reach over a socket."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crystal.app.context import Machine, open_machine
from crystal.app.relay_links import key_places, relay_client, relay_keys
from crystal.app.sync.device import deliver_relay, send_past
from crystal.app.sync.devices import device_scopes
from crystal.app.sync.home import PollOutcome, poll_relay
from crystal.config.edit import set_value
from crystal.store.sync.relay_peers import NewLink, add_peer
from crystal.sync.delivery import DeliveryReport
from crystal.sync.keys.derive import device_secret
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.places import RelayToken
from relay_worker.settings import Settings
from relay_worker.store import accounts, choice
from relay_worker.tokens import new_token
from tests.support.command import Done, crystal
from tests.support.whole_memory import ROOT, wait_until


@dataclass
class RelayProcess:
    """``crystal-relay serve`` on a free port."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    url: str = ""

    def _env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder.parent),
            "CRYSTAL_RELAY_DATA_DIR": str(self.folder),
            "CRYSTAL_RELAY_LISTEN": self.url.removeprefix("http://") or "127.0.0.1:0",
            "CRYSTAL_RELAY_METRICS_LISTEN": "",
            "CRYSTAL_RELAY_ACCESS_LOG": "none",
            "CRYSTAL_RELAY_RATE": "0",
            "CRYSTAL_RELAY_PAIR_RATE": "0",
        }

    def start(self) -> RelayProcess:
        """Serve; returns when it does, and at once when it serves again. The log is a file, which never blocks."""
        log = self.folder.parent / "relay.log"
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "relay_worker", "serve"],
                env=self._env(), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        if not self.url:
            wait_until(lambda: b'"serving"' in log.read_bytes(), lambda: f"the relay: {log.read_text()}")
            line = next(line for line in log.read_text().splitlines() if '"serving"' in line)
            self.url = json.loads(line)["address"]
        return self

    def stop(self) -> None:
        """End it, politely."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def operate(self, *words: str) -> str:
        """What the operator types."""
        done = subprocess.run(
            [sys.executable, "-m", "relay_worker", *words],
            env=self._env(), cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    def token(self, label: str, *scopes: str, account: str = "default") -> str:
        """Make a token, as its operator's command does while it serves."""
        made, text = new_token(account, label, list(scopes), time.time_ns() // 1_000_000, secrets.token_bytes)
        with choice.transaction(Settings(data_dir=self.folder), create=True) as rows:
            accounts.add(rows, made)
        return text


@dataclass
class Computer:
    """A machine with a home folder of its own. Commands run in this process, one at a time."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def lives(self) -> Iterator[None]:
        """Be this machine."""
        self.home.mkdir(parents=True, exist_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            for name in list(os.environ):
                if name.startswith(("CRYSTAL_", "CLAUDE", "XDG_", "LDM_")):
                    patch.delenv(name)
            patch.setenv("HOME", str(self.home))
            for name, value in self.env.items():
                patch.setenv(name, value)
            yield

    @contextlib.contextmanager
    def machine(self) -> Iterator[Machine]:
        """Its opened memory."""
        with self.lives(), open_machine() as machine:
            yield machine

    def crystal(self, *words: str, stdin: str = "") -> Done:
        """Run a command here."""
        with self.lives():
            return crystal(*words, typed=stdin)

    def ok(self, *words: str, stdin: str = "") -> str:
        """Run a command that must succeed; what it prints."""
        done = self.crystal(*words, stdin=stdin)
        assert done.code == 0, f"{words}: {done.err}"
        return done.out

    def json(self, *words: str) -> dict[str, object]:
        """What a command says in JSON."""
        found = json.loads(self.ok(*words, "--json"))
        assert isinstance(found, dict)
        return found

    def say(self, session: str, *lines: bytes, project: str = "-home-dev-quartz") -> None:
        """Write lines into a transcript, as the client does."""
        folder = self.home / ".claude" / "projects" / project
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{session}.jsonl").open("ab") as file:
            file.writelines(lines)

    def texts(self) -> list[str]:
        """What this machine's own memory has, sorted."""
        with self.machine() as machine:
            return sorted(text for (text,) in machine.store.rows("SELECT text FROM chunks"))

    def deliver(self) -> DeliveryReport:
        """Send what waits, and read what home tells."""
        with self.machine() as machine:
            return deliver_relay(machine, skip_delay=True)

    def poll(self) -> PollOutcome:
        """Take what devices sent."""
        with self.machine() as machine:
            return poll_relay(machine)


def account_of(home: Computer) -> str:
    """The account of a home machine at a relay that several tests share."""
    return hashlib.sha256(str(home.home).encode()).hexdigest()[:16]


def make_home(computer: Computer, relay: RelayProcess, name: str) -> None:
    """Set a home machine up, with an account of its own."""
    token = relay.token(name, "home", account=account_of(computer))
    computer.env["CRYSTAL_DEVICE"] = name
    computer.ok(
        "init", "--yes", "--role", "home", "--relay", relay.url, "--token-stdin", "--agent-id", f"cc-{name}",
        stdin=f"{token}\n",
    )  # fmt: skip


def pair_by_hand(home: Computer, device: Computer, name: str, *words: str) -> None:
    """Make a machine a device, without the exchange; ``words`` go to its init."""
    device_id, up, down = os.urandom(16), os.urandom(8), os.urandom(8)
    with home.machine() as machine:
        with relay_client(machine) as client:
            made = client.make_token(name, device_scopes(up, down))
        root, url = relay_keys(machine).root, machine.config.relay_url
        with machine.store.transaction():
            link = NewLink(device_id, "device", name, f"cc-{name}", 1, up, down, made.id)
            add_peer(machine.store, link, machine.now())
    device.ok("init", "--yes", "--role", "device", "--agent-id", f"cc-{name}", *words)
    with device.machine() as machine:
        set_value(machine.places.config_file, "relay.url", url)
        set_value(machine.places.config_file, "device", name)
        key_places(machine).write_key(RelayKey("device", device_secret(root, device_id, 1), device_id, 1))
        key_places(machine).write_token(RelayToken(made.token))
        with machine.store.transaction():
            link = NewLink(device_id, "home", "home", None, 1, up, down)
            add_peer(machine.store, link, machine.now())
        send_past(machine)
