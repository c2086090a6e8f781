"""Carrying the messages of a pairing through the relay's mailbox, across short outages, within the mailbox's time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from crystal.sync.client import RelayClient, Side
from crystal.sync.errors import MailboxTaken, NotAtRelay, RelayUnavailable, RelayUntrusted
from crystal.sync.keys.exchange import PairingFailed

T = TypeVar("T")

MAILBOX_SECONDS = 600.0
"""How long a relay keeps a mailbox open."""
ASK_SECONDS = 20.0
PATIENCE_SECONDS = 60.0
"""How long a relay that does not answer is asked again."""
PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Mailbox:
    """One side of a pairing's mailbox.

    Attributes:
        client: The relay: with home's token, or with the joining side's claim.
        nameplate: The mailbox's number.
        side: Ours: ``a`` is home, ``b`` the device.
    """

    client: RelayClient
    nameplate: int
    side: Side

    def send(self, phase: str, message: bytes) -> None:
        """Write one of our messages.

        Raises:
            PairingFailed: The mailbox is gone, or another message stands there.
            RelayUnavailable, RelayDenied: As their names say.
        """
        try:
            self._ask(lambda: self.client.put_mail(self.nameplate, self.side, phase, message))
        except MailboxTaken as error:
            raise _failed("order", "another message of this side is in the mailbox already") from error

    def receive(self, phase: str, *, seconds: float | None = None) -> bytes:
        """Wait for a message of the other side, by default as long as the mailbox lives.

        Raises:
            PairingFailed: The mailbox is gone: the other side gave up, or its time is over.
            RelayUnavailable, RelayDenied: As their names say.
        """
        theirs: Side = "b" if self.side == "a" else "a"
        deadline = time.monotonic() + (MAILBOX_SECONDS if seconds is None else seconds)
        while (left := deadline - time.monotonic()) > 0:
            wait = min(ASK_SECONDS, left)
            began = time.monotonic()
            message = self._ask(lambda wait=wait: self.client.get_mail(self.nameplate, theirs, phase, wait=wait))  # type: ignore[misc]
            if message is not None:
                return message
            if time.monotonic() - began < wait / 2:  # a relay that answers at once is not polled in a tight loop
                time.sleep(min(PAUSE_SECONDS, left))
        raise _failed("late", "the other side did not answer in time")

    def _ask(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return ask()
            except NotAtRelay as error:
                why = "the pairing is over: the other side ended it, or its ten minutes have passed"
                raise _failed("gone", why) from error
            except RelayUntrusted:
                raise
            except RelayUnavailable as error:
                if time.monotonic() + max(PAUSE_SECONDS, error.retry_after) > deadline:
                    raise
                time.sleep(max(PAUSE_SECONDS, error.retry_after))


def _failed(code: str, message: str) -> Exception:
    return PairingFailed(code, message)
