"""Parse the relay's answers strictly: types, ranges and lengths are checked before anything is used.

The relay is not trusted. Any deviation from docs/spec/relay-http.md raises ``RelayBroken``, and nothing of that answer
is used. Unknown keys are ignored, so that later versions can add some.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import orjson

MAX_SEQ = 2**53 - 1
"""Highest sequence number of the protocol: the largest integer that JSON carries exactly everywhere."""
LARGEST_BLOB = 8_388_608 + 148
"""Bytes of the largest blob. Equals ``crystal.sync.envelope.MAX_BLOB``, without importing its cryptography."""
MIN_BLOB = 148
MAX_OBJECT = LARGEST_BLOB
MAX_MAIL = 16_384
MAX_LISTING = 8 * 1024 * 1024
"""Maximum bytes of JSON in a listing."""
SMALL_ANSWER = 64 * 1024
"""Maximum bytes of a short answer or an error."""
MAX_LISTED = 50_000
"""Maximum number of streams, objects or tokens in one listing."""
PAGE = 1000
"""Maximum number of blobs or objects in one answer."""

_TOKEN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

T = TypeVar("T")


class BadAnswer(ValueError):
    """An answer violates the protocol. The message uses fixed words only, never the relay's."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer, not yet validated."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One stream at the relay.

    Attributes:
        stream: The stream id, 16 bytes.
        head: The highest sequence number ever stored; 0 if none.
        acked: The highest number that the reader has acknowledged.
        count: Number of stored blobs.
        bytes: Their total size.
        expired_upto: The highest number that may have expired unread.
    """

    stream: bytes
    head: int
    acked: int
    count: int
    bytes: int
    expired_upto: int


@dataclass(frozen=True, slots=True)
class StreamList:
    """Streams, and the account's change counter at that moment; pass it to ask for later changes."""

    change: int
    streams: tuple[StreamInfo, ...]


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """One stored blob: its number, its size in bytes, its last 32 bytes."""

    seq: int
    size: int
    tag: bytes


@dataclass(frozen=True, slots=True)
class BlobPage:
    """Blobs of a stream in order, and the state of the stream."""

    blobs: tuple[BlobInfo, ...]
    head: int
    acked: int
    expired_upto: int


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One write-once object: its id (16 bytes), its size, and when it was stored."""

    object_id: bytes
    size: int
    created_at: int


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """What a relay reports about a token: never the token itself."""

    id: str
    label: str
    scopes: tuple[str, ...]
    created_at: int
    last_used_at: int | None
    revoked_at: int | None


@dataclass(frozen=True, slots=True)
class MadeToken:
    """A new token, which the relay shows once. Its repr hides it."""

    id: str
    token: str

    def __repr__(self) -> str:
        """Return a repr without the token."""
        return f"MadeToken(id={self.id!r}, token=***)"


def parse_object(body: bytes) -> Mapping[str, Any]:
    """Parse a JSON object as strictly as RFC 8259: no NaN, no lone surrogates, nothing after it."""
    try:
        value = orjson.loads(body)
    except ValueError as error:
        raise BadAnswer("it is not JSON") from error
    if not isinstance(value, dict):
        raise BadAnswer("it is not a JSON object")
    return value


def parse_streams(body: bytes) -> StreamList:
    """Parse a listing of streams."""
    answer = parse_object(body)
    streams = _listed(answer, "streams", MAX_LISTED, _stream_info)
    if len({one.stream for one in streams}) != len(streams):
        raise BadAnswer("a stream is listed twice")
    return StreamList(_number(answer, "change"), streams)


def parse_stream(body: bytes, stream: bytes) -> StreamInfo:
    """Parse the state of one stream."""
    found = _stream_info(parse_object(body))
    if found.stream != stream:
        raise BadAnswer("it is about another stream")
    return found


def parse_blobs(body: bytes, after: int, limit: int) -> BlobPage:
    """Parse a page of blobs: at most ``limit``, their numbers rising from above ``after``."""
    answer = parse_object(body)
    blobs = _listed(answer, "blobs", limit, _blob_info)
    numbers = [after, *(one.seq for one in blobs)]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise BadAnswer("its blobs are not in order")
    return BlobPage(blobs, _number(answer, "head"), _number(answer, "acked"), _number(answer, "expired_upto"))


def parse_objects(body: bytes, after: bytes | None) -> tuple[ObjectInfo, ...]:
    """Parse a page of objects, their ids rising from above ``after``."""
    found = _listed(parse_object(body), "objects", PAGE, _object_info)
    ids = [after if after is not None else b"", *(one.object_id for one in found)]
    if any(later <= earlier for earlier, later in pairwise(ids)):
        raise BadAnswer("its objects are not in order")
    return found


def parse_tokens(body: bytes) -> tuple[TokenInfo, ...]:
    """Parse a listing of tokens."""
    return _listed(parse_object(body), "tokens", MAX_LISTED, _token_info)


def parse_made_token(body: bytes) -> MadeToken:
    """Parse a newly made token."""
    answer = parse_object(body)
    token = _text(answer, "token", 512)
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadAnswer("its token is none")
    return MadeToken(_token_id(answer), token)


def parse_nameplate(body: bytes) -> int:
    """Parse the number of a new mailbox."""
    return _number(parse_object(body), "nameplate", least=1, most=999_999_999)


def parse_stored(body: bytes, named: Mapping[str, int | str], result: str) -> None:
    """Check that the relay confirms what was sent.

    Args:
        body: The answer.
        named: The fields that the answer must repeat.
        result: ``created`` or ``duplicate``, as the HTTP status says.
    """
    answer = parse_object(body)
    for key, value in {**named, "result": result}.items():
        if type(answer.get(key)) is not type(value) or answer[key] != value:
            raise BadAnswer(f"its {key} is not that of what was sent")


def _stream_info(item: Mapping[str, Any]) -> StreamInfo:
    return StreamInfo(
        stream=_id(item, "stream", 16),
        head=_number(item, "head"),
        acked=_number(item, "acked"),
        count=_number(item, "count"),
        bytes=_number(item, "bytes"),
        expired_upto=_number(item, "expired_upto"),
    )


def _blob_info(item: Mapping[str, Any]) -> BlobInfo:
    size = _number(item, "size", least=MIN_BLOB, most=LARGEST_BLOB)
    return BlobInfo(_number(item, "seq", least=1), size, _id(item, "tag", 32))


def _object_info(item: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(_id(item, "id", 16), _number(item, "size", most=MAX_OBJECT), _number(item, "created_at"))


def _token_info(item: Mapping[str, Any]) -> TokenInfo:
    scopes = item.get("scopes")
    if not isinstance(scopes, list) or len(scopes) > 64 or not all(isinstance(one, str) for one in scopes):
        raise BadAnswer("its scopes are none")
    return TokenInfo(
        id=_token_id(item),
        label=_text(item, "label", 200),
        scopes=tuple(str(one)[:100] for one in scopes),
        created_at=_number(item, "created_at"),
        last_used_at=_number_or_none(item, "last_used_at"),
        revoked_at=_number_or_none(item, "revoked_at"),
    )


def _listed(answer: Mapping[str, Any], key: str, most: int, read: Callable[[Mapping[str, Any]], T]) -> tuple[T, ...]:
    items = answer.get(key)
    if not isinstance(items, list):
        raise BadAnswer(f"its {key} are no list")
    if len(items) > most:
        raise BadAnswer(f"it lists {len(items)} {key}; {most} at most are read")
    if not all(isinstance(item, dict) for item in items):
        raise BadAnswer(f"its {key} are not objects")
    return tuple(read(item) for item in items)


def _number(item: Mapping[str, Any], key: str, *, least: int = 0, most: int = MAX_SEQ) -> int:
    value = item.get(key)
    if type(value) is not int or not least <= value <= most:
        raise BadAnswer(f"its {key} is no whole number from {least} to {most}")
    return value


def _number_or_none(item: Mapping[str, Any], key: str) -> int | None:
    return None if item.get(key) is None else _number(item, key)


def _id(item: Mapping[str, Any], key: str, size: int) -> bytes:
    value = item.get(key)
    if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", value, re.ASCII):
        raise BadAnswer(f"its {key} is not {2 * size} hex digits")
    return bytes.fromhex(value)


def _text(item: Mapping[str, Any], key: str, longest: int) -> str:
    value = item.get(key)
    if not isinstance(value, str) or len(value) > longest:
        raise BadAnswer(f"its {key} is no text of at most {longest} characters")
    return value


def _token_id(item: Mapping[str, Any]) -> str:
    value = _text(item, "id", 64)
    if not _TOKEN_ID.fullmatch(value):
        raise BadAnswer("its token's id is none")
    return value
