"""Encode bytes as text that people can copy: base32 with a checksum, in either case, across line breaks.

The checksum is CRC-32 with its four bytes at the end in the order that makes the whole a code word of the polynomial.
Such a code finds every error that lies within 32 neighbouring bits, wherever it is. One wrong letter changes at most 5
bits and two swapped neighbours at most 10, which no order of bits within the bytes can spread over more than 24: both
are always found. Any other error goes unnoticed once in 2^32 cases.
"""

from __future__ import annotations

import base64
import zlib

from crystal.errors import UsageError

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz234567")
_CHECKSUM_BYTES = 4


def armor(prefix: str, payload: bytes) -> str:
    """Encode ``payload`` after ``prefix`` in lower case; ``unarmor`` with the same prefix decodes it."""
    checksum = zlib.crc32(prefix.encode("ascii") + payload).to_bytes(_CHECKSUM_BYTES, "little")
    return prefix + base64.b32encode(payload + checksum).decode("ascii").rstrip("=").lower()


def unarmor(prefix: str, text: str, *, name: str, max_chars: int) -> bytes:
    """Decode the output of ``armor``. The case of letters and white space anywhere do not matter.

    Args:
        prefix: The prefix in lower case, as given to ``armor``.
        text: The text from a person, a file or a picture.
        name: Its name in messages, which never contain any of ``text``.
        max_chars: Longer text is refused before it is decoded.

    Raises:
        UsageError: Wrong prefix, invalid character, truncated, or the checksum does not match.
    """
    hint = "copy it again, whole, from where it was shown"
    word = "".join(text.split())
    if len(word) > max_chars:
        raise UsageError(f"{name} is {len(word)} characters long, at most {max_chars} are possible", hint=hint)
    if not word.isascii():
        raise UsageError(f"{name} holds characters that are not ASCII", hint=hint)
    word = word.lower()
    if not word.startswith(prefix):
        raise UsageError(f"{name} does not begin with {prefix}", hint=hint)
    letters = word[len(prefix) :]
    for position, letter in enumerate(letters, len(prefix) + 1):
        if letter not in _LETTERS:
            problem = f"{name}: character {position} is not one of a to z and 2 to 7"
            raise UsageError(problem, hint="0 and 1 never occur in it: they may be o, and i or l")
    if len(letters) % 8 in (1, 3, 6):
        raise UsageError(f"{name} is cut off or has a character too many", hint=hint)
    data = base64.b32decode(letters.upper() + "=" * (-len(letters) % 8))
    payload, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    is_canonical = base64.b32encode(data).decode("ascii").rstrip("=").lower() == letters
    expected = zlib.crc32(prefix.encode("ascii") + payload).to_bytes(_CHECKSUM_BYTES, "little")
    if not is_canonical or checksum != expected:
        raise UsageError(f"{name} has a typing error: its checksum does not fit", hint=hint)
    return payload
