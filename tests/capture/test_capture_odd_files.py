"""Files that cannot be read, that have odd names, that stand there twice: they stop nothing but themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crystal.capture.drain import drain
from crystal.store import problems
from tests.integrity.test_verify import mend
from tests.support.archive_frames import frames_in
from tests.support.capture_machine import CaptureMachine, line
from tests.support.capture_steps import prove
from tests.support.unreadable import refuse_to_open

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and modes are others there")


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    return partial(refuse_to_open, monkeypatch)


def test_an_unreadable_transcript_stops_no_other(machine: CaptureMachine, close: Callable[[Path], None]) -> None:
    for session in ("a", "b"):
        machine.transcript(session).write_bytes(line(f"said in {session}"))
    close(machine.transcript("a"))
    for session in ("a", "b"):
        machine.note(session, at=machine.now + ord(session), transcript_path=str(machine.transcript(session)))
    drain(machine.capture(), machine.spool, flush_ms=0)
    assert machine.texts() == ["said in b"]
    assert "permission denied" in problems.list_problems(machine.store)[0].message
    assert len(list(machine.spool.glob("*.json"))) == 1
    tally = machine.capture().sweep()
    assert tally.problems == {str(machine.transcript("a")): "permission denied"}
    told = {problem.part: problem.message for problem in problems.list_problems(machine.store)}
    assert told["sweep"] == f"{machine.transcript('a')}: permission denied (nothing of it is kept yet)"


def test_a_sweep_that_can_read_all_again_forgets_its_trouble(
    machine: CaptureMachine, close: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.transcript("a").write_bytes(line("said in a"))
    close(machine.transcript("a"))
    machine.capture().sweep()
    assert problems.list_problems(machine.store)
    machine.transcript("a").chmod(0o600)
    monkeypatch.undo()
    machine.capture().sweep()
    assert problems.list_problems(machine.store) == []
    assert machine.texts() == ["said in a"]


def test_a_note_that_cannot_be_removed_stops_no_other(machine: CaptureMachine) -> None:
    machine.transcript("b").write_bytes(line("said in b"))
    machine.spool.mkdir(parents=True)
    (machine.spool / "00000000000000000001-1-x.json").mkdir()
    machine.note("b", transcript_path=str(machine.transcript("b")))
    drain(machine.capture(), machine.spool, flush_ms=0)
    assert machine.texts() == ["said in b"]
    assert [note.is_dir() for note in machine.spool.glob("*.json")] == [True]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 there")
def test_names_that_are_no_utf8_are_captured_and_proved(machine: CaptureMachine) -> None:
    folder = machine.transcript("x").parent
    for name in (b"\xff\xfe one.jsonl", b"\xff\xfd two.jsonl", b"new\nline.jsonl", b".jsonl", b"'\"$(x).jsonl"):
        (folder / os.fsdecode(name)).write_bytes(line(f"in {name!r}"))
    broken = folder.with_name(os.fsdecode(b"-caf\xe9"))
    broken.mkdir()
    (broken / "s.jsonl").write_bytes(line("in a folder"))
    assert machine.capture().sweep().problems is None
    assert len(machine.texts()) == 6
    assert prove(machine).faults == []
    assert machine.capture().sweep().files == 0


@pytest.mark.slow
def test_a_copy_goes_on_by_itself_when_the_first_file_is_gone(machine: CaptureMachine) -> None:
    first, copy = machine.transcript("s"), machine.transcript("s", "other")
    first.write_bytes(line("one") + line("two"))
    machine.capture().sweep()
    shutil.copy(first, copy)
    machine.capture().sweep()
    first.unlink()
    for text in ("three", "four"):
        with copy.open("ab") as file:
            file.write(line(text))
        machine.capture().sweep()
        assert prove(machine).faults == []
    assert machine.texts() == ["four", "one", "three", "two"]


def test_a_file_that_a_hook_names_through_a_link_is_not_taken_for_another(machine: CaptureMachine) -> None:
    link = machine.home / "link"
    machine.transcript("s").write_bytes(line("one"))
    link.symlink_to(machine.root)
    machine.note("s", transcript_path=str(link / "p" / "s.jsonl"))
    drain(machine.capture(), machine.spool, flush_ms=0)
    assert machine.texts() == ["one"]
    assert prove(machine).faults == []


def test_a_project_folder_may_be_a_link_where_the_user_allows_it(machine: CaptureMachine) -> None:
    elsewhere = machine.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "s.jsonl").write_bytes(line("one"))
    linked = machine.root / "-linked"
    linked.parent.mkdir(parents=True, exist_ok=True)
    linked.symlink_to(elsewhere)
    (told,) = (machine.capture().sweep().problems or {}).items()
    assert told == (str(linked), f"leads to {elsewhere}, which is not in a folder of transcripts")
    assert machine.texts() == []
    assert machine.capture()._replace(allowed=(str(elsewhere),)).sweep().problems is None
    assert machine.texts() == ["one"]


def test_what_cannot_be_read_cannot_be_proved(machine: CaptureMachine, close: Callable[[Path], None]) -> None:
    machine.transcript("a").write_bytes(line("one"))
    machine.capture().sweep()
    machine.transcript("b").write_bytes(line("one") * 3)
    close(machine.transcript("b"))
    proof = prove(machine)
    assert [(fault.kind, fault.message) for fault in proof.faults] == [("unreadable", "permission denied")]
    assert (proof.bytes_by_state["unreadable"], round(proof.percent)) == (3 * len(line("one")), 25)
    assert not proof.damaged
    assert mend(machine, proof) == []


def test_a_folder_that_cannot_be_listed_cannot_be_proved(
    machine: CaptureMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = machine.transcript("a").parent
    machine.transcript("a").write_bytes(line("one"))
    listed = os.scandir

    def refuse(path: Any) -> Any:
        if str(path) == str(folder):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert machine.capture().sweep().problems == {str(folder): "permission denied"}
    assert [fault.kind for fault in prove(machine).faults] == ["unreadable"]


RUN = """
import sys
from crystal.cli.app import main
try:
    main()
finally:
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    sys.stderr.write(peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the most memory from /proc")
def test_a_huge_line_is_kept_whole_in_little_memory(home: Path) -> None:
    """It was nine times the line; the archive has all of it, and what is behind it is captured, too."""
    words, size = "lorem ipsum = dolor_sit {amet},\n\t", 40_000_000
    folder = home / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    said = [line("before"), line(words * (size // len(words))), line("after")]
    (folder / "11111111-aaaa-4000-8000-000000000001.jsonl").write_bytes(b"".join(said))
    env = {**os.environ, "HOME": str(home), "CRYSTAL_EMBEDDING_PROVIDER": "none"}
    for command in (("init", "--yes", "--no-import"), ("backfill",), ("verify",)):
        done = subprocess.run(
            [sys.executable, "-c", RUN, *command], env=env, capture_output=True, text=True, check=True
        )
        assert int(done.stderr.split()[-2]) < 60_000 + 3.5 * len(said[1]) / 1024, done.stderr
    assert "100 %" in done.stdout
    [archive] = (home / ".ldm").rglob("*.jsonl.zst")
    assert b"".join(frames_in(archive)) == b"".join(said)
