"""Derive the keys of a link: one direction between one device and home, one key per purpose.

Source: docs/spec/envelope.md, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

SECRET_BYTES = 32
KEY_ID_BYTES = 16
NONCE_BYTES = 12

_LINKS = {"up": b"crystal-relay/1 link up", "down": b"crystal-relay/1 link down"}


@dataclass(frozen=True, slots=True, repr=False)
class LinkKeys:
    """Keys that seal and open the blobs of one link. Only ``key_id`` may be printed: it is part of every header."""

    link: bytes
    key_id: bytes
    mac_key: bytes

    def __repr__(self) -> str:
        return f"LinkKeys(key_id={self.key_id.hex()})"


def link_keys(device_secret: bytes, direction: Literal["up", "down"]) -> LinkKeys:
    """Derive the keys of what a device sends to home (``up``) or home sends to it (``down``).

    Raises:
        ValueError: The secret is not 32 bytes, or the direction is unknown.
    """
    if direction not in _LINKS:
        raise ValueError(f"a link goes up or down, not {direction!r}")
    return keys_of_link(_expand(_checked(device_secret, "a device secret"), _LINKS[direction], SECRET_BYTES))


def keys_of_link(link: bytes) -> LinkKeys:
    """Derive the keys of a link with a known secret: 32 uniform bytes, such as a mirror's key.

    Raises:
        ValueError: The secret is not 32 bytes.
    """
    return LinkKeys(
        _checked(link, "a link's secret"),
        key_id=_expand(link, b"crystal-relay/1 key-id", KEY_ID_BYTES),
        mac_key=_expand(link, b"crystal-relay/1 hmac-sha256", SECRET_BYTES),
    )


def blob_key(keys: LinkKeys, header: bytes) -> tuple[bytes, bytes]:
    """Derive the AES-256-GCM key and nonce of the blob with this header. Both are used once."""
    material = _expand(keys.link, b"crystal-relay/1 aes-256-gcm\0" + header, SECRET_BYTES + NONCE_BYTES)
    return material[:SECRET_BYTES], material[SECRET_BYTES:]


def _expand(secret: bytes, info: bytes, length: int) -> bytes:
    """Run HKDF-Expand with SHA-256. The secrets are uniform, so HKDF-Extract is not needed."""
    return HKDFExpand(SHA256(), length, info).derive(secret)


def _checked(secret: bytes, name: str) -> bytes:
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"{name} has {SECRET_BYTES} bytes, not {len(secret)}")
    return bytes(secret)
