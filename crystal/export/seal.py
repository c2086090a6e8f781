"""Seal the data of a page so that a browser opens it with a passphrase and nothing else.

AES-256-GCM; the key is PBKDF2's, because a browser has neither scrypt nor Argon2 (docs/adr/0037-export.md).
"""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ITERATIONS = 1_000_000
SALT_BYTES = 16
_KEY_BYTES = 32
_NONCE_BYTES = 12
_LABEL = b"crystal-page-1"


@dataclass(frozen=True, slots=True)
class Seal:
    """The key of one page: it is never used for another, so a block's number is its nonce."""

    salt: bytes
    cipher: AESGCM

    def close(self, number: int, data: bytes) -> bytes:
        """Encrypt the block with this number; its number is authenticated, too."""
        return self.cipher.encrypt(number.to_bytes(_NONCE_BYTES, "big"), data, _LABEL)


def make_seal(passphrase: str, salt: bytes) -> Seal:
    """Derive the key of a page. ``salt`` is random, and new for each page."""
    text = unicodedata.normalize("NFC", passphrase).encode()
    key = hashlib.pbkdf2_hmac("sha512", text, salt, ITERATIONS, _KEY_BYTES)
    return Seal(salt, AESGCM(key))
