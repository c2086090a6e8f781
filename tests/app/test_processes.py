"""Real hooks, workers, sweeps and imports, many at once and killed at any moment: nothing is lost, nothing is doubled."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from crystal.hook import event as hook
from crystal.ingest import archive
from crystal.store import Store
from crystal.store.capture import ledger
from tests.support.capture_machine import line
from tests.support.small_disk import small_disk
from tests.support.threads import at_once
from tests.support.whole_memory import ROOT, Memory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are untested on Windows"),
]

SECONDS, SEEDS = 2.5, (1, 2)
FOLDER = "-home-dev-quartz"
WORKER = [sys.executable, "-c", "from crystal.worker import main; main()"]


class Session:
    """A transcript that a client writes: lines, sometimes in two pieces, and what it has said so far."""

    def __init__(self, folder: Path) -> None:
        self.id = str(uuid.uuid4())
        self.path = folder / f"{self.id}.jsonl"
        self.said: list[str] = []
        self.last = ""

    def say(self, *, role: str = "assistant", words: str = "", torn: float | None = None) -> None:
        """Append a line; with ``torn``, its first half so many seconds before the other."""
        text = f"{len(self.said)} of {self.id} {words}".strip()
        content: object = [{"type": "text", "text": text}] if role == "assistant" else text
        raw = line(
            "", role=role, at=time.time_ns() // 1_000_000, message={"role": role, "content": content}, sessionId=self.id
        )
        self.said.append(text)
        self.last = text
        with self.path.open("ab", buffering=0) as file:
            if torn is not None:
                file.write(raw[: len(raw) // 2])
                time.sleep(torn)
                raw = raw[len(raw) // 2 :]
            file.write(raw)

    def move(self, folder: Path) -> None:
        """Go to another project's folder, or back, as after ``/cd``."""
        target = folder if self.path.parent != folder else folder.parent / FOLDER
        target.mkdir(exist_ok=True)
        if self.path.exists():
            self.path = self.path.rename(target / self.path.name)


