"""Common part of both sides of a pairing: SPAKE2, the running transcript, keys for each purpose and direction.

Every message is a version byte, a type byte and a body. The transcript covers every message in full, in order, so each
step is bound to all earlier ones. Byte layout: docs/adr/0011-keys.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Iterator
from enum import IntEnum
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from spake2 import SPAKE2_A, SPAKE2_B, SPAKEError
from spake2.ed25519_basic import NotOnCurve

from crystal.errors import Denied
from crystal.sync.keys.codes import PairingCode
from crystal.sync.keys.derive import Random
from crystal.sync.keys.words import words_of_bits

PAIRING_VERSION = 1
MAX_MESSAGE = 16_384
VERIFICATION_WORDS = 4
SIDE_ID_BYTES = 16
_SPAKE_BYTES = 33
_TAG_BYTES = 32
_FIELD = 2**255 - 19
_HOME, _DEVICE = b"crystal-pair/1 home", b"crystal-pair/1 device"
_START_OVER = "start over with a new code: crystal relay pair"


class MessageType(IntEnum):
    """Second byte of a message: its type, and so its sender."""

    HOME_HELLO = 1
    DEVICE_HELLO = 2
    HOME_CONFIRM = 3
    DEVICE_CONFIRM = 4
    BUNDLE = 5
    ANSWER = 6
    GIVE_UP = 7


class PairingFailed(Denied):
    """The pairing failed and its code is used up. Nothing was handed over, unless home had sent the bundle already.

    Attributes:
        code: ``wrong-code``, ``malformed``, ``version``, ``order``, ``gave-up`` or ``tampered``.
    """

    def __init__(self, code: str, message: str, *, hint: str | None = _START_OVER) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class Exchange:
    """State of one side. The first violation of the protocol ends it for good.

    Args:
        is_home: Home is side A of SPAKE2, the device side B.
        code: The code that the person typed.
        random: Fresh random bytes.
    """

    def __init__(self, code: PairingCode, random: Random, *, is_home: bool) -> None:
        side = SPAKE2_A if is_home else SPAKE2_B
        self._is_home = is_home
        self._spake = side(code.text.encode("ascii"), idA=_HOME, idB=_DEVICE, entropy_f=random)
        self._nameplate = code.nameplate.to_bytes(4, "big")
        self._transcript = hashlib.sha256(b"crystal-pair/1 transcript\0" + self._nameplate).digest()
        self._side_id = random(SIDE_ID_BYTES)
        self._hello = b""
        self._secret = b""
        self._context = b""
        self._step = "new"
        self._words: tuple[str, ...] = ()

    @property
    def has_ended(self) -> bool:
        """True if the exchange failed; then no method does anything any more."""
        return self._step == "ended"

    @property
    def words(self) -> tuple[str, ...]:
        """The 4 verification words, the same on both sides if and only if both saw the same messages.

        Raises:
            PairingFailed: The exchange is not complete.
        """
        if not self._words:
            raise PairingFailed("order", "the pairing is not complete, so there is nothing to compare")
        return self._words

    def give_up(self) -> bytes:
        """End this side, and return the message that tells the other side without a timeout."""
        self._end()
        return bytes([PAIRING_VERSION, MessageType.GIVE_UP])

    @contextlib.contextmanager
    def step(self, before: str, after: str) -> Iterator[None]:
        """Go from one step to the next; any error on the way ends the exchange.

        Raises:
            PairingFailed: The exchange is not in the step ``before``.
        """
        if self._step != before:
            has_ended = self.has_ended
            self._end()
            raise PairingFailed("order", "this pairing has ended" if has_ended else "a pairing step is out of order")
        try:
            yield
        except BaseException:
            self._end()
            raise
        self._step = after

    def hello(self) -> bytes:
        """Return this side's first message: its id, drawn for this pairing, and its SPAKE2 message."""
        kind = MessageType.HOME_HELLO if self._is_home else MessageType.DEVICE_HELLO
        self._hello = bytes([PAIRING_VERSION, kind]) + self._side_id + self._spake.start()
        return self._hello

    def take_hello(self, message: bytes, kind: MessageType) -> None:
        """Process the other side's first message. Call ``hello`` before."""
        body = self._body(message, kind)
        if len(body) != SIDE_ID_BYTES + _SPAKE_BYTES:
            raise PairingFailed("malformed", f"the other side's first message is {len(message)} bytes long")
        side_id, half = body[:SIDE_ID_BYTES], body[SIDE_ID_BYTES:]
        if side_id == self._side_id:
            raise PairingFailed("tampered", "the relay sent back this machine's own message")
        # The library would accept a second encoding of a point, and another encoding of zero.
        if not 1 < int.from_bytes(half[1:], "little") % 2**255 < _FIELD:
            raise PairingFailed("malformed", "the other side's first message is not one of SPAKE2")
        try:
            shared = self._spake.finish(half)
        except (SPAKEError, NotOnCurve, ValueError, AssertionError) as error:
            raise PairingFailed("malformed", "the other side's first message is not one of SPAKE2") from error
        del self._spake
        ours, theirs = (self._hello, message) if self._is_home else (message, self._hello)
        self._absorb(ours)
        self._absorb(theirs)
        ids = self._side_id + side_id if self._is_home else side_id + self._side_id
        self._context = self._nameplate + ids + self._transcript
        self._secret = hmac.digest(b"crystal-pair/1", shared, "sha256")

    def confirm(self, kind: MessageType) -> bytes:
        """Return the proof that this side has the key, and with it the code and the same transcript."""
        message = bytes([PAIRING_VERSION, kind]) + self._confirmation(kind)
        self._absorb(message)
        return message

    def take_confirm(self, message: bytes, kind: MessageType) -> None:
        """Check the other side's proof."""
        body = self._body(message, kind)
        if len(body) != _TAG_BYTES:
            raise PairingFailed("malformed", f"the other side's confirmation is {len(message)} bytes long")
        if not hmac.compare_digest(body, self._confirmation(kind)):
            raise PairingFailed(
                "wrong-code", "the code is not the one that the other side has, or somebody tried to guess it"
            )
        self._absorb(message)

    def seal(self, kind: MessageType, plain: bytes) -> bytes:
        """Encrypt a message of this side; each type has its own key and nonce, used once."""
        start = bytes([PAIRING_VERSION, kind])
        key, nonce = self._sealing(kind)
        message = start + AESGCM(key).encrypt(nonce, plain, start + self._transcript)
        self._absorb(message)
        return message

    def open(self, message: bytes, kind: MessageType) -> bytes:
        """Decrypt a message of the other side."""
        body = self._body(message, kind)
        key, nonce = self._sealing(kind)
        try:
            plain = AESGCM(key).decrypt(nonce, body, message[:2] + self._transcript)
        except InvalidTag as error:
            raise PairingFailed("tampered", "a pairing message was changed on its way") from error
        self._absorb(message)
        return plain

    def finish(self) -> None:
        """Derive the verification words from the whole transcript and delete the keys."""
        bits = self._expand(b"verification words\0" + self._transcript, 6)
        self._words = words_of_bits(bits, VERIFICATION_WORDS)
        self._secret = b""

    def _body(self, message: bytes, kind: MessageType) -> bytes:
        if not 2 <= len(message) <= MAX_MESSAGE:
            raise PairingFailed("malformed", f"a pairing message is {len(message)} bytes long")
        if message[0] != PAIRING_VERSION:
            problem = f"the other side pairs by version {message[0]}, this one by version {PAIRING_VERSION}"
            raise PairingFailed("version", problem, hint="upgrade the older of the two machines, then pair again")
        if message == bytes([PAIRING_VERSION, MessageType.GIVE_UP]):
            raise PairingFailed("gave-up", "the other side gave up: it had another code, or could not go on")
        if message[1] != kind:
            raise PairingFailed("order", f"a pairing message is of type {message[1]}, not {int(kind)}")
        return message[2:]

    def _absorb(self, message: bytes) -> None:
        length = len(message).to_bytes(4, "big")
        self._transcript = hashlib.sha256(self._transcript + length + message).digest()

    def _confirmation(self, kind: MessageType) -> bytes:
        return hmac.digest(self._expand(b"confirm\0" + bytes([kind]), 32), self._transcript, "sha256")

    def _sealing(self, kind: MessageType) -> tuple[bytes, bytes]:
        derived = self._expand(b"aes-256-gcm\0" + bytes([kind]), 44)
        return derived[:32], derived[32:]

    def _expand(self, label: bytes, length: int) -> bytes:
        return HKDFExpand(SHA256(), length, b"crystal-pair/1 " + label + self._context).derive(self._secret)

    def _end(self) -> None:
        self._step = "ended"
        self._secret = b""
        self._words = ()
        self.__dict__.pop("_spake", None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pairing holds keys and is not copied")
