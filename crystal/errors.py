"""The error tree: what the user can do about a failure decides its class.

Every error that a user can act on is a ``CrystalError``; a bug raises whatever it raises and keeps its traceback.
Messages are lower case, name the thing and the value, and never hold a secret or transcript text.
"""

from __future__ import annotations


class CrystalError(Exception):
    """Something failed that the user can act on.

    Args:
        message: What happened, lower case, no full stop, naming the thing and the value.
        hint: The next step: a command, or what to change.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageProblem(CrystalError):
    """A value given by the user cannot be used."""

    exit_code = 2


class NotFound(CrystalError):
    """Nothing has the name, the key or the id that was asked for."""


class NotConfigured(CrystalError):
    """Something must be set up first: no memory yet, no key, no extension."""

    exit_code = 3


class Unavailable(CrystalError):
    """Not reachable just now; trying again later can help. The only class that is retried."""

    exit_code = 4


class Denied(CrystalError):
    """Refused by the other side, or refused by us because it cannot be opened."""

    exit_code = 5


class Damaged(CrystalError):
    """Stored data is not what it should be."""

    exit_code = 6


class WatermarkMoved(CrystalError):
    """Another process captured these bytes first. Read again from the new watermark; nothing is lost."""


class RedactionFailed(CrystalError):
    """Secrets could not be taken out of a stretch. It is neither stored nor sent; the transcript still has it."""


class StoreBusy(Unavailable):
    """Another process holds the store longer than the busy timeout."""


class StoreFull(Unavailable):
    """No space is left where the store lives. Nothing was written; the next run continues."""


class StoreDamaged(Damaged):
    """The database file is corrupt."""


class StoreLost(Damaged):
    """The database is gone, and what it was made from is still here. Nothing new is made in its place."""


class StoreForeign(Damaged):
    """The file at the store's place belongs to another program, or to a newer crystal. It is left untouched."""


class StoreNewer(StoreForeign):
    """The database is of a newer crystal. It is left untouched."""


class ModelUnavailable(Unavailable):
    """The provider does not answer at the moment.

    Attributes:
        seconds: How long it asks to wait; None if it does not say.
        may_be_billed: True if the provider may charge for the call that failed.
    """

    def __init__(
        self, message: str, *, seconds: float | None = None, may_be_billed: bool = False, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.seconds = seconds
        self.may_be_billed = may_be_billed


class ServerFault(ModelUnavailable):
    """The provider is there, but failed on this request: 5xx, or no answer in time. One of the texts may be why."""


class TextRefused(CrystalError):
    """The provider does not take a request, for its length or for what is in it. Other texts may still pass."""


class WrongAnswer(Damaged):
    """The provider answered with something else than was asked for."""
