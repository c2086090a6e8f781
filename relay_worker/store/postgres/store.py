"""Store a relay in PostgreSQL, shared by any number of servers, on any number of machines.

Every server has two ``Writer``s: one for slow jobs, so that the others need not wait for
them. A transaction first takes an advisory lock for each account that it changes, in order, so that its jobs see what
other transactions have committed. Bodies are in the database; large ones in a bucket, if there is one.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from relay_worker.errors import CannotServeError
from relay_worker.model import NewBody, Token
from relay_worker.settings import Settings
from relay_worker.store import accounts
from relay_worker.store.files import INLINE_BYTES, StoredBody, lost
from relay_worker.store.interface import DAY_MS, WHOLE_RELAY, Hear, RelayStore
from relay_worker.store.postgres import bulk, unnamed
from relay_worker.store.postgres.bus import Bus, Message
from relay_worker.store.postgres.connecting import (
    WRITING_LOCK,
    Connections,
    PostgresRows,
    connect_patiently,
    prepare,
    refusal_of,
    refuse_while_moving,
)
from relay_worker.store.rows import CHARGE, Put, Row, Rows, answer, finish
from relay_worker.store.writer import Job, Writer, attempt, run_in

if TYPE_CHECKING:
    from relay_worker.store.bucket import Bucket

T = TypeVar("T")
LOG = logging.getLogger("relay_worker")
READERS = 4
SAVERS = 8
START_SECONDS = 60
MAX_TOKENS = 10_000
CLOCK_MS = 1000
MAX_LATER_BYTES = 4 << 20
_LOCK = "SELECT pg_advisory_xact_lock_shared(?), pg_advisory_xact_lock(k) FROM unnest(CAST(? AS BIGINT[])) k"
TOKEN_SECONDS = 90.0
"""Age up to which a cached token is used, in case a message about its revocation is lost.

A device that waits asks about once a minute.
"""


class PostgresTransaction(PostgresRows):
    """A transaction of some jobs; see ``relay_worker.store.rows``."""

    def __init__(self, db: psycopg.Connection[Any], settings: Settings) -> None:
        super().__init__(db)
        self.settings = settings
        self.unseen: Counter[int] = Counter()
        self._later: dict[str, list[Row]] = {}
        self._charges: dict[int, tuple[int, int]] = {}
        self._later_bytes = 0

    def run_later(self, *statements: tuple[str, Row]) -> None:
        """Queue statements until ``flush``."""
        for sql, values in statements:
            self._later.setdefault(sql, []).append(values)
            self._later_bytes += len(values[-1]) if isinstance(values[-1], bytes) else 0  # a body is the last value

    def charge(self, account: int, size: int, change: int) -> None:
        """Queue a charge until ``flush``."""
        self.unseen[account] += size
        before, latest = self._charges.get(account, (0, 0))
        self._charges[account] = before + size, max(latest, change)
        if self._later_bytes > MAX_LATER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Run the queued statements as one statement."""
        if not self._charges:
            return
        charges = [(size, change, change, account) for account, (size, change) in self._charges.items()]
        kept = [bulk.for_all(sql, rows) for sql, rows in (*self._later.items(), (CHARGE, charges))]
        self._later, self._charges, self._later_bytes = {}, {}, 0
        self._execute(*bulk.together(kept))

    def ask_all(self, sql: str, rows: Sequence[Row]) -> dict[int, Row]:
        """Run a query for each row of values; return the first row of each result, by the index of its values."""
        return {number - 1: tuple(found) for number, *found in self._execute(*bulk.for_all(sql, rows)).fetchall()}

    def many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement once for each row of values."""
        self.flush()
        super().many(sql, rows)

    def _execute(self, sql: str, values: tuple[Any, ...]) -> psycopg.Cursor[Any]:
        self.flush()
        return super()._execute(sql, values)

    def check_disk(self, new: NewBody) -> None:
        """Do nothing, because the disk is the database server's."""

    def drop(self, *files: str | None) -> None:
        """Queue body files for deletion after the COMMIT."""
        for file in files:
            if file:
                unnamed.release(self, file)


@dataclass(frozen=True, slots=True)
class _PutWork:
    """A body to be stored: its stream or object, and its job."""

    place: bytes
    start: Callable[[Any], Put]

    def __call__(self, transaction: Any) -> bool:
        return finish(self.start(transaction), transaction)


