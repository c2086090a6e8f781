"""Parse the relay's answers strictly: types, ranges and lengths are checked before anything is used.

The relay is not trusted. Any deviation from docs/spec/relay-http.md raises ``RelayProtocolError``, and nothing of that
answer is used. Unknown keys are ignored, so that later versions can add some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field

MAX_SEQ = 2**53 - 1
"""Highest sequence number of the protocol: the largest integer that JSON carries exactly everywhere."""
MAX_BLOB = 8_388_608 + 148
"""Bytes of the largest blob. Equals ``crystal.sync.envelope.blob.MAX_BLOB``, without importing its cryptography."""
MIN_BLOB = 148
MAX_OBJECT = MAX_BLOB
MAX_MAIL = 16_384
MAX_LISTING = 8 * 1024 * 1024
"""Maximum bytes of JSON in a listing."""
SMALL_ANSWER = 64 * 1024
"""Maximum bytes of a short answer or an error."""
MAX_LISTED = 50_000
"""Maximum number of streams, objects or tokens in one listing."""
PAGE = 1000
"""Maximum number of blobs or objects in one answer."""

T = TypeVar("T")
Number = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
TokenId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]


class ProtocolViolationError(ValueError):
    """An answer violates the protocol. The message uses fixed words only, never the relay's."""


@dataclass(frozen=True, slots=True)
class RelayResponse:
    """A complete answer, not yet validated."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Id(bytes):
    """16 bytes, which JSON has as 32 hex digits."""

    size = 16


class Tag(Id):
    """32 bytes, which JSON has as 64 hex digits."""

    size = 32


class StreamInfo(Struct, frozen=True):
    """One stream at the relay.

    Attributes:
        stream: The stream id, 16 bytes.
        head: The highest sequence number ever stored; 0 if none.
        acked: The highest number that the reader has acknowledged.
        count: Number of stored blobs.
        bytes: Their total size.
        expired_upto: The highest number that may have expired unread.
    """

    stream: Id
    head: Number
    acked: Number
    count: Number
    bytes: Number
    expired_upto: Number


class StreamList(Struct, frozen=True):
    """Streams, and the account's change counter at the time of the answer; pass it to ask for later changes."""

    change: Number
    streams: Annotated[tuple[StreamInfo, ...], Meta(max_length=MAX_LISTED)]

    def __post_init__(self) -> None:
        if len({one.stream for one in self.streams}) != len(self.streams):
            raise ProtocolViolationError("a stream is listed twice")


class BlobInfo(Struct, frozen=True):
    """One stored blob: its number, its size in bytes, its last 32 bytes."""

    seq: Annotated[int, Meta(ge=1, le=MAX_SEQ)]
    size: Annotated[int, Meta(ge=MIN_BLOB, le=MAX_BLOB)]
    tag: Tag


class BlobPage(Struct, frozen=True):
    """Blobs of a stream in order, and the state of the stream."""

    blobs: Annotated[tuple[BlobInfo, ...], Meta(max_length=PAGE)]
    head: Number
    acked: Number
    expired_upto: Number


class ObjectInfo(Struct, frozen=True):
    """One write-once object: its id (16 bytes), its size, and when it was stored."""

    object_id: Id = field(name="id")
    size: Annotated[int, Meta(ge=0, le=MAX_OBJECT)]
    created_at: Number


class _ObjectPage(Struct):
    objects: Annotated[tuple[ObjectInfo, ...], Meta(max_length=PAGE)]


class TokenInfo(Struct, frozen=True):
    """A relay's description of a token, without the token itself."""

    id: TokenId
    label: Annotated[str, Meta(max_length=200)]
    scopes: Annotated[tuple[Annotated[str, Meta(max_length=100)], ...], Meta(max_length=64)]
    created_at: Number
    last_used_at: Number | None = None
    revoked_at: Number | None = None


class TokenList(Struct):
    """The account's tokens."""

    tokens: Annotated[tuple[TokenInfo, ...], Meta(max_length=MAX_LISTED)]


class MadeToken(Struct, frozen=True):
    """A new token, which the relay shows once. Its repr hides it."""

    id: TokenId
    token: Annotated[str, Meta(pattern=r"\A[!-~]{1,512}\Z")]

    def __repr__(self) -> str:
        """Return a repr without the token."""
        return f"MadeToken(id={self.id!r}, token=***)"


class OpenedMailbox(Struct):
    """A mailbox that was opened."""

    nameplate: Annotated[int, Meta(ge=1, le=999_999_999)]


class ProblemDocument(Struct):
    """The part of a problem document (RFC 9457) that is read."""

    code: str


def parse(body: bytes, kind: type[T]) -> T:
    """Parse JSON as strictly as RFC 8259: no NaN, no lone surrogates, nothing after it. Unknown keys are ignored."""
    try:
        return msgspec.json.decode(body, type=kind, dec_hook=from_hex)
    except (ValueError, RecursionError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)
        raise ProtocolViolationError(reason) from error


def from_hex(kind: type[Id], value: object) -> Id:
    """Decode bytes that JSON has as hex digits."""
    if isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{2 * kind.size}}}", value, re.ASCII):
        return kind.fromhex(value)
    raise ValueError(f"not {2 * kind.size} hex digits")


def parse_blobs(body: bytes, after: int, limit: int) -> BlobPage:
    """Parse a page of blobs: at most ``limit``, their numbers rising from above ``after``."""
    page = parse(body, BlobPage)
    if len(page.blobs) > limit:
        raise ProtocolViolationError(f"it lists {len(page.blobs)} blobs; {limit} at most are read")
    _check_order([after, *(one.seq for one in page.blobs)])
    return page


def parse_objects(body: bytes, after: bytes) -> tuple[ObjectInfo, ...]:
    """Parse a page of objects, their ids rising from above ``after``."""
    found = parse(body, _ObjectPage).objects
    _check_order([after, *(one.object_id for one in found)])
    return found


def parse_stored(body: bytes, named: Mapping[str, int | str], result: str) -> None:
    """Check that the relay stored what was sent.

    Args:
        body: The answer.
        named: The fields that the answer must repeat.
        result: ``created`` or ``duplicate``, as the HTTP status says.
    """
    answer = parse(body, dict[str, Any])
    for key, value in {**named, "result": result}.items():
        if type(answer.get(key)) is not type(value) or answer[key] != value:
            raise ProtocolViolationError(f"its {key} is not that of what was sent")


def _check_order(rising: list[Any]) -> None:
    if any(later <= earlier for earlier, later in pairwise(rising)):
        raise ProtocolViolationError("what it lists is not in order")
