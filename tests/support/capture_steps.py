"""Steps of capture that tests of several folders take."""

from __future__ import annotations

from pathlib import Path

from crystal.capture.backfill import import_past, plan_past
from crystal.capture.engine import Tally
from tests.support.capture_machine import CaptureMachine


def backfill(machine: CaptureMachine, *paths: Path) -> Tally:
    capture, tally = machine.capture(), Tally()
    for past in plan_past(capture, list(paths), None):
        import_past(capture, past, tally, lambda _: None)
    return tally
