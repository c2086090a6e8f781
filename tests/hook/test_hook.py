"""The hook as Claude Code runs it: the real file, a real interpreter, real pipes and signals.

The file is copied into a package of the test's own, whose worker tells what it found and waits for nobody.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal.config.paths import resolve_places
from crystal.hook import main as hook
from tests.support.data_dir_cases import DATA_DIR_CASES, DataDirCase

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the hook is untested on Windows")

SECRET = "the words of a private conversation"
STOP = {
    "session_id": "1f35fa49-0000-4000-8000-000000000001",
    "transcript_path": "/nowhere/1f35fa49.jsonl",
    "cwd": "/home/user/work",
    "hook_event_name": "Stop",
    "stop_hook_active": False,
    "last_assistant_message": SECRET,
    "background_tasks": [],
}
NOTE_KEYS = {
    "v",
    "at",
    "event",
    "session_id",
    "transcript_path",
    "agent_transcript_path",
    "agent_id",
    "cwd",
    "source",
    "reason",
    "size",
    "agent_size",
    "private",
    "awaited",
}
# Built into the interpreter or cheap; ``json``, ``re``, ``signal``, ``typing`` and ``subprocess`` are not. The last is
# the hook's own other half.
ALLOWED_MODULES = set(
    "os os.path posixpath genericpath stat _stat _collections_abc _json zlib session_start worker remember remember_line remember_words".split()
)

FAKE_WORKER = """
import json, os, sys
def main():
    home = os.environ["LDM_HOME"]
    gate = os.path.join(home, "gate")
    if os.path.exists(gate):
        with open(os.path.join(home, "up"), "w"):
            pass
        with open(gate) as file:
            file.read()
    fds = {}
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        try:
            fds[name] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass
    told = {"pid": os.getpid(), "ppid": os.getppid(), "sid": os.getsid(0), "pgid": os.getpgid(0), "cwd": os.getcwd(),
            "fds": fds, "argv": sys.argv, "env": dict(os.environ), "isolated": sys.flags.isolated, "path": sys.path}
    target = os.path.join(home, "worker-%d.json" % os.getpid())
    with open(target + ".part", "w") as file:
        json.dump(told, file)
    os.rename(target + ".part", target)