class PostgresStore(RelayStore):
    """Schema of the relay in a PostgreSQL database, opened for serving.

    Args:
        settings: The address, and the limits of streams and accounts.
        now: The time, for the change counters.
        observe: Called for every commit with the number of requests in it, and seconds.
        bucket_of: Returns the bucket for large bodies, given the relay's folder in it.

    Raises:
        CannotServeError: The database or the bucket cannot be reached for a minute, or refuses the relay; or the
            database has a newer schema.
    """

    is_shared = True

    def __init__(
        self,
        settings: Settings,
        *,
        now: int,
        observe: Callable[[int, float], None] = lambda *_: None,
        bucket_of: Callable[[str], Bucket] | None = None,
    ) -> None:
        self.settings, self._observe = settings, observe
        with contextlib.closing(connect_patiently(settings.store, START_SECONDS)) as db:
            prepare(settings.store, db)
            refuse_while_moving(settings.store, db)
            self._compare_clocks(PostgresRows(db))
            self._bucket = unnamed.open_bucket(PostgresRows(db), settings.store, bucket_of, START_SECONDS)
        self._inline_bytes = INLINE_BYTES
        self._compared_at: int | None = None
        self._connections = Connections(settings.store)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="relay-reader")
        self._savers = ThreadPoolExecutor(SAVERS, thread_name_prefix="relay-saver")
        self._small, self._large = self._writers = [Writer(self._commit, refusal_of) for _ in range(2)]
        self._tokens: dict[str, tuple[Token, int, float]] = {}
        self._asked: set[str] = set()
        self._revocations = 0
        self._pass_on: Hear = lambda _: None
        self._bus = Bus(settings.store, now, self._hear)

    async def read(self, question: Callable[..., T], *values: Any) -> T:
        """Return ``question(rows, *values)``, asked in another thread."""

        def ask() -> T:
            with self._connections.one() as db:
                return question(PostgresRows(db), *values)

        try:
            return await run_in(self._readers, ask)
        except (psycopg.Error, CannotServeError) as error:
            raise refusal_of(error) from error

    async def write(self, lock: str, job: Callable[..., T], *values: Any) -> T:
        """Return ``job(transaction, *values)`` once it is durable."""
        writer = self._large if lock == WHOLE_RELAY else self._small
        result = await writer.run(lambda transaction: job(transaction, *values), lock)
        if job is accounts.revoke:  # this server applies it now; the others get a message
            self._forget_tokens()
        return result

    async def put(self, job: Callable[..., Put], new: NewBody, *place: Any) -> bool:
        """Commit a body; with a bucket, a large one after its upload."""

        def start(transaction: Any) -> Put:
            put = job(transaction, new, *place)
            return unnamed.naming(transaction, put, new.file) if new.file else put

        if self._bucket is not None and new.size > self._inline_bytes:
            name = unnamed.new_name()
            await self.write(name, unnamed.reserve, name)
            await self._with_bucket(self._bucket.save, name, new.body)
            new = replace(new, file=name)
        work = _PutWork(place[0], start)
        writer = self._large if len(new.inline or b"") > self._inline_bytes else self._small
        return await writer.run(work, new.account)

    async def fetch(self, question: Callable[..., tuple[Any, ...]], *values: Any) -> StoredBody:
        """Return the body that a query finds; ``body-lost`` if it is missing or has another digest."""
        _, tag, digest, file, body = await self.read(question, *values)
        if file is not None:
            body = await self._with_bucket(self._read_whole, file, digest)
        if body is None:
            raise lost()
        return StoredBody(tag, digest, body)

    async def probe(self, now: int) -> None:
        """Write a test value durably, and a test object."""
        await super().probe(now)
        if self._bucket is not None:
            await self._with_bucket(self._bucket.probe)

    async def sweep(self, now: int) -> Sequence[tuple[str, int]]:
        """Expire old data, and read again the tokens in use and the clock."""
        await self.read(self._compare_clocks)
        await self._renew_tokens()
        return await super().sweep(now)

    async def sweep_bodies(self, now: int) -> None:
        """Delete bodies of the bucket that no row names."""
        if self._bucket is None:
            return
        if self._compared_at is None or not 0 <= now - self._compared_at < DAY_MS:
            await self.write(WHOLE_RELAY, unnamed.add_unknown, await self._with_bucket(self._bucket.names))
            self._compared_at = now
        while files := await self.write(WHOLE_RELAY, unnamed.give_up):
            await self._with_bucket(self._bucket.remove, files)
            await self.write(WHOLE_RELAY, unnamed.forget, files)

    async def token(self, token_id: str) -> Token | None:
        """Find a token of any account. A cached token is used until a message invalidates it."""
        token, number, until = self._tokens.get(token_id, (None, 0, 0.0))
        revocations = self._revocations
        is_current = number == revocations  # else it may be the one that was just revoked
        if token is not None and is_current and self._bus.is_hearing and time.monotonic() < until:
            self._asked.add(token_id)
            return token
        token = await self.read(accounts.find, token_id)
        if len(self._tokens) >= MAX_TOKENS:
            self._tokens.clear()
        if token is not None:
            self._tokens[token_id] = token, revocations, time.monotonic() + TOKEN_SECONDS
        return token

    def _compare_clocks(self, rows: Rows) -> None:
        """Correct this machine's clock by the database's, if the two differ by a second more or less than before."""
        (now,) = rows.one(f"SELECT {unnamed.NOW}") or (0,)
        ahead = now - time.time_ns() // 1_000_000
        if abs(ahead - self.clock_ahead) >= CLOCK_MS:
            self.clock_ahead = ahead
            LOG.warning("the clock is wrong", extra={"fields": {"seconds_behind_the_database": ahead // 1000}})

    async def _renew_tokens(self) -> None:
        """Read all tokens used since the last sweep with one query, before each of them needs its own."""
        asked, self._asked = self._asked, set()
        until, revocations = time.monotonic() + TOKEN_SECONDS, self._revocations
        for token in await self.read(accounts.find_many, sorted(asked)):
            self._tokens[token.id] = token, revocations, until

    def tell(self, *message: Any) -> None:
        """Send a message to the other servers."""
        self._bus.say(*message)

    def listen(self, hear: Hear) -> None:
        """Call ``hear`` with every message of another server, in a thread."""
        self._pass_on = hear

    def close(self) -> None:
        """Finish pending work and close."""
        for writer in self._writers:
            writer.close()
        self._readers.shutdown(wait=True)
        self._savers.shutdown(wait=True)
        self._bus.close()
        self._connections.close()

    async def _with_bucket(self, call: Callable[..., T], *values: Any) -> T:
        try:
            return await run_in(self._savers, call, *values)
        except CannotServeError as error:
            raise refusal_of(error) from error

    def _read_whole(self, file: str, digest: bytes) -> bytes | None:
        """Return a body of the bucket; None if it is missing or has another digest."""
        if self._bucket is None:  # another server was started with a bucket since
            raise CannotServeError("the body is in a bucket, but this relay has none", hint=unnamed.NAME_IT)
        body = self._bucket.read(file)
        if body is None or hashlib.sha256(body).digest() != digest:
            LOG.error("a body is lost", extra={"fields": {"bucket": self._bucket.address, "file": file}})
            return None
        return body

    def _hear(self, message: Message) -> None:
        if message[1] in {"all", "token"}:
            self._forget_tokens()
        self._pass_on(message)

    def _forget_tokens(self) -> None:
        self._revocations += 1
        self._tokens.clear()

    def _commit(self, jobs: list[Job], locks: set[str]) -> list[Any]:
        """Run all jobs in one transaction; return their results and refusals."""
        began = time.perf_counter()
        try:
            with self._connections.one() as db:
                results = self._commit_on(db, jobs, locks)
        except CannotServeError as error:
            raise refusal_of(error) from error
        self._observe(len(jobs), time.perf_counter() - began)
        return results

    def _commit_on(self, db: psycopg.Connection[Any], jobs: list[Job], locks: set[str]) -> list[Any]:
        transaction = PostgresTransaction(db, self.settings)
        try:
            with db.pipeline() if len(jobs) > 1 else contextlib.nullcontext(), db.transaction():
                numbers = sorted(map(_number, locks))  # sorted, so that no two transactions wait for each other
                transaction.run(_LOCK, WRITING_LOCK, numbers)
                results = _results(jobs, transaction)
                transaction.flush()
        except psycopg.Error as error:
            if db.closed:
                raise refusal_of(error) from error
            raise
        return results


def _results(jobs: list[Job], transaction: PostgresTransaction) -> list[Any]:
    """Run jobs; the queries of all bodies run together, and then the statements that store them."""
    results = [None if isinstance(job, _PutWork) else attempt(job, transaction) for job in jobs]
    works = [(at, job) for at, job in enumerate(jobs) if isinstance(job, _PutWork)]
    first = {job.place: at for at, job in reversed(works)}
    asked: dict[str, list[tuple[int, Put, Row]]] = {}
    for at, job in works:
        if first[job.place] == at:
            put = job.start(transaction)
            sql, values = next(put)
            asked.setdefault(sql, []).append((at, put, values))
    found = {sql: transaction.ask_all(sql, [values for *_, values in some]) for sql, some in asked.items()}
    for sql, some in asked.items():
        for number, (at, put, _) in enumerate(some):
            results[at] = attempt(partial(_answered, put, found[sql].get(number)), transaction)
    for at, job in works:
        if first[job.place] != at:  # its query must run after the previous body of the same place
            transaction.unseen.clear()
            results[at] = attempt(job, transaction)
    return results


def _answered(put: Put, found: Row | None, _: PostgresTransaction) -> bool:
    return answer(put, found)


def _number(lock: str) -> int:
    """Return the number of an advisory lock. Two locks with the same number only wait for each other."""
    return int.from_bytes(hashlib.blake2b(lock.encode(), digest_size=8).digest(), "big", signed=True)
