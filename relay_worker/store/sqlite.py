"""The store that a relay has by default: one SQLite database, large bodies in files beside it, nothing to set up.

Reading happens on connections of its own, one a thread, and never waits for writing (WAL). Writing is the writer's.
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
    """Commits of a store that nobody measures."""


class SqliteStore:
    """The relay's data directory, opened for serving. The one who opened it closes it.

    It may be used from several event loops, one after the other or at once.

    Args:
        folder: The data directory; made if missing, and locked: one server a directory.
        limits: What may be stored.
        now: The time, for the change counters.
        observe: Told of every commit: number of requests in it, seconds.

    Raises:
        CannotServe: Another server has it, or it is not a relay's.
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

    # -- life

    async def probe(self, now: int) -> None:
        """Write something, durably."""
        sql = "INSERT INTO probe (id, at) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at"
        await self._writer.run(lambda batch: batch.db.execute(sql, (now,)).close())

    async def sweep(self, now: int) -> Sequence[tuple[str, int]]:
        """Expire unread blobs and mailboxes, forget old tombstones; (account, blobs expired)."""
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
        """Finish what was begun, write the WAL back, close."""
        self.close_now()

    def close_now(self) -> None:
        """The same for who has no event loop."""
        self._writer.close()
        self._readers.shutdown(wait=True)
        for db in self._connections:
            db.close()
        self._connections.clear()
        self._lock.release()

    async def usage(self) -> Usage:
        """What there is."""
        return await self._read(usage_of)

    def usage_now(self) -> Usage:
        """The same for who has no event loop, from any thread."""
        return self._readers.submit(lambda: usage_of(self._db())).result(timeout=10)

    def spool(self) -> Spool:
        """A place for a large body."""
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
        """A blob's bytes."""
        row = await self._read(lambda db: blobs.find(db, account, stream, seq))
        if row is None:
            raise Refusal("no-blob", f"there is no blob {seq}")
        size, tag, digest, file, body = row
        return await self._open(size, tag, digest, file, body)

    async def list_after(
        self, account: str, stream: bytes, after: int, limit: int
    ) -> tuple[StreamState, Sequence[BlobEntry]]:
        """A page of a stream."""
        return await self._read(lambda db: blobs.list_after(db, account, stream, after, limit))

    async def stream(self, account: str, stream: bytes) -> StreamState:
        """How far a stream is."""
        return await self._read(lambda db: blobs.state(db, account, stream))

    async def streams(
        self, account: str, prefixes: Sequence[bytes] | None, changed_after: int
    ) -> tuple[int, Sequence[StreamState]]:
        """The streams that changed."""
        return await self._read(lambda db: blobs.streams(db, account, prefixes, changed_after))

    async def ack(self, account: str, stream: bytes, upto: int, now: int) -> None:
        """Delete the bodies up to and with ``upto``."""
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
        """An object's bytes."""
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
        """A page of objects."""
        return await self._read(lambda db: objects.list_after(db, account, after, limit))

    # -- tokens

    def token(self, token_id: str) -> Token | None:
        """Look a token up, in this very thread: some microseconds from the page cache."""
        try:
            return tokens.find(self._db(), token_id)
        except apsw.Error as error:
            raise refusal_of(error) from error

    async def add_token(self, token: Token) -> None:
        """Keep a new token."""
        await self._writer.run(lambda batch: tokens.add(batch.db, token, self.limits))

    async def tokens(self, account: str) -> Sequence[Token]:
        """All tokens of an account."""
        return await self._read(lambda db: tokens.list_all(db, account))

    async def revoke_token(self, account: str, token_id: str, now: int) -> None:
        """Revoke a token."""
        await self._writer.run(lambda batch: tokens.revoke(batch.db, account, token_id, now))

    async def touch_tokens(self, used: Mapping[str, int]) -> None:
        """Remember when tokens were last used."""
        await self._writer.run(lambda batch: tokens.touch(batch.db, used))

    # -- the pairing mailbox

    async def open_mailbox(self, account: str, candidates: Sequence[int], now: int) -> Mailbox:
        """Open a mailbox."""
        return await self._writer.run(lambda batch: mailboxes.open_one(batch, account, candidates, now, self.limits))

    async def mailbox(self, nameplate: int, now: int) -> Mailbox | None:
        """Find a mailbox."""
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
        """Destroy a mailbox."""
        await self._writer.run(lambda batch: mailboxes.close(batch, nameplate))

    # -- below

    def _db(self) -> apsw.Connection:
        """This thread's connection for reading."""
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
        """Commit a row with its file. From here on the file is the job's, also if the request is cancelled."""

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
        except Exception:  # whatever it was: the row is not there, so its body goes, and the caller is told
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
