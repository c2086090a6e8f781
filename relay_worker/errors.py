"""Define the relay's refusals: stable codes and their HTTP statuses. See docs/spec/relay-http.md, section 1."""

from __future__ import annotations

from http import HTTPStatus

STATUS = {
    "bad-request": 400,
    "bad-envelope": 400,
    "digest-mismatch": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not-found": 404,
    "no-blob": 404,
    "no-object": 404,
    "no-token": 404,
    "no-mailbox": 404,
    "body-lost": 404,
    "method-not-allowed": 405,
    "body-timeout": 408,
    "blob-conflict": 409,
    "object-conflict": 409,
    "mail-conflict": 409,
    "mailbox-claimed": 409,
    "body-too-large": 413,
    "unsupported-media-type": 415,
    "unsupported-version": 426,
    "rate-limited": 429,
    "too-many-mailboxes": 429,
    "headers-too-large": 431,
    "internal": 500,
    "unavailable": 503,
    "stream-full": 507,
    "account-full": 507,
    "too-many-streams": 507,
    "too-many-tokens": 507,
    "mailbox-full": 507,
    "disk-full": 507,
}


class RequestRefusedError(Exception):
    """A request is refused. ``detail`` is for people and contains neither secrets nor bodies.

    Attributes:
        code: A key of ``STATUS``.
        detail: One sentence.
        retry_after: Seconds after which a retry makes sense, or None.
        headers: Further headers of the answer.
    """

    def __init__(
        self, code: str, detail: str, *, retry_after: int | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.retry_after = retry_after
        self.headers = headers

    @property
    def status(self) -> int:
        """Return the HTTP status of the code."""
        return STATUS[self.code]

    @property
    def problem(self) -> dict[str, str | int]:
        """Return the members of an RFC 9457 problem document."""
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


class CannotServeError(Exception):
    """The relay cannot start or a command cannot run; the operator must change something.

    Attributes:
        hint: The next step.
        exit_code: The exit code of the command.
    """

    def __init__(self, message: str, *, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code
