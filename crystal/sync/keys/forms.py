"""Text forms of a key: crystal's own form with a checksum, and the output of ``openssl rand``.

Parsing never guesses: malformed input is refused with a message that names the problem and never the key.
"""

from __future__ import annotations

import base64
import codecs
import hmac
import re
from dataclasses import dataclass
from typing import Literal, NoReturn

from crystal.errors import NotConfiguredError, UsageError
from crystal.sync.keys.armor import armor, unarmor
from crystal.sync.keys.derive import DEVICE_ID_BYTES, SECRET_BYTES, checked_device, checked_secret, device_secret

KEY_PREFIX = "crystal-key1-"
MAX_KEY_BYTES = 4096

_ROOT, _DEVICE = 1, 2
_MAX_OWN_CHARS = 200
_HEX = re.compile(r"[0-9a-fA-F]+")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]+|[A-Za-z0-9_-]+)={0,2}")
_NOT_A_KEY = {
    "crystal-key": "it was written by another version of crystal",
    "crystal1:": "that is a pairing string; give it to: crystal relay join",
    "crt_": "that is a relay token, not a key",
}
_FORMS = "a key is what crystal wrote, or the output of: openssl rand -hex 32"


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

    def device_secret(self, device_id: bytes, generation: int) -> bytes:
        """Return the secret between home and a device: derived, or the key itself if it is that device's own.

        Raises:
            NotConfiguredError: This is the key of another device, or of another generation.
        """
        if self.kind == "root":
            return device_secret(self.secret, device_id, generation)
        if (self.device_id, self.generation) != (device_id, generation):
            problem = f"the key here is of device {(self.device_id or b'').hex()}, generation {self.generation}"
            wanted = f"device {device_id.hex()}, generation {generation}, is needed"
            raise NotConfiguredError(f"{problem}, but {wanted}", hint="pair this device again: crystal relay join")
        return self.secret

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


def parse_key_file(data: bytes, *, name: str = "the key") -> RelayKey:
    """Parse a key from the content of a file: text as for ``parse_key``, or 32 raw bytes.

    Text may be UTF-16 with a byte order mark, as some Windows shells write it.

    Raises:
        UsageError: It is not a key.
    """
    if len(data) > MAX_KEY_BYTES:
        raise UsageError(f"{name} is larger than {MAX_KEY_BYTES} bytes, no key is so big", hint=_FORMS)
    is_text = all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in data)
    # 32 characters of text are half a hex key, not a key.
    if len(data) == SECRET_BYTES and not is_text:
        return RelayKey("root", checked_secret(data, name=name))
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise UsageError(f"{name} is {len(data)} raw bytes long, a key has {SECRET_BYTES}", hint=_FORMS)
    return parse_key(text, name=name)


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
