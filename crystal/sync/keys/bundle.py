"""Encode what home gives a device, and the device's answer: fixed fields first, then texts with their length.

Decoding is strict, also from a trusted peer: nothing may be missing, too long, left over or unprintable.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import NoReturn

from crystal.config.paths import checked_agent_id
from crystal.errors import UsageProblem
from crystal.sync.keys.derive import DEVICE_ID_BYTES, MAX_GENERATION, PREFIX_BYTES, SECRET_BYTES, checked_secret
from crystal.sync.keys.forms import RelayKey

BUNDLE_VERSION = 1
MAX_BUNDLE_BYTES = 16_000
MAX_NAME_BYTES = 64
_URL = re.compile(r"https?://[!-~]{1,1000}")
_TOKEN = re.compile(r"[!-~]{1,200}")
_PEM = re.compile(r"[ -~\r\n]*")
_SCHEME = "https://"


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
        """Device key for ``crystal.sync.keys.places.write_key``."""
        return RelayKey("device", self.device_secret, self.device_id, self.generation)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a bundle holds keys and is not copied")


@dataclass(frozen=True, slots=True)
class Answer:
    """The device's answer after storing its bundle: its name, its agent, and which bundle."""

    device_name: str
    agent_id: str
    bundle_digest: bytes

    def __post_init__(self) -> None:
        _must(bool(self.device_name), "the device has no name")
        _name("the device's name", self.device_name)
        checked_agent_id(self.agent_id)
        _length("bundle_digest", self.bundle_digest, 32)


def encode_bundle(bundle: Bundle) -> bytes:
    """Encode a bundle as bytes, about 180 without a certificate.

    Raises:
        UsageProblem: It is too large; only a long certificate can make it so.
    """
    is_tls = bundle.url.startswith(_SCHEME)
    flags = is_tls | (bundle.ca is not None) << 1
    fixed = bytes([BUNDLE_VERSION, flags]) + bundle.device_id + bundle.generation.to_bytes(4, "big")
    fixed += bundle.device_secret + bundle.up_prefix + bundle.down_prefix
    url = bundle.url.removeprefix(_SCHEME) if is_tls else bundle.url
    texts = [url, bundle.token, bundle.home_name, bundle.device_name, *([bundle.ca] if bundle.ca is not None else [])]
    data = fixed + b"".join(_text(text) for text in texts)
    if len(data) > MAX_BUNDLE_BYTES:
        problem = f"the pairing bundle is {len(data)} bytes long, at most {MAX_BUNDLE_BYTES} are possible"
        raise UsageProblem(problem, hint="give a certificate file with one certificate, that of the authority")
    return data


def decode_bundle(data: bytes) -> Bundle:
    """Decode the output of ``encode_bundle``.

    Raises:
        UsageProblem: It is not a bundle, or of another version.
    """
    reader = _Reader(data, "the pairing bundle")
    _must(len(data) <= MAX_BUNDLE_BYTES, "it is too long")
    version, flags = reader.take(2)
    if version != BUNDLE_VERSION:
        problem = f"the pairing bundle is of version {version}, this crystal reads version {BUNDLE_VERSION}"
        raise UsageProblem(problem, hint="upgrade the older of the two machines")
    _must(flags <= 3, "it has unknown flags")
    device_id, generation = reader.take(DEVICE_ID_BYTES), int.from_bytes(reader.take(4), "big")
    secret, up, down = reader.take(SECRET_BYTES), reader.take(PREFIX_BYTES), reader.take(PREFIX_BYTES)
    url, token, home, device = (reader.text() for _ in range(4))
    ca = reader.text() if flags & 2 else None
    reader.end()
    _must(bool(flags & 1) or not url.startswith(_SCHEME), "its relay address is not in its shortest form")
    return Bundle(
        url=_SCHEME + url if flags & 1 else url,
        token=token,
        device_id=device_id,
        generation=generation,
        device_secret=secret,
        up_prefix=up,
        down_prefix=down,
        home_name=home,
        device_name=device,
        ca=ca,
    )


def encode_answer(answer: Answer) -> bytes:
    """Encode the device's answer as bytes."""
    return bytes([BUNDLE_VERSION]) + answer.bundle_digest + _text(answer.device_name) + _text(answer.agent_id)


def decode_answer(data: bytes) -> Answer:
    """Decode the output of ``encode_answer``.

    Raises:
        UsageProblem: It is not an answer, or of another version.
    """
    reader = _Reader(data, "the device's answer")
    _must(reader.take(1) == bytes([BUNDLE_VERSION]), "its answer is of another version")
    digest = reader.take(32)
    answer = Answer(device_name=reader.text(), agent_id=reader.text(), bundle_digest=digest)
    reader.end()
    return answer


def digest_of(bundle: Bundle) -> bytes:
    """Return the 32-byte digest by which a device names the bundle that it stored."""
    return hashlib.sha256(b"crystal-pair/1 bundle\0" + encode_bundle(bundle)).digest()


def is_answer_to(answer: Answer, bundle: Bundle) -> bool:
    """Return True if the device stored exactly this bundle."""
    return hmac.compare_digest(answer.bundle_digest, digest_of(bundle))


class _Reader:
    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._at = 0

    def take(self, count: int) -> bytes:
        piece = self._data[self._at : self._at + count]
        if len(piece) != count:
            raise UsageProblem(f"{self._name} is cut off", hint=_AGAIN)
        self._at += count
        return piece

    def text(self) -> str:
        """Read a text: its length in one byte, or in two more after 255, then UTF-8."""
        length = self.take(1)[0]
        if length == 255:
            length = int.from_bytes(self.take(2), "big")
            _must(length >= 255, "a length is not in its shortest form")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageProblem(f"{self._name} holds a text that is not UTF-8", hint=_AGAIN) from error

    def end(self) -> None:
        if self._at != len(self._data):
            raise UsageProblem(f"{self._name} has {len(self._data) - self._at} bytes too many", hint=_AGAIN)


_AGAIN = "pair again: crystal relay pair"


def _text(text: str) -> bytes:
    data = text.encode("utf-8")
    if len(data) >= 65_536:
        raise UsageProblem(
            f"a text of the pairing bundle is {len(data)} bytes long", hint="shorten the certificate file"
        )
    return (bytes([len(data)]) if len(data) < 255 else b"\xff" + len(data).to_bytes(2, "big")) + data


def _name(what: str, name: str) -> None:
    """Refuse a name with characters that are not safe on a terminal."""
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        size = MAX_NAME_BYTES + 1
    _must(size <= MAX_NAME_BYTES and name.isprintable(), f"{what} is not one line of at most {MAX_NAME_BYTES} bytes")


def _length(what: str, value: bytes, length: int) -> None:
    _must(len(value) == length, f"{what} is {len(value)} bytes long, not {length}")


def _must(condition: bool, problem: str) -> None:
    if not condition:
        raise UsageProblem(f"the pairing bundle cannot be used: {problem}", hint=_AGAIN)
