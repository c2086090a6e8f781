"""A note that brings nothing is dropped without loading capture, and only such a note."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal.capture.drain import drain
from crystal.capture.nothing_new import drop_empty_notes
from crystal.store import problems
from crystal.store.capture import privacy
from tests.support.capture_machine import CaptureMachine, line


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CaptureMachine]:
    machine = CaptureMachine.at(tmp_path / "m")
    machine.capture().meet()
    machine.transcript("s").write_bytes(line("said"))
    agent = agent_file(machine)
    agent.parent.mkdir(parents=True)
    agent.write_bytes(line("said by an agent"))
    leave(machine)
    drain(machine.capture(), machine.spool, flush_ms=0)
    machine.store.execute("UPDATE chunks SET vector_generation = 1")
    yield machine
    machine.store.close()


def agent_file(machine: CaptureMachine, name: str = "a1") -> Path:
    return machine.transcript("s").with_suffix("") / "subagents" / f"agent-{name}.jsonl"


def leave(machine: CaptureMachine, event: str = "Stop", **more: object) -> None:
    machine.note("s", event, **{"transcript_path": str(machine.transcript("s")), **more})


def dropped(machine: CaptureMachine) -> bool:
    return drop_empty_notes(machine.spool, machine.store.path)


def test_a_note_that_brings_nothing_is_dropped(machine: CaptureMachine) -> None:
    for at in (0, 1):
        leave(machine, at=machine.now + at)
    assert dropped(machine)
    assert list(machine.spool.iterdir()) == []
    assert not dropped(machine), "without a note the full run decides"


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"event": "SessionStart"},
        {"event": "SessionEnd"},
        {"private": True},
        {"awaited": {"crc": 1, "length": 2}},
        {"remember": {"words": "x", "length": 1, "everywhere": False}},
        {"session_id": None},
        {"session_id": "other"},
        {"transcript_path": None},
        {"transcript_path": "/nowhere/s.jsonl"},
        {"agent_transcript_path": "/nowhere/agent-a2.jsonl"},
    ],
    ids=str,
)
def test_a_note_that_may_bring_something_is_left(machine: CaptureMachine, more: dict[str, object]) -> None:
    leave(machine)
    leave(machine, **more)  # type: ignore[arg-type]
    assert not dropped(machine)
    assert len(list(machine.spool.glob("*.json"))) == 2


def grow(machine: CaptureMachine) -> None:
    with machine.transcript("s").open("ab") as file:
        file.write(b"{")


def grow_agent(machine: CaptureMachine) -> None:
    with agent_file(machine).open("ab") as file:
        file.write(b"{")


def shrink(machine: CaptureMachine) -> None:
    machine.transcript("s").write_bytes(b"")


def replaced(machine: CaptureMachine) -> None:
    path = machine.transcript("s")
    path.with_suffix(".new").write_bytes(path.read_bytes())
    path.with_suffix(".new").replace(path)


CHANGES = {
    "a byte more": grow,
    "a byte more of an agent": grow_agent,
    "a new agent": lambda machine: agent_file(machine, "a2").write_bytes(b"{}\n"),
    "fewer bytes": shrink,
    "another file": replaced,
    "kept by a compaction": lambda machine: next(machine.spool.glob("*.json")).with_suffix(".kept").touch(),
    "set aside": lambda machine: (machine.spool / "1-1-1.aside.json").touch(),
    "capture is off": lambda machine: privacy.open_mark(machine.store, None, "off", machine.now),
    "a problem": lambda machine: problems.record_problem(machine.store, "embedding", "x", now=machine.now),
    "a chunk waits": lambda machine: machine.store.execute("UPDATE chunks SET vector_generation = 0"),
    "the session has ended": lambda machine: machine.store.execute("UPDATE sessions SET ended_at = 1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_has_changed_is_for_the_full_run(machine: CaptureMachine, change: object) -> None:
    leave(machine)
    change(machine)  # type: ignore[operator]
    assert not dropped(machine)


def test_telling_that_nothing_is_new_loads_neither_capture_nor_the_settings() -> None:
    program = "import sys, crystal.worker; print(*(name for name in sys.modules if name.startswith('crystal.')))"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    heavy = {"crystal.capture.engine", "crystal.config.load", "crystal.app", "crystal.redact", "crystal.model.capture"}
    assert heavy.isdisjoint(loaded)
