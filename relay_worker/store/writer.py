"""Thread that writes the database: group commit without artificial delay.

While a COMMIT waits for the disk, jobs queue up; the next transaction takes all of them. So one flush serves many
requests under load, and a single request does not wait.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import apsw

from relay_worker.errors import RequestRefusedError
from relay_worker.model import Limits
from relay_worker.store.connection import refusal_of
from relay_worker.store.files import BodyFiles

T = TypeVar("T")

MAX_BATCH = 512


@dataclass(slots=True)
class Batch:
    """Transaction of some jobs, and everything that they need.

    Attributes:
        db: The connection. A job may raise ``RequestRefusedError`` only before it writes.
        limits: The limits of streams and accounts.
        files: The body files.
        unused: Names of body files to be deleted after the COMMIT.
    """

    db: apsw.Connection
    limits: Limits
    files: BodyFiles
    unused: list[str] = field(default_factory=list)

    def drop(self, *files: str | None) -> None:
        """Delete body files after the COMMIT."""
        self.unused += [name for name in files if name]


@dataclass(slots=True)
class _Job:
    run: Callable[[Batch], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Runs jobs in transactions, in order of arrival.

    Args:
        db: The connection, used only by the thread from here on.
        limits: The limits of streams and accounts.
        files: The body files.
        observe: Called for every commit with the number of jobs, and the seconds from BEGIN to the end of COMMIT.
    """

    def __init__(
        self, db: apsw.Connection, limits: Limits, files: BodyFiles, observe: Callable[[int, float], None]
    ) -> None:
        self._db, self._limits, self._files = db, limits, files
        self._observe = observe
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="relay-writer", daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[Batch], T]) -> T:
        """Run a job and return after its COMMIT. Cancelling the caller does not undo queued jobs."""
        loop = asyncio.get_running_loop()
        entry = _Job(job, loop, loop.create_future())
        with self._closing:
            if self._closed:
                raise RequestRefusedError("unavailable", "the relay is stopping", retry_after=5)
            self._jobs.put(entry)
        result: T = await entry.future
        return result

    def close(self) -> None:
        """Finish all jobs, checkpoint the WAL and close. Idempotent."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        db = self._db
        try:
            stopping = False
            while not stopping:
                jobs, stopping = self._next()
                if jobs:
                    self._transact(db, jobs)
        finally:
            _close(db)

    def _next(self) -> tuple[list[_Job], bool]:
        """Wait for a job, then take all queued ones. Return True with the last batch."""
        entry = self._jobs.get()
        jobs: list[_Job] = []
        while entry is not None:
            jobs.append(entry)
            if len(jobs) >= MAX_BATCH:
                return jobs, False
            try:
                entry = self._jobs.get_nowait()
            except queue.Empty:
                return jobs, False
        return jobs, True

    def _transact(self, db: apsw.Connection, jobs: list[_Job]) -> None:
        try:
            self._commit(db, jobs)
        except Exception as error:  # noqa: BLE001 - its place is the caller's future: the thread lives on for the others
            if len(jobs) == 1:
                jobs[0].error = refusal_of(error) if isinstance(error, apsw.Error) else error
            else:  # one of them may be the reason: run each separately
                for job in jobs:
                    self._transact(db, [job])
                return
        _deliver(jobs)

    def _commit(self, db: apsw.Connection, jobs: list[_Job]) -> None:
        """Run all jobs in one transaction.

        If it raises, everything was rolled back.
        """
        began = time.perf_counter()
        batch = Batch(db, self._limits, self._files)
        db.execute("BEGIN IMMEDIATE")
        try:
            for job in jobs:
                job.error = None
                try:
                    job.result = job.run(batch)
                except RequestRefusedError as refusal:
                    job.error = refusal
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._observe(len(jobs), time.perf_counter() - began)
        for name in batch.unused:
            self._files.remove(name)


def _deliver(jobs: list[_Job]) -> None:
    """Wake the callers: one call per event loop, however many jobs."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        loops.setdefault(job.loop, []).append(job)
    for loop, theirs in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, theirs)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


def _close(db: apsw.Connection) -> None:
    try:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error:
        pass  # a reader is active: the WAL stays, and the next start checkpoints it
    finally:
        db.close()
