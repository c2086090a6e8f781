"""Encode what home gives a device, and the device's answer: fixed fields, then texts that end with a zero byte.

Decoding is strict, also from a trusted peer: nothing may be missing, too long, left over or unprintable.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass, field
from typing import NoReturn

from crystal.config.paths import checked_agent_id
from crystal.errors import UsageError
from crystal.sync.keys.derive import DEVICE_ID_BYTES, MAX_GENERATION, PREFIX_BYTES, SECRET_BYTES, checked_secret
from crystal.sync.keys.forms import RelayKey, armor, unarmor

BUNDLE_VERSION = 1
MAX_BUNDLE_BYTES = 16_000
MAX_NAME_BYTES = 64
OFFLINE_PREFIX = "crystal1:"
MAX_OFFLINE_CHARS = len(OFFLINE_PREFIX) + (MAX_BUNDLE_BYTES + 4) * 8 // 5 + 8
DIGEST_BYTES = 32
_URL = re.compile(r"https?://[!-~]{1,1000}")
_TOKEN = re.compile(r"[!-~]{1,200}")
_PEM = re.compile(r"[ -~\r\n]*")
_FIXED = struct.Struct(f">B{DEVICE_ID_BYTES}sI{SECRET_BYTES}s{PREFIX_BYTES}s{PREFIX_BYTES}s")


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything that a device needs to relay to its home. Its repr shows no secret; it cannot be pickled.

    Attributes:
        url: The relay's address, http or https.
        token: The device's relay token.
        device_id: The device id, 16 bytes, chosen by home.
        generation: The generation of ``device_secret``, from 1.
        device_secret: The device secret, 32 bytes, derived by home from its root.
        up_prefix: First 8 bytes of the ids of streams that the device writes.
        down_prefix: First 8 bytes of the ids of streams that it reads.
        home_name: The home machine's name.
        device_name: The name that home proposes for the device; empty if the device names itself.
        ca: The PEM text of a private certificate authority, or None.
    """

    url: str
    token: str = field(repr=False)
    device_id: bytes
    generation: int
    device_secret: bytes = field(repr=False)
    up_prefix: bytes
    down_prefix: bytes
    home_name: str
    device_name: str = ""
    ca: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _length("device_id", self.device_id, DEVICE_ID_BYTES)
        _length("up_prefix", self.up_prefix, PREFIX_BYTES)
        _length("down_prefix", self.down_prefix, PREFIX_BYTES)
        checked_secret(self.device_secret, name="the device's key")
        _must(self.up_prefix != self.down_prefix, "its two stream prefixes are equal")
        _must(1 <= self.generation <= MAX_GENERATION, f"its generation is {self.generation}")
        _must(bool(_URL.fullmatch(self.url)), "its relay address is not one")
        _must(bool(_TOKEN.fullmatch(self.token)), "its relay token cannot be one")
        _name("home's name", self.home_name)
        _name("the device's name", self.device_name)
        _must(self.ca is None or (bool(self.ca) and bool(_PEM.fullmatch(self.ca))), "its certificate is not PEM")

    @property
    def key(self) -> RelayKey:
        """Return the device key for ``KeyPlaces.write_key``."""
        return RelayKey("device", self.device_secret, self.device_id, self.generation)

    @property
    def digest(self) -> bytes:
        """Return the 32-byte digest by which a device names the bundle that it stored."""
        return hashlib.sha256(b"crystal-pair/1 bundle\0" + self.encode()).digest()

    def encode(self) -> bytes:
        """Encode the bundle as bytes, about 180 without a certificate.

        Raises:
            UsageError: It is too large; only a long certificate can make it so.
        """
        ids = (self.device_id, self.generation, self.device_secret, self.up_prefix, self.down_prefix)
        texts = _join(self.url, self.token, self.home_name, self.device_name, self.ca or "")
        data = _FIXED.pack(BUNDLE_VERSION, *ids) + texts
        if len(data) > MAX_BUNDLE_BYTES:
            problem = f"the pairing bundle is {len(data)} bytes long, at most {MAX_BUNDLE_BYTES} are possible"
            raise UsageError(problem, hint="give a certificate file with one certificate, that of the authority")
        return data

    def format_offline(self) -> str:
        """Encode the bundle as one word with a checksum, about 300 characters; in capitals it makes a smaller QR code.

        Anyone who reads this word can act as the device. It is passed from screen to camera or through standard input,
        never on a command line.
        """
        return armor(OFFLINE_PREFIX, self.encode())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a bundle holds keys and is not copied")


