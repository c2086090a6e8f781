"""Import past transcripts: list them, and import them while capture continues."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import groupby
from pathlib import Path

from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine
from crystal.app.progress import PENDING_IMPORT_FILE, read_pending_import
from crystal.capture.ahead import ReadAhead, start_cleaners, stretches
from crystal.capture.backfill import PastFile, import_file, plan_past
from crystal.capture.engine import Capture, Tally
from crystal.capture.lock import BACKFILL_LOCK, try_lock, wait_lock
from crystal.capture.refused_files import record_refused
from crystal.config.paths import write_derived
from crystal.store.search.space import note_import, size_of

MAX_CLEANERS = 2
MIN_BYTES = 16 << 20
"""An import of less is over before another process has started."""


def plan_import(
    machine: Machine, paths: Sequence[Path], since: int | None, tally: Tally | None = None
) -> list[PastFile]:
    """Return what backfill would import, newest first; ``tally`` gets the files that cannot be read.

    Registers the machine first, so the ledger knows what is old.
    """
    capture = make_capture(machine).with_projects()
    capture.meet()
    return plan_past(capture, paths, since, tally)


def plan_in_projects(machine: Machine, since: int | None, tally: Tally | None = None) -> list[PastFile]:
    """Return what backfill would import from the folders of projects: an import makes some of them known."""
    capture = make_capture(machine).with_projects()
    roots = tuple(root for root in capture.roots if root.place.in_projects)
    return plan_past(capture._replace(roots=roots), [], since, tally)


def note_refused(machine: Machine, tally: Tally) -> None:
    """Note for status and doctor which files an import of everything could not read, as a sweep does."""
    record_refused(machine.store, machine.config.device, tally.problems or {}, machine.now())


def import_sessions(
    machine: Machine,
    plan: Sequence[PastFile],
    progress: Callable[[int], None],
    *,
    cleaners: int = MAX_CLEANERS,
    on_wait: Callable[[], None] = lambda: None,
) -> Tally:
    """Import past transcripts. Holds no lock that capture needs, so capture never waits for it.

    Args:
        machine: This machine.
        plan: What to import, in order.
        progress: Told the bytes done.
        cleaners: Maximum number of processes that clean ahead.
        on_wait: Called if another process imports, and this one waits until it has ended.
    """
    with wait_lock(machine.places.data_dir / BACKFILL_LOCK, seconds=24 * 3600, on_wait=on_wait):
        return _import_sessions(machine, plan, progress, cleaners)


def _import_sessions(
    machine: Machine, plan: Sequence[PastFile], progress: Callable[[int], None], cleaners: int
) -> Tally:
    """Import under the lock, with so many processes that clean ahead."""
    tally, before = Tally(), size_of(machine.store)
    capture = make_capture(machine, "past").with_projects()
    with machine.store.importing(), ReadAhead(_cleaners(machine, plan, cleaners), stretches(capture, plan)) as ahead:
        capture = capture._replace(cleaner=capture.cleaner._replace(cleaned_before=ahead.result_for))
        for path, wanted in groupby(enumerate(plan), key=lambda one: one[1].found.path):
            places, pasts = zip(*wanted, strict=True)
            ahead.reach(places[0])
            tally.files += 1
            capture.attempt(path, tally, partial(_import, capture, pasts, progress))
    # Projects that became known now: what an agent adds in their folders from here on is not from before crystal.
    make_capture(machine).with_projects().meet()
    note_import(machine.store, before)
    return tally


def _cleaners(machine: Machine, plan: Sequence[PastFile], most: int) -> Executor | None:
    """Return processes that clean ahead, if there are enough processors and enough work."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(most, processors - 1)
    if count < 1 or sum(past.todo for past in plan) <= MIN_BYTES:
        return None
    key = machine.redaction_key()
    try:
        return start_cleaners(count, key, secrets=machine.config.redact_enabled)
    except (OSError, ImportError, NotImplementedError):  # a system without semaphores: the import cleans by itself
        return None


def _import(
    capture: Capture, wanted: Sequence[PastFile], progress: Callable[[int], None], _: Path, tally: Tally
) -> None:
    import_file(capture, wanted, tally, progress)


class _OverError(Exception):
    """The time for this round is over, or a person's import waits for the lock."""


def note_pending(machine: Machine, plan: Sequence[PastFile]) -> None:
    """Note what is to be imported, so that the background continues it after any interruption."""
    with _changing_pending(machine) as pending:
        pending |= {str(past.found.path): past.named for past in plan}


def drop_pending(machine: Machine, plan: Sequence[PastFile]) -> None:
    """Note that this is imported."""
    done = {str(past.found.path) for past in plan}
    rest = {path: named for path, named in read_pending_import(machine.places.data_dir).items() if path not in done}
    left = {str(past.found.path) for past in _plan_pending(machine, rest)} if rest else set()
    with _changing_pending(machine) as pending:
        for path in done | (rest.keys() - left):
            pending.pop(path, None)


def cancel_pending(machine: Machine) -> int:
    """Import no more of what an interrupted import left; return how many transcripts that are."""
    with _changing_pending(machine) as pending:
        count = len(pending)
        pending.clear()
    return count


def continue_import(machine: Machine, advance: Callable[[int, int], None], is_over: Callable[[], bool]) -> None:
    """Continue an interrupted import until ``is_over``, unless another process imports.

    Args:
        machine: This machine.
        advance: Told the bytes done, and those to do.
        is_over: Asked after each piece.
    """
    with try_lock(machine.places.data_dir / BACKFILL_LOCK) as held, contextlib.suppress(_OverError):
        if held is None:
            return
        asked, done = _asked_at(machine), 0
        plan = _plan_pending(machine, read_pending_import(machine.places.data_dir))
        total = sum(past.todo for past in plan)

        def progress(more: int) -> None:
            nonlocal done
            done += more
            advance(done, max(done, total))
            if is_over() or _asked_at(machine) != asked:
                raise _OverError

        _import_sessions(machine, plan, progress, 0)
        drop_pending(machine, plan)  # not all: somebody may have asked for more meanwhile


def _plan_pending(machine: Machine, pending: Mapping[str, bool]) -> list[PastFile]:
    named = [Path(path) for path, is_named in pending.items() if is_named and os.path.exists(path)]  # noqa: PTH110
    found = plan_import(machine, named, None) if named else []
    return [*found, *(past for past in plan_import(machine, [], None) if pending.get(str(past.found.path)) is False)]


def _asked_at(machine: Machine) -> int:
    with contextlib.suppress(OSError):
        return (machine.places.data_dir / PENDING_IMPORT_FILE).stat().st_mtime_ns
    return 0


@contextlib.contextmanager
def _changing_pending(machine: Machine) -> Iterator[dict[str, bool]]:
    """Yield what is to be imported, to be changed; no other process changes it meanwhile."""
    file = machine.places.data_dir / PENDING_IMPORT_FILE
    with wait_lock(file.with_suffix(".lock"), seconds=10):
        pending = read_pending_import(file.parent)
        yield pending
        with contextlib.suppress(OSError):  # on a full disk the import itself says so
            write_derived(file, json.dumps(pending).encode()) if pending else file.unlink(missing_ok=True)
