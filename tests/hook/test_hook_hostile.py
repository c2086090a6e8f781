"""Whatever stands on stdin and whatever is broken: the hook exits with 0 and says nothing by itself."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.hook import event as hook
from tests.support.examples import examples
from tests.support.hook_machine import NOTE_KEYS, STOP, Machine, feed, finish, run
from tests.support.table import each_row

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the hook is untested on Windows")


def is_silent(done: subprocess.CompletedProcess[bytes]) -> bool:
    return (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# --- whatever stdin holds


@pytest.mark.slow
@examples(8)
@given(st.binary(max_size=2000))
def test_any_stdin_is_taken_in_silence(raw: bytes) -> None:
    # The note of garbage is a hint to look everywhere.
    done = run(
        [sys.executable, "-I", "-S", hook.SCRIPT],
        input=raw,
        env={**os.environ, "CRYSTAL_DATA_DIR": "/dev/null/none"},
    )
    assert is_silent(done)


@pytest.mark.slow
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"not json",
        b"[1, 2]",
        b'"Stop"',
        b"null",
        b"\xff\xfe\x00",
        b'{"hook_event_name": ',
        b'{"hook_event_name": "Stop"',
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"9" * 100_000,
    ],
    ids=range(12),
)
def test_garbage_makes_a_note_without_an_event(machine: Machine, raw: bytes) -> None:
    assert machine.run(raw) == b""
    (note,) = machine.notes()
    assert (note["event"], note["session_id"], note["awaited"]) == (None, None, None)
    assert len(machine.workers()) == 1


@each_row("raw", [b"\xef\xbb\xbf %s\r\n", b"\n\t %s", b"%s trailing", b"%s\0"])
def test_what_surrounds_the_object_does_not_matter(machine: Machine, raw: bytes) -> None:
    machine.run(raw.replace(b"%s", json.dumps(STOP).encode()))
    assert machine.notes()[0]["event"] == "Stop"


@pytest.mark.slow
def test_a_huge_answer_is_taken_whole(machine: Machine) -> None:
    words = "漢 and a lone \ud83d half, " * 400_000
    machine.run({**STOP, "last_assistant_message": words + " \n"})
    stripped = words.strip()
    crc = zlib.crc32(stripped.encode("utf-8", "surrogatepass"))
    assert machine.notes()[0]["awaited"] == {"crc": crc, "length": len(stripped)}


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-", "<>/dev/full >&0"])
def test_closed_and_odd_streams_do_not_matter(machine: Machine, closed: str) -> None:
    line = "exec " + " ".join(f"'{part}'" for part in machine.command) + " " + closed
    done = run(["/bin/sh", "-c", line], input=b"", env=machine.env)
    assert is_silent(done)
    assert len(machine.notes()) == 1
    assert len(machine.workers()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM])
def test_a_signal_ends_the_waiting_for_stdin_and_the_note_is_written(machine: Machine, number: signal.Signals) -> None:
    # SIGALRM is the hook's own: it is sent after STDIN_SECONDS without an end.
    process = machine.start()
    assert process.stdin is not None
    process.stdin.write(b" " * (1 << 20))  # more than a pipe holds: afterwards the hook is known to be reading
    process.stdin.flush()
    process.send_signal(number)
    stdin, process.stdin = process.stdin, None  # still open, but none of communicate's business
    stdout, stderr = process.communicate(timeout=60)
    stdin.close()
    assert (process.returncode, stdout, stderr) == (0, b"", b"")
    assert [note["event"] for note in machine.notes()] == [None]


# --- whatever is broken


@pytest.mark.parametrize("env", [{"HOME": None}, {"HOME": ""}, {"HOME": "/dev/null/none"}, {"HOME": "relative"}])
def test_a_missing_home_does_not_matter_when_the_place_is_given(machine: Machine, env: dict[str, str | None]) -> None:
    assert machine.run(STOP, env=env) == b""
    assert len(machine.notes()) == 1


def test_an_impossible_home_is_borne_in_silence(machine: Machine) -> None:
    assert machine.run(STOP, env={"HOME": "/dev/null/none", "LDM_HOME": None, "PATH": None}, cwd="/") == b""


@pytest.mark.parametrize("blocked", ["memory", "memory/spool"])
def test_a_spool_that_cannot_be_written_still_starts_the_worker(machine: Machine, blocked: str) -> None:
    path = machine.ldm / blocked
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"in the way")
    assert machine.run(STOP) == b""
    assert path.read_bytes() == b"in the way"
    assert len(machine.workers()) == 1


def test_a_read_only_folder_still_starts_the_worker(machine: Machine) -> None:
    if os.geteuid() == 0:
        assert machine.run(STOP, env={"CRYSTAL_DATA_DIR": "/proc/1/crystal"}) == b""
    else:
        machine.spool.mkdir(parents=True)
        machine.spool.chmod(0o500)
        assert machine.run(STOP) == b""
    assert len(machine.workers()) == 1


def test_a_full_disk_leaves_no_torn_note(machine: Machine) -> None:
    def no_byte_more() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    assert machine.run(STOP, preexec_fn=no_byte_more) == b""
    assert [path.name for path in machine.spool.iterdir()] == ["latency.log"]


@pytest.mark.parametrize("room", [40, 200])
def test_a_note_cut_off_by_the_disk_is_taken_back(machine: Machine, room: int) -> None:
    def few_bytes_more() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    assert machine.run(STOP, preexec_fn=few_bytes_more) == b""
    assert [path.name for path in machine.spool.iterdir()] == ["latency.log"]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "full"
    folder.mkdir()
    made = run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)])
    if made.returncode != 0:
        pytest.skip("only root can make a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_really_full_disk_is_borne_in_silence(machine: Machine, full_disk: Path) -> None:
    (full_disk / "spool").mkdir()
    with pytest.raises(OSError, match="No space"):
        (full_disk / "filler").write_bytes(b"x" * (1 << 20))
    assert machine.run(STOP, env={"CRYSTAL_DATA_DIR": str(full_disk)}) == b""
    assert [path.name for path in (full_disk / "spool").iterdir() if path.name != "latency.log"] == []
    assert len(machine.workers()) == 1


CALLS = (
    "os.fork os.pipe os.execve os.setsid os.waitpid os.chdir os.urandom os.makedirs os.open os.write os.fsync"
    " os.replace os.read os.stat os.dup2 os.fstat os.isatty os.listdir os.umask os.path.expanduser"
    " os.path.exists time.process_time zlib.crc32"
).split()


# One interpreter, one fork for each call: each child runs the whole hook with that call failing.
FAILING = """
import os, sys, time, zlib
path, stdin, words, names = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
code, real_open, real_dup2, leave = compile(open(path).read(), path, "exec"), os.open, os.dup2, os._exit
def broken(*_, **__):
    raise eval(words)
