"""Steps of capture that tests of several folders take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crystal.capture.backfill import import_past, plan_past
from crystal.capture.engine import Tally
from crystal.capture.safe_open import Folders
from crystal.config.harnesses import Root
from crystal.integrity.proof import Proof
from crystal.integrity.verify import Verification
from tests.support.capture_machine import CaptureMachine


def backfill(machine: CaptureMachine, *paths: Path) -> Tally:
    capture, tally = machine.capture(), Tally()
    for past in plan_past(capture, list(paths), None):
        import_past(capture, past, tally, lambda _: None)
    return tally


def prove(machine: CaptureMachine, progress: Callable[[int], object] = lambda _: None) -> Proof:
    """Verify everything that a machine has."""
    folders, cleaner = Folders((Root(machine.root),)), machine.capture().cleaner
    return Verification(machine.store, machine.home, "desk", folders, cleaner, progress).run()
