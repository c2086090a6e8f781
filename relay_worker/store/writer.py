"""Thread that writes the database: group commit without artificial delay.

While a COMMIT waits for the disk, jobs queue up; the next transaction takes all of them. So one flush serves many
requests under load, and a single request does not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import apsw

from relay_worker.errors import RequestRefusedError
from relay_worker.settings import Settings
from relay_worker.store.database import refusal_of
from relay_worker.store.files import BodyFiles

T = TypeVar("T")

MAX_BATCH = 512


@dataclass(slots=True)
class Batch:
    """Transaction of some jobs, and everything that they need.

    Attributes:
        db: The connection. A job may raise ``RequestRefusedError`` only before it writes.
        settings: The limits of streams and accounts.
        files: The body files.
        unused: Names of body files to be deleted after the COMMIT.
    """

    db: apsw.Connection
    settings: Settings
    files: BodyFiles
    unused: list[str] = field(default_factory=list)

    def drop(self, *files: str | None) -> None:
        """Delete body files after the COMMIT."""
        self.unused += [name for name in files if name]


_Job: TypeAlias = "tuple[Callable[[Batch], Any], Future[Any]]"


class Writer:
    """Runs jobs in transactions, in order of arrival.

    Args:
        db: The connection, used only by the thread from here on.
        settings: The limits of streams and accounts.
        files: The body files.
        observe: Called for every commit with the number of jobs, and the seconds from BEGIN to the end of COMMIT.
    """

    def __init__(
        self, db: apsw.Connection, settings: Settings, files: BodyFiles, observe: Callable[[int, float], None]
    ) -> None:
        self._db, self._settings, self._files = db, settings, files
        self._observe = observe
        self._waiting: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, "relay-writer")

    async def run(self, job: Callable[[Batch], T]) -> T:
        """Run a job and return after its COMMIT. Cancelling the caller does not undo queued jobs."""
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()
        self._waiting.append((job, done))
        try:
            if len(self._waiting) == 1:  # else the work that takes the others takes it too
                self._thread.submit(self._work)
        except RuntimeError as error:  # the pool is closed
            self._waiting.clear()
            raise RequestRefusedError("unavailable", "the relay is stopping", retry_after=5) from error
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        """Finish all jobs, checkpoint the WAL and close. Idempotent."""
        self._thread.shutdown()
        with contextlib.suppress(apsw.Error):  # a reader is active: the next start checkpoints the WAL
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._db.close()

    def _work(self) -> None:
        """Run jobs until none waits."""
        while self._waiting:
            self._transact([self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))])

    def _transact(self, jobs: list[_Job]) -> None:
        try:
            results = self._commit(jobs)
        except Exception as error:  # noqa: BLE001 - its place is the caller's future: the thread lives on for the others
            if len(jobs) == 1:
                jobs[0][1].set_exception(refusal_of(error) if isinstance(error, apsw.Error) else error)
                return
            for job in jobs:  # one of them may be the reason: run each separately
                self._transact([job])
            return
        for (_, done), result in zip(jobs, results, strict=True):
            if isinstance(result, RequestRefusedError):
                done.set_exception(result)
            else:
                done.set_result(result)

    def _commit(self, jobs: list[_Job]) -> list[Any]:
        """Run all jobs in one transaction; return their results and refusals.

        If it raises, everything was rolled back.
        """
        began = time.perf_counter()
        batch, results = Batch(self._db, self._settings, self._files), []
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for job, _ in jobs:
                try:
                    results.append(job(batch))
                except RequestRefusedError as refusal:
                    results.append(refusal)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._observe(len(jobs), time.perf_counter() - began)
        for name in batch.unused:
            self._files.remove(name)
        return results
