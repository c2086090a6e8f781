"""Seal blobs as docs/spec/envelope.md says, right or wrong on purpose, for the vectors that make.py writes.

Made from the specification alone: this file knows nothing of crystal.sync.envelope, so that the two check each other.
HKDF and HMAC are the standard library's, zstd frames are built by hand; the same bytes come out on every machine.
"""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ROOT = bytes(range(32))
DEVICE = bytes.fromhex("00112233445566778899aabbccddeeff")
STREAM = bytes(range(0xA0, 0xB0))
SALT = b"\x5a" * 32
NOTHING = bytes(32)
BEFORE = b"\xbe" * 32
NOW = 1767225600000
LINE = b'{"type":"user"}\n'
MAX_SEQ = 2**63 - 1
# `zstd -3` of 64 copies of {"type":"assistant","n":1}\n, as version 1.5.7 writes it: a frame with real sequences.
REAL_TEXT = b'{"type":"assistant","n":1}\n' * 64
REAL_FRAME = bytes.fromhex("28b52ffd60c0051d0100d87b2274797065223a22617373697374616e74222c226e223a317d0a01008beaff1c03")


# ---------------------------------------------------------------------------------------------------- the format


def expand(key: bytes, info: bytes, length: int) -> bytes:
    out = block = b""
    for count in range(1, 256):
        if len(out) >= length:
            break
        block = hmac.new(key, block + info + bytes([count]), hashlib.sha256).digest()
        out += block
    return out[:length]


def secret_of(root: bytes = ROOT, device: bytes = DEVICE, generation: int = 1) -> bytes:
    return expand(root, b"crystal-relay/1 device\0" + device + generation.to_bytes(4, "big"), 32)


SECRET = secret_of()


def link_of(secret: bytes = SECRET, direction: str = "up") -> bytes:
    return expand(secret, b"crystal-relay/1 link " + direction.encode(), 32)


LINK = link_of()


def key_id_of(link: bytes) -> bytes:
    return expand(link, b"crystal-relay/1 key-id", 16)


def mac_key_of(link: bytes) -> bytes:
    return expand(link, b"crystal-relay/1 hmac-sha256", 32)


def padme(length: int) -> int:
    if length < 1024:
        return 1024
    exponent = length.bit_length() - 1
    size = exponent.bit_length()
    mask = (1 << (exponent - size)) - 1
    return (length + mask) & ~mask


def plain(body: bytes = LINE, **change: int) -> bytes:
    """A plaintext, right unless something is changed. ``total`` is its length, ``pad_at`` a pad byte that is not 0."""
    used = 20 + len(body)
    total = change.get("total", padme(used))
    out = bytearray(
        bytes([change.get("kind", 1), change.get("codec", 0)])
        + change.get("reserved", 0).to_bytes(2, "big")
        + change.get("created", NOW).to_bytes(8, "big")
        + change.get("raw_len", len(body)).to_bytes(4, "big")
        + change.get("body_len", len(body)).to_bytes(4, "big")
        + body
        + bytes(total - used)
    )
    if "pad_at" in change:
        out[change["pad_at"]] = 1
    return bytes(out)


def head(length: int, link: bytes = LINK, **change: int | bytes) -> bytes:
    def number(name: str, default: int, size: int) -> bytes:
        value = change.get(name, default)
        assert isinstance(value, int)
        return value.to_bytes(size, "big")

    def raw(name: str, default: bytes) -> bytes:
        value = change.get(name, default)
        assert isinstance(value, bytes)
        return value

    return (
        raw("magic", b"CRB1")
        + number("version", 1, 1)
        + number("suite", 1, 1)
        + number("channel", 1, 1)
        + number("flags", 0, 1)
        + raw("key_id", key_id_of(link))
        + raw("stream", STREAM)
        + number("seq", 1, 8)
        + raw("prev", NOTHING)
        + raw("salt", SALT)
        + number("ct_len", length, 4)
    )


def encrypted(header: bytes, plaintext: bytes, link: bytes = LINK, aad: bytes | None = None) -> bytes:
    material = expand(link, b"crystal-relay/1 aes-256-gcm\0" + header, 44)
    return AESGCM(material[:32]).encrypt(material[32:], plaintext, header if aad is None else aad)


def tagged(header: bytes, ciphertext: bytes, link: bytes = LINK, label: bytes = b"crystal-relay/1 blob\0") -> bytes:
    return header + ciphertext + hmac.new(mac_key_of(link), label + header + ciphertext, hashlib.sha256).digest()


def sealed(plaintext: bytes | None = None, link: bytes = LINK, **change: int | bytes) -> bytes:
    plaintext = plain() if plaintext is None else plaintext
    header = head(len(plaintext) + 16, link, **change)
    return tagged(header, encrypted(header, plaintext, link), link)


def flipped(blob: bytes, at: int, bit: int = 0) -> bytes:
    out = bytearray(blob)
    out[at] ^= 1 << bit
    return bytes(out)


# --------------------------------------------------------------------------------------------- zstd by hand, RFC 8878


def block(kind: int, size: int, data: bytes, *, last: bool = True) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + data


def raw_block(text: bytes, *, last: bool = True) -> bytes:
    return block(0, len(text), text, last=last)


def same_bytes(count: int) -> bytes:
    """Blocks that decompress to ``count`` zero bytes: four bytes for each 128 KiB."""
    sizes = [131072] * (count // 131072) + ([count % 131072] if count % 131072 else [])
    return b"".join(block(1, size, b"\0", last=at == len(sizes) - 1) for at, size in enumerate(sizes))


def frame(announced: int | None, blocks: bytes, *, descriptor: int = 0, extra: bytes = b"") -> bytes:
    """One segment with a content size of eight bytes; without a size, a window of 1 KiB."""
    if announced is None:
        return b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + b"\0" + extra + blocks
    return b"\x28\xb5\x2f\xfd" + bytes([0xE0 | descriptor]) + extra + announced.to_bytes(8, "little") + blocks


def windowed(announced: int, window_log: int, blocks: bytes, *, eighths: int = 0) -> bytes:
    """A frame that announces size and window."""
    window = bytes([(window_log - 10) << 3 | eighths])
    return b"\x28\xb5\x2f\xfd" + bytes([0xC0]) + window + announced.to_bytes(8, "little") + blocks


def squeezed(body: bytes, raw_len: int) -> bytes:
    return plain(body, codec=1, raw_len=raw_len)
