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


class UsageError(CrystalError):
    """A value given by the user cannot be used."""

    exit_code = 2


class ChangedMeanwhileError(UsageError):
    """The thing that a person decides on changed after it was shown. Nothing was saved."""


class NotFoundError(CrystalError):
    """Nothing has the name, the key or the id that was asked for."""


class NotConfiguredError(CrystalError):
    """Something must be set up first: no memory yet, no key, no extension."""

    exit_code = 3


class UnavailableError(CrystalError):
    """Not reachable just now; trying again later can help. The only class that is retried."""

    exit_code = 4


class DeniedError(CrystalError):
    """Refused by the other side, or refused by us because it cannot be opened."""

    exit_code = 5


class DamagedError(CrystalError):
    """Stored data is not what it should be."""

    exit_code = 6


class WatermarkMovedError(CrystalError):
    """Another process captured these bytes first. Read again from the new watermark; nothing is lost."""


class RedactionError(CrystalError):
    """Secrets could not be taken out of a stretch. It is neither stored nor sent; the transcript still has it."""


class StoreBusyError(UnavailableError):
    """Another process holds the store longer than the busy timeout."""


class StoreFullError(UnavailableError):
    """No space is left where the store lives. Nothing was written; the next run continues."""


class StoreDamagedError(DamagedError):
    """The database file is corrupt."""


class StoreLostError(DamagedError):
    """The database is gone, and what it was made from is still here. Nothing new is made in its place."""


class ForeignStoreError(DamagedError):
    """The file at the store's place belongs to another program, or to a newer crystal. It is left untouched."""


class NewerStoreError(ForeignStoreError):
    """The database is of a newer crystal. It is left untouched."""


class ModelUnavailableError(UnavailableError):
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


class ServerFaultError(ModelUnavailableError):
    """The provider is there, but failed on this request: 5xx, or no answer in time. One of the texts may be why."""


class TextRefusedError(CrystalError):
    """The provider does not take a request, for its length or for what is in it. Other texts may still pass."""


class WrongAnswerError(DamagedError):
    """The provider answered with something else than was asked for."""
