"""Encode the plaintext of a blob: kind, time and payload, compressed if that helps, padded to hide its length.

Source: docs/spec/envelope.md, sections 6 and 7.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from crystal.model.zstd import zstd
from crystal.sync.envelope.refusals import MalformedError, UnknownVersionError

MAX_RAW = 67_108_864
"""Maximum bytes that one blob may decompress to."""

PART_BYTES = 7 * 1024 * 1024
"""Part size of a long payload, in bytes: fits into one blob even if it cannot be compressed."""

MIN_PLAINTEXT = 1024
MAX_CREATED = (1 << 63) - 1

_LEVEL = 3
_NONE, _ZSTD = 0, 1
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_LAYOUT = struct.Struct(">BB2sQII")
_PREFIX = _LAYOUT.size


class PayloadKind(IntEnum):
    """Kind of payload."""

    RECORDS = 1
    RAW = 2
    CONTROL = 3


def padded_length(length: int) -> int:
    """Return the length to which ``length`` bytes of content are padded: Padme, and at least 1,024.

    Above 1,024 at most a sixteenth is added, and there are at most 320 different lengths up to 8 MiB.

    Source: Nikitin et al., Reducing Metadata Leakage from Encrypted Files and Communication with PURBs, 2019.
    """
    if length <= MIN_PLAINTEXT:
        return MIN_PLAINTEXT
    exponent = length.bit_length() - 1
    low_bits = exponent - exponent.bit_length()
    return ((length - 1 >> low_bits) + 1) << low_bits


def pack(kind: PayloadKind, created_at: int, payload: bytes) -> bytes:
    """Return the plaintext of one blob. Uses zstd only if it makes the padded length smaller."""
    codec, body = _NONE, payload
    if padded_length(_PREFIX + len(payload)) > MIN_PLAINTEXT:
        frame = zstd.compress(payload, level=_LEVEL)
        if padded_length(_PREFIX + len(frame)) < padded_length(_PREFIX + len(payload)):
            codec, body = _ZSTD, frame
    prefix = _LAYOUT.pack(kind, codec, bytes(2), created_at, len(payload), len(body))
    used = _PREFIX + len(body)
    return b"".join((prefix, body, bytes(padded_length(used) - used)))


def unpack(plaintext: bytes) -> tuple[PayloadKind, int, bytes]:
    """Return kind, time and payload of an authentic plaintext of at least 1,024 bytes. Strict, in bounded memory.

    Raises:
        UnknownVersionError: ``kind``, ``codec``.
        MalformedError: ``reserved``, ``created``, ``raw-length``, ``body-length``, ``padded-length``, ``padding``,
            ``zstd``.
    """
    kind, codec, reserved, created_at, raw_len, body_len = _LAYOUT.unpack_from(plaintext)
    if kind not in PayloadKind._value2member_map_:
        raise UnknownVersionError("kind", f"the blob holds kind {kind}, known are 1 to {max(PayloadKind)}")
    if codec not in (_NONE, _ZSTD):
        raise UnknownVersionError("codec", f"the blob is compressed with codec {codec}, known are 0 and 1")
    if reserved != bytes(2):
        raise MalformedError("reserved", f"the reserved bytes are {reserved.hex()}, not zero")
    if created_at > MAX_CREATED:
        raise MalformedError("created", f"the blob's time is {created_at}")
    if raw_len > MAX_RAW:
        raise MalformedError("raw-length", f"the blob would become {raw_len} bytes, allowed are {MAX_RAW}")
    used = _PREFIX + body_len
    if used > len(plaintext):
        raise MalformedError(
            "body-length", f"the blob holds {len(plaintext)} bytes, its body alone would be {body_len}"
        )
    if codec == _NONE and raw_len != body_len:
        raise MalformedError("raw-length", f"the body has {body_len} bytes, but {raw_len} are announced")
    if len(plaintext) != padded_length(used):
        raise MalformedError(
            "padded-length", f"{used} bytes are padded to {padded_length(used)}, not to {len(plaintext)}"
        )
    if plaintext.count(0, used) != len(plaintext) - used:
        raise MalformedError("padding", "the padding is not all zero")
    body = plaintext[_PREFIX:used]
    return PayloadKind(kind), created_at, body if codec == _NONE else _decompressed(body, raw_len)


def _decompressed(body: bytes, raw_len: int) -> bytes:
    """Return the content of exactly one zstd frame that announces, and yields, exactly ``raw_len`` bytes."""
    try:
        # A skippable frame also has a size, but no content.
        announced = zstd.get_frame_info(body).decompressed_size if body.startswith(_ZSTD_MAGIC) else None
        if announced != raw_len:
            raise MalformedError("zstd", f"the body is no zstd frame of {raw_len} bytes")
        if (window := _window(body)) > MAX_RAW:
            raise MalformedError("zstd", f"the body asks for a window of {window} bytes, allowed are {MAX_RAW}")
        decoder = zstd.ZstdDecompressor()
        # One byte more than allowed, so that the decoder reaches the end of the frame.
        text: bytes = decoder.decompress(body, raw_len + 1)
    except zstd.ZstdError as error:
        raise MalformedError("zstd", f"the body of {len(body)} bytes does not decompress") from error
    if len(text) != raw_len or not decoder.eof or decoder.unused_data:
        raise MalformedError("zstd", f"the body of {len(body)} bytes is not one whole frame of {raw_len} bytes")
    return text


def _window(frame: bytes) -> int:
    """Return the window size of a zstd frame in bytes; 0 if it equals the content size.

    The library does not check it if the content is decoded in one piece.

    Source: RFC 8878, section 3.1.1.1.2.
    """
    if frame[4] & 0x20:
        return 0
    unit = 1 << 7 + (frame[5] >> 3)
    return unit * (8 + (frame[5] & 7))
