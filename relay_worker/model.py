"""Define the relay's immutable values. Ids are bytes, in listings hexadecimal; times are ms since 1970."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

MAX_NUMBER = 2**53 - 1
"""Highest seq: JSON carries integers up to this number exactly in every language."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as stored: never the secret, only its SHA-256."""

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
        """Return the fields that a listing shows within the token's account."""
        shown = ("id", "label", "scopes", "created_at", "last_used_at", "revoked_at")
        return {name: getattr(self, name) for name in shown}


class StreamState(Struct, frozen=True):
    """State of one stream, as in answers; all zeros if nothing was ever stored in it."""

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
        account: The account that stores it.
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
    """One blob of a listing."""

    seq: int
    size: int
    tag: str


class ObjectEntry(Struct, frozen=True):
    """One object of a listing."""

    id: str
    size: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A pairing mailbox. ``claim_hash`` is None until it is claimed."""

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