@dataclass(frozen=True, slots=True)
class BundleReceipt:
    """The device's answer after storing its bundle: its name, its agent, and the bundle's digest."""

    device_name: str
    agent_id: str
    bundle_digest: bytes

    def __post_init__(self) -> None:
        _must(bool(self.device_name), "the device has no name")
        _name("the device's name", self.device_name)
        checked_agent_id(self.agent_id)
        _length("bundle_digest", self.bundle_digest, DIGEST_BYTES)

    def encode(self) -> bytes:
        """Encode the device's answer as bytes."""
        return self.bundle_digest + _join(self.device_name, self.agent_id)


def decode_bundle(data: bytes) -> Bundle:
    """Decode the output of ``Bundle.encode``.

    Raises:
        UsageError: It is not a bundle, or of another version.
    """
    _must(0 < len(data) <= MAX_BUNDLE_BYTES, f"it is {len(data)} bytes long")
    if data[0] != BUNDLE_VERSION:
        problem = f"the pairing bundle is of version {data[0]}, this crystal reads version {BUNDLE_VERSION}"
        raise UsageError(problem, hint="upgrade the older of the two machines")
    try:
        _, device_id, generation, secret, up, down = _FIXED.unpack_from(data)
        url, token, home, device, ca = _split(data[_FIXED.size :])
    except (struct.error, ValueError) as error:
        raise _unusable("it is cut off or damaged") from error
    return Bundle(url, token, device_id, generation, secret, up, down, home, device, ca or None)


def parse_offline(text: str) -> Bundle:
    """Decode the word, in any case, with line breaks and spaces anywhere.

    Raises:
        UsageError: It is damaged. One wrong character and two swapped neighbours are always detected.
    """
    return decode_bundle(unarmor(OFFLINE_PREFIX, text, name="the pairing string", max_chars=MAX_OFFLINE_CHARS))


def decode_answer(data: bytes) -> BundleReceipt:
    """Decode the output of ``BundleReceipt.encode``.

    Raises:
        UsageError: It is not an answer.
    """
    try:
        name, agent = _split(data[DIGEST_BYTES:])
    except ValueError as error:
        raise _unusable("the device's answer is damaged") from error
    return BundleReceipt(name, agent, data[:DIGEST_BYTES])


def _join(*texts: str) -> bytes:
    return "".join(f"{text}\0" for text in texts).encode()


def _split(data: bytes) -> list[str]:
    """Undo ``_join``; what is cut off or damaged raises ValueError."""
    *texts, end = data.decode().split("\0")
    if end:
        raise ValueError("the last text has no end")
    return texts


def _name(what: str, name: str) -> None:
    """Refuse a name with characters that are unsafe on a terminal."""
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        size = MAX_NAME_BYTES + 1
    _must(size <= MAX_NAME_BYTES and name.isprintable(), f"{what} is not one line of at most {MAX_NAME_BYTES} bytes")


def _length(what: str, value: bytes, length: int) -> None:
    _must(len(value) == length, f"{what} is {len(value)} bytes long, not {length}")


def _must(condition: bool, problem: str) -> None:
    if not condition:
        raise _unusable(problem)


def _unusable(problem: str) -> UsageError:
    return UsageError(f"the pairing bundle cannot be used: {problem}", hint="pair again: crystal relay pair")
