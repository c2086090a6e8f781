"""Capture joined to this machine: its lock, its spool, its store."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from crystal.app.agents import list_agents, look_at_files
from crystal.app.capture import run_capture
from crystal.app.capture_engine import make_capture
from crystal.app.context import open_machine
from crystal.app.status import gather
from crystal.capture import finder
from crystal.capture.engine import Capture, Tally
from tests.support.capture_machine import line

ALL_CAPTURED = {
    "on_disk": 1, "known": 1, "lag": 0, "to_import": 0, "is_importing": False, "behind": [], "unreadable": [],
}  # fmt: skip
"""What is told of one transcript that is captured up to its end."""


@pytest.mark.slow
def test_a_note_that_comes_during_a_sweep_is_acted_on_after_it(home: Path) -> None:
    projects = home / ".claude" / "projects" / "-home-dev-quartz"
    projects.mkdir(parents=True)
    session = "0b7d2a4e-6d0a-4c55-9e5f-0d1c2b3a4f50"

    def leave_a_note(capture: Capture) -> Tally:
        path = projects / f"{session}.jsonl"
        path.write_bytes(line("said during the sweep"))
        note = {"v": 1, "at": capture.clock(), "event": "Stop", "session_id": session, "transcript_path": str(path)}
        spool = home / ".ldm/memory/spool"
        spool.mkdir(parents=True, exist_ok=True)
        (spool / "01795000000000000000-1-x.json").write_text(json.dumps(note))
        return Tally()

    with open_machine() as machine:
        run_capture(machine, leave_a_note)
        assert machine.store.rows("SELECT text FROM chunks") == [("said during the sweep",)]
    assert not list((home / ".ldm/memory/spool").glob("*.json"))


def test_transcripts_that_were_moved_to_another_disk_are_not_behind_and_none_is_opened(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects = home / ".claude" / "projects" / "-home-dev-quartz"
    projects.mkdir(parents=True)
    (projects / "s.jsonl").write_bytes(said := line("basalt"))
    with open_machine() as machine:
        make_capture(machine).capture_tail(projects / "s.jsonl", Tally())
    shutil.copytree(projects.parent, home / "moved" / "projects", copy_function=shutil.copyfile)
    shutil.rmtree(home / ".claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "moved"))
    moved = home / "moved/projects/-home-dev-quartz"
    with open_machine() as machine:
        (moved / "s.jsonl").chmod(0)  # and root may read it: the size alone is enough
        monkeypatch.setattr(finder, "opened", lambda *_: pytest.fail("a transcript was opened"))
        assert gather(machine)["transcripts"] == ALL_CAPTURED
        monkeypatch.undo()
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "moved"))
        (moved / "s.jsonl").chmod(0o600)
        (moved / "s.jsonl").write_bytes(said + (more := line("gabbro")) + b'{"half')
        assert gather(machine)["transcripts"]["lag"] == len(more)


def test_a_look_at_the_files_keeps_only_the_number_of_those_that_are_as_they_were_read(home: Path) -> None:
    projects = home / ".claude" / "projects" / "-home-dev-quartz"
    projects.mkdir(parents=True)
    paths = [projects / f"{name}.jsonl" for name in "abc"]
    with open_machine() as machine:
        for path in paths:
            path.write_bytes(line(path.stem))
            make_capture(machine).capture_tail(path, Tally())
        look = look_at_files(machine)
        assert (look.number, look.files) == (3, [])
        assert next(iter(look.same.values())) == (3, max(path.stat().st_mtime_ns // 1_000_000 for path in paths))
        with paths[1].open("ab") as file:
            file.write(more := line("gabbro"))
        paths[2].chmod(0)  # its status changed, so it is looked at: whether it can be read is not guessed
        look = look_at_files(machine)
        assert (look.number, [one.found.path for one in look.files]) == (3, paths[1:])
        assert list_agents(machine, look, ["claude-code"])[0].files == 3
        assert gather(machine)["transcripts"]["behind"][0]["lag"] == len(more)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_file_that_a_hook_named_through_a_link_is_not_behind(home: Path) -> None:
    projects = home / "real" / "projects" / "-home-dev-quartz"
    projects.mkdir(parents=True)
    (home / ".claude").symlink_to(home / "real")
    (projects / "s.jsonl").write_bytes(line("basalt"))
    with open_machine() as machine:
        make_capture(machine).capture_tail(projects / "s.jsonl", Tally())
        assert gather(machine)["transcripts"] == ALL_CAPTURED