class Machine(Memory):
    """A home folder with crystal's real processes in it."""

    def __init__(self, home: Path, claude: Path | None = None) -> None:
        self.claude = claude or home / ".claude"
        self.folder = self.claude / "projects" / FOLDER
        self.other_folder = self.claude / "projects" / "-home-dev-mica"
        self.folder.mkdir(parents=True)
        super().__init__(home, {**os.environ, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(self.claude)})
        self.sessions: list[Session] = []

    def session(self) -> Session:
        """A new one."""
        self.sessions.append(Session(self.folder))
        return self.sessions[-1]

    def fire(self, session: Session, event: str = "Stop", awaited: str | None = None) -> subprocess.Popen[bytes]:
        """Start the hook as the client does."""
        told = {
            "session_id": session.id,
            "transcript_path": str(session.path),
            "cwd": "/home/dev/quartz",
            "hook_event_name": event,
            "last_assistant_message": awaited,
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", hook.SCRIPT],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(told).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start any process of this home, in a group of its own."""
        return subprocess.Popen(
            command,
            env=self.env,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def assert_everything_once(self, sessions: list[Session] | None = None) -> None:
        """Each line that was written is one turn, and there is no other."""
        wanted = Counter(text for session in sessions or self.sessions for text in session.said)
        kept = Counter(text for (_, text), count in self.said().items() for _ in range(count))
        assert (wanted - kept, kept - wanted) == (Counter(), Counter())

    def assert_archive_gives_back_the_bytes(self) -> None:
        """Each file, byte for byte."""
        with Store.open_existing(self.data / "crystal.db") as store:
            states = {state.path: state for state in ledger.all_states(store)}
            for path in self.folder.parent.glob("*/*.jsonl"):
                state = states[str(path)]
                rows = store.rows(
                    "SELECT archive_offset, archive_length FROM segments WHERE transcript = ? ORDER BY start",
                    (state.id,),
                )
                frames = [archive.read_frame(self.ldm / str(state.archive), archive.Frame(*row)) for row in rows]
                assert b"".join(frames) == path.read_bytes()


@pytest.fixture
def machine(home: Path) -> Machine:
    machine = Machine(home)
    machine.crystal("init", "--yes")
    return machine


def is_silent(process: subprocess.Popen[bytes]) -> bool:
    out, err = process.communicate(timeout=60)
    return (process.returncode, out, err) == (0, b"", b"")


def test_eight_hooks_at_once_for_eight_growing_sessions(machine: Machine) -> None:
    sessions = [machine.session() for _ in range(8)]
    go = threading.Barrier(8)

    def live(session: Session) -> None:
        go.wait()
        session.say(role="user")
        for turn in range(3):
            for number in range(20):
                session.say(torn=0.001 if number % 7 == 0 else None)
            text = f"{len(session.said)} of {session.id} the last word of turn {turn}"
            fired = machine.fire(session, awaited=text)  # as the client: before the last line is in the file
            time.sleep(0.05)
            session.say(words=f"the last word of turn {turn}")
            assert is_silent(fired)

    at_once(*(partial(live, session) for session in sessions))
    machine.settle()
    machine.assert_everything_once()
    machine.assert_archive_gives_back_the_bytes()
    machine.verify()


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_doubled_when_everything_is_killed_all_the_time(machine: Machine, seed: int) -> None:
    rng = random.Random(seed)
    for size in (2_000, 60):  # the past: one file of several segments
        past = machine.session()
        with past.path.open("ab") as file:
            for number in range(size):
                text = f"{number} of {past.id} " + "long ago " * rng.randrange(400)
                past.said.append(text.strip())
                file.write(line(text.strip(), sessionId=past.id))
    sessions = [machine.session() for _ in range(3)]
    commands = [WORKER, [sys.executable, "-m", "crystal", "sync", "-q"], [sys.executable, "-m", "crystal", "backfill"]]
    running: list[tuple[float, subprocess.Popen[bytes]]] = []
    deadline = time.monotonic() + SECONDS
    killed = 0
    while time.monotonic() < deadline:
        session = rng.choice(sessions)
        session.say(words="x" * rng.randrange(3_000), torn=0.002 if rng.random() < 0.2 else None)
        if rng.random() < 0.01:
            session.move(machine.other_folder)
        if rng.random() < 0.05:
            machine.fire(session, rng.choice(["Stop", "SessionEnd", "SessionStart"]), session.last).communicate()
        if len(running) < 8:
            running.append((time.monotonic() + rng.uniform(0.1, 1.5), machine.start(*rng.choice(commands))))
        for due, process in list(running):
            if process.poll() is not None or due < time.monotonic():
                killed += process.poll() is None
                end(process)
                running.remove((due, process))
        time.sleep(0.005)
    for _, process in running:
        end(process)
    assert killed >= 5
    machine.crystal("sync")
    machine.crystal("backfill")
    machine.settle()
    machine.assert_everything_once()
    machine.verify()
    machine.assert_archive_gives_back_the_bytes()


def end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_the_first_meeting_replays_nothing_and_loses_no_first_turn(home: Path) -> None:
    machine = Machine(home)
    old, older = machine.session(), machine.session()
    for session in (old, older):
        session.say(role="user")
        session.say()
    os.utime(older.path, (1_700_000_000, 1_700_000_000))
    past = [*old.said, *older.said]
    assert "found 2 sessions" in machine.crystal("init", "--yes")
    machine.crystal("sync")
    assert not machine.said()
    new = machine.session()
    new.say(role="user")
    old.say()
    assert is_silent(machine.fire(new))
    machine.settle()
    assert machine.texts("user") == new.said, "a new session is captured from its first byte"
    machine.crystal("sync")
    assert sum(machine.said().values()) == 2, "what was added to an old one is captured, and nothing before it"
    plan = json.loads(machine.crystal("backfill", "--dry-run", "--json"))
    assert [row["session_id"] for row in plan["transcripts"]] == [old.id, older.id]
    assert sum(machine.said().values()) == 2
    machine.crystal("backfill", "--limit", "1")
    machine.assert_everything_once([old, new])
    machine.crystal("backfill", "--since", "2020-01-01")
    machine.assert_everything_once()
    assert "nothing new" in machine.crystal("backfill")
    assert len(past) == 4
    machine.verify()
    machine.assert_archive_gives_back_the_bytes()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, "4m") as disk:
        yield disk


def test_a_full_disk_costs_nothing_but_time(tiny_disk: Path, tmp_path: Path) -> None:
    machine = Machine(tiny_disk, tmp_path / "claude")
    machine.crystal("init", "--yes")
    session = machine.session()
    session.say(role="user", words="before")
    assert is_silent(machine.fire(session))
    machine.settle()
    filler = tiny_disk / "filler"
    fill(filler)
    for _ in range(100):
        session.say(words="while the disk is full " * 40)
    assert is_silent(machine.fire(session, awaited=session.last))
    sync = machine.run("sync")
    assert sync.returncode == 4, sync.stderr
    assert "free some disk space" in sync.stderr
    assert "Traceback" not in sync.stderr
    filler.unlink()
    session.say(words="after")
    assert is_silent(machine.fire(session, awaited=session.last))
    machine.settle()
    machine.assert_everything_once()
    machine.verify()
    machine.assert_archive_gives_back_the_bytes()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass
