"""Errors between crystal and its relay. No data is lost: the sender keeps what it sent.

No message holds a token or text chosen by the relay. Only the code of a refusal is shown, a short word from a small
alphabet.
"""

from __future__ import annotations

from crystal.errors import CrystalError, DeniedError, UnavailableError

MAX_RETRY = 3600
"""Maximum seconds for a requested pause; a longer pause is reduced to this."""


class _RelayAnswerError(CrystalError):
    """A request to the relay failed.

    Attributes:
        retry_after: Seconds that the relay asked to wait, 0 to ``MAX_RETRY``; 0 if it did not ask.
        code: The relay's error code, or "".
    """

    def __init__(self, message: str, *, hint: str | None = None, retry_after: int = 0, code: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
        self.code = code


class RelayUnavailableError(_RelayAnswerError, UnavailableError):
    """The relay did not answer, or answered that it is unavailable now."""


class RelayProtocolError(RelayUnavailableError):
    """The answer violates the protocol: another program, an intercepting page, or a lying relay.

    None of its content was used. It is retried like a missing answer, because an intercepting page may go away.
    """


class RelayUntrustedError(RelayUnavailableError):
    """The relay's certificate was not accepted. Nothing was sent."""


class RelayFullError(_RelayAnswerError, UnavailableError):
    """The account, the stream or the relay's disk is full until something is acknowledged or deleted."""


class RelayDeniedError(_RelayAnswerError, DeniedError):
    """The token is unknown, revoked or lacks the permission, or the request is invalid."""


class StreamConflictError(_RelayAnswerError, DeniedError):
    """Another blob has this number in this stream: the sender was cloned or restored from a backup."""


class MailboxTakenError(_RelayAnswerError, DeniedError):
    """Somebody else has claimed this pairing, or has written this message."""


class NotAtRelayError(_RelayAnswerError):
    """The relay does not have the blob or object: never stored, deleted after its acknowledgement, or lost."""
