"""Derive keys from the root: HKDF-Expand with SHA-256, a label for each purpose.

The root is uniform, so HKDF-Extract is not needed (RFC 5869, section 3.3). Labels are ASCII and end in a zero byte if
a value follows, so that no two inputs can be the same bytes. Source: docs/adr/0011-keys.md.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Literal

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from crystal.errors import UsageError

SECRET_BYTES = 32
DEVICE_ID_BYTES = 16
PREFIX_BYTES = 8
MAX_GENERATION = 2**32 - 1
_MIN_DIFFERENT = 8

Random = Callable[[int], bytes]
"""Returns as many unpredictable bytes as asked for: ``os.urandom``, or a test's own function."""


def new_root(random: Random) -> bytes:
    """Make a root: 32 random bytes.

    Raises:
        UsageError: The source of randomness is broken.
    """
    return checked_secret(random(SECRET_BYTES), name="the new root")


def device_secret(root: bytes, device_id: bytes, generation: int) -> bytes:
    """Derive the secret that one device shares with home, 32 bytes.

    Args:
        root: 32 bytes.
        device_id: The 16 bytes that the device was given at pairing.
        generation: 1 for a new device, one more for each rotation.

    Raises:
        ValueError: A length or the generation is out of range.
    """
    _check("root", root, SECRET_BYTES)
    checked_device(device_id, generation)
    return _expand(root, b"crystal-relay/1 device\0" + device_id + generation.to_bytes(4, "big"), SECRET_BYTES)


def shared_device_id(root: bytes, device_name: str) -> bytes:
    """Return the id, 16 bytes, of a device that has the root itself. Home and device derive it from the name alone.

    For users who put one key on all machines; a paired device gets a random id.
    """
    _check("root", root, SECRET_BYTES)
    name = unicodedata.normalize("NFC", device_name).encode("utf-8")
    return _expand(root, b"crystal-relay/1 shared device-id\0" + name, DEVICE_ID_BYTES)


def shared_prefix(root: bytes, device_id: bytes, direction: Literal["up", "down"]) -> bytes:
    """Return the first 8 bytes of the stream ids of a device with a ``shared_device_id``."""
    _check("root", root, SECRET_BYTES)
    _check("device_id", device_id, DEVICE_ID_BYTES)
    label = f"crystal-relay/1 shared prefix {direction}\0".encode("ascii")
    return _expand(root, label + device_id, PREFIX_BYTES)


def checked_secret(secret: bytes, *, name: str) -> bytes:
    """Return ``secret`` if it can be a key: 32 random bytes.

    A constant, or a pattern from an example, has few different bytes; 32 random ones have fewer than 8 once in 10^37.

    Raises:
        UsageError: It cannot be a key. The message never shows it.
    """
    hint = "make one with: openssl rand -hex 32"
    if len(secret) != SECRET_BYTES:
        raise UsageError(f"{name} is {len(secret)} bytes long, a key has {SECRET_BYTES}", hint=hint)
    different = len(set(secret))
    if different == 1:
        raise UsageError(f"{name} is weak: all its bytes are equal", hint=hint)
    if different < _MIN_DIFFERENT:
        raise UsageError(f"{name} is weak: it repeats {different} different bytes", hint=hint)
    return secret


def checked_device(device_id: bytes, generation: int) -> None:
    """Check a device id and generation.

    Raises:
        ValueError: The id is not 16 bytes, or the generation not 1 to 2^32 - 1.
    """
    _check("device_id", device_id, DEVICE_ID_BYTES)
    if not 1 <= generation <= MAX_GENERATION:
        raise ValueError(f"generation {generation} is not 1 to {MAX_GENERATION}")


def _check(name: str, value: bytes, length: int) -> None:
    if len(value) != length:
        raise ValueError(f"{name} is {len(value)} bytes long, not {length}")


def _expand(key: bytes, info: bytes, length: int) -> bytes:
    return HKDFExpand(SHA256(), length, info).derive(key)
