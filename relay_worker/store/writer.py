"""The one thread that writes the database: group commit without any artificial delay.

While a COMMIT waits for the disk, jobs queue up; the next transaction takes all of them. So one flush of the disk
serves many requests under load, and one alone does not wait for anybody.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import apsw

from relay_worker.errors import Refusal
from relay_worker.store.connection import refusal_of

T = TypeVar("T")

MAX_BATCH = 512


@dataclass(slots=True)
class Batch:
    """What a job may use: the connection inside the transaction, and what to do once it is committed.

    Attributes:
        db: A job refuses (``Refusal``) before it writes, or not at all.
        after: Called in order after the COMMIT; deleting files belongs here.
    """

    db: apsw.Connection
    after: list[Callable[[], None]]


@dataclass(slots=True)
class _Job:
    run: Callable[[Batch], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Runs jobs in transactions, in the order in which they came.

    Args:
        db: The connection, the thread's own from here on.
        observe: Told of every commit: number of jobs, and seconds from BEGIN to the end of COMMIT.
    """

    def __init__(self, db: apsw.Connection, observe: Callable[[int, float], None]) -> None:
        self._db = db
        self._observe = observe
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="relay-writer", daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[Batch], T]) -> T:
        """Run a job; returns after its COMMIT. Cancelling the caller does not undo what is queued."""
        loop = asyncio.get_running_loop()
        entry = _Job(job, loop, loop.create_future())
        with self._closing:
            if self._closed:
                raise Refusal("unavailable", "the relay is stopping", retry_after=5)
            self._jobs.put(entry)
        result: T = await entry.future
        return result

    def close(self) -> None:
        """Finish all jobs, write the WAL back and close. Calling it again does nothing."""
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
        """Wait for a job, then take what has queued up; True with the last batch."""
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
            else:  # one of them may be the reason: each for itself
                for job in jobs:
                    self._transact(db, [job])
                return
        _deliver(jobs)

    def _commit(self, db: apsw.Connection, jobs: list[_Job]) -> None:
        """All jobs in one transaction.

        What it raises was rolled back whole.
        """
        began = time.perf_counter()
        batch = Batch(db, [])
        db.execute("BEGIN IMMEDIATE")
        try:
            for job in jobs:
                job.error = None
                try:
                    job.result = job.run(batch)
                except Refusal as refusal:
                    job.error = refusal
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._observe(len(jobs), time.perf_counter() - began)
        for call in batch.after:
            call()


def _deliver(jobs: list[_Job]) -> None:
    """Wake the callers: one call into each event loop, however many jobs."""
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
        pass  # somebody reads: the WAL stays, and the next start writes it back
    finally:
        db.close()
