"""Classify error answers, and translate them into errors.

Only answers of a relay with this protocol version say something about a blob or a token: a proxy or a network's login
page may also answer 404 or 409.

Source: docs/spec/relay-http.md, "Errors".
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

from crystal.errors import CrystalError
from crystal.sync.answers import ProblemDocument, ProtocolViolationError, RelayResponse, parse
from crystal.sync.errors import (
    MAX_RETRY,
    MailboxTakenError,
    NotAtRelayError,
    RelayDeniedError,
    RelayFullError,
    RelayProtocolError,
    RelayUnavailableError,
    StreamConflictError,
)

PROTOCOL = "1"
"""Protocol version of this client."""

_CODE = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):", re.ASCII)
_VERSION = re.compile(r"([0-9]{1,6})(?:\.[0-9]{1,6})?", re.ASCII)

_Meaning = tuple[Callable[..., CrystalError], str, str | None]

_AT_HOME = "at home: crystal init --role home --relay URL, or, if another machine is home now: crystal demote --force"
_TRY_AGAIN: _Meaning = (RelayUnavailableError, "", "crystal tries again")
_NOT_TAKEN: _Meaning = (RelayDeniedError, ": it does not take this request", "update crystal or the relay")
_BY_ANYBODY: Mapping[int, _Meaning] = {
    **dict.fromkeys((408, 425, 429), _TRY_AGAIN),
    413: (RelayDeniedError, ": the body is too large for it", "raise the limit at the relay"),
    507: (
        RelayFullError,
        ": it is full",
        "nothing is lost; the home machine makes room by collecting (crystal relay poll)",
    ),
}
"""Meanings of statuses, also of answers from something between the relay and this machine."""
_BY_CODE: Mapping[str, _Meaning] = {
    "too-many-streams": (
        RelayFullError,
        ": it takes no new stream",
        "nothing is lost; see which device has many (crystal relay status), or raise MAX_STREAMS at the relay",
    )
}
_BY_A_RELAY: Mapping[int, _Meaning] = {
    **dict.fromkeys((400, 411, 414, 415, 422, 431), _NOT_TAKEN),
    401: (
        RelayDeniedError,
        "",
        f"the token is unknown or revoked; on a device: crystal relay join --replace; {_AT_HOME}",
    ),
    403: (RelayDeniedError, "", "the token may not do this"),
    404: (NotAtRelayError, "", None),
}
_CONFLICTS: Mapping[str, _Meaning] = {
    "blob-conflict": (
        StreamConflictError,
        ": another blob has this number in this stream",
        "this device may be a copy or come from a backup; its next sync starts a new stream",
    ),
    "object-conflict": (RelayDeniedError, ": another object has this id", "make the snapshot again"),
    "mail-conflict": (MailboxTakenError, ": another message was written in this pairing", "start the pairing again"),
    "mailbox-claimed": (
        MailboxTakenError,
        ": another device has claimed this pairing",
        "start the pairing again; if that was not you, somebody has seen the code",
    ),
}


def check(answer: RelayResponse, expected: tuple[int, ...], relay: str) -> RelayResponse:
    """Return the answer if it has an expected status and comes from a relay with this protocol version.

    Args:
        answer: The answer.
        expected: The expected statuses.
        relay: The relay's address, for messages.

    Raises:
        CrystalError: The error for any other answer.
    """
    version = _VERSION.fullmatch(answer.headers.get("crystal-relay-version", "").strip())
    ours = version is not None and version[1] == PROTOCOL
    if answer.status in expected and ours:
        return answer
    code = refusal_code(answer)
    if answer.status == 426 or (version is not None and not ours):
        spoken = f"version {version[1]}" if version is not None else "another version"
        raise RelayDeniedError(
            f"the relay at {relay} speaks {spoken} of the protocol, this crystal version {PROTOCOL}",
            hint="update the older of the two",
            code=code,
        )
    raise refusal(answer, code, relay, ours=ours)


def refusal(answer: RelayResponse, code: str, relay: str, *, ours: bool) -> CrystalError:
    """Return the error for a status.

    Args:
        answer: The answer.
        code: The error code, or "".
        relay: The relay's address, for messages.
        ours: True if a relay answered, not something in between.
    """
    status = answer.status
    named = f" ({code})" if code else ""
    meaning = _BY_CODE.get(code) or _BY_ANYBODY.get(status)
    if meaning is None and (status >= 500 or code == "digest-mismatch"):
        meaning = _TRY_AGAIN
    if meaning is None and 300 <= status < 400:
        return broken(relay, f"it redirects ({status}), which crystal does not follow")
    if meaning is None and not ours:
        return broken(relay, f"status {status}, and no version of the protocol")
    if meaning is None:
        meaning = _CONFLICTS.get(code) if status == 409 else _BY_A_RELAY.get(status)
    if meaning is None or code == "not-found":
        return broken(relay, f"status {status}{named}")
    kind, reason, hint = meaning
    told = f"the relay at {relay} answered {status}{named}{reason}"
    return kind(told, hint=hint, retry_after=retry_after(answer.headers), code=code)


def broken(relay: str, reason: str) -> RelayProtocolError:
    """Return the error for an answer that violates the protocol."""
    return RelayProtocolError(
        f"the answer of {relay} is not used: {reason}", hint="is this the address of a crystal relay?"
    )


def check_kind(answer: RelayResponse, kind: str, relay: str) -> None:
    """Refuse a body of an unexpected content type."""
    if answer.headers.get("content-type", "").partition(";")[0].strip().lower() != kind:
        raise broken(relay, f"it is not {kind}")


def check_digest(answer: RelayResponse, relay: str) -> None:
    """Check the body's digest if the relay sent one. The blob's own authentication comes later.

    Raises:
        RelayUnavailableError: It was damaged in transit; another try may succeed.
    """
    said = _DIGEST.search(answer.headers.get("content-digest", ""))
    if said is not None and said[1].encode() != base64.b64encode(hashlib.sha256(answer.body).digest()):
        raise RelayUnavailableError(
            f"an answer of {relay} was damaged on the way", hint="crystal tries again", code="digest"
        )


def refusal_code(answer: RelayResponse) -> str:
    """Return the stable code of a problem document (RFC 9457), or ""."""
    if answer.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/problem+json":
        return ""
    try:
        code = parse(answer.body, ProblemDocument).code
    except ProtocolViolationError:
        return ""
    return code if _CODE.fullmatch(code) else ""


def retry_after(headers: Mapping[str, str]) -> int:
    """Return the seconds that the relay asks to wait, at most ``MAX_RETRY``; 0 if missing or invalid.

    A date is measured against the answer's own ``Date``, so that no clock needs to be right.
    """
    said = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,18}", said, re.ASCII):
        return min(int(said), MAX_RETRY)
    try:
        seconds = (parsedate_to_datetime(said) - parsedate_to_datetime(headers.get("date", ""))).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0
    return int(min(max(0.0, seconds), MAX_RETRY))
