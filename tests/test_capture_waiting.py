"""What the worker waits for, and what it does not: nobody shall wait for a line that will not come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal.capture.drain import fingerprint, is_ready
from crystal.capture.spool import Note
from tests.capture_machine import NOW, CaptureMachine, line

PATIENCE = 5_000


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CaptureMachine]:
    machine = CaptureMachine.at(tmp_path / "m")
    yield machine
    machine.store.close()


def note(machine: CaptureMachine, event: str, **fields: object) -> Note:
    path = str(machine.transcript("s"))
    return Note(machine.home / "note", NOW, event, "s", path, **fields)  # type: ignore[arg-type]


def test_a_stop_waits_for_its_file_and_its_last_words(machine: CaptureMachine) -> None:
    capture, stop = machine.capture(), note(machine, "Stop", awaited=fingerprint("the end"))
    assert not is_ready(capture, stop, PATIENCE)
    machine.transcript("s").write_bytes(line("question"))
    assert not is_ready(capture, stop, PATIENCE)
    machine.transcript("s").write_bytes(line("question") + line("the end", role="assistant"))
    assert is_ready(capture, stop, PATIENCE)


def test_the_start_of_a_session_waits_for_no_file(machine: CaptureMachine) -> None:
    assert is_ready(machine.capture(), note(machine, "SessionStart"), PATIENCE)


def test_a_helper_of_the_client_that_writes_no_transcript_is_not_waited_for(machine: CaptureMachine) -> None:
    machine.transcript("s").write_bytes(line("question"))
    helper = machine.transcript("s").with_suffix("") / "subagents" / "agent-x.jsonl"
    stop = note(machine, "SubagentStop", agent_transcript_path=str(helper), awaited=fingerprint("the end"))
    assert is_ready(machine.capture(), stop, PATIENCE)
    helper.parent.mkdir(parents=True)
    helper.write_bytes(line("task"))
    assert not is_ready(machine.capture(), stop, PATIENCE)
