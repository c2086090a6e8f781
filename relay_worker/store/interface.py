"""Define the interface of the relay's stores: what SQLite and PostgreSQL have in common.

``blobs``, ``objects``, ``accounts`` and ``mailboxes`` contain all statements, once, in SQL for both databases.
A store runs them:

- Every change is atomic and durable before ``write`` and ``put`` return.
- The time, ms since 1970, comes from the caller.
- Refusals are ``RequestRefusedError``: ``unavailable`` if the store cannot be used, ``disk-full`` if it is full.
- Everything belongs to an account; data of other accounts is reported as missing.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from relay_worker.model import NewBody, RelayUsage, Token
from relay_worker.settings import Settings
from relay_worker.store import accounts, blobs, mailboxes
from relay_worker.store.files import StoredBody
from relay_worker.store.rows import Put

T = TypeVar("T")
Hear: TypeAlias = "Callable[[list[Any]], None]"
DAY_MS = 86_400_000
WHOLE_RELAY = ":relay"
"""Lock of jobs that change no account; account names contain no colon."""


class RelayStore(ABC):
    """Data of a relay, opened for serving. The caller closes it.

    Attributes:
        settings: The limits of streams and accounts.
        is_shared: Several servers may serve it in parallel.
        clock_ahead: Milliseconds that the clock of a shared store is ahead of this machine's, by which its servers
            correct theirs: what one with a wrong clock stores would expire at the others.
    """

    settings: Settings
    is_shared = False
    clock_ahead = 0

    @abstractmethod
    async def read(self, question: Callable[..., T], *values: Any) -> T:
        """Return ``question(rows, *values)``, which sees committed data and changes nothing."""

    @abstractmethod
    async def write(self, lock: str, job: Callable[..., T], *values: Any) -> T:
        """Return ``job(transaction, *values)`` once it is durable.

        Args:
            lock: The account that the job changes, ``MAILBOXES`` or ``WHOLE_RELAY``. Jobs with the same lock run one
                after the other, on all servers of the store.
            job: May raise ``RequestRefusedError``, and only before it writes.
            values: Its arguments.
        """

    @abstractmethod
    async def put(self, job: Callable[..., Put], new: NewBody, *place: Any) -> bool:
        """Store a body: like ``write``, with the store's way of keeping large bodies."""

    @abstractmethod
    async def fetch(self, question: Callable[..., tuple[Any, ...]], *values: Any) -> StoredBody:
        """Return the body that a question finds. ``body-lost`` if the store has lost it."""

    @abstractmethod
    async def token(self, token_id: str) -> Token | None:
        """Find a token of any account. Every request calls this, so it must cost much less than a request."""

    def tell(self, *message: Any) -> None:  # noqa: B027 - a store of one server has nobody to tell
        """Send a message to the other servers of a shared store, some milliseconds later."""

    def listen(self, hear: Hear) -> None:  # noqa: B027 - nor anybody to hear
        """Call ``hear`` with every message of another server, in a thread; ``["", "all"]`` if some may be missing."""

    def usage(self) -> RelayUsage:
        """Return the usage, from any thread without an event loop."""
        return asyncio.run(self.read(accounts.usage_of))

    @abstractmethod
    def close(self) -> None:
        """Finish pending work and close."""

    async def probe(self, now: int) -> None:
        """Write a test value durably."""
        sql = "INSERT INTO probe (id, at) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at"
        await self.write(WHOLE_RELAY, lambda batch: batch.run(sql, now))

    async def sweep(self, now: int) -> Sequence[tuple[str, int]]:
        """Expire unread blobs and mailboxes, and delete old tombstones. Return (account, blobs expired)."""
        before = now - int(self.settings.ttl_days * DAY_MS)
        total: Counter[str] = Counter()
        while accounts := await self.read(blobs.with_old, before):
            for account in accounts:
                total[account] += await self.write(account, blobs.expire, account, before, now)
        while await self.write(WHOLE_RELAY, blobs.forget, before) >= blobs.SWEEP_ROWS:
            pass
        await self.write(mailboxes.LOCK, mailboxes.expire, now)
        return tuple((+total).items())

    async def sweep_bodies(self, now: int) -> None:  # noqa: B027 - only a store with a bucket has any
        """Delete large bodies that no row names, which takes as long as their storage takes."""
