"""Reasons for refusing a blob: one class per possible reaction, one stable code per reason.

Source: docs/spec/envelope.md, section 8.
"""

from __future__ import annotations

from crystal.errors import DeniedError


class EnvelopeError(DeniedError):
    """A blob is not accepted. It stays where it is: refusing never deletes.

    Args:
        code: The reason, stable across releases; listed in the specification.
        message: What was found, with its value. Contains only lengths, numbers and what the relay can see.
    """

    step = "keep the blob; crystal relay status names it"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, hint=self.step)
        self.code = code


class UnknownVersionError(EnvelopeError):
    """The blob's format is unknown to this version. A newer version may know it."""

    step = "update crystal on this machine"


class WrongKeyError(EnvelopeError):
    """The key is unknown: another device, direction or generation, or revoked."""

    step = "run: crystal devices"


class TamperedError(EnvelopeError):
    """The blob was changed in transit, or made without the key."""

    step = "fetch it again; if that does not help, the sender must send it again"


class MisplacedError(EnvelopeError):
    """The blob is authentic but belongs to another channel, stream or sequence number."""


class ForkedError(EnvelopeError):
    """The blob is authentic and has the right number, but another predecessor: the sender has two histories."""

    step = "was a copy or a backup of that device started? it must begin a new stream"


class MalformedError(EnvelopeError):
    """Not a blob, or sealed by a sender that violates the format."""
