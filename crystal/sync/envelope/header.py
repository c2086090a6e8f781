"""Header of a blob: 116 bytes of plaintext, and the size limits of a blob.

Source: docs/spec/envelope.md, sections 4 and 5.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from enum import IntEnum

from crystal.sync.envelope.content import MIN_PLAINTEXT
from crystal.sync.envelope.refusals import MalformedError, UnknownVersionError

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
class Header:
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


def read_header(blob: bytes) -> Header:
    """Return a blob's header, read without a key and not authenticated.

    Raises:
        MalformedError, UnknownVersionError: The codes are those of ``open_blob``; the content is not checked.
    """
    check_frame(blob)
    return check_fields(blob)


def pack(header: Header) -> bytes:
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


def check_fields(blob: bytes) -> Header:
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
    return Header(channel, bool(flags & _MORE), key_id, stream, seq, prev, salt, ct_len)
