"""One side of a pairing over the relay's mailbox: across short outages, within the mailbox's time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from crystal.errors import CrystalError
from crystal.sync.client import RelayClient, Side
from crystal.sync.errors import MailboxTakenError, NotAtRelayError, RelayUnavailableError, RelayUntrustedError
from crystal.sync.keys.pairing import PHASES, Pairing, PairingError
from crystal.sync.keys.word_codes import PairingCode, new_code

T = TypeVar("T")

MAILBOX_SECONDS = 600.0
"""Time for which a relay keeps a mailbox open."""
ASK_SECONDS = 20.0
PATIENCE_SECONDS = 60.0
"""Time for which a relay that does not answer is asked again."""
PAUSE_SECONDS = 1.0


class PairingMailbox:
    """A pairing, and the mailbox that carries its messages.

    Args:
        client: The relay: with home's token, or with the joining side's claim.
        code: The code, with the mailbox's number.
        side: Ours: ``a`` is home, ``b`` the device.
    """

    def __init__(self, client: RelayClient, code: PairingCode, side: Side) -> None:
        self.client, self.code, self.side = client, code, side
        self.pairing = Pairing(code, os.urandom, is_home=side == "a")
        self._own_phases = [*PHASES[side == "b" :: 2], "done"]

    def send(self, plain: bytes = b"") -> None:
        """Send this side's next message of the pairing.

        Raises:
            PairingError: The mailbox is gone, or another message is there.
            RelayUnavailableError, RelayDeniedError: As their names say.
        """
        self._put(self.pairing.send(plain))

    def take(self) -> bytes:
        """Wait for the other side's next message, as long as the mailbox lives; return what it says.

        Raises:
            PairingError: The message is not authentic, or the mailbox is gone: the other side gave up, or its time is
                over.
            RelayUnavailableError, RelayDeniedError: As their names say.
        """
        return self.pairing.take(self.receive(self.pairing.phase, MAILBOX_SECONDS))

    def receive(self, phase: str, seconds: float) -> bytes:
        """Wait for a message of the other side. Raises as ``take``."""
        theirs: Side = "b" if self.side == "a" else "a"
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            wait = min(ASK_SECONDS, left)
            began = time.monotonic()
            message = self._ask(lambda wait=wait: self.client.get_mail(self.code.nameplate, theirs, phase, wait=wait))  # type: ignore[misc]
            if message is not None:
                return message
            if time.monotonic() - began < wait / 2:  # a relay that answers at once is not polled in a tight loop
                time.sleep(min(PAUSE_SECONDS, left))
        raise PairingError("late", "the other side did not answer in time")

    def end(self) -> None:
        """Tell the device that home has its answer; the device closes the mailbox when it has read this."""
        self._put(b"done")

    def give_up(self) -> None:
        """End the pairing, and tell the other side if it can be reached."""
        message = self.pairing.give_up()
        with contextlib.suppress(CrystalError):
            self.client.put_mail(self.code.nameplate, self.side, self._own_phases[0], message)

    def close(self) -> None:
        """Close the mailbox, if the relay can be reached."""
        with contextlib.suppress(CrystalError):
            self.client.close_mailbox(self.code.nameplate)

    def _put(self, message: bytes) -> None:
        phase = self._own_phases[0]
        try:
            self._ask(lambda: self.client.put_mail(self.code.nameplate, self.side, phase, message))
        except MailboxTakenError as error:
            raise PairingError("order", "another message of this side is in the mailbox already") from error
        self._own_phases.pop(0)

    def _ask(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return ask()
            except NotAtRelayError as error:
                why = "the pairing is over: the other side ended it, or its ten minutes have passed"
                raise PairingError("gone", why) from error
            except RelayUntrustedError:
                raise
            except RelayUnavailableError as error:
                if time.monotonic() + max(PAUSE_SECONDS, error.retry_after) > deadline:
                    raise
                time.sleep(max(PAUSE_SECONDS, error.retry_after))


@contextlib.contextmanager
def opened_mailbox(client: RelayClient) -> Iterator[PairingMailbox]:
    """Open a mailbox as home, with a new code. It is closed unless all went well and the device will close it."""
    nameplate = client.open_mailbox()
    mailbox = PairingMailbox(client, new_code(nameplate, os.urandom), "a")
    try:
        yield mailbox
    except BaseException:
        mailbox.close()
        raise
    try:
        mailbox.end()
    except CrystalError:
        mailbox.close()
