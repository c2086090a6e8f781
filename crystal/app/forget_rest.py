"""The rest of forgetting: what a crash, a busy file or another machine has left to do."""

from __future__ import annotations

from crystal.app.context import Machine
from crystal.store.forget.forgetting import NAMES_FILE, is_work_left, names_agree


def finish_forgetting(machine: Machine) -> int:
    """Do what is left to do of forgetting; gives how many tombstones are still open. Cheap when there are none."""
    if not is_work_left(machine.store) and names_agree(machine.store, machine.places.ldm_home / NAMES_FILE):
        return 0
    from crystal.app.forget import finish_left  # noqa: PLC0415 - brings NumPy and cryptography, 0.4 s: asked after every turn

    return finish_left(machine)
