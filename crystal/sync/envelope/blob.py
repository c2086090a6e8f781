"""Seal and open blobs, whose header is 116 bytes of plaintext. The specification defines the order of the checks.

Source: docs/spec/envelope.md, sections 4, 5, 8 and 9.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from enum import IntEnum

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from crystal.sync.envelope import packing
from crystal.sync.envelope.link import LinkKeys, blob_key
from crystal.sync.envelope.packing import MAX_CREATED, MAX_RAW, MIN_PLAINTEXT, PART_BYTES, PayloadKind
from crystal.sync.envelope.refusals import (
    ForkedError,
    MalformedError,
    MisplacedError,
    TamperedError,
    UnknownVersionError,
    WrongKeyError,
)

MAGIC = b"CRB1"
VERSION = 1
SUITE = 1
HEADER_BYTES = 116
TAG_BYTES = 32
GCM_TAG_BYTES = 16
MAX_CIPHERTEXT = 8_388_608
MAX_BLOB = HEADER_BYTES + MAX_CIPHERTEXT + TAG_BYTES
MAX_SEQ = (1 << 63) - 1
ZERO_TAG = bytes(TAG_BYTES)

_MIN_BLOB = HEADER_BYTES + MIN_PLAINTEXT + GCM_TAG_BYTES + TAG_BYTES
_MORE = 0x01
_LAYOUT = struct.Struct(">4sBBBB16s16sQ32s32sI")


class Channel(IntEnum):
    """Purpose of a stream. Visible to the relay."""

    CONVERSATIONS = 1
    MIRROR = 2
    FILES = 3
    COMMANDS = 4
    RECEIPTS = 5
    HEARTBEAT = 6


@dataclass(frozen=True, slots=True)
class BlobHeader:
    """Header fields of a blob. Trust them only if returned by ``open_blob``.

    Attributes:
        channel: A ``Channel``'s number.
        more: The message continues in the next blob of the stream.
        key_id: Id of the link keys that open it, 16 bytes.
        stream: The stream's id, 16 bytes.
        seq: The sequence number, from 1.
        prev: The tag of the previous blob, ``ZERO_TAG`` for the first.
        salt: 32 random bytes.
        ct_len: Bytes of ciphertext, GCM's tag included.
    """

    channel: int
    more: bool
    key_id: bytes
    stream: bytes
    seq: int
    prev: bytes
    salt: bytes
    ct_len: int


def read_header(blob: bytes) -> BlobHeader:
    """Return a blob's header, read without a key and not authenticated.

    Raises:
        MalformedError, UnknownVersionError: The codes are those of ``open_blob``; the content is not checked.
    """
    check_frame(blob)
    return check_fields(blob)


def pack(header: BlobHeader) -> bytes:
    """Return the 116 bytes of the header."""
    channel, more, *rest = astuple(header)
    return _LAYOUT.pack(MAGIC, VERSION, SUITE, channel, _MORE if more else 0, *rest)


def check_frame(blob: bytes) -> None:
    """Check magic, version, suite and lengths, before the tag can be checked. Reads nothing else.

    Magic and version come first, because the lengths depend on the version.
    """
    if len(blob) < HEADER_BYTES:
        raise MalformedError("length", f"a blob of {len(blob)} bytes ends inside its header")
    if blob[:4] != MAGIC:
        raise MalformedError("magic", f"a blob begins with {MAGIC.hex()}, not with {blob[:4].hex()}")
    if blob[4] != VERSION:
        raise UnknownVersionError("version", f"the blob has version {blob[4]}, known is {VERSION}")
    if blob[5] != SUITE:
        raise UnknownVersionError("suite", f"the blob has suite {blob[5]}, known is {SUITE}")
    if not _MIN_BLOB <= len(blob) <= MAX_BLOB:
        raise MalformedError("length", f"a blob has {_MIN_BLOB} to {MAX_BLOB} bytes, not {len(blob)}")
    ct_len = int.from_bytes(blob[112:116], "big")
    if HEADER_BYTES + ct_len + TAG_BYTES != len(blob):
        raise MalformedError("length", f"the blob has {len(blob)} bytes, its header counts {ct_len} of ciphertext")


def key_id_of(blob: bytes) -> bytes:
    """Return the key id of a blob whose frame was checked."""
    return bytes(blob[8:24])


def check_fields(blob: bytes) -> BlobHeader:
    """Decode strictly the header of a blob whose frame was checked.

    Raises:
        MalformedError: ``seq-range``, ``first-prev``.
        UnknownVersionError: ``flags``, ``unknown-channel``.
    """
    _, _, _, channel, flags, key_id, stream, seq, prev, salt, ct_len = _LAYOUT.unpack_from(blob)
    if flags & ~_MORE:
        raise UnknownVersionError("flags", f"the blob has flags {flags:#04x}, known is {_MORE:#04x}")
    if channel not in Channel._value2member_map_:
        raise UnknownVersionError("unknown-channel", f"the blob has channel {channel}, known are 1 to {max(Channel)}")
    if not 1 <= seq <= MAX_SEQ:
        raise MalformedError("seq-range", f"a blob's seq is 1 to {MAX_SEQ}, not {seq}")
    if seq == 1 and prev != ZERO_TAG:
        raise MalformedError("first-prev", "the first blob of a stream names a blob before it")
    return BlobHeader(channel, bool(flags & _MORE), key_id, stream, seq, prev, salt, ct_len)


_TAG_LABEL = b"crystal-relay/1 blob\0"
_STREAM_BYTES = 16
_SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class VerifiedBlob:
    """Blob that passed every check.

    Attributes:
        header: Authenticated, like all other fields.
        created_at: Time of sealing by the sender's clock, ms. Never used for ordering.
        payload: The sealed bytes; for a message of several blobs, this part of it.
        tag: The ``prev`` of the stream's next blob.
    """

    header: BlobHeader
    kind: PayloadKind
    created_at: int
    payload: bytes = field(repr=False)
    tag: bytes


def seal(  # noqa: PLR0913 - every one of them is in the blob
    keys: LinkKeys,
    payload: bytes,
    *,
    channel: int,
    kind: int,
    stream: bytes,
    seq: int,
    prev: bytes,
    salt: bytes,
    created_at: int,
    more: bool = False,
) -> bytes:
    """Seal one payload into one blob.

    Seal a payload once and keep the bytes until they have arrived: sealing it again gives a different blob, and two
    blobs with one number are a fork.

    Args:
        keys: The link's keys.
        payload: Up to ``PART_BYTES`` always fit; more only if they compress well.
        channel: A ``Channel``.
        kind: A ``PayloadKind``.
        stream: The stream's id, 16 bytes.
        seq: The sequence number, from 1.
        prev: The tag of the previous blob, ``ZERO_TAG`` if there is none.
        salt: 32 bytes, fresh from the system's random source for every blob.
        created_at: The time, ms.
        more: The message continues in the next blob.

    Raises:
        ValueError: An argument that every receiver would reject, or a payload too large for one blob.
    """
    if len(stream) != _STREAM_BYTES or len(prev) != TAG_BYTES or len(salt) != _SALT_BYTES:
        raise ValueError(
            f"stream, prev and salt of {len(stream)}, {len(prev)}, {len(salt)} bytes; they have 16, 32, 32"
        )
    if not 1 <= seq <= MAX_SEQ or (seq == 1 and prev != ZERO_TAG):
        raise ValueError(f"seq {seq}: from 1, and the first has nothing before it")
    if not 0 <= created_at <= MAX_CREATED:
        raise ValueError(f"created_at {created_at} is no time in ms")
    if len(payload) > MAX_RAW:
        raise ValueError(f"a payload of {len(payload)} bytes; one blob holds at most {MAX_RAW}")
    plaintext = packing.pack(PayloadKind(kind), created_at, payload)
    ct_len = len(plaintext) + GCM_TAG_BYTES
    if ct_len > MAX_CIPHERTEXT:
        raise ValueError(f"a payload of {len(payload)} bytes does not fit into one blob; split_payload makes several")
    header = pack(BlobHeader(Channel(channel), more, keys.key_id, stream, seq, prev, salt, ct_len))
    key, nonce = blob_key(keys, header)
    ciphertext = AESGCM(key).encrypt(nonce, plaintext, header)
    mac = HMAC(keys.mac_key, SHA256())
    for part in (_TAG_LABEL, header, ciphertext):
        mac.update(part)
    return b"".join((header, ciphertext, mac.finalize()))


def split_payload(payload: bytes) -> list[tuple[bytes, bool]]:
    """Split a payload of any size into parts for consecutive blobs, each with its ``more`` (False for the last)."""
    starts = range(0, max(1, len(payload)), PART_BYTES)
    return [(payload[start : start + PART_BYTES], start + PART_BYTES < len(payload)) for start in starts]


def open_blob(
    blob: bytes,
    keys: LinkKeys | Callable[[bytes], LinkKeys | None],
    *,
    channel: int | None,
    stream: bytes,
    seq: int,
    prev: bytes | None,
) -> VerifiedBlob:
    """Open a blob, or refuse it with the first reason in the order of the specification.

    Args:
        blob: The received bytes, of any length; untrusted.
        keys: The expected keys, or a function that returns the keys of a key id, None if it is unknown or revoked.
        channel: The expected channel; None accepts any known one.
        stream: The expected stream, 16 bytes.
        seq: The expected sequence number.
        prev: The tag of the previous blob; None if the blobs of a stream replace each other and gaps are allowed.

    Raises:
        EnvelopeError: Its class says what can be done, its ``code`` why. No content was released.
    """
    check_frame(blob)
    link = _keys_for(key_id_of(blob), keys)
    _verify(blob, link)
    header = check_fields(blob)
    _check_place(header, channel, stream, seq, prev)
    head = blob[:HEADER_BYTES]
    key, nonce = blob_key(link, head)
    try:
        plaintext = AESGCM(key).decrypt(nonce, blob[HEADER_BYTES:-TAG_BYTES], head)
    except InvalidTag as error:
        raise TamperedError("gcm", f"blob {header.seq} has a valid tag around a ciphertext that has none") from error
    kind, created_at, payload = packing.unpack(plaintext)
    return VerifiedBlob(header, kind, created_at, payload, tag_of(blob))


def tag_of(blob: bytes) -> bytes:
    """Return a blob's own tag: its last 32 bytes.

    Raises:
        MalformedError: It has fewer than 32 bytes.
    """
    if len(blob) < TAG_BYTES:
        raise MalformedError("length", f"a blob of {len(blob)} bytes has no tag")
    return bytes(blob[-TAG_BYTES:])


def _keys_for(key_id: bytes, keys: LinkKeys | Callable[[bytes], LinkKeys | None]) -> LinkKeys:
    found = keys if isinstance(keys, LinkKeys) else keys(key_id)
    if found is None or found.key_id != key_id:
        raise WrongKeyError("key", f"the blob was sealed with key {key_id.hex()}, which is not known here")
    return found


def _verify(blob: bytes, keys: LinkKeys) -> None:
    """Compare the tag in constant time, before any other field is used."""
    mac = HMAC(keys.mac_key, SHA256())
    mac.update(_TAG_LABEL)
    mac.update(memoryview(blob)[:-TAG_BYTES])
    try:
        mac.verify(tag_of(blob))
    except InvalidSignature as error:
        raise TamperedError("tag", f"the tag of a blob of {len(blob)} bytes does not fit") from error


def _check_place(header: BlobHeader, channel: int | None, stream: bytes, seq: int, prev: bytes | None) -> None:
    if channel is not None and header.channel != channel:
        raise MisplacedError("channel", f"the blob is of channel {header.channel}, expected was {channel}")
    if header.stream != stream:
        raise MisplacedError("stream", f"the blob is of stream {header.stream.hex()}, expected was {stream.hex()}")
    if header.seq != seq:
        raise MisplacedError("seq", f"the blob is number {header.seq} of its stream, expected was {seq}")
    if prev is not None and header.prev != prev:
        raise ForkedError("prev", f"blob {header.seq} follows {header.prev.hex()[:16]}, expected was {prev.hex()[:16]}")
