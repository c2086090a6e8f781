"""Pairing: a short code becomes a key that only the two machines have, and home hands over the bundle under it.

Pure steps on bytes; the caller carries them through the relay's mailbox. Home writes phases ``hello``, ``confirm`` and
``bundle`` of side a, the device ``hello``, ``confirm`` and ``answer`` of side b:

    home                                   device
    hello()            -- hello -->        take_hello()
    take_hello()       <-- hello --
                       -- confirm -->      take_confirm()     wrong code: ends here
    take_confirm()     <-- confirm --                         or here
    give_bundle()      -- bundle -->       take_bundle()      the caller stores it
    take_answer()      <-- answer --       answer()
    words              the same four       words

Each method may be called once, in this order. Any failure ends the pairing for good: a code is valid for one attempt,
so that a relay in the middle has one guess among 2^33.
"""

from __future__ import annotations

from crystal.errors import UsageProblem
from crystal.sync.keys.bundle import (
    Answer,
    Bundle,
    decode_answer,
    decode_bundle,
    digest_of,
    encode_answer,
    encode_bundle,
    is_answer_to,
)
from crystal.sync.keys.codes import PairingCode
from crystal.sync.keys.derive import Random
from crystal.sync.keys.exchange import Exchange, MessageType, PairingFailed


class _Pairing:
    """Common part of both sides.

    Args:
        code: The code, for this pairing only.
        random: Fresh random bytes, such as ``os.urandom``.
    """

    _is_home: bool

    def __init__(self, code: PairingCode, random: Random) -> None:
        self._exchange = Exchange(code, random, is_home=self._is_home)

    @property
    def has_ended(self) -> bool:
        """True if the pairing failed; then close the mailbox."""
        return self._exchange.has_ended

    @property
    def words(self) -> tuple[str, ...]:
        """The 4 verification words, once the answer was made or received."""
        return self._exchange.words

    def give_up(self) -> bytes:
        """End the pairing. Return the message for the next phase, so that the other side need not wait."""
        return self._exchange.give_up()


class HomePairing(_Pairing):
    """Side that shows the code and gives the bundle. Every method but ``give_up`` raises PairingFailed.

    Args:
        code: A new one, for this pairing only.
        random: Fresh random bytes, such as ``os.urandom``.
    """

    _is_home = True

    def __init__(self, code: PairingCode, random: Random) -> None:
        super().__init__(code, random)
        self._given: Bundle | None = None

    def hello(self) -> bytes:
        """Return the first message."""
        with self._exchange.step("new", "said hello"):
            return self._exchange.hello()

    def take_hello(self, message: bytes) -> bytes:
        """Process the device's hello. Return home's confirmation."""
        with self._exchange.step("said hello", "confirmed"):
            self._exchange.take_hello(message, MessageType.DEVICE_HELLO)
            return self._exchange.confirm(MessageType.HOME_CONFIRM)

    def take_confirm(self, message: bytes) -> None:
        """Check that the device has the code and has verified that home has it."""
        with self._exchange.step("confirmed", "both confirmed"):
            self._exchange.take_confirm(message, MessageType.DEVICE_CONFIRM)

    def give_bundle(self, bundle: Bundle) -> bytes:
        """Seal the bundle for the device. Possible only after both have confirmed."""
        with self._exchange.step("both confirmed", "gave bundle"):
            self._given = bundle
            return self._exchange.seal(MessageType.BUNDLE, encode_bundle(bundle))

    def take_answer(self, message: bytes) -> Answer:
        """Open the device's answer: its identity, and that it stored this bundle."""
        with self._exchange.step("gave bundle", "done"):
            answer = _decoded_answer(self._exchange.open(message, MessageType.ANSWER))
            if self._given is None or not is_answer_to(answer, self._given):
                raise PairingFailed("tampered", "the device stored another bundle than it was given")
            self._exchange.finish()
            return answer


class JoinPairing(_Pairing):
    """Side that receives the code. Every method but ``give_up`` raises PairingFailed.

    Args:
        code: As the person typed it, see ``crystal.sync.keys.codes.parse_code``.
        random: Fresh random bytes, such as ``os.urandom``.
    """

    _is_home = False

    def __init__(self, code: PairingCode, random: Random) -> None:
        super().__init__(code, random)
        self._taken: Bundle | None = None

    def take_hello(self, message: bytes) -> bytes:
        """Process home's hello. Return the device's."""
        with self._exchange.step("new", "said hello"):
            own = self._exchange.hello()
            self._exchange.take_hello(message, MessageType.HOME_HELLO)
            return own

    def take_confirm(self, message: bytes) -> bytes:
        """Check that home has the code. Return the device's confirmation."""
        with self._exchange.step("said hello", "both confirmed"):
            self._exchange.take_confirm(message, MessageType.HOME_CONFIRM)
            return self._exchange.confirm(MessageType.DEVICE_CONFIRM)

    def take_bundle(self, message: bytes) -> Bundle:
        """Open the bundle. Store it, then call ``answer``."""
        with self._exchange.step("both confirmed", "has bundle"):
            plain = self._exchange.open(message, MessageType.BUNDLE)
            try:
                self._taken = decode_bundle(plain)
            except UsageProblem as error:
                raise PairingFailed("malformed", error.message, hint=error.hint) from error
            return self._taken

    def answer(self, device_name: str, agent_id: str) -> bytes:
        """Return the message that the bundle is stored, with this device's identity.

        Raises:
            UsageProblem: The name or the agent id cannot be used; the pairing continues.
        """
        digest = digest_of(self._taken) if self._taken is not None else bytes(32)
        answer = Answer(device_name=device_name, agent_id=agent_id, bundle_digest=digest)
        with self._exchange.step("has bundle", "done"):
            message = self._exchange.seal(MessageType.ANSWER, encode_answer(answer))
            self._exchange.finish()
            return message


def _decoded_answer(plain: bytes) -> Answer:
    try:
        return decode_answer(plain)
    except UsageProblem as error:
        raise PairingFailed("malformed", error.message, hint=error.hint) from error
