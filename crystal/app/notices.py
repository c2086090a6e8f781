"""The notice about capture at a session's start, prepared for the hook, which has no time to compute it."""

from __future__ import annotations

import contextlib
import json
import time

from crystal.app.capture_state import capture_state, last_turn_hook
from crystal.app.context import Machine
from crystal.capture.state import CaptureState, Condition
from crystal.config.paths import write_private
from crystal.errors import CrystalError
from crystal.hook.session_start import NOTICE_FILE

LASTING = ("no hook", "program gone")
"""Reasons that still hold at the next start. The hook itself sees those that come and go, such as waiting notes."""


def refresh_notice(machine: Machine) -> None:
    """Write what the hook says at a session's start, if it changed. A disk that refuses is no error."""
    state = capture_state(machine.config, machine.store, everywhere=True)
    last_turn = last_turn_hook(machine.places, machine.store)
    notice = {"line": notice_line(state), "last_turn": None if last_turn is None else str(last_turn)}
    file, data = machine.places.data_dir / NOTICE_FILE, json.dumps(notice).encode("ascii")
    with contextlib.suppress(CrystalError, OSError):
        if not file.is_file() or file.read_bytes() != data:
            write_private(file, data)
        else:
            file.touch()  # ``session_context.refresh`` reads its time: the notice was checked now


def notice_line(state: CaptureState) -> str | None:
    """Return the sentence that each session begins with; None while turns are kept."""
    if state.condition is Condition.PAUSED:
        return f"paused since {clock_words(state.since)}: nothing is captured; resume with: crystal --on"
    reason = next((one for one in state.reasons if one.code in LASTING), None)
    return None if reason is None else f"NOT capturing: {reason.message}; fix: {reason.fix}"


def clock_words(ms: int | None) -> str:
    """Return a local date and time: ``2026-11-22 10:00``."""
    return "an unknown time" if ms is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(ms / 1000))