for name in names:
    child = os.fork()
    if child == 0:
        real_dup2(real_open(stdin, os.O_RDONLY), 0)
        owner, _, call = name.rpartition(".")
        setattr(eval(owner), call, broken)
        exec(code, {"__name__": "__main__", "__file__": path})
        leave(70)
    code_of_child = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code_of_child != 0:
        print(name, code_of_child, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("error", ["OSError(28, 'no space')", "MemoryError()", "KeyboardInterrupt()"])
def test_any_failing_call_is_borne_and_only_an_unwritten_note_is_told(machine, tmp_path, error):
    said = tmp_path / "stdin"
    said.write_bytes(json.dumps({**STOP, "hook_event_name": "SessionStart"}).encode())
    command = [sys.executable, "-I", "-S", "-c", FAILING, str(machine.hook), str(said), error, *CALLS]
    done = run(command, env=machine.env)
    assert (done.returncode, done.stderr) == (0, b"")
    told = {json.loads(line)["systemMessage"] for line in done.stdout.splitlines()}
    assert told <= {f"crystal: nothing is kept: {machine.ldm / 'memory'} cannot be written; run: crystal doctor"}


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_whole_notes_only(machine: Machine) -> None:
    machine.env.pop("CRYSTAL_HOOK_WAIT")
    whole = 0
    for step in range(24):
        process = machine.start(start_new_session=True)
        feed(process)
        until = time.monotonic() + step * 0.001
        while time.monotonic() < until:
            pass
        os.killpg(process.pid, signal.SIGKILL if step % 2 else signal.SIGTERM)
        finish(process)
        whole = len(machine.notes()) if machine.spool.exists() else 0
    assert all(set(note) == NOTE_KEYS for note in machine.notes())
    machine.run(STOP)
    assert len(machine.notes()) == whole + 1


@pytest.mark.slow
def test_eight_hooks_at_once_write_eight_notes(machine: Machine) -> None:
    running = [machine.start() for _ in range(8)]
    for process in running:
        feed(process)
    for process in running:
        assert (finish(process), process.returncode) == ((b"", b""), 0)
    assert len(machine.notes()) == 8
    assert len(machine.workers()) == 8
    assert len((machine.spool / "latency.log").read_text().splitlines()) == 8


# --- whatever does not answer


def test_a_transcript_on_a_mount_that_does_not_answer_is_noted_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "projects" / "p" / "s.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"12345")
    env, asked = {"CLAUDE_CONFIG_DIR": str(tmp_path)}, {**STOP, "transcript_path": str(path)}
    assert hook.make_note(asked, env, 1)["size"] == 5
    answers = threading.Event()
    monkeypatch.setattr(os, "lstat", lambda _: answers.wait(60))
    monkeypatch.setattr(sys.modules["launch"], "DEADLINE_SECONDS", 0.05)
    began = time.monotonic()
    assert hook.make_note(asked, env, 1)["size"] is None
    assert time.monotonic() - began < 30
    answers.set()