"""


def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **more)


class Machine:
    """A copied hook, a memory folder for it, and what can be seen of both."""

    def __init__(self, root: Path) -> None:
        self.package = root / "package"
        (self.package / "crystal" / "hook").mkdir(parents=True)
        (self.package / "crystal" / "__init__.py").touch()
        (self.package / "crystal" / "worker.py").write_text(FAKE_WORKER)
        self.hook = self.package / "crystal" / "hook" / "main.py"
        for name in (
            "main.py",
            "session_start.py",
            "worker.py",
            "remember.py",
            "remember_line.py",
            "remember_words.py",
        ):
            (self.hook.parent / name).write_bytes(Path(hook.__file__).with_name(name).read_bytes())
        self.ldm = root / "ldm"
        self.ldm.mkdir()
        self.claude = root / "claude"
        (self.claude / "projects" / "p").mkdir(parents=True)
        self.env = {**os.environ, "LDM_HOME": str(self.ldm), "CRYSTAL_HOOK_WAIT": "1"}
        self.env["CLAUDE_CONFIG_DIR"] = str(self.claude)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", str(self.hook)]

    @property
    def spool(self) -> Path:
        return self.ldm / "memory" / "spool"

    def run(self, stdin: bytes | dict[str, Any], *arguments: str, **more: Any) -> bytes:
        """Run the hook to its end. It must succeed and not say a word on stderr; what it prints is returned."""
        given = stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode() + b"\n"
        env = {**self.env, **more.pop("env", {})}
        env = {name: value for name, value in env.items() if value is not None}
        done = run([*self.command, *arguments], input=given, env=env, **more)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, **more
        )

    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted(self.spool.glob("*.json"))]

    def workers(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in self.ldm.glob("worker-*.json")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def feed(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(STOP).encode())
    process.stdin.close()
    process.stdin = None


def finish(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    return process.communicate(timeout=60)


def is_silent(done: subprocess.CompletedProcess[bytes]) -> bool:
    return (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# --- the note


def test_the_note_holds_the_allowed_fields_and_nothing_else(machine: Machine) -> None:
    transcript = machine.claude / "projects" / "p" / "täglich 漢.jsonl"
    transcript.write_bytes(b"x" * 77)
    before = time.time_ns() // 1_000_000
    assert machine.run({**STOP, "transcript_path": str(transcript), "prompt": SECRET, "agent_id": 7}) == b""
    (note,) = machine.notes()
    at = note.pop("at")
    assert before <= at <= time.time_ns() // 1_000_000
    assert note == {
        "v": 1,
        "event": "Stop",
        "session_id": STOP["session_id"],
        "transcript_path": str(transcript),
        "agent_transcript_path": None,
        "agent_id": None,
        "cwd": "/home/user/work",
        "source": None,
        "reason": None,
        "size": 77,
        "agent_size": None,
        "private": False,
        "awaited": {"crc": zlib.crc32(SECRET.encode()), "length": len(SECRET)},
    }


def test_a_subagent_and_an_end_are_told_too(machine: Machine) -> None:
    agent = machine.claude / "projects" / "p" / "agent-a1.jsonl"
    agent.write_bytes(b"12345")
    machine.run({**STOP, "hook_event_name": "SubagentStop", "agent_id": "a1", "agent_transcript_path": str(agent)})
    machine.run({**STOP, "hook_event_name": "SessionEnd", "reason": "prompt_input_exit"})
    subagent, end = machine.notes()
    assert (subagent["agent_id"], subagent["agent_transcript_path"], subagent["agent_size"]) == ("a1", str(agent), 5)
    assert (end["event"], end["reason"]) == ("SessionEnd", "prompt_input_exit")


@pytest.mark.parametrize(
    ("told", "is_kept"),
    [
        ({"hook_event_name": "SubagentStop", "agent_type": ""}, True),
        ({"hook_event_name": "SessionStart", "source": "compact"}, True),
        ({"hook_event_name": "PreCompact"}, True),
        ({"hook_event_name": "SubagentStop", "agent_type": "general-purpose"}, False),
        ({"hook_event_name": "SessionStart", "source": "resume"}, False),
        ({"hook_event_name": "Stop"}, False),
    ],
)
def test_a_compaction_gives_the_transcript_a_second_name(machine: Machine, told: dict[str, str], is_kept: bool) -> None:
    transcript = machine.claude / "projects" / "p" / "t.jsonl"
    transcript.write_bytes(b"{}\n")
    machine.run({**STOP, **told, "transcript_path": str(transcript)})
    assert [path.samefile(transcript) for path in machine.spool.glob("*.kept")] == [True] * is_kept


@pytest.mark.parametrize("name", ["outside.jsonl", "claude/projects/../outside.jsonl", "claude/projects/p/link.jsonl"])
def test_a_file_that_is_not_the_clients_is_neither_looked_at_nor_linked(machine: Machine, name: str) -> None:
    outside = machine.claude.parent / "outside.jsonl"
    outside.write_bytes(b"12345")
    (machine.claude / "outside.jsonl").write_bytes(b"12345")
    (machine.claude / "projects" / "p" / "link.jsonl").symlink_to(outside)
    machine.run({**STOP, "hook_event_name": "PreCompact", "transcript_path": str(machine.claude.parent / name)})
    assert machine.notes()[0]["size"] is None
    assert list(machine.spool.glob("*.kept")) == []


def test_names_sort_by_time_and_files_are_private(machine: Machine) -> None:
    for _ in range(3):
        machine.run(STOP)
    names = sorted(path.name for path in machine.spool.iterdir())
    assert [int(name[:20]) for name in names[:3]] == sorted(int(name[:20]) for name in names[:3])
    assert [note["at"] for note in machine.notes()] == sorted(note["at"] for note in machine.notes())
    assert names[3:] == ["latency.log"]
    for path in [*machine.spool.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (machine.spool, machine.spool.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("value", "private"), [("1", True), ("true", True), ("yes", True), ("0", False), ("", False), (" Off ", False)]
)
def test_a_private_environment_is_told(machine: Machine, value: str, private: bool) -> None:
    machine.run(STOP, env={"CRYSTAL_PRIVATE": value})
    assert machine.notes()[0]["private"] is private


def test_no_word_of_a_message_and_nothing_of_the_environment_gets_into_a_file(machine: Machine) -> None:
    (machine.package / "crystal" / "worker.py").write_text("def main(): pass\n")
    said = {**STOP, "prompt": SECRET, "reason": SECRET, "source": SECRET, "cwd": SECRET, "session_id": SECRET}
    machine.run(said, env={"ANTHROPIC_API_KEY": "sk-ant-in-the-environment"})
    machine.run(json.dumps(said).encode()[:-3])  # cut off
    files = [path for path in machine.ldm.rglob("*") if path.is_file()]
    assert len(files) == 3
    for path in files:
        assert b"private conversation" not in path.read_bytes()
        assert b"sk-ant" not in path.read_bytes()


def test_our_own_client_leaves_no_trace(machine: Machine) -> None:
    assert machine.run(STOP, env={"CRYSTAL_INTERNAL": "1"}) == b""
    assert list(machine.ldm.iterdir()) == []


@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.text() | st.floats() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_bytes_make_a_note(raw: bytes) -> None:
    note = hook.make_note(hook.parse_hook_input(raw), {}, 5_000_000)
    assert json.loads(hook.encode(note)) == note
    assert set(note) == NOTE_KEYS


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.dictionaries(st.sampled_from([*sorted(NOTE_KEYS), "hook_event_name", "last_assistant_message"]), JSON_VALUES))
def test_any_fields_make_a_note_of_plain_values(said: dict[str, object]) -> None:
    note = hook.make_note(hook.parse_hook_input(json.dumps(said).encode()), {}, 0)
    assert json.loads(hook.encode(note)) == note
    message = said.get("last_assistant_message")
    text = message.strip() if isinstance(message, str) else ""
    crc = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    assert note["awaited"] == ({"crc": crc, "length": len(text)} if text else None)


# --- whatever stdin holds


@settings(max_examples=8)
@given(st.binary(max_size=2000))
def test_any_stdin_is_taken_in_silence(raw: bytes) -> None:
    # The note of garbage is a hint to look everywhere.
    done = run(
        [sys.executable, "-I", "-S", hook.__file__],
        input=raw,
        env={**os.environ, "CRYSTAL_DATA_DIR": "/dev/null/none"},
    )
    assert is_silent(done)


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


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbf %s\r\n", b"\n\t %s", b"%s trailing", b"%s\0"])
def test_what_surrounds_the_object_does_not_matter(machine: Machine, raw: bytes) -> None:
    machine.run(raw.replace(b"%s", json.dumps(STOP).encode()))
    assert machine.notes()[0]["event"] == "Stop"


def test_a_huge_answer_is_taken_whole(machine: Machine) -> None:
    words = "漢 and a lone \ud83d half, " * 400_000
    machine.run({**STOP, "last_assistant_message": words + " \n"})
    stripped = words.strip()
    crc = zlib.crc32(stripped.encode("utf-8", "surrogatepass"))
    assert machine.notes()[0]["awaited"] == {"crc": crc, "length": len(stripped)}


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


CALLS = [
    "os.fork",
    "os.pipe",
    "os.execve",
    "os.setsid",
    "os.waitpid",
    "os.chdir",
    "os.urandom",
    "os.makedirs",
    "os.open",
    "os.write",
    "os.fsync",
    "os.replace",
    "os.read",
    "os.stat",
    "os.dup2",
    "os.fstat",
    "os.isatty",
    "os.listdir",
    "os.umask",
    "os.path.expanduser",
    "os.path.exists",
    "time.process_time",
    "zlib.crc32",
]


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


@pytest.mark.parametrize("error", ["OSError(28, 'no space')", "MemoryError()", "KeyboardInterrupt()"])
def test_any_failing_call_is_borne_and_only_an_unwritten_note_is_told(
    machine: Machine, tmp_path: Path, error: str
) -> None:
    said = tmp_path / "stdin"
    said.write_bytes(json.dumps({**STOP, "hook_event_name": "SessionStart"}).encode())
    command = [sys.executable, "-I", "-S", "-c", FAILING, str(machine.hook), str(said), error, *CALLS]
    done = run(command, env=machine.env)
    assert (done.returncode, done.stderr) == (0, b"")
    told = {json.loads(line)["systemMessage"] for line in done.stdout.splitlines()}
    assert told <= {f"crystal: nothing is kept: {machine.ldm / 'memory'} cannot be written; run: crystal doctor"}


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


def test_eight_hooks_at_once_write_eight_notes(machine: Machine) -> None:
    running = [machine.start() for _ in range(8)]
    for process in running:
        feed(process)
    for process in running:
        assert (finish(process), process.returncode) == ((b"", b""), 0)
    assert len(machine.notes()) == 8
    assert len(machine.workers()) == 8
    assert len((machine.spool / "latency.log").read_text().splitlines()) == 8


# --- the worker


def test_the_worker_is_alone_in_the_world(machine: Machine) -> None:
    reading, writing = os.pipe()
    machine.run(STOP, pass_fds=(reading, writing))
    os.close(reading)
    os.close(writing)
    (worker,) = machine.workers()
    assert worker["cwd"] == "/"
    assert worker["isolated"] == 1
    assert worker["sid"] not in (os.getsid(0), worker["pid"])  # a session of its own, without a way to a terminal
    assert worker["pgid"] == worker["sid"]
    if sys.platform == "linux":
        waited_on = worker["fds"].pop("3")
        assert waited_on.startswith("pipe:")
        assert {worker["fds"].pop(number) for number in "012"} == {"/dev/null"}
        assert [name for name in worker["fds"].values() if "/proc/" not in name] == []


def test_the_worker_runs_the_package_beside_the_hook_and_cannot_shadow_the_standard_library(machine: Machine) -> None:
    (machine.package / "json.py").write_text("raise SystemExit('shadowed')")
    machine.run(STOP, cwd=str(machine.package))
    (worker,) = machine.workers()
    assert worker["path"][-1] == str(machine.package)


def test_the_worker_outlives_the_death_of_everything_that_started_it(machine: Machine) -> None:
    os.mkfifo(machine.ldm / "gate")
    os.mkfifo(machine.ldm / "up")
    process = machine.start(start_new_session=True)
    feed(process)
    (machine.ldm / "up").read_bytes()  # the worker runs, and the hook waits for it
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
    finish(process)
    (machine.ldm / "gate").write_bytes(b"")
    wait_until(lambda: len(machine.workers()) == 1)
    (worker,) = machine.workers()
    assert process.pid not in (worker["pid"], worker["ppid"], worker["sid"], worker["pgid"])


def test_without_being_told_to_the_hook_does_not_wait(machine: Machine) -> None:
    os.mkfifo(machine.ldm / "gate")
    os.mkfifo(machine.ldm / "up")
    machine.env.pop("CRYSTAL_HOOK_WAIT")
    machine.run(STOP)  # returns, and its streams are at their end, while the worker stands at the gate
    assert machine.workers() == []
    (machine.ldm / "up").read_bytes()
    (machine.ldm / "gate").write_bytes(b"")
    wait_until(lambda: len(machine.workers()) == 1)


def test_a_worker_that_fails_is_not_heard(machine: Machine) -> None:
    (machine.package / "crystal" / "worker.py").write_text("print('x'); raise SystemExit('broken')")
    assert machine.run(STOP) == b""
    assert len(machine.notes()) == 1


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- places


def test_baked_locations_serve_where_the_environment_has_none(machine: Machine, tmp_path: Path) -> None:
    baked = ("--env", f"LDM_HOME={tmp_path / 'a=b c'}", "--env", "PATH=/evil", "--env", "CLAUDE_CONFIG_DIR=/claude")
    (tmp_path / "a=b c").mkdir()
    machine.run(STOP, *baked, env={"LDM_HOME": None, "PATH": None, "CLAUDE_CONFIG_DIR": " "}, cwd="/")
    assert len(list((tmp_path / "a=b c" / "memory" / "spool").glob("*.json"))) == 1
    (told,) = (tmp_path / "a=b c").glob("worker-*.json")
    env = json.loads(told.read_text())["env"]
    assert (env.get("PATH"), env["CLAUDE_CONFIG_DIR"]) == (None, "/claude")
    machine.run(STOP, *baked)
    assert len(machine.notes()) == 1
    assert machine.workers()[0]["env"]["LDM_HOME"] == str(machine.ldm)


def test_a_relative_place_means_the_same_to_the_worker(machine: Machine) -> None:
    machine.run(STOP, env={"LDM_HOME": "ldm"}, cwd=str(machine.ldm.parent))
    assert len(machine.notes()) == 1
    assert machine.workers()[0]["env"]["LDM_HOME"] == str(machine.ldm)


@pytest.mark.parametrize("arguments", [["--env"], ["--env", "LDM_HOME"], ["LDM_HOME=/x"], ["--env", "=", "--unknown"]])
def test_odd_arguments_do_not_matter(machine: Machine, arguments: list[str]) -> None:
    assert machine.run(STOP, *arguments) == b""
    assert len(machine.notes()) == 1


VALUES = st.sampled_from([None, "", " ", "/abs/x", "rel/x", "~", "~/x", "/abs//y/../z/"])


@settings(max_examples=150)
@given(st.fixed_dictionaries({"LDM_HOME": VALUES, "CRYSTAL_DATA_DIR": VALUES, "OPENCLAW_HOME": VALUES}))
@pytest.mark.parametrize("made", [[], ["legacy"], ["legacy", "db"], ["db"]])
def test_the_hook_and_the_rest_of_crystal_agree_where_the_memory_is(
    made: list[str], given: dict[str, str | None]
) -> None:
    home = Path.home()
    for folder, name in ((home / ".openclaw" / "memory-crystal", "legacy"), (home / ".ldm" / "memory", "db")):
        if name in made:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "crystal.db").touch()
    env = {name: value for name, value in given.items() if value is not None}
    assert hook.find_data_dir(dict(env)) == str(resolve_places(env, home).data_dir)


@pytest.mark.parametrize("case", DATA_DIR_CASES, ids=lambda case: case.name)
def test_the_note_is_where_the_memory_is(case: DataDirCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, cwd = tmp_path / "user", tmp_path / "work"
    home.mkdir()
    cwd.mkdir()
    env, expected = case.build(home, cwd)
    monkeypatch.chdir(cwd)
    monkeypatch.setenv("HOME", str(home))
    assert Path(hook.find_data_dir(env)) == expected


# --- what the user may hear, and what is measured


def test_a_waiting_note_is_told_at_session_start_only(machine: Machine) -> None:
    machine.spool.mkdir(parents=True)
    old = time.time_ns() - 16 * 60 * 10**9
    (machine.spool / f"{old:020d}-1-aa.json").write_text("{}")
    assert machine.run(STOP) == b""
    said = json.loads(machine.run({**STOP, "hook_event_name": "SessionStart", "source": "startup"}))
    message = "crystal: capture is stalled, the oldest note is 16 minutes old; run: crystal doctor"
    assert said == {"systemMessage": message}


def test_young_notes_and_odd_names_are_no_stall(machine: Machine) -> None:
    machine.spool.mkdir(parents=True)
    now = time.time_ns()
    for name in (
        f"{now - 60 * 10**9:020d}-1-aa.json",
        f"{now + 10**15:020d}-1-bb.json",
        ".x.json.tmp",
        "x.json",
        "1.json",
    ):
        (machine.spool / name).write_text("{}")
    assert machine.run({**STOP, "hook_event_name": "SessionStart"}) == b""


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("the disk is full\nsecond line", "crystal: the disk is full"),
        ("", "crystal: capture is stalled; run: crystal doctor"),
        ("\x1b[31mred\x07 \udcff" + "x" * 500, "crystal: [31mred ��" + "x" * 500),
    ],
)
def test_what_the_worker_left_for_the_user_is_told_in_one_line(machine: Machine, content: str, told: str) -> None:
    (machine.ldm / "memory").mkdir()
    (machine.ldm / "memory" / "stalled").write_bytes(content.encode("utf-8", "surrogatepass"))
    assert machine.run(STOP) == b""
    stdout = machine.run({**STOP, "hook_event_name": "SessionStart"})
    assert stdout.count(b"\n") == 1
    message = json.loads(stdout)["systemMessage"]
    assert message[:12] == told[:12]
    assert len(message) <= len("crystal: ") + 200
    assert message.isprintable()


def test_the_time_it_took_is_logged_and_the_log_stops_growing(machine: Machine) -> None:
    machine.run(STOP)
    machine.run(b"garbage")
    log = machine.spool / "latency.log"
    (at, event, ms), (_, unknown, _) = (line.split(" ") for line in log.read_text().splitlines())
    assert (int(at), event, unknown) == (machine.notes()[0]["at"], "Stop", "-")
    assert 0 < float(ms) < 60_000
    log.write_bytes(b"x" * hook.LOG_LIMIT)
    machine.run(STOP)
    assert log.stat().st_size == hook.LOG_LIMIT


def test_it_imports_a_handful_of_cheap_modules(machine: Machine) -> None:
    listing = f"""
import sys
before = set(sys.modules)
source = open({str(machine.hook)!r}).read()
def leave(_):
    sys.stdout.write(" ".join(sorted(set(sys.modules) - before)))
    sys.stdout.flush()
    import posix
    posix._exit(0)
space = {{"__name__": "hook", "__file__": {str(machine.hook)!r}}}
exec(compile(source, "main.py", "exec"), space)
space["main"](["--env", "CRYSTAL_CONFIG=/x"])
leave(0)
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", listing],
        input=json.dumps({**STOP, "hook_event_name": "SessionStart"}).encode(),
        env=machine.env,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert set(done.stdout.decode().split()) <= ALLOWED_MODULES
