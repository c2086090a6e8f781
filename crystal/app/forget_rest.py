"""Finish deletions that a crash, a busy file or another machine left incomplete."""

from __future__ import annotations

from crystal.app.context import Machine
from crystal.store.forget.forgetting import NAMES_FILE, is_work_left, names_agree


def finish_forgetting(machine: Machine) -> int:
    """Finish pending deletions; return the number of tombstones still open. Cheap if nothing is pending."""
    if not is_work_left(machine.store) and names_agree(machine.store, machine.places.ldm_home / NAMES_FILE):
        return 0
    from crystal.app.forget import finish_left  # noqa: PLC0415 - brings NumPy and cryptography, 0.4 s: asked after every turn

    return finish_left(machine)
