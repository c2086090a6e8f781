"""What can go wrong between crystal and its relay. Whatever it is, nothing is lost: the sender keeps what it sent.

No message holds a token or a word that the relay chose; of its refusals only the code is shown, which is a short
word from a small alphabet.
"""

from __future__ import annotations

from crystal.errors import CrystalError, Denied, Unavailable

LONGEST_RETRY = 3600
"""Seconds: a relay that asks for a longer pause is asked again after this one."""


class RelayUnavailable(Unavailable):
    """No answer, or one that says "not now".

    Attributes:
        retry_after: Seconds that the relay asked to wait, 0 to ``LONGEST_RETRY``; 0 when it did not.
        code: The relay's word for the reason, or "".
    """

    def __init__(self, message: str, *, hint: str | None = None, retry_after: int = 0, code: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
        self.code = code


class RelayBroken(RelayUnavailable):
    """The answer is not what a relay says: another program, a page in between, or a relay that lies.

    Nothing of it was used. It is tried again like silence, because what stands in between may go away.
    """


class RelayUntrusted(RelayUnavailable):
    """The relay could not prove that it is the one asked for: its certificate is not accepted. Nothing was sent."""


class RelayFull(Unavailable):
    """The account, the stream or the relay's disk has no room until something is collected or deleted.

    Attributes:
        retry_after: As in ``RelayUnavailable``.
        code: The same.
    """

    def __init__(self, message: str, *, hint: str | None = None, retry_after: int = 0, code: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
        self.code = code


class _Refusal(Denied):
    """The relay understood and said no; the same request again will not help.

    Attributes:
        code: The relay's word for the reason, or "".
    """

    def __init__(self, message: str, *, hint: str | None = None, code: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class RelayDenied(_Refusal):
    """The token is unknown or revoked, or may not do this; or the request was refused as it is."""


class StreamConflict(_Refusal):
    """Another blob has this number in this stream: the sender was cloned, or restored from a backup."""


class ObjectConflict(_Refusal):
    """Something else is kept under this id: an object is written once."""


class MailboxTaken(_Refusal):
    """Somebody else has claimed this pairing, or has written this message."""


class BlobTooLarge(_Refusal):
    """It is larger than the relay, or the format, takes."""


class VersionRefused(_Refusal):
    """The relay speaks another version of the protocol."""


class NotAtRelay(CrystalError):
    """The relay has no such thing: never had, has deleted it after its reader's acknowledgement, or lost it.

    Attributes:
        code: The relay's word for the reason, or "".
    """

    def __init__(self, message: str, *, hint: str | None = None, code: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
