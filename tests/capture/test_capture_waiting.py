"""What the worker waits for, and what it does not: nobody shall wait for a line that will not come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal.app.status import describe_unexamined
from crystal.capture.drain import drain, fingerprint, is_ready
from crystal.capture.spool import Note
from crystal.store.capture.privacy import redaction_counts
from tests.support.capture_machine import NOW, CaptureMachine, line

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


@pytest.mark.slow
def test_a_session_with_much_to_read_keeps_no_other_waiting_beyond_a_segment(
    machine: CaptureMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal.capture.tail.SEGMENT_BYTES", 4_000)
    machine.transcript("long").write_bytes(b"".join(line(f"long {n} " + "x" * 500) for n in range(60)))
    machine.transcript("short").write_bytes(line("short"))
    machine.note("long", at=NOW, transcript_path=str(machine.transcript("long")))
    machine.note("short", at=NOW + 1, transcript_path=str(machine.transcript("short")))
    machine.transcript("later").write_bytes(line("later"))
    machine.note("later", at=NOW + 2, transcript_path=str(machine.transcript("later")))
    drain(machine.capture(), machine.spool, flush_ms=0)
    order = [
        Path(path).stem
        for (path,) in machine.store.rows(
            "SELECT path FROM segments JOIN capture_state AS c ON c.id = segments.transcript ORDER BY segments.id"
        )
    ]
    assert order[:3] == ["long", "short", "later"]
    assert order.count("long") > 5
    assert len(machine.texts()) == 62
    machine.assert_sound()


@pytest.mark.slow
def test_a_text_that_was_too_hard_to_examine_is_named_with_what_to_do(machine: CaptureMachine) -> None:
    machine.transcript("s").write_bytes(line("password=hunter2 " * 50_000) + line("kept"))
    machine.note("s", transcript_path=str(machine.transcript("s")))
    drain(machine.capture(), machine.spool, flush_ms=0)
    counts = redaction_counts(machine.store)
    assert counts == {"dense": 1}
    assert describe_unexamined(counts) == "not stored, too hard to examine for secrets: 1 text"
    assert describe_unexamined({"password": 3}) is None
