"""Paths that a hook names, or that lie in Claude Code's folder, and are no transcripts: none of them holds capture up."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crystal.capture import safe_open
from crystal.capture.backfill import import_past, plan_past
from crystal.capture.drain import BLOCKED, drain
from crystal.capture.finder import existing
from crystal.capture.lock import try_lock, wait_lock, without_lock
from crystal.config.harnesses import Root
from crystal.store import problems
from tests.support.capture_machine import CaptureMachine, line
from tests.support.examples import part_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and links are others there")


@pytest.fixture
def machine(machine: CaptureMachine) -> CaptureMachine:
    machine.transcript("good").write_bytes(line("said in good"))
    return machine


def pipe(machine: CaptureMachine) -> Path:
    path = machine.transcript("pipe")
    os.mkfifo(path)
    return path


def pipe_outside(machine: CaptureMachine) -> Path:
    path = machine.home / "pipe"
    os.mkfifo(path)
    return path


def server(machine: CaptureMachine) -> Path:
    path = machine.transcript("x").parent / "s.jsonl"
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket is short
        listening.bind(path.name)
        os.chdir(here)
    return path


def outside(machine: CaptureMachine) -> Path:
    path = machine.home / "outside.jsonl"
    path.write_bytes(line("never to be read"))
    return path


def link_to_file(machine: CaptureMachine) -> Path:
    path = machine.transcript("linked")
    path.symlink_to(outside(machine))
    return path


def link_to_folder(machine: CaptureMachine) -> Path:
    folder = machine.root / "linked"
    folder.symlink_to(outside(machine).parent)
    return folder / "outside.jsonl"


def link_to_memory(machine: CaptureMachine) -> Path:
    path = machine.transcript("linked")
    path.symlink_to("/proc/self/mem")
    return path


def dotted(machine: CaptureMachine) -> Path:
    return machine.root / ".." / ".." / outside(machine).name


BAD: dict[str, Callable[[CaptureMachine], Path]] = {
    "a pipe": pipe,
    "a pipe outside": pipe_outside,
    "a socket": server,
    "a file outside": outside,
    "a link to a file outside": link_to_file,
    "a link to a folder outside": link_to_folder,
    "a link to memory": link_to_memory,
    "a path with dots": dotted,
    "memory": lambda _: Path("/proc/self/mem"),
    "the kernel's log": lambda _: Path("/proc/kmsg"),
    "zeros": lambda _: Path("/dev/zero"),
    "a terminal": lambda _: Path("/dev/tty"),
    "a password file": lambda _: Path("/etc/passwd"),
    "a folder": lambda machine: machine.transcript("x").parent,
    "a name too long for a file": lambda machine: machine.transcript("x" * 5_000),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("field", part_of(["transcript_path", "agent_transcript_path"]))
def test_what_is_no_transcript_is_refused_at_once_and_named(
    machine: CaptureMachine, bad: Callable[[CaptureMachine], Path], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_open, "DEADLINE_SECONDS", 60.0)
    path = bad(machine)
    for at in (0, 1):
        machine.note("bad", at=machine.now + at, **{field: str(path)})
    machine.note("good", at=machine.now + 2, transcript_path=str(machine.transcript("good")))
    start = time.monotonic()
    drain(machine.capture(), machine.spool, flush_ms=0)
    assert time.monotonic() - start < 30
    assert machine.texts() == ["said in good"]
    assert list(machine.spool.iterdir()) == []
    problem = problems.find_problem(machine.store, safe_open.REFUSED)
    assert problem is not None
    assert problem.message.startswith(f"2 paths were refused, the last: {str(path)[:100]}")
    assert len(problem.message) < 400


def test_a_folder_that_the_user_allows_is_read(machine: CaptureMachine) -> None:
    path = outside(machine)
    machine.note("s", transcript_path=str(path))
    drain(machine.capture()._replace(allowed=(f"{machine.home}/*",)), machine.spool, flush_ms=0)
    assert machine.texts() == ["never to be read"]
    assert problems.list_problems(machine.store) == []


def test_a_sweep_names_what_it_leaves_out_and_goes_on(machine: CaptureMachine) -> None:
    left_out = {pipe(machine), link_to_file(machine)}
    tally = machine.capture().sweep()
    assert {Path(path) for path in tally.problems or {}} == left_out
    assert machine.texts() == ["said in good"]


def test_a_link_inside_of_the_folder_is_followed(machine: CaptureMachine) -> None:
    link = machine.transcript("other", "q")
    link.symlink_to(machine.transcript("good"))
    machine.note("good", transcript_path=str(link))
    drain(machine.capture(), machine.spool, flush_ms=0)
    assert machine.texts() == ["said in good"]


def linked_subagents(machine: CaptureMachine, folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "agent-x.jsonl").write_bytes(line("a subagent's words"))
    link = machine.transcript("good").with_suffix("") / "subagents"
    link.parent.mkdir()
    link.symlink_to(folder)
    return link


def test_subagents_behind_a_link_inside_of_the_folder_are_captured(machine: CaptureMachine) -> None:
    linked_subagents(machine, machine.root / "kept" / "s" / "moved")
    machine.capture().sweep()
    assert sorted(machine.texts()) == ["a subagent's words", "said in good"]


def test_subagents_behind_a_link_to_elsewhere_are_named_and_left_out(machine: CaptureMachine) -> None:
    link = linked_subagents(machine, machine.home / "elsewhere")
    tally = machine.capture().sweep()
    assert list(tally.problems or {}) == [str(link)]
    assert machine.texts() == ["said in good"]


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Path], None]]:
    """Let one call to the system for one file never return, as on a mount whose server is gone."""
    over = threading.Event()
    monkeypatch.setattr(safe_open, "DEADLINE_SECONDS", 1.0)
    monkeypatch.setattr(safe_open, "_blocked", set())

    def hang(name: str, path: Path) -> None:
        called = getattr(os, name)

        def call(*words: object, **more: object) -> object:
            named = os.path.realpath(f"/proc/self/fd/{words[0]}" if isinstance(words[0], int) else str(words[0]))
            if str(named) == str(path):
                over.wait(60)
            return called(*words, **more)

        monkeypatch.setattr(os, name, call)

    yield hang
    over.set()


@pytest.mark.slow
def test_a_folder_that_does_not_answer_counts_as_there_and_is_named_by_the_sweep(
    machine: CaptureMachine, dead: Callable[[str, Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_open, "LISTING_SECONDS", 0.3)
    root, away = Root(machine.home / "mount"), Root(machine.home / "away")
    root.folder.mkdir()
    for call in ("stat", "scandir"):
        dead(call, root.folder)
    assert existing([root, away]) == [root, away], "one wait for all, which ended without an answer"
    tally = machine.capture()._replace(roots=(root, away)).sweep()
    assert list(tally.problems or {}) == [str(root.folder)]
    assert existing([root, away]) == [root], "who is known not to answer is not waited for again"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names descriptors by /proc")
@pytest.mark.parametrize("call", ["open", "pread"])
def test_a_file_that_does_not_answer_is_set_aside_and_tried_again(
    machine: CaptureMachine, dead: Callable[[str, Path], None], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = machine.transcript("dead")
    path.write_bytes(line("said in dead"))
    with monkeypatch.context():
        dead(call, path)
        for at in (0, 1):
            machine.note("dead", at=machine.now + at, transcript_path=str(path))
        machine.note("good", at=machine.now + 2, transcript_path=str(machine.transcript("good")))
        start = time.monotonic()
        drain(machine.capture(), machine.spool, flush_ms=5_000)
        assert time.monotonic() - start < 30
    assert machine.texts() == ["said in good"]
    problem = problems.find_problem(machine.store, BLOCKED)
    assert problem is not None
    assert problem.message == f"{path} does not answer"
    assert len(list(machine.spool.glob("*.aside.json"))) == 2
    drain(machine.capture(), machine.spool, flush_ms=0)
    assert machine.texts() == ["said in good"]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names descriptors by /proc")
def test_a_file_that_answers_again_loses_nothing(
    machine: CaptureMachine, dead: Callable[[str, Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = machine.transcript("dead")
    path.write_bytes(line("said in dead"))
    machine.note("dead", transcript_path=str(path))
    dead("open", path)
    drain(machine.capture(), machine.spool, flush_ms=0)
    assert machine.texts() == []
    monkeypatch.undo()
    monkeypatch.setattr(safe_open, "_blocked", set())  # as in the next process
    machine.now = time.time_ns() // 1_000_000 + 3_600_000
    drain(machine.capture(), machine.spool, flush_ms=0)
    assert machine.texts() == ["said in dead"]
    assert problems.list_problems(machine.store) == []
    assert list(machine.spool.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names descriptors by /proc")
@pytest.mark.parametrize("call", ["open", "pread", "scandir"])
def test_a_file_that_does_not_answer_never_holds_the_lock_and_is_not_waited_for_twice(
    machine: CaptureMachine, dead: Callable[[str, Path], None], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = machine.transcript("dead")
    path.write_bytes(line("said in dead"))
    machine.note("dead", transcript_path=str(path))
    lock, data = machine.home / "capture.lock", machine.home / "memory"
    monkeypatch.setattr(safe_open, "DEADLINE_SECONDS", 2.0)
    monkeypatch.setattr(safe_open, "LISTING_SECONDS", 2.0)
    over, refused = threading.Event(), []

    def others() -> None:
        while not over.wait(0.01):
            with try_lock(lock) as held:
                refused.append(held is None)

    def capture() -> float:
        start = time.monotonic()
        with wait_lock(lock, seconds=60) as held, without_lock(held, data):
            drain(machine.capture(), machine.spool, flush_ms=0)
            machine.capture().sweep()
        return time.monotonic() - start

    dead(call, path.parent if call == "scandir" else path)
    other = threading.Thread(target=others, daemon=True)
    other.start()
    first = capture()
    over.set()
    other.join()
    monkeypatch.setattr(safe_open, "_blocked", set())  # as in the next process
    machine.note("dead", at=machine.now + 1, transcript_path=str(path))
    second = capture()
    assert first > 1.5
    assert second < first
    assert refused.count(False) > refused.count(True), "most of the time others could have it"
    assert machine.texts().count("said in dead") == (call == "scandir")
    monkeypatch.undo()
    monkeypatch.setattr(safe_open, "_blocked", set())
    monkeypatch.setattr("crystal.capture.lock._mounts", lambda: 1)
    capture()
    assert machine.texts().count("said in dead") == 1


WRITER = "import sys, time\nwhile True:\n    time.sleep(0.05)\n    open(sys.argv[1], 'ab').write(bytes.fromhex(sys.argv[2]) * 100)\n"


@pytest.mark.slow
def test_a_file_that_grows_forever_does_not_hold_capture(machine: CaptureMachine) -> None:
    path = machine.transcript("growing")
    path.write_bytes(line("one"))
    growing = subprocess.Popen([sys.executable, "-I", "-S", "-c", WRITER, str(path), line("more", ident="u").hex()])
    try:
        machine.note("growing", transcript_path=str(path))
        machine.note("good", at=machine.now + 1, transcript_path=str(machine.transcript("good")))
        while path.stat().st_size < 100_000:
            time.sleep(0.01)
        start = time.monotonic()
        drain(machine.capture(), machine.spool, flush_ms=0)
        assert time.monotonic() - start < 20
        assert growing.poll() is None
    finally:
        growing.kill()
        growing.wait()
    assert "said in good" in machine.texts()
    machine.assert_sound()


def test_a_path_that_the_user_names_may_be_anywhere_but_is_a_regular_file(machine: CaptureMachine) -> None:
    path = outside(machine)
    capture = machine.capture()
    (past,) = plan_past(capture, [path], None)
    import_past(capture, past, _tally(), lambda _: None)
    assert machine.texts() == ["never to be read"]
    for refused in (pipe_outside(machine), Path("/dev/zero")):
        with pytest.raises(safe_open.TranscriptRefusedError, match="is not a regular file"):
            plan_past(capture, [refused], None)


def _tally() -> object:
    from crystal.capture.engine import Tally

    return Tally()


def test_two_threads_never_get_each_others_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(list[object]):
        """At the moment when a thread that waited is free again, another one takes it."""

        def append(self, worker: object) -> None:
            super().append(worker)
            if not others:
                others.append("")
                others.append(safe_open.call_with_deadline(lambda: "other", "other"))

    others: list[str] = []
    monkeypatch.setattr(safe_open, "_idle", Idle())
    assert safe_open.call_with_deadline(lambda: "own", "own") == "own"
    assert others == ["", "other"]
