"""Default store of a relay: one SQLite database, with large bodies in files next to it. Needs no setup.

Reads use one connection per thread and never wait for writes (WAL). All writes go through ``Writer``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from relay_worker.errors import Refusal
from relay_worker.model import BlobEntry, Limits, Mailbox, ObjectEntry, Result, StreamState, Token, Usage
from relay_worker.store import blobs, mailboxes, objects, tokens
from relay_worker.store.connection import connect, prepare, refusal_of
from relay_worker.store.files import BodyFiles, FileSpool, StoredBytes, StoredFile
from relay_worker.store.lock import DataLock
from relay_worker.store.operator import prune_bodies, usage_of
from relay_worker.store.protocol import Body, Spool, Stored
from relay_worker.store.writer import Batch, Writer

T = TypeVar("T")
READERS = 4


def _unobserved(jobs: int, seconds: float) -> None:
    """Ignore commits of a store without metrics."""


class SqliteStore:
    """Data directory of the relay, opened for serving. The caller closes it.

    It may be used from several event loops, one after the other or at once.

    Args:
        folder: The data directory; created if missing, and locked: one server per directory.
        limits: The limits of streams and accounts.
        now: Returns the time, for the change counters.
        observe: Called for every commit with the number of requests in it, and seconds.

    Raises:
        CannotServe: Another server uses it, or it is not a relay's.
    """

    def __init__(
        self, folder: Path, limits: Limits, *, now: int, observe: Callable[[int, float], None] = _unobserved
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.limits = limits
        self._path = folder / "relay.db"
        self._lock = DataLock(folder / "serve.lock")
        try:
            prepare(self._path)
            self._files = BodyFiles(folder)
            self._files.prepare()
            prune_bodies(self._path, self._files, now)
        except BaseException:
            self._lock.release()
            raise
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="relay-reader")
        self._writer = Writer(connect(self._path), observe)

    # -- lifecycle

    async def probe(self, now: int) -> None:
        """Write a test value durably."""
        sql = "INSERT INTO probe (id, at) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at"
        await self._writer.run(lambda batch: batch.db.execute(sql, (now,)).close())

    async def sweep(self, now: int) -> Sequence[tuple[str, int]]:
        """Expire unread blobs and mailboxes, and delete old tombstones. Return (account, blobs expired)."""
        before = now - self.limits.ttl_ms
        total: dict[str, int] = {}
        while True:
            expired = await self._writer.run(partial(self._expire, before=before, now=now))
            for account, count in expired.items():
                total[account] = total.get(account, 0) + count
            if sum(expired.values()) < blobs.SWEEP_ROWS:
                break
        while await self._writer.run(partial(blobs.forget, before=before)) >= blobs.SWEEP_ROWS:
            pass
        await self._writer.run(partial(mailboxes.expire, now=now))
        return tuple(total.items())

    def _expire(self, batch: Batch, before: int, now: int) -> dict[str, int]:
        expired, files = blobs.expire(batch, before, now)
        self._drop(batch, files)
        return expired

    async def close(self) -> None:
        """Finish pending work, checkpoint the WAL, close."""
        self.close_now()

    def close_now(self) -> None:
        """Close without an event loop."""
        self._writer.close()
        self._readers.shutdown(wait=True)
        for db in self._connections:
            db.close()
        self._connections.clear()
        self._lock.release()

    async def usage(self) -> Usage:
        """Return the usage."""
        return await self._read(usage_of)

    def usage_now(self) -> Usage:
        """Return the usage without an event loop, from any thread."""
        return self._readers.submit(lambda: usage_of(self._db())).result(timeout=10)

    def spool(self) -> Spool:
        """Return a spool for a large body."""
        return FileSpool(self._files)

    # -- blobs

    async def put_if_absent(
        self, account: str, stream: bytes, seq: int, body: Body, *, tag: bytes, digest: bytes, resend: bool, now: int
    ) -> Result:
        """Store a blob."""
        inline, file, size = _parts(body)
        new = blobs.NewBlob(account, stream, seq, size, tag, digest, inline, file, resend, now)
        return await self._keep(file, lambda batch: blobs.put(batch, new, self.limits, self._files.check_room))

    async def get(self, account: str, stream: bytes, seq: int) -> Stored:
        """Return a blob's bytes."""
        row = await self._read(lambda db: blobs.find(db, account, stream, seq))
        if row is None:
            raise Refusal("no-blob", f"there is no blob {seq}")
        size, tag, digest, file, body = row
        return await self._open(size, tag, digest, file, body)

    async def list_after(
        self, account: str, stream: bytes, after: int, limit: int
    ) -> tuple[StreamState, Sequence[BlobEntry]]:
        """Return a page of a stream."""
        return await self._read(lambda db: blobs.list_after(db, account, stream, after, limit))

    async def stream(self, account: str, stream: bytes) -> StreamState:
        """Return the state of a stream."""
        return await self._read(lambda db: blobs.state(db, account, stream))

    async def streams(
        self, account: str, prefixes: Sequence[bytes] | None, changed_after: int
    ) -> tuple[int, Sequence[StreamState]]:
        """Return the changed streams."""
        return await self._read(lambda db: blobs.streams(db, account, prefixes, changed_after))

    async def ack(self, account: str, stream: bytes, upto: int, now: int) -> None:
        """Delete the bodies up to and including ``upto``."""
        await self._writer.run(lambda batch: self._drop(batch, blobs.ack(batch, account, stream, upto, now)))

    # -- objects

    async def put_object(
        self, account: str, object_id: bytes, body: Body, *, digest: bytes, resend: bool, now: int
    ) -> Result:
        """Store an object."""
        inline, file, size = _parts(body)
        new = objects.NewObject(account, object_id, size, digest, inline, file, resend, now)
        return await self._keep(file, lambda batch: objects.put(batch, new, self.limits, self._files.check_room))

    async def get_object(self, account: str, object_id: bytes) -> Stored:
        """Return an object's bytes."""
        row = await self._read(lambda db: objects.find(db, account, object_id))
        if row is None:
            raise Refusal("no-object", "there is no such object")
        size, digest, file, body = row
        return await self._open(size, b"", digest, file, body)

    async def delete_object(self, account: str, object_id: bytes) -> None:
        """Delete an object."""

        def job(batch: Batch) -> None:
            file = objects.delete(batch, account, object_id)
            self._drop(batch, [file] if file else [])

        await self._writer.run(job)

    async def objects(self, account: str, after: bytes, limit: int) -> Sequence[ObjectEntry]:
        """Return a page of objects."""
        return await self._read(lambda db: objects.list_after(db, account, after, limit))

    # -- tokens

    def token(self, token_id: str) -> Token | None:
        """Find a token, in the calling thread: some microseconds from the page cache."""
        try:
            return tokens.find(self._db(), token_id)
        except apsw.Error as error:
            raise refusal_of(error) from error

    async def add_token(self, token: Token) -> None:
        """Store a new token."""
        await self._writer.run(lambda batch: tokens.add(batch.db, token, self.limits))

    async def tokens(self, account: str) -> Sequence[Token]:
        """Return all tokens of an account."""
        return await self._read(lambda db: tokens.list_all(db, account))

    async def revoke_token(self, account: str, token_id: str, now: int) -> None:
        """Revoke a token."""
        await self._writer.run(lambda batch: tokens.revoke(batch.db, account, token_id, now))

    async def touch_tokens(self, used: Mapping[str, int]) -> None:
        """Record when tokens were last used."""
        await self._writer.run(lambda batch: tokens.touch(batch.db, used))

    # -- the pairing mailbox

    async def open_mailbox(self, account: str, candidates: Sequence[int], now: int) -> Mailbox:
        """Open a mailbox."""
        return await self._writer.run(lambda batch: mailboxes.open_one(batch, account, candidates, now, self.limits))

    async def mailbox(self, nameplate: int, now: int) -> Mailbox | None:
        """Return a mailbox."""
        return await self._read(lambda db: mailboxes.find(db, nameplate, now))

    async def claim_mailbox(self, nameplate: int, claim_hash: bytes, now: int) -> tuple[Mailbox, Result]:
        """Claim a mailbox."""
        return await self._writer.run(lambda batch: mailboxes.claim(batch, nameplate, claim_hash, now))

    async def put_mail(self, nameplate: int, side: str, phase: str, body: bytes, now: int) -> Result:
        """Write a message."""
        return await self._writer.run(
            lambda batch: mailboxes.put_mail(batch, nameplate, side, phase, body, now, self.limits)
        )

    async def get_mail(self, nameplate: int, side: str, phase: str, now: int) -> bytes | None:
        """Read a message."""
        return await self._read(lambda db: mailboxes.get_mail(db, nameplate, side, phase, now))

    async def close_mailbox(self, nameplate: int) -> None:
        """Delete a mailbox."""
        await self._writer.run(lambda batch: mailboxes.close(batch, nameplate))

    # -- below

    def _db(self) -> apsw.Connection:
        """Return this thread's connection for reading."""
        db: apsw.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = connect(self._path)
            self._connections.append(db)
        return db

    async def _read(self, question: Callable[[apsw.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, lambda: question(self._db()))
        except apsw.Error as error:
            raise refusal_of(error) from error
        except RuntimeError as error:  # the executor is closed
            raise Refusal("unavailable", "the relay is stopping", retry_after=5) from error

    async def _open(self, size: int, tag: bytes, digest: bytes, file: str | None, body: bytes | None) -> Stored:
        if file is None:
            return StoredBytes(body or b"", tag, digest)
        try:
            opened = await asyncio.to_thread(self._files.open_whole, file, size)
        except OSError as error:
            raise Refusal("body-lost", "the relay has lost these bytes; they must be sent again") from error
        return StoredFile(opened, size, tag, digest)

    async def _keep(self, file: str | None, put: Callable[[Batch], tuple[Result, str | None]]) -> Result:
        """Commit a row with its file. From here on the job owns the file, even if the request is cancelled."""

        def job(batch: Batch) -> Result:
            try:
                result, replaced = put(batch)
            except Refusal:
                self._drop(batch, [file] if file else [])
                raise
            unused = file if result == "duplicate" else replaced
            self._drop(batch, [unused] if unused else [])
            return result

        try:
            return await self._writer.run(job)
        except Exception:  # whatever the error: there is no row, so delete its body and raise
            if file:
                self._files.remove(file)
            raise

    def _drop(self, batch: Batch, files: Sequence[str]) -> None:
        batch.after += [partial(self._files.remove, name) for name in files]


def _parts(body: Body) -> tuple[bytes | None, str | None, int]:
    if isinstance(body, bytes):
        return body, None, len(body)
    assert isinstance(body, FileSpool), "a spool of another store"
    body.keep()
    return None, body.name, body.size
