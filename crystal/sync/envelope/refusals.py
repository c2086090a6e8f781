"""Why a blob is refused: one class for each thing that can be done about it, one stable code for each reason.

Source: docs/spec/envelope.md, section 8.
"""

from __future__ import annotations

from crystal.errors import Denied


class Refused(Denied):
    """A blob that is not accepted. It is kept where it is: refusing never deletes.

    Args:
        code: The reason, stable across releases; the table is in the specification.
        message: What was found, with its value. Everything in it is visible to the relay, or a length or a number.
    """

    step = "keep the blob; crystal relay status names it"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, hint=self.step)
        self.code = code


class UnknownVersion(Refused):
    """Written in a form that this crystal does not know. A newer one may."""

    step = "update crystal on this machine"


class WrongKey(Refused):
    """Sealed with a key that is not among ours: another device, another direction, another generation, or revoked."""

    step = "run: crystal devices"


class Tampered(Refused):
    """Not what was sealed: changed on its way, or made by someone without the key."""

    step = "fetch it again; if that does not help, the sender must send it again"


class Misplaced(Refused):
    """Authentic, but it belongs to another channel, another stream or another place in its stream."""


class Forked(Refused):
    """Authentic and at the right place, but it follows another blob than ours: the sender has two histories."""

    step = "was a copy or a backup of that device started? it must begin a new stream"


class Malformed(Refused):
    """Not a blob at all, or sealed by a sender that does not keep to the format."""
