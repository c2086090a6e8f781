"""The client repeats what was said in lines of its own bookkeeping; what was private stays private there too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.archive_frames import frames_in
from tests.support.capture_machine import NOW, CaptureMachine, line

SECRET = "the secret of the quartz"


def echo(kind: str = "last-prompt", text: str = SECRET, **more: object) -> bytes:
    """A line of bookkeeping, without a uuid."""
    return json.dumps({"type": kind, "lastPrompt": text, **more}).encode() + b"\n"


def archived(machine: CaptureMachine) -> bytes:
    return b"".join(b"".join(frames_in(path)) for path in machine.home.rglob("*.jsonl.zst"))


def make_private(machine: CaptureMachine, session: str, *lines: bytes) -> Path:
    path = machine.transcript(session)
    path.write_bytes(b"".join(lines))
    machine.private_sessions = (session,)
    machine.capture().sweep()
    machine.private_sessions = ()
    return path


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(lines))


def test_bookkeeping_of_a_fork_does_not_tell_what_was_private(machine: CaptureMachine) -> None:
    said = line(SECRET, ident="11111111-0000-4000-8000-000000000001")
    make_private(machine, "private", said)
    machine.transcript("fork").write_bytes(
        echo("mode", "normal")
        + said
        + line("open words", at=NOW + 1000)
        + echo()
        + echo("api-request-blob", message={"role": "user", "content": SECRET})
    )
    machine.capture().sweep()
    append(machine.transcript("fork"), line("more words", at=NOW + 2000), echo())
    machine.capture().sweep()
    assert machine.texts() == ["more words", "open words"]
    assert SECRET.encode() not in archived(machine)


def test_bookkeeping_after_a_private_time_does_not_tell_of_it(machine: CaptureMachine) -> None:
    path = make_private(machine, "s", line(SECRET), echo())
    append(
        path,
        echo(),
        echo("queue-operation", SECRET, timestamp="2027-01-01T00:00:00.000Z"),
        line("open words", at=NOW + 1000),
        echo(),
    )
    machine.capture().sweep()
    assert machine.texts() == ["open words"]
    assert SECRET.encode() not in archived(machine)


def test_a_summary_of_what_was_private_is_private(machine: CaptureMachine) -> None:
    path = make_private(machine, "s", line(SECRET))
    append(
        path, line("open words", at=NOW + 1000), line(f"They spoke of {SECRET}", at=NOW + 2000, isCompactSummary=True)
    )
    append(path, line("I wrote isCompactSummary:true", at=NOW + 3000))
    machine.capture().sweep()
    assert machine.texts() == ["I wrote isCompactSummary:true", "open words"]
    assert SECRET.encode() not in archived(machine)


@pytest.mark.slow
def test_a_file_that_begins_with_bookkeeping_may_become_a_fork(machine: CaptureMachine) -> None:
    said = line(SECRET)
    make_private(machine, "private", said)
    fork = machine.transcript("fork")
    fork.write_bytes(echo())
    machine.capture().sweep()
    append(fork, echo(), said, line("open words", at=NOW + 1000))
    machine.capture().sweep()
    assert machine.texts() == ["open words"]
    assert SECRET.encode() not in archived(machine)


def test_sessions_without_anything_private_keep_their_bookkeeping(machine: CaptureMachine) -> None:
    make_private(machine, "private", line(SECRET))
    machine.transcript("other").write_bytes(
        line("open words") + echo(text="open words") + line("a summary", isCompactSummary=True)
    )
    machine.capture().sweep()
    assert machine.texts() == ["a summary", "open words"]
    assert b"last-prompt" in archived(machine)


def test_what_is_said_without_a_uuid_is_kept_also_where_something_was_private(machine: CaptureMachine) -> None:
    path = make_private(machine, "s", line(SECRET))
    nameless = json.loads(line("open words", at=NOW + 1000))
    del nameless["uuid"]
    append(path, json.dumps(nameless).encode() + b"\n")
    machine.capture().sweep()
    assert machine.texts() == ["open words"]
