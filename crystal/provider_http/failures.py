"""The ways in which a provider of models fails, told apart by what helps: waiting, another text, another setting."""

from __future__ import annotations

from crystal.errors import CrystalError, Damaged, Unavailable


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
