"""A machine whose sessions are told of its memory."""

from __future__ import annotations

from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine
from crystal.hook import event as hook
from crystal.hook import session_start
from tests.support.capture_machine import NOW

QUARTZ = "/home/dev/quartz"  # where the lines of tests are said


def say(machine: Machine, session: str, *lines: bytes) -> None:
    """Let something be said in a session, and capture it."""
    path = machine.places.transcript_roots[0].folder / "p" / f"{session}.jsonl"
    with path.open("ab") as file:
        file.write(b"".join(lines))
    capture = make_capture(machine)
    capture.meet(frozenset({session}))
    capture.sweep()


def told(machine: Machine, cwd: str = QUARTZ, session: str = "new", **env: str) -> str | None:
    """What the hook would say."""
    mark = machine.places.data_dir / "told" / f"{session}.startup"
    mark.unlink(missing_ok=True)
    where = {"CRYSTAL_CONTEXT_ENABLED": "1", **env}
    who = (session, "startup", cwd)
    data_dir = str(machine.places.data_dir)
    return hook._attempt(session_start.told_once, data_dir, who, where, NOW * 1_000_000, hook.parse_hook_input)
