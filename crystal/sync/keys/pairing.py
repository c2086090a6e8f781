"""Pair two machines: a short code becomes a key that only they have, which seals the bundle from home.

Six messages in one order; the caller carries them through the relay's mailbox:

    number  from    phase    body                                    after it
    1       home    hello    id drawn for this pairing, SPAKE2
    2       device  hello    the same                                both derive the key
    3       home    confirm  proof of the key                        the device knows that home has the code
    4       device  confirm  proof of the key                        home knows that the device has it
    5       home    bundle   sealed: see ``crystal.sync.keys.bundle``  the device stores it
    6       device  answer   sealed: name, agent, the bundle's digest  both show the same four words

Every message is a version byte, its number and the body; number 7 instead of any of these means that its sender gives
up. The transcript covers every message in full, in order, so each is bound to all before it. Any failure ends the
pairing for good: a code is valid for one attempt, so that a relay in the middle has one guess among 2^33. Byte layout:
docs/adr/0011-keys.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Iterator
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from spake2 import SPAKE2_A, SPAKE2_B, SPAKEError
from spake2.ed25519_basic import NotOnCurve

from crystal.errors import DeniedError
from crystal.sync.keys.derive import Random
from crystal.sync.keys.word_codes import PairingCode, words_of_bits

PAIRING_VERSION = 1
MAX_MESSAGE = 16_384
VERIFICATION_WORDS = 4
SIDE_ID_BYTES = 16
PHASES = ("hello", "hello", "confirm", "confirm", "bundle", "answer")
"""Names of the messages in the mailbox; home sends the odd ones, the device the even ones."""
_HELLOS, _CONFIRMS, _GIVE_UP, _ENDED = 2, 4, 7, -1
_SPAKE_BYTES = 33
_TAG_BYTES = 32
_FIELD = 2**255 - 19
_HOME, _DEVICE = b"crystal-pair/1 home", b"crystal-pair/1 device"
_START_OVER = "start over with a new code: crystal relay pair"


class PairingError(DeniedError):
    """The pairing failed and its code is used up. Nothing was handed over, unless home had sent the bundle already.

    Attributes:
        code: ``wrong-code``, ``malformed``, ``version``, ``order``, ``gave-up``, ``tampered``, ``gone`` or ``late``.
    """

    def __init__(self, code: str, message: str, *, hint: str | None = _START_OVER) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class Pairing:
    """State of one side of a pairing. The first violation of the protocol ends it for good.

    Args:
        code: The code, for this pairing only.
        random: Fresh random bytes, such as ``os.urandom``.
        is_home: Home is side A of SPAKE2, the device side B.
    """

    def __init__(self, code: PairingCode, random: Random, *, is_home: bool) -> None:
        side = SPAKE2_A if is_home else SPAKE2_B
        self._is_home = is_home
        self._spake = side(code.text.encode("ascii"), idA=_HOME, idB=_DEVICE, entropy_f=random)
        self._nameplate = code.nameplate.to_bytes(4, "big")
        self._transcript = hashlib.sha256(b"crystal-pair/1 transcript\0" + self._nameplate).digest()
        self._own_hello: bytes = random(SIDE_ID_BYTES) + self._spake.start()
        self._ids = [self._own_hello[:SIDE_ID_BYTES]]
        self._secret = self._context = b""
        self._passed = 0
        self._words: tuple[str, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Return True if the pairing failed; then every method fails, and the mailbox can be closed."""
        return self._passed == _ENDED

    @property
    def phase(self) -> str:
        """Return the name of the next message in the mailbox.

        Raises:
            PairingError: The pairing is complete, or has ended.
        """
        if not 0 <= self._passed < len(PHASES):
            raise PairingError("order", "this pairing has ended" if self.has_ended else "the pairing is complete")
        return PHASES[self._passed]

    @property
    def words(self) -> tuple[str, ...]:
        """Return the 4 verification words, the same on both sides if and only if both saw the same messages.

        Raises:
            PairingError: The pairing is not complete.
        """
        if not self._words:
            raise PairingError("order", "the pairing is not complete, so there is nothing to compare")
        return self._words

    def give_up(self) -> bytes:
        """End the pairing. Return the message for the next phase, so that the other side need not wait."""
        self._end()
        return bytes([PAIRING_VERSION, _GIVE_UP])

    def send(self, plain: bytes = b"") -> bytes:
        """Make the next message, which must be this side's; ``plain`` is the content of a bundle or an answer.

        Raises:
            PairingError: It is the other side's turn, or the pairing has ended.
        """
        with self._step(is_ours=True) as number:
            start = bytes([PAIRING_VERSION, number])
            if number <= _HELLOS:
                message = start + self._own_hello
            elif number <= _CONFIRMS:
                message = start + self._confirmation(number)
            else:
                key, nonce = self._sealing(number)
                message = start + AESGCM(key).encrypt(nonce, plain, start + self._transcript)
            self._absorb(message)
        return message

    def take(self, message: bytes) -> bytes:
        """Check the next message, which must be the other side's; return the content of a bundle or an answer.

        Raises:
            PairingError: The message is not the expected one, or not authentic; or the pairing has ended.
        """
        with self._step(is_ours=False) as number:
            body = _body(message, number)
            plain = b""
            if number <= _HELLOS:
                self._take_hello(body)
            elif number <= _CONFIRMS:
                self._take_confirm(body, number)
            else:
                plain = self._open(message, number)
            self._absorb(message)
        return plain

    @contextlib.contextmanager
    def _step(self, *, is_ours: bool) -> Iterator[int]:
        """Process the message with this number; any error ends the pairing."""
        number = self._passed + 1
        try:
            _ = self.phase
            if is_ours is not (self._is_home is (number % 2 == 1)):
                raise PairingError("order", "a pairing step is out of order")
            yield number
        except BaseException:
            self._end()
            raise
        self._passed = number
        if number == _HELLOS:
            first, second = self._ids if self._is_home else self._ids[::-1]
            self._context = self._nameplate + first + second + self._transcript
        if number == len(PHASES):
            bits = self._expand(b"verification words\0" + self._transcript, 6)
            self._words = words_of_bits(bits, VERIFICATION_WORDS)
            self._secret = b""

    def _take_hello(self, body: bytes) -> None:
        if len(body) != SIDE_ID_BYTES + _SPAKE_BYTES:
            raise PairingError("malformed", f"the other side's first message has {len(body)} bytes")
        side_id, half = body[:SIDE_ID_BYTES], body[SIDE_ID_BYTES:]
        if side_id in self._ids:
            raise PairingError("tampered", "the relay sent back this machine's own message")
        # The library would accept a second encoding of a point, and another encoding of zero.
        if not 1 < int.from_bytes(half[1:], "little") % 2**255 < _FIELD:
            raise PairingError("malformed", "the other side's first message is not one of SPAKE2")
        try:
            shared = self._spake.finish(half)
        except (SPAKEError, NotOnCurve, ValueError, AssertionError) as error:
            raise PairingError("malformed", "the other side's first message is not one of SPAKE2") from error
        del self._spake
        self._ids.append(side_id)
        self._secret = hmac.digest(b"crystal-pair/1", shared, "sha256")

    def _take_confirm(self, body: bytes, number: int) -> None:
        if len(body) != _TAG_BYTES:
            raise PairingError("malformed", f"the other side's confirmation has {len(body)} bytes")
        if not hmac.compare_digest(body, self._confirmation(number)):
            problem = "the code is not the one that the other side has, or somebody tried to guess it"
            raise PairingError("wrong-code", problem)

    def _open(self, message: bytes, number: int) -> bytes:
        key, nonce = self._sealing(number)
        try:
            return AESGCM(key).decrypt(nonce, message[2:], message[:2] + self._transcript)
        except InvalidTag as error:
            raise PairingError("tampered", "a pairing message was changed on its way") from error

    def _absorb(self, message: bytes) -> None:
        length = len(message).to_bytes(4, "big")
        self._transcript = hashlib.sha256(self._transcript + length + message).digest()

    def _confirmation(self, number: int) -> bytes:
        return hmac.digest(self._expand(b"confirm\0" + bytes([number]), 32), self._transcript, "sha256")

    def _sealing(self, number: int) -> tuple[bytes, bytes]:
        """Return key and nonce of one message; each number has its own, used once."""
        derived = self._expand(b"aes-256-gcm\0" + bytes([number]), 44)
        return derived[:32], derived[32:]

    def _expand(self, label: bytes, length: int) -> bytes:
        return HKDFExpand(SHA256(), length, b"crystal-pair/1 " + label + self._context).derive(self._secret)

    def _end(self) -> None:
        self._passed = _ENDED
        self._secret = b""
        self._words = ()
        self.__dict__.pop("_spake", None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pairing holds keys and is not copied")


def _body(message: bytes, number: int) -> bytes:
    """Return a message without its first two bytes, the version and the expected number, which are checked."""
    if not 2 <= len(message) <= MAX_MESSAGE:
        raise PairingError("malformed", f"a pairing message is {len(message)} bytes long")
    if message[0] != PAIRING_VERSION:
        problem = f"the other side pairs by version {message[0]}, this one by version {PAIRING_VERSION}"
        raise PairingError("version", problem, hint="upgrade the older of the two machines, then pair again")
    if message == bytes([PAIRING_VERSION, _GIVE_UP]):
        raise PairingError("gave-up", "the other side gave up: it had another code, or failed")
    if message[1] != number:
        raise PairingError("order", f"a pairing message is of type {message[1]}, not {number}")
    return message[2:]
