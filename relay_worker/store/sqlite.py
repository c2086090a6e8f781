"""Store a relay in one SQLite database, with large bodies in files next to it. Needs no setup.

Reads use one connection per thread and never wait for writes (WAL). All writes go through one ``Writer``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import apsw

from relay_worker.model import NewBody, Token
from relay_worker.settings import Settings
from relay_worker.store import accounts
from relay_worker.store.database import Batch, SqliteRows, connect, lock, prepare, refusal_of, refuse_incomplete
from relay_worker.store.files import INLINE_BYTES, BodyFiles, StoredBody, lost
from relay_worker.store.interface import RelayStore
from relay_worker.store.operator import prune_bodies
from relay_worker.store.rows import Put, finish
from relay_worker.store.writer import Job, Writer, attempt, run_in

T = TypeVar("T")
READERS = 4


class SqliteStore(RelayStore):
    """A data directory of the relay, opened for serving.

    It may be used from several event loops, one after the other or in parallel.

    Args:
        folder: The data directory; created if missing, and locked: one server per directory.
        settings: The limits of streams and accounts.
        now: The time, for the change counters.
        observe: Called for every commit with the number of requests in it, and seconds.

    Raises:
        CannotServeError: Another server uses it, it is not a relay's, or a copy of a relay to it is not complete.
    """

    def __init__(
        self, folder: Path, settings: Settings, *, now: int, observe: Callable[[int, float], None] = lambda *_: None
    ) -> None:
        refuse_incomplete(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.settings, self._observe = settings, observe
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
        self._db = connect(self._path)  # used only by the writer's thread
        self._writer = Writer(self._commit, lambda error: refusal_of(error) if isinstance(error, apsw.Error) else error)

    async def read(self, question: Callable[..., T], *values: Any) -> T:
        """Return ``question(rows, *values)``, run in another thread."""
        try:
            return await run_in(self._readers, lambda: question(self._rows(), *values))
        except apsw.Error as error:
            raise refusal_of(error) from error

    async def write(self, lock: str, job: Callable[..., T], *values: Any) -> T:  # noqa: ARG002 - one writer needs none
        """Return ``job(batch, *values)`` once it is durable."""
        return await self._writer.run(lambda batch: job(batch, *values))

    async def put(self, job: Callable[..., Put], new: NewBody, *place: Any) -> bool:
        """Commit a body, after writing a large one's file, which the next start deletes if the request is cancelled."""
        if new.size > INLINE_BYTES:
            new = replace(new, file=await run_in(self._savers, self._files.save, new.body))
        try:
            return await self._writer.run(lambda batch: finish(job(batch, new, *place), batch))
        except Exception:  # whatever the error: there is no row, so delete its body and raise
            if new.file:
                self._files.remove(new.file)
            raise

    async def fetch(self, question: Callable[..., tuple[Any, ...]], *values: Any) -> StoredBody:
        """Return the body that a query finds; ``body-lost`` if its file is missing or truncated."""
        size, tag, digest, file, body = await self.read(question, *values)
        if file is not None:
            body = await run_in(self._readers, self._files.open_whole, file, size)
        if body is None:
            raise lost()
        return StoredBody(tag, digest, body)

    async def token(self, token_id: str) -> Token | None:
        """Find a token of any account, in the calling thread: it takes some microseconds from the page cache."""
        try:
            return accounts.find(self._rows(), token_id)
        except apsw.Error as error:
            raise refusal_of(error) from error

    def close(self) -> None:
        """Finish pending work, checkpoint the WAL, close. Idempotent."""
        self._savers.shutdown(wait=True)
        self._writer.close()
        with contextlib.suppress(apsw.Error):  # a reader is active: the next start checkpoints the WAL
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._db.close()
        self._readers.shutdown(wait=True)
        for db in self._connections:
            db.close()
        self._connections.clear()
        self._lock.close()

    def _commit(self, jobs: list[Job], _: set[str]) -> list[Any]:
        """Run all jobs in one transaction; return their results and refusals."""
        began = time.perf_counter()
        batch = Batch(self._db, self.settings, self._files)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            results = [attempt(job, batch) for job in jobs]
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._observe(len(jobs), time.perf_counter() - began)
        for name in batch.unused:
            self._files.remove(name)
        return results

    def _rows(self) -> SqliteRows:
        """Return this thread's connection for reading."""
        rows: SqliteRows | None = getattr(self._local, "rows", None)
        if rows is None:
            rows = self._local.rows = SqliteRows(connect(self._path))
            self._connections.append(rows.db)
        return rows
