"""Three real processes, relay, home and device, over real sockets, killed at any moment: home has every word once."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crystal.ingest import archive
from crystal.store import Store
from tests.app.test_processes import WORKER, Machine, Session, end
from tests.support.said_rows import said
from tests.support.two_machines import RelayProcess
from tests.support.whole_memory import ROOT, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are untested on Windows"),
]

KILLS, SEEDS, SECONDS = 8, (1,), 240.0
CRYSTAL = [sys.executable, "-m", "crystal"]
POLL = (*CRYSTAL, "relay", "poll", "--watch", "--quiet")


class Relay(RelayProcess):
    """The server, which can be killed and can lose its disk."""

    def is_healthy(self) -> bool:
        """Whether it serves."""
        command = [sys.executable, "-m", "relay_worker", "health"]
        return subprocess.run(command, env=self._env(), cwd=ROOT, capture_output=True, check=False).returncode == 0

    def kill(self) -> None:
        """No goodbye."""
        assert self.process is not None
        end(self.process)

    def lose_disk(self) -> None:
        """All is gone but what a backup of the first minute has: the tokens."""
        self.kill()
        shutil.rmtree(self.folder)
        shutil.copytree(self.folder.parent / "backup", self.folder)


class Computer(Machine):
    """A machine with a name, hooks and processes of its own."""

    def __init__(self, home: Path, name: str) -> None:
        home.mkdir()
        super().__init__(home)
        self.name = name
        self.env["CRYSTAL_DEVICE"] = name

    def rows(self) -> list[tuple[object, ...]]:
        """Every row of conversation that it has."""
        with Store.open_existing(self.data / "crystal.db") as store:
            return said(store)

    def archived(self, device: str, path: Path) -> bytes:
        """What this machine's archive holds of a transcript of some device."""
        with Store.open_existing(self.data / "crystal.db") as store:
            rows = store.rows(
                "SELECT c.archive, s.archive_offset, s.archive_length FROM segments s"
                " JOIN capture_state c ON c.id = s.transcript WHERE c.device = ? AND c.path = ? ORDER BY s.start",
                (device, str(path)),
            )
        return b"".join(archive.read_frame(self.ldm / str(name), archive.Frame(*frame)) for name, *frame in rows)

    def unconfirmed(self) -> int:
        """How many blobs no receipt of home covers."""
        status = json.loads(self.crystal("status", "--json"))
        return int(status["relay"]["outbox"]["blobs"])

    def has(self, words: str) -> bool:
        """Whether its memory or its mirror has some words: a look into the files, to wait by."""
        for path in (self.data / "crystal.db", self.data / "mirror.db"):
            if path.exists() and path.stat().st_size:
                with Store.open_existing(path) as store:
                    if store.value("SELECT 1 FROM chunks WHERE instr(text, ?) LIMIT 1", (words,)):
                        return True
        return False

    def finds(self, words: str) -> list[str]:
        """The devices from which a search here has an answer with exactly these words."""
        done = self.run("search", f'"{words}"', "--json")
        hits = [json.loads(line) for line in done.stdout.splitlines()]
        found = [hit for top in hits for hit in top.get("hits", [top])]
        return [str(hit["device"]) for hit in found if words in hit["text"]]


