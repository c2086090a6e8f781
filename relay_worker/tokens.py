"""Tokens: their format, their check, and the meaning of their scopes. Pure functions; randomness is an argument.

A secret has 256 random bits, so storing a plain SHA-256 is enough: it cannot be guessed (slow password hashes are for
secrets chosen by people). Tokens are looked up by id and compared with ``hmac.compare_digest``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import unicodedata
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from relay_worker.errors import RequestRefusedError
from relay_worker.model import Token

SECRET_BYTES = 32
ID_BYTES = 8
MAX_SCOPES = 64
MAX_LABEL = 200

_TOKEN = re.compile(r"(crt_([0-9a-z]{16})_([A-Za-z0-9_-]{43}))_([0-9a-f]{8})")
_CLAIM = re.compile(r"[A-Za-z0-9_-]{43}")
_SCOPE = re.compile(r"home|pair|objects:(?:read|write)|(?:write|read|ack):[0-9a-f]{16}")
_CONTROLS = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DUMMY = hashlib.sha256(b"no token has this secret").digest()


@dataclass(frozen=True, slots=True)
class Minted:
    """New token: the text to show once, and the values to store."""

    id: str
    text: str
    secret_hash: bytes

    def __repr__(self) -> str:
        return f"Minted(id={self.id!r})"


def mint(id_random: bytes, secret_random: bytes) -> Minted:
    """Make a token from 8 and 32 fresh random bytes."""
    if len(id_random) != ID_BYTES or len(secret_random) != SECRET_BYTES:
        raise ValueError("a token takes 8 and 32 random bytes")
    token_id = id_random.hex()
    secret = base64.urlsafe_b64encode(secret_random).decode().rstrip("=")
    text = f"crt_{token_id}_{secret}"
    return Minted(token_id, f"{text}_{_checksum(text)}", hash_secret(secret))


def hash_secret(secret: str) -> bytes:
    """Return the hash to store of a token's or claim's secret."""
    return hashlib.sha256(secret.encode("ascii")).digest()


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode('ascii')):08x}"


def parse_token(text: str) -> tuple[str, str] | None:
    """Split a token into id and secret; None if the format or the checksum is wrong."""
    found = _TOKEN.fullmatch(text)
    if found is None or not hmac.compare_digest(_checksum(found[1]), found[4]):
        return None
    return found[2], found[3]


def parse_claim(text: str) -> str | None:
    """Return the secret of a claim; None if the format is wrong."""
    return text if _CLAIM.fullmatch(text) else None


def is_secret_of(secret: str, kept: bytes | None) -> bool:
    """Compare in constant time; without a stored hash it takes as long and returns False."""
    same = hmac.compare_digest(hash_secret(secret), _DUMMY if kept is None else kept)
    return same and kept is not None


def is_valid(secret: str, token: Token | None) -> bool:
    """Return True if this is the secret of a known token that is not revoked."""
    same = is_secret_of(secret, None if token is None else token.secret_hash)
    return same and token is not None and token.revoked_at is None


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return the scopes if each is known and given once.

    Raises:
        RequestRefusedError: ``bad-request``.
    """
    asked = tuple(scopes)
    if not 1 <= len(asked) <= MAX_SCOPES:
        raise RequestRefusedError("bad-request", f"a token has 1 to {MAX_SCOPES} scopes, not {len(asked)}")
    for scope in asked:
        if not _SCOPE.fullmatch(scope):
            raise RequestRefusedError(
                "bad-request",
                "a scope is home, pair, objects:read, objects:write, or write:, read:, ack: with 16 hexadecimal digits",
            )
    if len(set(asked)) != len(asked):
        raise RequestRefusedError("bad-request", "a scope is given twice")
    return asked


def check_label(label: str) -> str:
    """Return the label if it has no line breaks, control characters or lone surrogates.

    Raises:
        RequestRefusedError: ``bad-request``.
    """
    if not 1 <= len(label) <= MAX_LABEL or not _CONTROLS.isdisjoint(map(unicodedata.category, label)):
        raise RequestRefusedError("bad-request", f"a label has 1 to {MAX_LABEL} characters and no controls")
    return label


def allows(scopes: tuple[str, ...], verb: str) -> bool:
    """Return True if the scopes include ``verb`` (``pair``, ``objects:read``, ``objects:write``) or ``home``."""
    return "home" in scopes or verb in scopes


def allows_stream(scopes: tuple[str, ...], stream: bytes, *verbs: str) -> bool:
    """Return True if the scopes allow any of ``write``, ``read``, ``ack`` in this stream."""
    if "home" in scopes:
        return True
    prefix = stream[:8].hex()
    return any(f"{verb}:{prefix}" in scopes for verb in verbs)


def prefixes_of(scopes: tuple[str, ...]) -> tuple[bytes, ...] | None:
    """Return the stream prefixes in the scopes, None for all (``home``)."""
    if "home" in scopes:
        return None
    named = {scope.partition(":")[2] for scope in scopes if scope.startswith(("write:", "read:", "ack:"))}
    return tuple(sorted(bytes.fromhex(prefix) for prefix in named))
