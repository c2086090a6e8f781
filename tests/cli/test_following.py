"""What follows an import: in the background, one at a time, at a polite share, and never lost by any end."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crystal.app.background import Throttle
from crystal.app.progress import PENDING_IMPORT_FILE, PROGRESS_FILE, Progress, ProgressFile, read_progress
from crystal.cli.capture import CANCEL
from crystal.cli.follow_up import REST
from crystal.store import Store
from crystal.store.search import vectors
from tests.support.capture_machine import line
from tests.support.command import crystal
from tests.support.embedding_store import vector_counts
from tests.support.whole_memory import ROOT, Memory, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are untested on Windows"),
]

LINES = 2_001
IMPORT = ["nice", sys.executable, "-m", "crystal", "backfill"]
"""An import that a test interrupts; on a busy machine it must not end before the test looks at it."""
WORKER = [sys.executable, "-c", "from crystal.worker import main; main()"]


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Let children be interrupted, also where this run was started in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def memory(home: Path) -> Memory:
    """A machine with a past that takes some seconds of vectors."""
    folder = home / ".claude" / "projects" / "-home-dev-quartz"
    folder.mkdir(parents=True)
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(2_000)]
    for session in range(3):
        with (folder / f"0000000{session}-0000-4000-8000-000000000000.jsonl").open("ab") as file:
            for _ in range(LINES // 3):
                file.write(line(" ".join(rng.choices(words, k=100)), sessionId=f"s{session}"))
            file.write(line("feldspar is a mineral", sessionId=f"s{session}"))
    return Memory(home, {**os.environ, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")})


def status(memory: Memory) -> dict[str, Any]:
    return dict(json.loads(memory.crystal("status", "--json")))


def waiting(memory: Memory) -> int:
    return int(memory.value("SELECT count(*) FROM chunks WHERE vector_generation = 0 OR vector_generation IS NULL"))


def worker_at_work(memory: Memory) -> Progress:
    """Wait until a process tells how far it is; between two rounds it tells nothing for a moment."""
    seen: list[Progress | None] = []
    wait_until(lambda: seen.append(read_progress(memory.data)) or seen[-1], "the worker")
    assert seen[-1] is not None
    return seen[-1]


def assert_all_is_made(memory: Memory) -> None:
    """Each chunk has exactly one vector, and each session its summary."""
    found = status(memory)
    assert found["queues"]["chunks_without_vector"] == 0
    assert found["embedding"]["serving"]["provider"] == "embedded"
    with Store.open_existing(memory.data / "crystal.db") as store:
        (generation,) = vectors.generations(store)
        counts = vector_counts(store, generation.id)
    assert (counts.stored, counts.pending, counts.refused) == (found["counts"]["chunks"], 0, 0)
    assert found["progress"] is None
    assert not (memory.data / PROGRESS_FILE).exists()


def test_an_import_ends_when_words_find_it_and_the_rest_follows(memory: Memory) -> None:
    done = memory.run("init", "--yes", "--import")
    assert f"{LINES + 3:,} turns; search works now" in done.stdout
    assert "in the background; see: crystal status" in done.stderr
    assert waiting(memory) > 0
    assert json.loads(memory.crystal("search", "feldspar", "--json"))["hits"][0]["text"] == "feldspar is a mineral"
    seen: list[dict[str, Any]] = []
    wait_until(lambda: seen.append(status(memory)["progress"] or {}) or seen[-1].get("done"), "progress")
    assert seen[-1]["step"] in ("vectors", "index", "summaries")
    assert 0 < seen[-1]["done"] <= seen[-1]["total"]
    assert seen[-1]["seconds_left"] >= 0
    progress = worker_at_work(memory)
    assert os.getpriority(os.PRIO_PROCESS, progress.pid) >= 10
    assert os.getsid(progress.pid) == progress.pid, "the end of a terminal cannot reach it"
    texts: list[str] = []
    wait_until(lambda: texts.append(memory.crystal("status")) or " left" in texts[-1], "the time left")
    memory.crystal("sync", "--wait", "--quiet")
    assert waiting(memory) == 0, "it waits for the one who works already"
    memory.settle()
    assert_all_is_made(memory)


def test_summaries_that_alone_are_left_follow_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    for name in "abc":
        (folder / f"{name}.jsonl").write_bytes(line("a quartz vein", sessionId=name))
    assert crystal("init", "--yes").code == 0
    monkeypatch.setattr(
        "crystal.cli.follow_up.SOON_SECONDS", 0.0
    )  # vectors wait for no time, here they are made already
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "none")
    done = crystal("backfill")
    assert "crystal: summaries of 3 sessions follow in the background; see: crystal status\n" in done.err
    memory = Memory(home, {**os.environ, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")})
    wait_until(lambda: status(memory)["queues"]["sessions_without_summary"] == 0, "the background")
    memory.settle()


def test_killed_at_any_moment_it_goes_on_and_two_never_work_at_once(memory: Memory) -> None:
    memory.crystal("init", "--yes", "--import")
    rng, left = random.Random(3), [waiting(memory)]
    for _ in range(6):
        workers = [subprocess.Popen(WORKER, env=memory.env, cwd=ROOT) for _ in range(2)]
        time.sleep(rng.uniform(0.3, 2.0))
        progress = read_progress(memory.data)
        if progress is not None:
            os.kill(progress.pid, signal.SIGKILL)
        for worker in workers:
            worker.kill()
            worker.wait()
        left.append(waiting(memory))
    assert left == sorted(left, reverse=True), "nothing that was made is lost"
    memory.crystal("sync", "--wait")
    memory.settle()
    assert_all_is_made(memory)


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGTERM"])
def test_interrupted_the_rest_follows_by_itself(memory: Memory, name: str) -> None:
    memory.crystal("init", "--yes")
    assert b"search works now" in interrupt_import(memory, name)
    wait_until(lambda: waiting(memory) == 0, "the background")
    memory.settle()
    assert_all_is_made(memory)


def has_time_left(memory: Memory, pid: int) -> bool:
    progress = read_progress(memory.data)
    return progress is not None and progress.pid == pid and bool(progress.seconds_left)


def interrupt_import(memory: Memory, name: str) -> bytes:
    """Send an import that makes vectors a signal; return what it printed."""
    process = subprocess.Popen(
        [*IMPORT, "--wait"],
        env=memory.env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    wait_until(lambda: has_time_left(memory, process.pid), "the first vectors")
    os.killpg(process.pid, getattr(signal, name))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b"crystal: stopped; the rest follows in the background; see: crystal status\n"
    return out


def test_an_import_that_is_stopped_goes_on_by_itself(memory: Memory) -> None:
    memory.crystal("init", "--yes")
    command = [*IMPORT, "--no-embed"]
    process = subprocess.Popen(command, env=memory.env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: memory.value("SELECT count(*) FROM turns") > 0, "the first turns")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b"crystal: stopped; what is imported stays; " + f"{REST}; {CANCEL}\n".encode()
    wait_until(lambda: memory.value("SELECT count(*) FROM turns") == LINES + 3, "the rest")
    wait_until(lambda: waiting(memory) == 0, "the vectors")
    memory.settle()
    assert not (memory.data / PENDING_IMPORT_FILE).exists()
    assert_all_is_made(memory)


@pytest.mark.parametrize("again", [["backfill", "--no-embed"], ["sync", "--wait"]])
def test_an_import_that_was_killed_is_finished_by_the_next_command(memory: Memory, again: list[str]) -> None:
    memory.crystal("init", "--yes")
    process = subprocess.Popen([*IMPORT, "--no-embed"], env=memory.env, cwd=ROOT)
    wait_until(lambda: memory.value("SELECT count(*) FROM turns") > 0, "the first turns")
    process.kill()
    process.wait()
    assert (memory.data / PENDING_IMPORT_FILE).exists()
    memory.crystal(*again)
    assert memory.value("SELECT count(*) FROM turns") == LINES + 3
    assert not (memory.data / PENDING_IMPORT_FILE).exists()


def test_a_terminal_shows_a_bar_with_the_time_left(memory: Memory) -> None:
    memory.crystal("init", "--yes")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "crystal", "backfill", "--wait"],
        env={**memory.env, "COLUMNS": "80", "TERM": "xterm"},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while b"making vectors" not in shown or "left · Ctrl-C is safe".encode() not in shown:
        shown += os.read(ours, 65_536)  # its end is an error
    process.kill()
    process.wait()
    os.close(ours)


# --- the parts


def test_progress_of_a_process_that_is_gone_is_none(tmp_path: Path) -> None:
    tell = ProgressFile(tmp_path)
    tell("vectors", 0, 10)
    tell("vectors", 10, 10)
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.step, found.done, found.pid) == ("vectors", found.total, os.getpid())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    values = json.loads((tmp_path / PROGRESS_FILE).read_text())
    (tmp_path / PROGRESS_FILE).write_text(json.dumps({**values, "pid": gone.pid}))
    assert read_progress(tmp_path) is None
    (tmp_path / PROGRESS_FILE).write_text("{broken")
    assert read_progress(tmp_path) is None
    tell.clear()
    assert read_progress(tmp_path) is None


def test_pauses_keep_the_processor_free_for_their_share() -> None:
    pause, began, cpu = Throttle(0.5), time.monotonic(), time.process_time()
    for _ in range(5):
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        pause()
    assert (time.process_time() - cpu) / (time.monotonic() - began) < 0.6
