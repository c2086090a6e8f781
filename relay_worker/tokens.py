"""Make, parse and check tokens, and interpret their scopes. Pure functions; randomness is an argument.

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
from collections.abc import Callable, Sequence

from relay_worker.errors import RequestRefusedError
from relay_worker.model import Token

MAX_SCOPES = 64
MAX_LABEL = 200
CLAIM = re.compile(r"[A-Za-z0-9_-]{43}")
"""Pattern of a joiner's secret."""

_TOKEN = re.compile(r"(crt_([0-9a-z]{16})_([A-Za-z0-9_-]{43}))_([0-9a-f]{8})")
_SCOPE = re.compile(r"home|pair|objects:(?:read|write)|(?:write|read|ack):[0-9a-f]{16}")
_CONTROLS = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DUMMY = hashlib.sha256(b"no token has this secret").digest()


def new_token(
    account: str, label: str, scopes: Sequence[str], now: int, random: Callable[[int], bytes]
) -> tuple[Token, str]:
    """Make a token. Return the token to store, and its text to show once.

    Raises:
        RequestRefusedError: ``bad-request``; the label or the scopes are wrong.
    """
    check_label(label)
    check_scopes(scopes)
    token_id = random(8).hex()
    secret = base64.urlsafe_b64encode(random(32)).decode().rstrip("=")
    text = f"crt_{token_id}_{secret}"
    return Token(token_id, account, label, tuple(scopes), hash_secret(secret), now), f"{text}_{_checksum(text)}"


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


def is_secret_of(secret: str, kept: bytes | None) -> bool:
    """Compare in constant time; without a stored hash it takes as long and returns False."""
    same = hmac.compare_digest(hash_secret(secret), _DUMMY if kept is None else kept)
    return same and kept is not None


def is_valid(secret: str, token: Token | None) -> bool:
    """Return True if this is the secret of a known token that is not revoked."""
    same = is_secret_of(secret, None if token is None else token.secret_hash)
    return same and token is not None and token.revoked_at is None


def check_scopes(scopes: Sequence[str]) -> None:
    """Check that each scope is known and given once.

    Raises:
        RequestRefusedError: ``bad-request``.
    """
    if not 1 <= len(scopes) <= MAX_SCOPES:
        raise RequestRefusedError("bad-request", f"a token has 1 to {MAX_SCOPES} scopes, not {len(scopes)}")
    if not all(_SCOPE.fullmatch(scope) for scope in scopes):
        raise RequestRefusedError(
            "bad-request",
            "a scope is home, pair, objects:read, objects:write, or write:, read:, ack: with 16 hexadecimal digits",
        )
    if len(set(scopes)) != len(scopes):
        raise RequestRefusedError("bad-request", "a scope is given twice")


def check_label(label: str) -> None:
    """Check that a label has no line breaks, control characters or lone surrogates.

    Raises:
        RequestRefusedError: ``bad-request``.
    """
    if not 1 <= len(label) <= MAX_LABEL or not _CONTROLS.isdisjoint(map(unicodedata.category, label)):
        raise RequestRefusedError("bad-request", f"a label has 1 to {MAX_LABEL} characters and no controls")


def prefixes_of(scopes: Sequence[str]) -> tuple[bytes, ...]:
    """Return the stream prefixes in the scopes; ``home`` has the empty prefix, which matches all streams."""
    if "home" in scopes:
        return (b"",)
    named = {scope.partition(":")[2] for scope in scopes if scope.startswith(("write:", "read:", "ack:"))}
    return tuple(sorted(bytes.fromhex(prefix) for prefix in named))
