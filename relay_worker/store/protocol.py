"""What a relay asks of whatever keeps its blobs.

One implementation is here (``SqliteStore``). Another (PostgreSQL, an object store) implements ``BlobStore`` and passes
the conformance suite, which speaks only HTTP. What all of them promise:

- A method that changes something returns after the change is durable (on disk, not in a cache
  that a power cut empties).
- Each change is atomic, and so are two at once: of two different blobs for one (stream, seq), one is stored and the
  other refused.
- ``now`` is milliseconds since 1970 and comes from the caller; nothing here reads a clock or makes randomness that
  somebody else sees.
- What is refused raises ``Refusal``; a store that cannot be reached raises it with ``unavailable``, a full one with
  ``disk-full``.
- Everything belongs to an account, and what belongs to another looks absent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from relay_worker.model import BlobEntry, Mailbox, ObjectEntry, Result, StreamState, Token, Usage


class Spool(Protocol):
    """A large body on its way into the store. Use it as an async context manager: what was not put is removed.

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
        """End writing, make the bytes durable, and give their SHA-256."""
        ...


Body: TypeAlias = "bytes | Spool"
"""A whole body: small ones in memory, large ones in the store's own spool, finished."""


class Stored(Protocol):
    """A body to be sent. ``chunks`` may be iterated once.

    Attributes:
        size: Bytes.
        tag: The blob's tag; empty for an object.
        digest: SHA-256 of what was stored, as remembered from then.
    """

    size: int
    tag: bytes
    digest: bytes

    def chunks(self) -> AsyncIterator[bytes]:
        """The bytes, in pieces."""
        ...

    def close(self) -> None:
        """Let go of it without, or after, iterating."""
        ...


class BlobStore(Protocol):
    """Where a relay keeps everything."""

    # -- life

    async def probe(self, now: int) -> None:
        """Write something, durably."""
        ...

    async def sweep(self, now: int) -> Sequence[tuple[str, int]]:
        """Expire unread blobs and mailboxes, forget old tombstones; (account, blobs expired) for whom something did."""
        ...

    async def close(self) -> None:
        """Finish what was begun and close; nothing that was acknowledged is lost."""
        ...

    async def usage(self) -> Usage:
        """What there is, for the metrics."""
        ...

    def spool(self) -> Spool:
        """A place for a large body."""
        ...

    # -- blobs

    async def put_if_absent(
        self, account: str, stream: bytes, seq: int, body: Body, *, tag: bytes, digest: bytes, resend: bool, now: int
    ) -> Result:
        """Store a blob, see the table in docs/spec/relay-http.md, section 3."""
        ...

    async def get(self, account: str, stream: bytes, seq: int) -> Stored:
        """A blob's bytes. ``no-blob``, ``body-lost``."""
        ...

    async def list_after(
        self, account: str, stream: bytes, after: int, limit: int
    ) -> tuple[StreamState, Sequence[BlobEntry]]:
        """The stored blobs above ``after`` by rising seq, and the stream, both of one moment."""
        ...

    async def stream(self, account: str, stream: bytes) -> StreamState:
        """How far a stream is."""
        ...

    async def streams(
        self, account: str, prefixes: Sequence[bytes] | None, changed_after: int
    ) -> tuple[int, Sequence[StreamState]]:
        """The account's change counter, and the streams under the prefixes (None: all) that changed since."""
        ...

    async def ack(self, account: str, stream: bytes, upto: int, now: int) -> None:
        """Delete the bodies up to and with ``upto``."""
        ...

    # -- objects

    async def put_object(
        self, account: str, object_id: bytes, body: Body, *, digest: bytes, resend: bool, now: int
    ) -> Result:
        """Store an object, write-once. ``object-conflict``."""
        ...

    async def get_object(self, account: str, object_id: bytes) -> Stored:
        """An object's bytes. ``no-object``, ``body-lost``."""
        ...

    async def delete_object(self, account: str, object_id: bytes) -> None:
        """Delete an object, if it is there."""
        ...

    async def objects(self, account: str, after: bytes, limit: int) -> Sequence[ObjectEntry]:
        """The objects above ``after`` by rising id."""
        ...

    # -- tokens

    def token(self, token_id: str) -> Token | None:
        """Look a token up, of any account, revoked ones too. Called for every request: it has to be quick."""
        ...

    async def add_token(self, token: Token) -> None:
        """Keep a new token; its account comes into being with the first."""
        ...

    async def tokens(self, account: str) -> Sequence[Token]:
        """All tokens, oldest first."""
        ...

    async def revoke_token(self, account: str, token_id: str, now: int) -> None:
        """Revoke a token. ``no-token``."""
        ...

    async def touch_tokens(self, used: Mapping[str, int]) -> None:
        """Remember when tokens were last used."""
        ...

    # -- the pairing mailbox

    async def open_mailbox(self, account: str, candidates: Sequence[int], now: int) -> Mailbox:
        """Open a mailbox under the first candidate that is free. ``too-many-mailboxes``."""
        ...

    async def mailbox(self, nameplate: int, now: int) -> Mailbox | None:
        """The mailbox, unless it is closed or too old."""
        ...

    async def claim_mailbox(self, nameplate: int, claim_hash: bytes, now: int) -> tuple[Mailbox, Result]:
        """Bind the mailbox to a claim. ``no-mailbox``, ``mailbox-claimed``."""
        ...

    async def put_mail(self, nameplate: int, side: str, phase: str, body: bytes, now: int) -> Result:
        """Write a message, once. ``no-mailbox``, ``mail-conflict``, ``mailbox-full``."""
        ...

    async def get_mail(self, nameplate: int, side: str, phase: str, now: int) -> bytes | None:
        """A message, None if it is not there yet. ``no-mailbox``."""
        ...

    async def close_mailbox(self, nameplate: int) -> None:
        """Destroy the mailbox and its messages."""
        ...
