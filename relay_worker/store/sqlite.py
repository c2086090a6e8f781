"""Store of a relay: one SQLite database, with large bodies in files next to it. Needs no setup.

Reads use one connection per thread and never wait for writes (WAL). All writes go through ``Writer``:
while a COMMIT waits for the disk, jobs queue up, and the next transaction takes all of them. What is read and
written is a function of ``relay_worker.store.blobs``, ``objects``, ``tokens`` or ``mailboxes``:

- Every change is atomic and durable before ``write`` and ``put`` return.
- The time, ms since 1970, comes from the caller.
- Refusals are ``RequestRefusedError``: ``unavailable`` if the store cannot be used, ``disk-full`` if it is full.
- Everything belongs to an account; data of other accounts is reported as missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import apsw

from relay_worker.errors import RequestRefusedError
from relay_worker.model import NewBody, Token, Usage
from relay_worker.settings import Settings
from relay_worker.store import accounts, blobs, mailboxes
from relay_worker.store.database import Batch, connect, lock, prepare, refusal_of
from relay_worker.store.files import BodyFiles, StoredBody
from relay_worker.store.operator import prune_bodies, usage_of

MAX_BATCH = 512


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


T = TypeVar("T")
READERS = 4
DAY_MS = 86_400_000
INLINE_BYTES = 128 << 10
"""Bodies up to this size are kept in the database; larger ones in files."""


class SqliteStore:
    """Data directory of the relay, opened for serving. The caller closes it.

    It may be used from several event loops, one after the other or at once.

    Args:
        folder: The data directory; created if missing, and locked: one server per directory.
        settings: The limits of streams and accounts.
        now: Returns the time, for the change counters.
        observe: Called for every commit with the number of requests in it, and seconds.

    Raises:
        CannotServeError: Another server uses it, or it is not a relay's.
    """

    def __init__(
        self, folder: Path, settings: Settings, *, now: int, observe: Callable[[int, float], None] = lambda *_: None
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._ttl_ms = int(settings.ttl_days * DAY_MS)
        self._path = folder / "relay.db"
        self._lock = lock(folder)
        try:
            prepare(self._path)
            self._files = BodyFiles(folder)
            self._files.prepare()
            prune_bodies(folder, self._files, now)
        except BaseException:
            self._lock.close()
            raise
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="relay-reader")
        self._savers = ThreadPoolExecutor(thread_name_prefix="relay-saver")
        self._writer = Writer(connect(self._path), settings, self._files, observe)

    async def read(self, question: Callable[..., T], *values: Any) -> T:
        """Return ``question(db, *values)``, asked in another thread."""
        try:
            return await _run(self._readers, lambda: question(self._db(), *values))
        except apsw.Error as error:
            raise refusal_of(error) from error

    async def write(self, job: Callable[..., T], *values: Any) -> T:
        """Return ``job(batch, *values)`` once it is durable."""
        return await self._writer.run(lambda batch: job(batch, *values))

    async def put(self, job: Callable[..., bool], new: NewBody, *place: Any) -> bool:
        """Commit a body, a large one after its file. If the request is cancelled before, the next start deletes it."""
        if new.size > INLINE_BYTES:
            new = replace(new, file=await _run(self._savers, self._files.save, new.body))
        try:
            return await self.write(job, new, *place)
        except Exception:  # whatever the error: there is no row, so delete its body and raise
            if new.file:
                self._files.remove(new.file)
            raise

    async def fetch(self, question: Callable[..., tuple[Any, ...]], *values: Any) -> StoredBody:
        """Return the body that a question finds. ``body-lost`` if its file is missing or truncated."""
        size, tag, digest, file, body = await self.read(question, *values)
        if file is not None:
            body = await _run(self._readers, self._files.open_whole, file, size)
        return StoredBody(tag, digest, body)

    def token(self, token_id: str) -> Token | None:
        """Find a token of any account, in the calling thread: some microseconds from the page cache."""
        try:
            return accounts.find(self._db(), token_id)
        except apsw.Error as error:
            raise refusal_of(error) from error

    async def probe(self, now: int) -> None:
        """Write a test value durably."""
        sql = "INSERT INTO probe (id, at) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at"
        await self.write(lambda batch: batch.db.execute(sql, (now,)).close())

    async def sweep(self, now: int) -> Sequence[tuple[str, int]]:
        """Expire unread blobs and mailboxes, and delete old tombstones. Return (account, blobs expired)."""
        before = now - self._ttl_ms
        total: Counter[str] = Counter()
        while True:
            expired = await self.write(blobs.expire, before, now)
            total += expired
            if sum(expired.values()) < blobs.SWEEP_ROWS:
                break
        while await self.write(blobs.forget, before) >= blobs.SWEEP_ROWS:
            pass
        await self.write(mailboxes.expire, now)
        return tuple(total.items())

    def usage(self) -> Usage:
        """Return the usage, from any thread."""
        return self._readers.submit(lambda: usage_of(self._db())).result(timeout=10)

    def close(self) -> None:
        """Finish pending work, checkpoint the WAL, close."""
        self._savers.shutdown(wait=True)
        self._writer.close()
        self._readers.shutdown(wait=True)
        for db in self._connections:
            db.close()
        self._connections.clear()
        self._lock.close()

    def _db(self) -> apsw.Connection:
        """Return this thread's connection for reading."""
        db: apsw.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = connect(self._path)
            self._connections.append(db)
        return db


async def _run(pool: ThreadPoolExecutor, call: Callable[..., T], *values: Any) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, call, *values)
    except RuntimeError as error:  # the pool is closed
        raise RequestRefusedError("unavailable", "the relay is stopping", retry_after=5) from error
