"""The detached worker that the hook starts: one at a time, quiet, gone when the work is done.

Capture comes first and under its own lock; embedding and summaries follow outside of it, so that another session's
words never wait for them. These take as long as they need, but only a share of one core: nobody waits for them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from crystal.config.paths import Places, resolve_places
from crystal.errors import CrystalError, UsageError
from crystal.hook.event import truthy

if TYPE_CHECKING:
    from crystal.app.context import Machine

ENRICH_SECONDS = 24 * 3600.0
DELIVER_SECONDS = 60.0
WAIT_SECONDS = 60.0


def main() -> None:
    """Work until the spool is empty and nothing is pending. Never prints; failures are recorded in the store."""
    if os.environ.get("CRYSTAL_INTERNAL"):
        return
    places = resolve_places(os.environ, Path.home())
    try:
        _work(places)
    except CrystalError as error:
        _stop(places, error)
    except Exception as error:  # a broken package or a damaged database explains it; else it is raised again
        from crystal.config.packages import broken_package

        found: CrystalError | None = broken_package(error)
        if found is None:
            from crystal.app.context import damage_here

            found = damage_here()
        if found is None:
            raise
        _stop(places, found)


def check_words() -> None:
    """End with ``NOTHING_LEFT`` if nothing of the words on standard input may be kept, because they are a secret."""
    from crystal.config.load import load_config
    from crystal.hook.remember_line import NOTHING_LEFT
    from crystal.memories.rules import cleaned_text
    from crystal.redact import Redactor

    words = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    config = load_config(os.environ, Path.home())
    try:
        cleaned_text(words, Redactor(b"", secrets=config.redact_enabled).clean_text)
    except UsageError:
        sys.exit(NOTHING_LEFT)


def _stop(places: Places, error: CrystalError) -> NoReturn:
    """End because the store cannot be used: the next session start says so, see crystal/hook/session_start.py."""
    with contextlib.suppress(OSError):
        places.stalled.write_text(f"nothing is being kept: {error.message}. Run: crystal doctor"[:200], "utf-8")
    sys.exit(error.exit_code)


def _work(places: Places) -> None:
    # Here, where ``main`` names a package that is missing: these need the database's driver.
    from crystal.capture.lock import CAPTURE_LOCK, await_lock, try_lock, without_lock
    from crystal.capture.nothing_new import drop_empty_notes
    from crystal.capture.spool import read_notes

    # A hook that waits for its worker must not return before its note was acted on, by any process.
    lock = partial(await_lock, seconds=WAIT_SECONDS) if truthy(os.environ.get("CRYSTAL_HOOK_WAIT")) else try_lock
    machine, failed = None, 0
    with contextlib.ExitStack() as stack:
        while True:
            with lock(places.data_dir / CAPTURE_LOCK) as held:
                if held is None:
                    # The process that holds it reads the spool once more after releasing it, see below.
                    return
                with without_lock(held, places.data_dir):
                    if machine is not None or not drop_empty_notes(places.spool, places.db):
                        machine = machine or stack.enter_context(_open_machine())
                        failed = _drain(machine)
            if len(read_notes(places.spool)) <= failed:
                break
        with contextlib.suppress(FileNotFoundError):
            places.stalled.unlink()  # the next session's start need not wait for what follows
        if machine is not None:
            _enrich(machine)


def _open_machine() -> AbstractContextManager[Machine]:
    from crystal.app.context import open_machine

    return open_machine({"embedding.threads": 1})


def _enrich(machine: Machine) -> None:
    from crystal.app.background import Throttle, enrich
    from crystal.app.session_context import refresh_unless_changed
    from crystal.app.start_worker import WORK_SHARE, lower_priority

    refresh_unless_changed(machine)
    if machine.config.role == "device":
        from crystal.app.sync.device import deliver_soon

        deliver_soon(machine, seconds=DELIVER_SECONDS)
    lower_priority()
    enrich(machine, budget_seconds=ENRICH_SECONDS, pause=Throttle(WORK_SHARE))


def _drain(machine: Machine) -> int:
    """Act on the notes; gives how many are left because they failed."""
    from crystal.app.capture import drain_spool
    from crystal.app.capture_engine import make_capture
    from crystal.capture.spool import read_notes

    drain_spool(machine, make_capture(machine))
    return len(read_notes(machine.places.spool))
