"""Clean the next parts of an import in other processes while the current part is written.

Cleaning is pure and takes about half of the time of an import. What another process cleaned is used only for exactly
the bytes that it was given; for all other bytes, and where the processes have ended, the caller cleans. So nothing here
can change what is kept, only how soon.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from multiprocessing import resource_tracker

from crystal.capture import finder
from crystal.capture.backfill import PastFile
from crystal.capture.engine import Capture
from crystal.capture.tail import SEGMENT_BYTES, CleanedLines, cut_at
from crystal.errors import CrystalError
from crystal.redact import Redactor
from crystal.store.capture import ledger
from crystal.transcript.framing import read_segment

MAX_SIZE = 2 * SEGMENT_BYTES
"""A longer stretch is one huge line: it is not held twice."""

MAX_AHEAD = 3 * SEGMENT_BYTES
"""Number of bytes that are cleaned ahead, about: they are in memory."""

UNTOLD = "ignore:resource_tracker:UserWarning"


def start_cleaners(count: int, key: bytes, *, secrets: bool) -> Executor:
    """Return cleaning processes, which start with the first stretch.

    Args:
        count: How many, at least one.
        key: The redactor's key. It goes through a pipe, never on the command line.
        secrets: Whether secrets are taken out.
    """
    context = multiprocessing.get_context("spawn")
    sys.warnoptions.append(UNTOLD)  # the process inherits it that removes the pool's semaphores if the import is killed
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(UNTOLD)
    return ProcessPoolExecutor(count, context, _prepare, (key, secrets))


class ReadAhead:
    """Queue of the parts that will be read next; other processes clean them.

    Args:
        cleaners: Run ``clean``; None to have nothing cleaned ahead. Shut down at the end.
        coming: The stretches that will be read, in order, each with its place in the plan.
    """

    def __init__(self, cleaners: Executor | None, coming: Iterator[tuple[int, bytes]]) -> None:
        self._cleaners = cleaners
        self._coming = coming
        self._busy: deque[tuple[int, bytes, Future[CleanedLines]]] = deque()
        self._place = 0

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        if self._cleaners is not None:
            self._cleaners.shutdown(wait=False, cancel_futures=True)

    def reach(self, place: int) -> None:
        """Note which transcript of the plan is read now, and drop the cleaned parts of those before it."""
        self._place = place
        while self._busy and self._busy[0][0] < place:
            self._busy.popleft()[2].cancel()
        self._begin_next()

    def result_for(self, raw: bytes) -> CleanedLines | None:
        """Return the cleaned lines of exactly these bytes, if they come next; else None."""
        if not self._busy or self._busy[0][1] != raw:
            return None
        _, _, cleaned = self._busy.popleft()
        self._begin_next()
        try:
            return cleaned.result()
        except (BrokenExecutor, CancelledError):  # the processes have ended
            self._cleaners = None
            return None
        except Exception:  # noqa: BLE001 - the caller cleans these bytes, and meets the error too if they cause it
            return None

    def _begin_next(self) -> None:
        while self._cleaners is not None and sum(len(raw) for _, raw, _ in self._busy) < MAX_AHEAD:
            place, raw = next(self._coming, (0, None))
            if raw is None:
                return
            if place >= self._place and len(raw) <= MAX_SIZE:
                try:
                    self._busy.append((place, raw, _submit(self._cleaners, raw)))
                except (OSError, RuntimeError):  # the system starts no process, or they have ended
                    self._cleaners = None


def _submit(cleaners: Executor, raw: bytes) -> Future[CleanedLines]:
    """Have a stretch cleaned. A process that this starts never sees Ctrl-C, not even before it could ignore it."""
    if os.name == "nt":
        return cleaners.submit(clean, raw)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return cleaners.submit(clean, raw)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def stretches(capture: Capture, plan: Sequence[PastFile]) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes that an import of the plan will read, cut in the same way, each with its transcript's index."""
    for place, past in enumerate(plan):
        if past.root is not None:
            continue
        with contextlib.suppress(OSError, CrystalError):
            for raw in _stretches_of(capture, past):
                yield place, raw


def _stretches_of(capture: Capture, past: PastFile) -> Iterator[bytes]:
    state = ledger.state_of(capture.store, capture.device, past.key)
    ranges = ledger.skipped_ranges(capture.store, state) if state else []
    end = past.found.size
    with finder.opened(past.found.path, capture._replace(anywhere=past.named).folders) as file:
        for start, stop in [*ranges, (state.mark.offset if state else 0, end)]:
            at = start
            while at < stop:
                limit = SEGMENT_BYTES if stop == end else min(SEGMENT_BYTES, stop - at)
                raw = read_segment(file, at, limit=limit)
                raw = raw if stop == end else cut_at(raw, stop)
                if not raw.raw:
                    break
                yield raw.raw
                at = raw.end


# ------------------------------------------------------------------------------------------------ in the other process

_redactors: list[Redactor] = []


def _prepare(key: bytes, secrets: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the import, which then ends the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _redactors.append(Redactor(key, secrets=secrets))


def _end_with_parent() -> None:
    """End this process when an import was killed: the pool does so only if it is shut down."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def clean(raw: bytes) -> CleanedLines:
    """Return every line of a stretch, cleaned, with its findings."""
    cleaned = map(_redactors[0].clean_line, raw[:-1].split(b"\n"))
    return [(line, dict(findings)) for line, findings in cleaned]
