"""What the relay knows, as frozen values. Ids are bytes here and hexadecimal on the wire; times are ms since 1970."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

MAX_NUMBER = 2**53 - 1
"""The highest seq: JSON carries integers exactly up to here in every language."""

Result = Literal["created", "replaced", "duplicate"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one stream and one account may hold."""

    max_blobs: int = 10_000
    max_streams: int = 4096
    quota_bytes: int = 4 << 30
    max_tokens: int = 1000
    max_mailboxes: int = 8
    max_mail: int = 16
    ttl_ms: int = 30 * 86_400_000
    mailbox_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class Token:
    """A token as the relay keeps it: never the secret, only its SHA-256."""

    id: str
    account: str
    label: str
    scopes: tuple[str, ...]
    secret_hash: bytes = field(repr=False)
    created_at: int = 0
    last_used_at: int | None = None
    revoked_at: int | None = None


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far one stream is; all zeros for one that nothing was stored in."""

    stream: bytes
    head: int = 0
    acked: int = 0
    count: int = 0
    bytes: int = 0
    expired_upto: int = 0


@dataclass(frozen=True, slots=True)
class BlobEntry:
    """One line of a listing."""

    seq: int
    size: int
    tag: bytes


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object of a listing."""

    id: bytes
    size: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A pairing mailbox. ``claim_hash`` is None until somebody has claimed it."""

    nameplate: int
    account: str
    expires_at: int
    claim_hash: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """What the whole relay holds, for its operator."""

    blobs: int
    objects: int
    bytes: int
    streams: int
    tokens: int
    oldest_unread_at: int | None
