"""A machine in a temporary HOME with crystal set up by its own command, and processes on it, measured."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import apsw

from crystal.app.background import ENRICH_LOCK
from crystal.capture.lock import CAPTURE_LOCK, wait_lock
from crystal.hook import event as hook
from crystal.store import texts

HOOK = [sys.executable, "-I", "-S", hook.SCRIPT]
WORKER = [sys.executable, "-I", "-X", "utf8", "-c", hook.WORKER, str(Path(hook.SCRIPT).parents[2])]
OURS = ("CRYSTAL_", "LDM_", "CLAUDE", "OPENCLAW_", "XDG_", "OPENAI_", "GOOGLE_", "VOYAGE_")


@dataclass(frozen=True)
class Cost:
    """What a process and its children took: seconds of wall and of CPU, most memory in bytes at one moment."""

    wall: float
    cpu: float
    memory: int
    output: str


class Machine:
    """One temporary HOME."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self.env |= {"HOME": str(home), "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
        self.projects = home / ".claude" / "projects"
        self.projects.mkdir(parents=True, exist_ok=True)
        self.db = home / ".ldm" / "memory" / "crystal.db"
        self.spool = self.db.parent / "spool"

    def crystal(self, *arguments: str) -> Cost:
        """Run the command."""
        return run([sys.executable, "-m", "crystal", *arguments], self.env)

    def hook(self, transcript: Path, event: str = "Stop", said: str | None = None) -> Cost:
        """Run the hook as the client does. Its worker goes on after it."""
        return run(HOOK, self.env, json.dumps(self._hook_input(transcript, event, said)).encode())

    def worker(self, transcript: Path, event: str = "Stop") -> Cost:
        """Leave the hook's note and run the worker in the foreground, to its end."""
        note = hook.make_note(self._hook_input(transcript, event, None), self.env, time.time_ns())
        self.spool.mkdir(parents=True, exist_ok=True)
        (self.spool / f"{time.time_ns():020d}-1-bench.json").write_text(hook.encode(note))
        return run(WORKER, self.env)

    @staticmethod
    def _hook_input(transcript: Path, event: str, said: str | None) -> dict[str, object]:
        told = {
            "session_id": transcript.stem,
            "transcript_path": str(transcript),
            "cwd": "/home/dev",
            "hook_event_name": event,
        }
        return told if said is None else {**told, "last_assistant_message": said}

    def settle(self) -> None:
        """Wait until the worker has ended, as far as can be told from outside.

        Its locks are touched only when no note is left: a worker that finds one taken goes and leaves its note.
        """
        while list(self.spool.glob("*.json")):
            time.sleep(0.01)
        for name in (CAPTURE_LOCK, ENRICH_LOCK):
            with wait_lock(self.db.parent / name, seconds=60):
                pass
            time.sleep(0.05)

    def wait_for(self, word: str, seconds: float = 30) -> None:
        """Wait until a word is stored."""
        deadline = time.monotonic() + seconds
        db = apsw.Connection(str(self.db), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(1000)
            texts.register(db)
            while not list(db.execute("SELECT 1 FROM chunks WHERE instr(text, ?) LIMIT 1", (word,))):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{word} was not found within {seconds} seconds")
                time.sleep(0.002)
        finally:
            db.close()

    def value(self, sql: str) -> int:
        """The one number that a query gives."""
        db = apsw.Connection(str(self.db), flags=apsw.SQLITE_OPEN_READWRITE)
        texts.register(db)
        try:
            return int(next(iter(db.execute(sql)))[0] or 0)
        finally:
            db.close()


def run(command: list[str], env: dict[str, str], stdin: bytes = b"") -> Cost:
    """Run a process to its end and measure it and what it started and waited for.

    Raises:
        RuntimeError: It failed.
    """
    before = children_cpu()
    start = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    watch = Watch(process.pid)
    output, errors = process.communicate(stdin)
    wall = time.perf_counter() - start
    cpu = children_cpu() - before
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}: {errors.decode()[-2000:]}")
    return Cost(wall, cpu, watch.end(), (output + errors).decode())


def children_cpu() -> float:
    """Seconds of CPU, user and system, of all children that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Watch(threading.Thread):
    """Looks at a process and its children ten times a second and remembers the largest sum of their memory.

    Only where there is /proc. Pages that they share count in each of them.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.most, self._ended = pid, 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            self.most = max(self.most, sum(resident(pid) for pid in family(self.pid)))

    def end(self) -> int:
        self._ended.set()
        self.join()
        return self.most


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    try:
        children = [
            int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
        ]
    except OSError:
        children = []
    return [pid, *(inner for child in children for inner in family(child))]


def resident(pid: int) -> int:
    """The resident memory of a process in bytes, 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def folder_size(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
