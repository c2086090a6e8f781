"""The detached worker that the hook starts: one at a time, quiet, gone when the work is done.

Capture comes first and under its own lock; embedding and summaries follow outside of it, so that another session's
words never wait for them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial

from crystal.capture.lock import await_lock, try_lock
from crystal.errors import CrystalError
from crystal.hook import truthy
from crystal.wiring import CAPTURE_LOCK, these_places

ENRICH_SECONDS = 300.0
DELIVER_SECONDS = 60.0
WAIT_SECONDS = 60.0


def main() -> None:
    """Work until the spool is empty and nothing is pending. Never prints; failures are recorded in the store."""
    if os.environ.get("CRYSTAL_INTERNAL"):
        return
    places = these_places()
    try:
        _work()
    except CrystalError as error:
        # The store itself cannot be used: the next session start says so, see hook.py.
        with contextlib.suppress(OSError):
            places.stalled.write_text(f"capture is not working: {error.message}"[:200], "utf-8")
        sys.exit(error.exit_code)
    with contextlib.suppress(FileNotFoundError):
        places.stalled.unlink()


def _work() -> None:
    from crystal.capture import spool
    from crystal.wiring import enrich, open_machine
    from crystal.wiring.capturing import drain_spool
    from crystal.wiring.contexts import refresh

    places = these_places()
    # A hook that waits for its worker must not come back before its note was acted on, whoever does it.
    lock = partial(await_lock, seconds=WAIT_SECONDS) if truthy(os.environ.get("CRYSTAL_HOOK_WAIT")) else try_lock
    failed = 0
    while True:
        with lock(places.data_dir / CAPTURE_LOCK) as held:
            if not held:
                # Whoever holds it looks at the spool once more after letting go, see below.
                return
            with open_machine() as machine:
                drain_spool(machine, machine.capture())
                failed = len(spool.read_notes(places.spool))
        if len(spool.read_notes(places.spool)) <= failed:
            break
    with open_machine() as machine:
        refresh(machine)
        if machine.config.role == "device":
            from crystal.wiring.relaying import deliver_soon

            deliver_soon(machine, seconds=DELIVER_SECONDS)
        enrich(machine, budget_seconds=ENRICH_SECONDS)
