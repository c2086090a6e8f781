"""Read and write the text forms of a key: crystal's own form with a checksum, and the output of ``openssl rand``.

Parsing never guesses: malformed input is refused with a message that names the problem and never the key.

crystal's own form is base32 with a checksum, which people can copy in either case and across line breaks. The checksum
is CRC-32 with its four bytes at the end in the order that makes the whole a code word of the polynomial. Such a code
finds every error that is within 32 neighbouring bits, wherever it is. One wrong letter changes at most 5 bits and two
swapped neighbours at most 10, which no order of bits within the bytes can spread over more than 24: both are always
found. Any other error is missed once in 2^32 cases.
"""

from __future__ import annotations

import base64
import hmac
import re
import zlib
from dataclasses import dataclass
from typing import Literal, NoReturn

from crystal.errors import UsageError
from crystal.sync.keys.derive import DEVICE_ID_BYTES, SECRET_BYTES, checked_device, checked_secret

KEY_PREFIX = "crystal-key1-"

_ROOT, _DEVICE = 1, 2
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz234567")
_CHECKSUM_BYTES = 4
_MAX_OWN_CHARS = 200
_HEX = re.compile(r"[0-9a-fA-F]+")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]+|[A-Za-z0-9_-]+)={0,2}")
_NOT_A_KEY = {
    "crystal-key": "it was written by another version of crystal",
    "crystal1:": "that is a pairing string; give it to: crystal relay join",
    "crt_": "that is a relay token, not a key",
}
_FORMS = "a key is what crystal wrote, or the output of: openssl rand -hex 32"


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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RelayKey:
    """A key that is never shown in output, logs, tracebacks or pickles, and is compared in constant time.

    ``root`` opens everything and derives the rest; ``device`` is the secret that one device shares with home; it
    carries the device id and its generation.
    """

    kind: Literal["root", "device"]
    secret: bytes
    device_id: bytes | None = None
    generation: int | None = None

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise ValueError(f"secret is {len(self.secret)} bytes long, not {SECRET_BYTES}")
        if self.kind == "device":
            if self.device_id is None or self.generation is None:
                raise ValueError("a device key carries device_id and generation")
            checked_device(self.device_id, self.generation)
        elif self.device_id is not None or self.generation is not None:
            raise ValueError("a root carries neither device_id nor generation")

    def __repr__(self) -> str:
        if self.device_id is None:
            return f"RelayKey({self.kind}, ***)"
        return f"RelayKey({self.kind}, ***, device_id={self.device_id.hex()}, generation={self.generation})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RelayKey):
            return NotImplemented
        same = hmac.compare_digest(self.secret, other.secret)
        return same and (self.kind, self.device_id, self.generation) == (other.kind, other.device_id, other.generation)

    __hash__ = None  # type: ignore[assignment]  # nothing about a secret belongs into a table

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not copied or written anywhere but by crystal.sync.keys.places")


def format_key(key: RelayKey) -> str:
    """Encode a key in crystal's own form, which ``parse_key`` reads: one word with a checksum."""
    if key.device_id is None or key.generation is None:
        return armor(KEY_PREFIX, bytes([_ROOT]) + key.secret)
    device = key.device_id + key.generation.to_bytes(4, "big")
    return armor(KEY_PREFIX, bytes([_DEVICE]) + device + key.secret)


def parse_key(text: str, *, name: str = "the key") -> RelayKey:
    """Parse a key: crystal's own form, 64 hex digits, or base64 of 32 bytes, with or without surrounding white space.

    Base64 may be standard or URL-safe, padded or not. A form without a kind is a root.

    Args:
        text: The text from a file, a variable, a keyring, a command or a person.
        name: Its name in messages.

    Raises:
        UsageError: It is not a key. The message says why and shows nothing of it.
    """
    word = text.removeprefix("\ufeff").strip()
    if not word:
        raise UsageError(f"{name} is empty", hint=_FORMS)
    if word[: len(KEY_PREFIX)].lower() == KEY_PREFIX:
        return _parse_own(word, name)
    for start, hint in _NOT_A_KEY.items():
        if word[: len(start)].lower() == start:
            raise UsageError(f"{name} is not a key", hint=hint)
    return RelayKey("root", checked_secret(_decode(word, name), name=name))


def parse_key_file(data: bytes) -> RelayKey:
    """Parse a key from the content of a file: text as for ``parse_key``, or 32 raw bytes.

    Raises:
        UsageError: It is not a key.
    """
    is_text = all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in data)
    # 32 characters of text are half a hex key, not a key.
    if len(data) == SECRET_BYTES and not is_text:
        return RelayKey("root", checked_secret(data, name="the key"))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is None:  # not in the handler: the error's traceback would hold the key
        raise UsageError(f"the key is {len(data)} raw bytes long, a key has {SECRET_BYTES}", hint=_FORMS)
    return parse_key(text)


def _parse_own(word: str, name: str) -> RelayKey:
    payload = unarmor(KEY_PREFIX, word, name=name, max_chars=_MAX_OWN_CHARS)
    if payload[:1] == bytes([_ROOT]) and len(payload) == 1 + SECRET_BYTES:
        return RelayKey("root", checked_secret(payload[1:], name=name))
    if payload[:1] == bytes([_DEVICE]) and len(payload) == 1 + DEVICE_ID_BYTES + 4 + SECRET_BYTES:
        device_id, rest = payload[1 : 1 + DEVICE_ID_BYTES], payload[1 + DEVICE_ID_BYTES :]
        generation = int.from_bytes(rest[:4], "big")
        if generation:
            return RelayKey("device", checked_secret(rest[4:], name=name), device_id, generation)
    raise UsageError(f"{name} is of a kind that this version does not know", hint="upgrade crystal on this machine")


def _decode(word: str, name: str) -> bytes:
    """Decode hex or base64 of any length. A truncated hex key is never taken for base64."""
    if _HEX.fullmatch(word):
        if len(word) == 2 * SECRET_BYTES:
            return bytes.fromhex(word)
        raise UsageError(f"{name} is {len(word)} hex digits long, a key has {2 * SECRET_BYTES}", hint=_FORMS)
    if not _BASE64.fullmatch(word):
        raise UsageError(f"{name} holds characters that no form of a key has", hint=_FORMS)
    letters = word.rstrip("=")
    padded = letters + "=" * (-len(letters) % 4)
    if len(letters) % 4 == 1 or word not in (letters, padded):
        raise UsageError(f"{name} looks like base64 that is cut off", hint=_FORMS)
    data = base64.b64decode(padded, altchars=b"-_" if re.search("[-_]", letters) else b"+/", validate=True)
    if len(data) == SECRET_BYTES and base64.b64encode(data)[42:43] != letters[42:43].encode().translate(_URL_SAFE):
        raise UsageError(f"{name} has a typing error: its last character cannot be", hint=_FORMS)
    return data


_URL_SAFE = bytes.maketrans(b"-_", b"+/")
