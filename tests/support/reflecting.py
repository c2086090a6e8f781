"""Sessions whose lines are captured and reflected at once."""

from __future__ import annotations

from crystal.app.capture import run_capture
from crystal.app.context import Machine
from crystal.app.memory_queries import list_memories
from crystal.app.reflect import reflect
from tests.support.capture_machine import line
from tests.support.forgetting_machine import Desk


def said(desk: Desk, machine: Machine, session: str, *lines: bytes) -> None:
    """Let lines be said and captured, then read them."""
    desk.say(session, *lines)
    keep_up(machine)
    reflect(machine)


def keep_up(machine: Machine) -> None:
    """Capture what was said."""
    run_capture(machine, lambda capture: capture.sweep())


def texts(machine: Machine, status: str | None = "proposed") -> list[str]:
    """Return the texts of memories with a status, in their order."""
    return sorted(one.text for one in list_memories(machine, status=status))


def run_of(command: str, session: str, said: str = "12 passed", ident: str | None = None) -> list[bytes]:
    """Return the lines of a command that ran, and of what it printed."""
    more = {"of_another_agent": "why", "description": session}
    use = [{"type": "tool_use", "id": command, "name": "Bash", "input": {"command": command} | more}]
    result = [{"type": "tool_result", "tool_use_id": command, "content": said}]
    return [line(use, role="assistant", ident=ident), line(result)]  # type: ignore[arg-type]
