"""Interface of a relay's store.

One implementation is here (``SqliteStore``). Another (PostgreSQL, an object store) implements ``BlobStore`` and passes
the conformance suite, which uses only HTTP. Requirements:

- A method that changes something returns after the change is durable (on disk, not in a volatile cache).
- Each change is atomic, also under concurrency: of two different blobs for one (stream, seq), one is stored and the
  other refused.
- ``now`` is milliseconds since 1970 and comes from the caller; a store reads no clock and generates no visible
  randomness.
- Refusals raise ``Refusal``: ``unavailable`` if the store cannot be reached, ``disk-full`` if it is full.
- Everything belongs to an account; data of other accounts is reported as missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from relay_worker.model import BlobEntry, Mailbox, ObjectEntry, Result, StreamState, Token, Usage


class Spool(Protocol):
    """Large body being written to the store. Use it as an async context manager: what was not stored is deleted.

    Attributes:
        size: Bytes written so far.
        head: The first 116 bytes.
        tail: The last 32 bytes.
    """

    size: int
    head: bytes
    tail: bytes

    async def __aenter__(self) -> Spool: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def write(self, chunk: bytes) -> None:
        """Append a part of the body."""
        ...

    async def finish(self) -> bytes:
        """Finish writing, make the bytes durable, and return their SHA-256."""
        ...


Body: TypeAlias = "bytes | Spool"
"""Complete body: small ones in memory, large ones in the store's own finished spool."""


class Stored(Protocol):
    """Body to be sent. ``chunks`` may be iterated once.

    Attributes:
        size: Size in bytes.
        tag: The blob's tag; empty for an object.
        digest: SHA-256 computed when it was stored.
    """

    size: int
    tag: bytes
    digest: bytes

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces."""
        ...

    def close(self) -> None:
        """Release resources without, or after, iterating."""
        ...


class BlobStore(Protocol):
    """Store of a relay."""

    # -- lifecycle

    async def probe(self, now: int) -> None:
        """Write a test value durably."""
        ...

    async def sweep(self, now: int) -> Sequence[tuple[str, int]]:
        """Expire unread blobs and mailboxes, and delete old tombstones.

        Return (account, blobs expired) where not zero.
        """
        ...

    async def close(self) -> None:
        """Finish pending work and close; nothing acknowledged is lost."""
        ...

    async def usage(self) -> Usage:
        """Return the usage, for the metrics."""
        ...

    def spool(self) -> Spool:
        """Return a spool for a large body."""
        ...

    # -- blobs

    async def put_if_absent(
        self, account: str, stream: bytes, seq: int, body: Body, *, tag: bytes, digest: bytes, resend: bool, now: int
    ) -> Result:
        """Store a blob, see the table in docs/spec/relay-http.md, section 3."""
        ...

    async def get(self, account: str, stream: bytes, seq: int) -> Stored:
        """Return a blob's bytes. ``no-blob``, ``body-lost``."""
        ...

    async def list_after(
        self, account: str, stream: bytes, after: int, limit: int
    ) -> tuple[StreamState, Sequence[BlobEntry]]:
        """Return the stored blobs above ``after`` by rising seq, and the stream, in one snapshot."""
        ...

    async def stream(self, account: str, stream: bytes) -> StreamState:
        """Return the state of a stream."""
        ...

    async def streams(
        self, account: str, prefixes: Sequence[bytes] | None, changed_after: int
    ) -> tuple[int, Sequence[StreamState]]:
        """Return the account's change counter, and the changed streams under the prefixes (None: all)."""
        ...

    async def ack(self, account: str, stream: bytes, upto: int, now: int) -> None:
        """Delete the bodies up to and including ``upto``."""
        ...

    # -- objects

    async def put_object(
        self, account: str, object_id: bytes, body: Body, *, digest: bytes, resend: bool, now: int
    ) -> Result:
        """Store a write-once object. ``object-conflict``."""
        ...

    async def get_object(self, account: str, object_id: bytes) -> Stored:
        """Return an object's bytes. ``no-object``, ``body-lost``."""
        ...

    async def delete_object(self, account: str, object_id: bytes) -> None:
        """Delete an object if it exists."""
        ...

    async def objects(self, account: str, after: bytes, limit: int) -> Sequence[ObjectEntry]:
        """Return the objects above ``after`` by rising id."""
        ...

    # -- tokens

    def token(self, token_id: str) -> Token | None:
        """Find a token of any account, including revoked ones. Called for every request: must be fast."""
        ...

    async def add_token(self, token: Token) -> None:
        """Store a new token; the first token creates its account."""
        ...

    async def tokens(self, account: str) -> Sequence[Token]:
        """Return all tokens, oldest first."""
        ...

    async def revoke_token(self, account: str, token_id: str, now: int) -> None:
        """Revoke a token. ``no-token``."""
        ...

    async def touch_tokens(self, used: Mapping[str, int]) -> None:
        """Record when tokens were last used."""
        ...

    # -- the pairing mailbox

    async def open_mailbox(self, account: str, candidates: Sequence[int], now: int) -> Mailbox:
        """Open a mailbox under the first candidate that is free. ``too-many-mailboxes``."""
        ...

    async def mailbox(self, nameplate: int, now: int) -> Mailbox | None:
        """Return the mailbox, unless it is closed or expired."""
        ...

    async def claim_mailbox(self, nameplate: int, claim_hash: bytes, now: int) -> tuple[Mailbox, Result]:
        """Bind the mailbox to a claim. ``no-mailbox``, ``mailbox-claimed``."""
        ...

    async def put_mail(self, nameplate: int, side: str, phase: str, body: bytes, now: int) -> Result:
        """Write a message, which cannot be replaced. ``no-mailbox``, ``mail-conflict``, ``mailbox-full``."""
        ...

    async def get_mail(self, nameplate: int, side: str, phase: str, now: int) -> bytes | None:
        """Return a message, None if it has not arrived. ``no-mailbox``."""
        ...

    async def close_mailbox(self, nameplate: int) -> None:
        """Delete the mailbox and its messages."""
        ...