@dataclass
class Town:
    """A relay, a desk at home, and two devices, all set up with the commands that people type."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "site").mkdir()
        self.relay = Relay(self.folder / "site" / "relay").start()
        self.desk = Computer(self.folder / "desk", "desk")
        token = self.relay.operate("token", "make", "--label", "home", "--scope", "home")
        self.desk.crystal(
            "init", "--yes", "--role", "home", "--relay", self.relay.url, "--token-stdin", "--agent-id", "cc-desk",
            stdin=token,
        )  # fmt: skip
        self.devices = [self._join(name) for name in ("lap", "tab")]
        self.relay.operate("backup", str(self.folder / "site" / "backup"))

    def _join(self, name: str) -> Computer:
        device = Computer(self.folder / name, name)
        device.crystal("init", "--yes", "--agent-id", f"cc-{name}")
        offer = self.desk.crystal("relay", "pair", "--offline", "--name", name)
        device.crystal("relay", "join", stdin=offer)
        return device

    def start(self, machine: Computer, *command: str) -> subprocess.Popen[bytes]:
        """Start a process that does not outlive the test."""
        process = machine.start(*command)
        self.started.append(process)
        return process

    def close(self) -> None:
        """End what was started."""
        for process in self.started:
            end(process)
        self.relay.kill()

    def settle(self) -> None:
        """Let everything come home, without another kill."""
        deadline = time.monotonic() + 120
        for machine in self.devices:
            machine.crystal("sync")  # a worker that was killed has left its note
            machine.settle()
        while True:
            self.exchange()
            if not any(machine.unconfirmed() for machine in self.devices):
                return
            assert time.monotonic() < deadline, self.desk.run("relay", "status").stdout

    def exchange(self) -> None:
        """Home takes what is there and answers, and every device reads it and sends."""
        self.desk.crystal("relay", "poll")
        for machine in self.devices:
            machine.crystal("relay", "sync")

    def find(self, words: str) -> bool:
        """Tell whether every device finds these words as each of them said them."""
        names = {machine.name for machine in self.devices}
        return all(set(machine.finds(words)) == names for machine in self.devices)

    def assert_home_is_the_union(self) -> None:
        """Row for row, byte for byte, and proved on every machine."""
        for machine in self.devices:
            machine.assert_everything_once()
            machine.verify()
            for session in machine.sessions:
                assert self.desk.archived(machine.name, session.path) == session.path.read_bytes()
        here, there = Counter(self.desk.rows()), Counter(row for one in self.devices for row in one.rows())
        assert (there - here, here - there) == (Counter(), Counter())
        self.desk.verify()
        assert json.loads(self.desk.crystal("relay", "status", "--json"))["ok"]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    town = Town(tmp_path)
    try:
        yield town
    finally:
        town.close()


def test_what_the_hook_keeps_on_a_device_is_found_at_home(town: Town) -> None:
    lap = town.devices[0]
    town.start(town.desk, *POLL)
    session = lap.session()
    session.say(role="user", words="where do the swallows go in winter")
    session.say(words="they cross the Sahara")
    lap.fire(session, awaited=session.last).communicate(timeout=60)
    wait_until(lambda: town.desk.has("cross the Sahara"), "the desk to have it", 30)
    assert town.desk.finds("swallows go in winter") == ["lap"]
    assert town.desk.finds("cross the Sahara") == ["lap"]
    town.settle()
    town.assert_home_is_the_union()


def test_what_is_said_at_home_is_found_on_a_device(town: Town) -> None:
    lap = town.devices[0]
    town.start(town.desk, *POLL)
    town.start(lap, *CRYSTAL, "relay", "sync", "--watch", "--quiet")
    session = town.desk.session()
    session.say(role="user", words="the kettle is older than the house")
    town.desk.fire(session, awaited=session.last).communicate(timeout=60)
    wait_until(lambda: lap.has("kettle is older"), "the lap to have it", 60)
    assert lap.finds("kettle is older") == ["desk"]
    assert not lap.said(), "it is in the mirror, not in the device's own memory"


def test_a_relay_that_lost_its_tokens_too_costs_one_string_for_each_device(town: Town) -> None:
    for machine in town.devices:
        machine.session().say(words="taken before the loss")
        machine.crystal("sync")
    town.desk.crystal("relay", "poll")
    for machine in town.devices:
        machine.sessions[0].say(words="sent, and lost with the relay")
        machine.crystal("sync")
    town.relay.kill()
    shutil.rmtree(town.relay.folder)
    town.relay.start()
    wait_until(town.relay.is_healthy, "the relay to serve")
    token = town.relay.operate("token", "make", "--label", "home", "--scope", "home")
    town.desk.crystal("init", "--yes", "--role", "home", "--relay", town.relay.url, "--token-stdin", stdin=token)
    for machine in town.devices:
        assert machine.run("relay", "sync").returncode != 0
        machine.crystal("relay", "join", "--replace", stdin=town.desk.crystal("relay", "pair", "--again", machine.name))
        machine.sessions[0].say(words="said after it")
    town.settle()
    town.assert_home_is_the_union()
    listed = json.loads(town.desk.crystal("devices", "--json"))["devices"]
    assert [one["name"] for one in listed] == ["lap", "tab"]


@dataclass
class Victim:
    """A process that is started again and again and killed at random moments."""

    start: Callable[[], subprocess.Popen[bytes]]
    lives: Callable[[], float]
    kills: int = 0
    process: subprocess.Popen[bytes] | None = None
    due: float = 0.0

    def step(self) -> None:
        """Kill it if its time has come; a process that has ended by itself is started anew and not counted."""
        now = time.monotonic()
        if self.process is not None and self.process.poll() is None:
            if now < self.due:
                return
            end(self.process)
            self.kills += 1
        self.process = self.start()
        self.due = now + self.lives()


@pytest.mark.parametrize("seed", SEEDS)
def test_home_is_the_union_whatever_is_killed_and_though_the_relay_loses_its_disk(town: Town, seed: int) -> None:
    rng = random.Random(seed)
    sessions = [(machine, machine.session()) for machine in town.devices for _ in range(2)]
    at_device = (WORKER, [*CRYSTAL, "relay", "sync", "--quiet"], [*CRYSTAL, "sync", "--quiet"])

    def serve() -> subprocess.Popen[bytes]:
        process = town.relay.start().process
        assert process is not None
        return process  # type: ignore[return-value]

    def work(machine: Computer) -> Victim:
        return Victim(lambda: town.start(machine, *rng.choice(at_device)), lambda: rng.uniform(0.15, 1.2))

    town.relay.kill()
    relay = Victim(serve, lambda: rng.uniform(0.4, 2.5))
    poller = Victim(lambda: town.start(town.desk, *POLL), lambda: rng.uniform(0.3, 2.5))
    workers = [work(machine) for machine in town.devices]
    deadline = time.monotonic() + SECONDS
    is_lost = False
    while min(relay.kills, poller.kills, *(one.kills for one in workers)) < KILLS:
        assert time.monotonic() < deadline, [one.kills for one in (relay, poller, *workers)]
        machine, session = rng.choice(sessions)
        speak(machine, session, rng)
        for victim in (relay, poller, *workers):
            victim.step()
        if not is_lost and relay.kills >= KILLS // 2:
            town.relay.lose_disk()
            is_lost = True
        time.sleep(0.02)
    for victim in (relay, poller, *workers):
        assert victim.process is not None
        end(victim.process)
    town.relay.start()
    wait_until(lambda: town.desk.run("relay", "poll").returncode != 4, "the relay to serve")
    for machine in town.devices:
        machine.sessions[0].say(words="the last word")
    town.settle()
    town.assert_home_is_the_union()
    assert is_lost
    # A device tells what the relay lost of the mirror, home uploads that again, the device fetches it.
    for _ in range(3):
        if not town.find("the last word"):
            town.exchange()
    assert town.find("the last word"), "through the mirror, made anew"


def speak(machine: Computer, session: Session, rng: random.Random) -> None:
    """A line or a few, sometimes torn, sometimes with the hook after them."""
    for _ in range(rng.choice((1, 1, 3))):
        session.say(words="x" * rng.randrange(2_000), torn=0.002 if rng.random() < 0.1 else None)
    if rng.random() < 0.03:
        machine.fire(session, rng.choice(["Stop", "SessionEnd", "SessionStart"]), session.last).communicate(timeout=60)
