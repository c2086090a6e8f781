"""Both sides of a pairing, and every message that passed between them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator

import pytest

from crystal.sync.keys.pairing import Pairing, PairingError
from crystal.sync.keys.word_codes import PairingCode
from tests.support.pairing_bundle import bundle

CODE = PairingCode(7, ("apple", "river", "stone"))
WRONG = PairingCode(7, ("apple", "river", "stove"))
BUNDLE, ANSWER = bundle().encode(), b"laptop"
SAID = (b"", b"", b"", b"", BUNDLE, ANSWER)


def home(code: PairingCode = CODE, random: Callable[[int], bytes] = os.urandom) -> Pairing:
    return Pairing(code, random, is_home=True)


def device(code: PairingCode = CODE, random: Callable[[int], bytes] = os.urandom) -> Pairing:
    return Pairing(code, random, is_home=False)


def seeded(seed: str) -> Callable[[int], bytes]:
    """Randomness that comes out the same for the same seed."""
    counter = iter(range(10**6))

    def random(count: int) -> bytes:
        stream = b""
        while len(stream) < count:
            stream += hashlib.sha256(f"{seed} {next(counter)}".encode()).digest()
        return stream[:count]

    return random


class Both:
    """Home and device with the same code, and every message that passed."""

    def __init__(
        self, of_device: PairingCode = CODE, random: Callable[[str], Callable[[int], bytes]] | None = None
    ) -> None:
        make = random or (lambda _: os.urandom)
        self.home, self.device = home(CODE, make("home")), device(of_device, make("device"))
        self.messages: list[bytes] = []
        self.said: list[bytes] = []

    def writer(self, number: int) -> Pairing:
        """The side that sends a message, counted from 0."""
        return self.home if number % 2 == 0 else self.device

    def reader(self, number: int) -> Pairing:
        return self.writer(number + 1)

    def steps(self, change: Callable[[int, bytes], bytes] = lambda _, message: message) -> Iterator[int]:
        """Run step by step; ``change`` sees and rewrites each message on its way. Yields the number of messages."""
        for number, plain in enumerate(SAID):
            self.messages.append(self.writer(number).send(plain))
            self.said.append(self.reader(number).take(change(number, self.messages[-1])))
            yield number + 1

    def run(self, change: Callable[[int, bytes], bytes] = lambda _, message: message, steps: int = 6) -> None:
        for done in self.steps(change):
            if done == steps:
                break


def ended(side: Pairing) -> bool:
    """Whether no method of a side does anything any more."""
    if not side.has_ended:
        return False
    good = Both()
    good.run()
    for message in good.messages:
        with pytest.raises(PairingError, match="has ended"):
            side.take(message)
    with pytest.raises(PairingError, match="has ended"):
        side.send(b"")
    with pytest.raises(PairingError):
        _ = side.words
    return True
