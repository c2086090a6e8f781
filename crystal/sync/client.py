"""Send requests to the relay, one method per request, and check the answers strictly.

A token goes to the relay's own address only. Every answer is bounded in memory and time, and only bytes and numbers of
the right shape are returned. The client knows neither keys nor contents. Stream ids come from the caller; ids that a
relay lists are read as 16 bytes, never as text.

Source: docs/spec/relay-http.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import orjson

from crystal.sync import answers
from crystal.sync.address import parse_address
from crystal.sync.answers import (
    SMALL_ANSWER,
    BlobPage,
    MadeToken,
    ObjectInfo,
    OpenedMailbox,
    RelayResponse,
    StreamList,
    TokenInfo,
    TokenList,
)
from crystal.sync.errors import RelayDeniedError
from crystal.sync.refusal import broken, check, check_digest, check_kind

if TYPE_CHECKING:
    import httpcore

    from crystal.sync.transport import Timeouts

MAX_WAIT = 55.0
"""Maximum seconds that a relay holds back an answer."""

Stored = Literal["created", "duplicate"]
Side = Literal["a", "b"]
Params = Mapping[str, str | int]
T = TypeVar("T")

_PHASE = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)
_TOKEN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class RelayClient:
    """Connection to a relay, authorized by one token. Thread-safe.

    Keeps its connections open: close it, or use ``with``.

    Args:
        url: The relay's address (``crystal.sync.address``).
        token: The relay token; None for the joining side of a pairing and for ``health``.
        claim: 32 random bytes that identify the joining side of a pairing, which has no token yet.
        ca_file: PEM file of the only certificate authority to trust, instead of the system's.
        transport: Replaces the connections; closed with the client.
        allow_insecure: Accept plain http to another machine.
        timeouts: Seconds for the steps of a request.

    Every method raises ``RelayUnavailableError`` if there is no usable answer in time, ``RelayProtocolError`` if the
    answer violates the protocol, and ``RelayDeniedError`` if the token does not allow the request or the
    protocol versions differ.

    Raises:
        UsageError: The address or the token cannot be used.
        NotConfiguredError: The authority's file cannot be read.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        claim: bytes | None = None,
        ca_file: Path | None = None,
        transport: httpcore.ConnectionPool | None = None,
        allow_insecure: bool = False,
        timeouts: Timeouts | None = None,
    ) -> None:
        # Imported here: httpcore and TLS take 30 ms to load, and most commands never use a relay.
        from crystal.sync.exchange import Exchange, authorization

        address = parse_address(url, allow_insecure=allow_insecure)
        self.shown = address.shown
        self._exchange = Exchange(
            address, authorization(token, claim), ca_file=ca_file, transport=transport, timeouts=timeouts
        )

    def __enter__(self) -> RelayClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RelayClient({self.shown!r})"

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    # ------------------------------------------------------------------------------------------------------ streams

    def put(self, stream: bytes, seq: int, blob: bytes, *, resend: bool = False) -> Stored:
        """Store a sealed blob. Idempotent.

        Args:
            stream: 16 bytes.
            seq: The sequence number.
            blob: The sealed bytes.
            resend: Store the body again even if the relay has deleted it after an acknowledgement, or holds a damaged
                one.

        Returns:
            ``created`` if the blob is now on the relay's disk, ``duplicate`` if the relay has, or had, the same blob.

        Raises:
            StreamConflictError: Another blob has this number.
            RelayDeniedError: The blob is larger than the format or the relay allows.
            RelayFullError: The relay is full; the blob stays in the outbox.
        """
        if len(blob) > answers.MAX_BLOB:
            raise RelayDeniedError(f"a blob has {len(blob)} bytes; {answers.MAX_BLOB} is the most")
        return self._store(_blob_path(stream, seq), blob, {"seq": seq, "tag": blob[-32:].hex()}, resend=resend)

    def streams(self, *, changed_after: int | None = None, wait: float = 0) -> StreamList:
        """List the streams that the token may access.

        Args:
            changed_after: Return only streams that changed since this ``change`` value.
            wait: Seconds to wait for a change, at most ``MAX_WAIT``.
        """
        params: Params = {} if changed_after is None else {"changed_after": changed_after}
        answer = self._ask("GET", "/v1/streams", params=params, largest=answers.MAX_LISTING, wait=wait)
        return self._read(answer, lambda body: answers.parse(body, StreamList))

    def blobs(self, stream: bytes, after: int, limit: int = 100) -> BlobPage:
        """List the blobs of a stream above a number, in order. A page shorter than ``limit`` is the last."""
        limit = max(1, min(limit, answers.PAGE))
        params: Params = {"after": after, "limit": limit}
        answer = self._ask("GET", f"{_stream_path(stream)}/blobs", params=params, largest=answers.MAX_LISTING)
        return self._read(answer, lambda body: answers.parse_blobs(body, after, limit))

    def get(self, stream: bytes, seq: int) -> bytes:
        """Fetch one blob as it was stored, unopened and unverified.

        Raises:
            NotAtRelayError: It was never stored, was acknowledged and deleted, has expired, or was lost (code
                ``body-lost``).
        """
        return self._fetch(_blob_path(stream, seq), answers.MAX_BLOB)

    def ack(self, stream: bytes, upto: int) -> None:
        """Acknowledge everything up to a number; the relay deletes it."""
        self._ask("POST", f"{_stream_path(stream)}/ack", json={"upto": upto}, expect=(204,))

    # ------------------------------------------------------------------------------------------------------ objects

    def put_object(self, object_id: bytes, data: bytes, *, resend: bool = False) -> Stored:
        """Store a write-once object. Idempotent.

        Raises:
            RelayDeniedError: Other bytes are stored under this id.
            RelayDeniedError: The object is larger than the relay allows.
            RelayFullError: The relay is full.
        """
        if len(data) > answers.MAX_OBJECT:
            raise RelayDeniedError(f"an object has {len(data)} bytes; {answers.MAX_OBJECT} is the most")
        named: Params = {"id": object_id.hex(), "size": len(data)}
        return self._store(_object_path(object_id), data, named, resend=resend)

    def get_object(self, object_id: bytes) -> bytes:
        """Fetch an object.

        Raises:
            NotAtRelayError: It does not exist, or the relay has lost it (code ``body-lost``).
        """
        return self._fetch(_object_path(object_id), answers.MAX_OBJECT)

    def delete_object(self, object_id: bytes) -> None:
        """Delete an object. Deleting a missing object is no error."""
        self._ask("DELETE", _object_path(object_id), expect=(204,))

    def objects(self) -> tuple[ObjectInfo, ...]:
        """List the account's objects by rising id, page by page, up to ``answers.MAX_LISTED``."""
        found: list[ObjectInfo] = []
        while len(found) < answers.MAX_LISTED:
            after = found[-1].object_id if found else b""
            params: Params = {"limit": answers.PAGE, **({"after": after.hex()} if found else {})}
            answer = self._ask("GET", "/v1/objects", params=params, largest=answers.MAX_LISTING)
            page = self._read(answer, partial(answers.parse_objects, after=after))
            found += page
            if len(page) < answers.PAGE:
                break
        return tuple(found)

    # ------------------------------------------------------------------------------------------------------- tokens

    def make_token(self, label: str, scopes: Sequence[str]) -> MadeToken:
        """Make a token for another machine of the account. The relay shows it only once."""
        answer = self._ask("POST", "/v1/tokens", json={"label": label, "scopes": list(scopes)}, expect=(201,))
        return self._read(answer, lambda body: answers.parse(body, MadeToken))

    def tokens(self) -> tuple[TokenInfo, ...]:
        """List the account's tokens, including revoked ones."""
        answer = self._ask("GET", "/v1/tokens", largest=answers.MAX_LISTING)
        return self._read(answer, lambda body: answers.parse(body, TokenList)).tokens

    def revoke_token(self, token_id: str) -> None:
        """Revoke a token; it is invalid from its next request on.

        Raises:
            NotAtRelayError: No token has this id.
        """
        if not _TOKEN_ID.fullmatch(token_id):
            raise ValueError("not a token's id")
        self._ask("DELETE", f"/v1/tokens/{token_id}", expect=(204,))

    # ------------------------------------------------------------------------------------------------------ pairing

    def open_mailbox(self) -> int:
        """Open a mailbox for a pairing, as side ``a``, for ten minutes.

        Returns:
            The nameplate: the number before the words of the pairing code.
        """
        answer = self._ask("POST", "/v1/pair", json={}, expect=(201,))
        return self._read(answer, lambda body: answers.parse(body, OpenedMailbox)).nameplate

    def claim_mailbox(self, nameplate: int) -> None:
        """Become side ``b`` of a mailbox, with the client's ``claim``. Idempotent.

        Raises:
            MailboxTakenError: Somebody else was first: the code leaked, make a new one.
            NotAtRelayError: The mailbox does not exist, or has expired.
        """
        self._ask("PUT", f"{_mailbox_path(nameplate)}/claim", content=b"", expect=(200, 201))

    def put_mail(self, nameplate: int, side: Side, phase: str, data: bytes) -> None:
        """Write one message of this client's side. Idempotent.

        Raises:
            MailboxTakenError: Another message was written there.
            NotAtRelayError: The mailbox is closed.
        """
        self._ask("PUT", _mail_path(nameplate, side, phase), content=data, expect=(200, 201))

    def get_mail(self, nameplate: int, side: Side, phase: str, *, wait: float = 0) -> bytes | None:
        """Return a message, waiting for it at most ``wait`` seconds; None if it has not arrived.

        Raises:
            NotAtRelayError: The mailbox is closed.
        """
        path = _mail_path(nameplate, side, phase)
        answer = self._ask("GET", path, largest=answers.MAX_MAIL, wait=wait, expect=(200, 204))
        return self._bytes_of(answer) if answer.status == 200 else None

    def close_mailbox(self, nameplate: int) -> None:
        """Close a mailbox and delete its messages. Closing a closed mailbox is no error."""
        self._ask("DELETE", _mailbox_path(nameplate), expect=(204,))

    # ------------------------------------------------------------------------------------------------------- health

    def health(self) -> None:
        """Check that the relay can store data now; raise the problem otherwise. Needs no token."""
        self._ask("GET", "/readyz")

    # ----------------------------------------------------------------------------------------------------- requests

    def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        content: bytes | None = None,
        json: object = None,
        largest: int = SMALL_ANSWER,
        wait: float = 0,
        expect: tuple[int, ...] = (200,),
    ) -> RelayResponse:
        kind = "application/octet-stream"
        if json is not None:
            content, kind = orjson.dumps(json), "application/json"
        held = max(0.0, min(wait, MAX_WAIT))
        full = {**(params or {}), **({"wait": f"{held:.3f}"} if held else {})}
        answer = self._exchange.ask(method, path, params=full, content=content, kind=kind, largest=largest, wait=held)
        return check(answer, expect, self.shown)

    def _store(self, path: str, body: bytes, named: Params, *, resend: bool) -> Stored:
        params: Params = {"resend": 1} if resend else {}
        answer = self._ask("PUT", path, content=body, params=params, expect=(200, 201))
        result: Stored = "created" if answer.status == 201 else "duplicate"
        self._read(answer, lambda held: answers.parse_stored(held, named, result))
        return result

    def _fetch(self, path: str, largest: int) -> bytes:
        return self._bytes_of(self._ask("GET", path, largest=largest))

    def _bytes_of(self, answer: RelayResponse) -> bytes:
        check_kind(answer, "application/octet-stream", self.shown)
        check_digest(answer, self.shown)
        return answer.body

    def _read(self, answer: RelayResponse, parse: Callable[[bytes], T]) -> T:
        check_kind(answer, "application/json", self.shown)
        try:
            return parse(answer.body)
        except answers.ProtocolViolationError as error:
            raise broken(self.shown, str(error)) from error


def _stream_path(stream: bytes) -> str:
    if len(stream) != 16:
        raise ValueError(f"a stream's id has 16 bytes, not {len(stream)}")
    return f"/v1/streams/{stream.hex()}"


def _blob_path(stream: bytes, seq: int) -> str:
    if not 1 <= seq <= answers.MAX_SEQ:
        raise ValueError(f"{seq} is no number of a blob")
    return f"{_stream_path(stream)}/blobs/{seq:d}"


def _object_path(object_id: bytes) -> str:
    if len(object_id) != 16:
        raise ValueError(f"an object's id has 16 bytes, not {len(object_id)}")
    return f"/v1/objects/{object_id.hex()}"


def _mailbox_path(nameplate: int) -> str:
    if not 0 < nameplate <= answers.MAX_SEQ:
        raise ValueError(f"{nameplate} is no nameplate")
    return f"/v1/pair/{nameplate:d}"


def _mail_path(nameplate: int, side: Side, phase: str) -> str:
    if side not in ("a", "b") or not _PHASE.fullmatch(phase):
        raise ValueError(f"{side!r}/{phase!r} is no place in a mailbox")
    return f"{_mailbox_path(nameplate)}/{side}/{phase}"
