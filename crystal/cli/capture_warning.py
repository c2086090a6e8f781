"""Say whether conversations are captured, in one line; a search prints it where they are not."""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

from crystal.app.capture_state import capture_state
from crystal.app.context import Machine, now_ms
from crystal.capture.state import CaptureState, Condition, describe
from crystal.cli.render import look_of, one_line, say, wrapped
from crystal.errors import CrystalError


def state_line(state: CaptureState, now: int, stream: TextIO, *, label: str = "") -> str:
    """Return one line that says whether capture works; red on a terminal if nothing is captured."""
    look = look_of(stream)
    line = "\n".join(wrapped(label + one_line(describe(state, now)), look, len(label)))
    return look.bad(line) if state.condition is Condition.NOT_CAPTURING else line


def warn_if_not_capturing(machine: Machine, *, paused_too: bool = False) -> None:
    """Warn on standard error if nothing is captured. Never fails, because the user wants another command's answer."""
    with contextlib.suppress(CrystalError, OSError):
        state = capture_state(machine.config, machine.store)
        if state.condition is Condition.NOT_CAPTURING or (paused_too and state.condition is Condition.PAUSED):
            say(state_line(state, now_ms(), sys.stderr, label="crystal: "), stream=sys.stderr)
