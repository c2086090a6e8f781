"""Which answers are refusals, and what each means to who asked.

Only what a relay of our version said is taken for a fact about a blob or a token: something in between (a proxy, a
login page of a network) may answer 404 or 409 too, and says nothing about what is stored.

Source: docs/spec/relay-http.md, "Errors".
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from crystal.errors import CrystalError
from crystal.sync.answers import Answer, BadAnswer, parse_object
from crystal.sync.errors import (
    LONGEST_RETRY,
    BlobTooLarge,
    MailboxTaken,
    NotAtRelay,
    ObjectConflict,
    RelayBroken,
    RelayDenied,
    RelayFull,
    RelayUnavailable,
    StreamConflict,
    VersionRefused,
)

PROTOCOL = "1"
"""The version of the protocol that this client speaks."""

_CODE = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):", re.ASCII)
_VERSION = re.compile(r"([0-9]{1,6})(?:\.[0-9]{1,6})?", re.ASCII)

_CONFLICTS: Mapping[str, tuple[type[StreamConflict | ObjectConflict | MailboxTaken], str, str]] = {
    "blob-conflict": (
        StreamConflict,
        "another blob has this number in this stream",
        "this device may be a copy or come from a backup; its next sync starts a new stream",
    ),
    "object-conflict": (ObjectConflict, "another object has this id", "make the snapshot again"),
    "mail-conflict": (MailboxTaken, "another message was written in this pairing", "start the pairing again"),
    "mailbox-claimed": (
        MailboxTaken,
        "another device has claimed this pairing",
        "start the pairing again; if that was not you, somebody has seen the code",
    ),
}


def check(answer: Answer, expected: tuple[int, ...], relay: str) -> Answer:
    """Give the answer back if it is one of those expected, from a relay that speaks our version.

    Args:
        answer: What came back.
        expected: The statuses of success.
        relay: The relay's address, for messages.

    Raises:
        CrystalError: What it means otherwise.
    """
    version = _VERSION.fullmatch(answer.headers.get("crystal-relay-version", "").strip())
    ours = version is not None and version[1] == PROTOCOL
    if answer.status in expected and ours:
        return answer
    code = refusal_code(answer)
    if answer.status == 426 or (version is not None and not ours):
        spoken = f"version {version[1]}" if version is not None else "another version"
        raise VersionRefused(
            f"the relay at {relay} speaks {spoken} of the protocol, this crystal version {PROTOCOL}",
            hint="update the older of the two",
            code=code,
        )
    raise refusal(answer, code, relay, ours=ours)


def refusal(answer: Answer, code: str, relay: str, *, ours: bool) -> CrystalError:
    """The error that a status means.

    Args:
        answer: What came back.
        code: Its code, or "".
        relay: The relay's address, for messages.
        ours: Whether a relay said it, and not something in between.
    """
    status = answer.status
    told = f"the relay at {relay} answered {status}" + (f" ({code})" if code else "")
    pause = retry_after(answer.headers)
    if status == 507:
        hint = "nothing is lost; the home machine makes room by collecting (crystal relay poll)"
        return RelayFull(told + ": it is full", hint=hint, retry_after=pause, code=code)
    if status in (408, 425, 429) or status >= 500 or code == "digest-mismatch":
        return RelayUnavailable(told, hint="crystal tries again", retry_after=pause, code=code)
    if status == 413:
        return BlobTooLarge(told + ": it takes no body of this size", hint="raise the limit at the relay", code=code)
    if 300 <= status < 400:
        return broken(relay, f"it sends elsewhere ({status}), which is not followed")
    if not ours:
        return broken(relay, f"status {status}, and no version of the protocol")
    if status in (401, 403):
        home = "at home: crystal init --role home --relay URL"
        unknown = f"the token is unknown or revoked; on a device: crystal relay join; {home}"
        return RelayDenied(told, hint=unknown if status == 401 else "the token may not do this", code=code)
    if status == 404 and code != "not-found":
        return NotAtRelay(told, code=code)
    if status == 409 and code in _CONFLICTS:
        kind, reason, hint_text = _CONFLICTS[code]
        return kind(f"{told}: {reason}", hint=hint_text, code=code)
    if status in (400, 411, 414, 415, 422, 431):
        return RelayDenied(told + ": it does not take this request", hint="update crystal or the relay", code=code)
    return broken(relay, f"status {status}" + (f" ({code})" if code else ""))


def broken(relay: str, reason: str) -> RelayBroken:
    """The answer is none of a relay's."""
    return RelayBroken(f"the answer of {relay} is not used: {reason}", hint="is this the address of a crystal relay?")


def check_kind(answer: Answer, kind: str, relay: str) -> None:
    """Refuse a body of another content type than asked for."""
    if answer.headers.get("content-type", "").partition(";")[0].strip().lower() != kind:
        raise broken(relay, f"it is not {kind}")


def check_digest(answer: Answer, relay: str) -> None:
    """Refuse a body that was damaged on the way, if the relay said how it should be; the blob's own proof comes later.

    Raises:
        RelayUnavailable: It was damaged; another try may bring it whole.
    """
    said = _DIGEST.search(answer.headers.get("content-digest", ""))
    if said is not None and said[1].encode() != base64.b64encode(hashlib.sha256(answer.body).digest()):
        raise RelayUnavailable(
            f"an answer of {relay} was damaged on the way", hint="crystal tries again", code="digest"
        )


def refusal_code(answer: Answer) -> str:
    """The stable code of a problem document (RFC 9457); "" where there is none."""
    if answer.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/problem+json":
        return ""
    try:
        code = parse_object(answer.body).get("code")
    except BadAnswer:
        return ""
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""


def retry_after(headers: Mapping[str, str]) -> int:
    """Seconds that the relay asks to wait, at most ``LONGEST_RETRY``; 0 where it does not say, or not sensibly.

    A date is measured against the answer's own ``Date``, so that no clock needs to be right.
    """
    said = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,18}", said, re.ASCII):
        return min(int(said), LONGEST_RETRY)
    try:
        seconds = (parsedate_to_datetime(said) - parsedate_to_datetime(headers.get("date", ""))).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0
    return int(min(max(0.0, seconds), LONGEST_RETRY))
