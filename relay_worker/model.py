"""Values of the relay, immutable. Ids are bytes, and hexadecimal in listings; times are ms since 1970."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

MAX_NUMBER = 2**53 - 1
"""Highest seq: JSON carries integers exactly up to this number in every language."""


@dataclass(frozen=True, slots=True)
class Token:
    """Token as the relay stores it: never the secret, only its SHA-256."""

    id: str
    account: str
    label: str
    scopes: tuple[str, ...]
    secret_hash: bytes = field(repr=False)
    created_at: int = 0
    last_used_at: int | None = None
    revoked_at: int | None = None

    @property
    def public(self) -> dict[str, object]:
        """Return what a listing says of it within its account."""
        shown = ("id", "label", "scopes", "created_at", "last_used_at", "revoked_at")
        return {name: getattr(self, name) for name in shown}


class StreamState(Struct, frozen=True):
    """State of one stream, as the wire has it; all zeros if nothing was ever stored in it."""

    stream: str
    head: int = 0
    acked: int = 0
    count: int = 0
    bytes: int = 0
    expired_upto: int = 0


@dataclass(frozen=True, slots=True)
class NewBody:
    """Body of a blob or object to be stored.

    Attributes:
        account: Whose it is.
        body: Its bytes.
        digest: Its SHA-256.
        resend: Store it again even if the same is, or was, stored.
        now: The time, ms.
        file: Name of its file, if it is large.
    """

    account: str
    body: bytes = field(repr=False)
    digest: bytes
    resend: bool
    now: int
    file: str | None = None

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return len(self.body)

    @property
    def inline(self) -> bytes | None:
        """Return the bytes for the database."""
        return None if self.file else self.body


class BlobEntry(Struct, frozen=True):
    """One blob of a listing, as the wire has it."""

    seq: int
    size: int
    tag: str


class ObjectEntry(Struct, frozen=True):
    """One object of a listing, as the wire has it."""

    id: str
    size: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Mailbox:
    """Pairing mailbox. ``claim_hash`` is None until it is claimed."""

    nameplate: int
    account: str
    expires_at: int
    claim_hash: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RelayUsage:
    """Usage of the whole relay, for its operator."""

    blobs: int
    objects: int
    bytes: int
    streams: int
    tokens: int
    oldest_unread_at: int | None
