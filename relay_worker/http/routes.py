"""Implement the routes of the relay, in the order of docs/spec/relay-http.md, and who may use each."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from relay_worker.crb1 import TAG_BYTES, check_envelope
from relay_worker.errors import RequestRefusedError
from relay_worker.http.call import ID, RESEND, SECONDS, Call, Form, number
from relay_worker.http.reply import NO_CONTENT, Reply, bytes_reply, json_reply, stored_reply
from relay_worker.model import MAX_NUMBER, Mailbox, NewBody, StreamState
from relay_worker.store import accounts, blobs, mailboxes, objects
from relay_worker.store.files import StoredBody
from relay_worker.tokens import hash_secret, is_secret_of, new_token, prefixes_of

Handler: TypeAlias = "Callable[[Call], Awaitable[Reply]]"

MAX_MAIL = 16_384
SEQ = number(1)
TOKEN_ID = Form("[0-9a-z]{16}", "16 digits and lower-case letters", str)
NAMEPLATE = number(1, 999_999)
SIDE = Form("[ab]", "a or b", str)
PHASE = Form("[a-z0-9-]{1,32}", "1 to 32 of a-z, 0-9 and -", str)


# -- streams and blobs


class Acknowledgement(msgspec.Struct, forbid_unknown_fields=True):
    """Body of an acknowledgement. JSON Schema accepts 1.0 as a whole number; a float is exact for all these values."""

    upto: Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER, multiple_of=1)]


async def put_blob(call: Call) -> Reply:
    """Store a blob. The answer is sent after the fsync."""
    relay = call.relay
    stream, seq, resend = call.path("stream", ID), call.path("seq", SEQ), call.query("resend", RESEND, default=False)
    call.need_stream(stream, "write")
    body, digest = await call.body(relay.settings.max_body)
    check_envelope(body, stream=stream, seq=seq)
    tag = body[-TAG_BYTES:]
    new = NewBody(call.account, body, digest, resend, relay.now())
    is_new = await relay.store.put(blobs.put, new, stream, seq, tag)
    if is_new:
        relay.metrics.put_bytes.inc(len(body))
        relay.announce(f"account {call.account}")
    return stored_reply(is_new, seq=seq, tag=tag.hex())


async def get_blob(call: Call) -> Reply:
    """Send a blob."""
    stream, seq = call.path("stream", ID), call.path("seq", SEQ)
    call.need_stream(stream, "read")
    return bytes_reply(await call.relay.store.fetch(blobs.find, call.account, stream, seq))


async def list_blobs(call: Call) -> Reply:
    """List a page of a stream."""
    stream = call.path("stream", ID)
    after, limit = call.query("after", number(), 0), call.query("limit", number(1, 1000), 100)
    call.need_stream(stream, "write", "read", "ack")
    state, page = await call.relay.store.read(blobs.list_after, call.account, stream, after, limit)
    return json_reply({"blobs": page, "head": state.head, "acked": state.acked, "expired_upto": state.expired_upto})


async def get_stream(call: Call) -> Reply:
    """Return the state of a stream."""
    stream = call.path("stream", ID)
    call.need_stream(stream, "write", "read", "ack")
    return json_reply(await call.relay.store.read(blobs.state, call.account, stream))


async def acknowledge(call: Call) -> Reply:
    """Delete what the reader has acknowledged."""
    stream = call.path("stream", ID)
    call.need_stream(stream, "ack")
    asked = await call.json(Acknowledgement)
    await call.relay.store.write(call.account, blobs.ack, call.account, stream, int(asked.upto), call.relay.now())
    return NO_CONTENT


async def list_streams(call: Call) -> Reply:
    """List changed streams, waiting for the first change."""
    relay = call.relay
    assert call.token is not None, "the route takes a token"
    changed_after, wait = call.query("changed_after", number(), 0), call.query("wait", SECONDS, 0.0)
    prefixes = prefixes_of(call.token.scopes)
    if not prefixes:
        raise RequestRefusedError("forbidden", "the token names no streams")
    ends_at, account = relay.monotonic() + wait, f"account {call.account}"
    while True:
        with relay.signals.expect(account) as news:
            change, streams = changed_after, list[StreamState]()
            if not relay.signals.is_latest(account, changed_after, ends_at):
                change, streams = await relay.store.read(blobs.streams, call.account, prefixes, changed_after)
                relay.signals.keep_latest(account, change, news)
            if streams or not await call.wait_for(news, ends_at - relay.monotonic()):
                return json_reply({"change": change, "streams": streams})


# -- objects


async def put_object(call: Call) -> Reply:
    """Store an object. The answer is sent after the fsync."""
    relay = call.relay
    object_id, resend = call.path("id", ID), call.query("resend", RESEND, default=False)
    call.need("objects:write")
    body, digest = await call.body(relay.settings.max_body)
    if not body:
        raise RequestRefusedError("bad-request", "an object has at least one byte")
    new = NewBody(call.account, body, digest, resend, relay.now())
    is_new = await relay.store.put(objects.put, new, object_id)
    if is_new:
        relay.metrics.put_bytes.inc(len(body))
    return stored_reply(is_new, id=object_id.hex(), size=len(body))


async def get_object(call: Call) -> Reply:
    """Send an object."""
    object_id = call.path("id", ID)
    call.need("objects:read")
    return bytes_reply(await call.relay.store.fetch(objects.find, call.account, object_id))


async def delete_object(call: Call) -> Reply:
    """Delete an object if it exists."""
    object_id = call.path("id", ID)
    call.need("objects:write")
    await call.relay.store.write(call.account, objects.delete, call.account, object_id)
    return NO_CONTENT


async def list_objects(call: Call) -> Reply:
    """List a page of objects."""
    after, limit = call.query("after", ID, b""), call.query("limit", number(1, 1000), 1000)
    call.need("objects:read", "objects:write")
    return json_reply({"objects": await call.relay.store.read(objects.list_after, call.account, after, limit)})


# -- tokens


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Purpose of a new token."""

    label: str
    scopes: list[str]


async def make_token(call: Call) -> Reply:
    """Make a token. Only this answer contains its secret."""
    relay = call.relay
    call.need("home")
    asked = await call.json(TokenRequest)
    new, text = new_token(call.account, asked.label, asked.scopes, relay.now(), relay.random)
    await relay.store.write(call.account, accounts.add, new)
    return json_reply({"id": new.id, "token": text, "label": new.label, "scopes": new.scopes}, 201)


async def list_tokens(call: Call) -> Reply:
    """List the account's tokens, without the hashes of their secrets."""
    call.need("home")
    found = await call.relay.store.read(accounts.list_all, call.account)
    return json_reply({"tokens": [one.public for one in found]})


async def revoke_token(call: Call) -> Reply:
    """Revoke a token."""
    token_id = call.path("token_id", TOKEN_ID)
    call.need("home")
    await call.relay.store.write(call.account, accounts.revoke, call.account, token_id, call.relay.now())
    return NO_CONTENT


# -- the pairing mailbox: side ``a`` is home with its token, side ``b`` the first that claimed it with its own secret


class MailboxRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body for opening a mailbox: nothing, or ``{}``."""


def nameplates(random: bytes) -> list[int]:
    """Return candidates for a nameplate from random bytes: short ones first, then longer ones if those are taken."""
    numbers = [int.from_bytes(random[at : at + 4], "big") for at in range(0, len(random) - 3, 4)]
    return [number % 10 ** min(6, 1 + at // 4) or 10 for at, number in enumerate(numbers)]


async def open_mailbox(call: Call) -> Reply:
    """Open a mailbox for ten minutes."""
    relay = call.relay
    call.need("pair")
    await call.json(MailboxRequest)
    box = await relay.store.write(
        mailboxes.LOCK, mailboxes.open_one, call.account, nameplates(relay.random(96)), relay.now()
    )
    return json_reply({"nameplate": box.nameplate, "expires_at": box.expires_at}, 201)


async def claim_mailbox(call: Call) -> Reply:
    """Become side ``b``."""
    relay = call.relay
    nameplate = call.path("nameplate", NAMEPLATE)
    wait = relay.claims.take(call.address)
    if wait:
        raise RequestRefusedError("rate-limited", "too many claims of this address", retry_after=wait)
    assert call.claim is not None, "the route takes a claim"
    box, is_new = await relay.store.write(
        mailboxes.LOCK, mailboxes.claim, nameplate, hash_secret(call.claim), relay.now()
    )
    return json_reply({"nameplate": nameplate, "expires_at": box.expires_at}, 201 if is_new else 200)


async def put_mail(call: Call) -> Reply:
    """Write a message. It cannot be replaced."""
    relay = call.relay
    nameplate, side, phase = _place(call)
    await _need_mailbox(call, nameplate)
    if side != ("a" if call.token else "b"):
        raise RequestRefusedError("forbidden", "only the other side may do this")
    body, _ = await call.body(MAX_MAIL)
    if not body:
        raise RequestRefusedError("bad-request", "a message has at least one byte")
    await _need_mailbox(call, nameplate)  # another one may have its number by now
    is_new = await relay.store.write(mailboxes.LOCK, mailboxes.put_mail, nameplate, side, phase, body, relay.now())
    relay.announce(f"mailbox {nameplate}")
    return stored_reply(is_new)


async def get_mail(call: Call) -> Reply:
    """Read a message, waiting for it."""
    relay = call.relay
    nameplate, side, phase, wait = *_place(call), call.query("wait", SECONDS, 0.0)
    ends_at = relay.monotonic() + wait
    while True:
        with relay.signals.expect(f"mailbox {nameplate}") as news:
            await _need_mailbox(call, nameplate)
            message = await relay.store.read(mailboxes.get_mail, nameplate, side, phase, relay.now())
            if message is not None:
                return bytes_reply(StoredBody(None, hashlib.sha256(message).digest(), message))
            if not await call.wait_for(news, ends_at - relay.monotonic()):
                return NO_CONTENT


async def close_mailbox(call: Call) -> Reply:
    """Delete the mailbox."""
    nameplate = call.path("nameplate", NAMEPLATE)
    if await _mine(call, nameplate) is not None:
        await call.relay.store.write(mailboxes.LOCK, mailboxes.close, nameplate)
        call.relay.announce(f"mailbox {nameplate}")
    return NO_CONTENT


async def _mine(call: Call, nameplate: int) -> Mailbox | None:
    """Return the mailbox if the client is one of its sides. Another account's mailbox is reported as missing."""
    if call.token is not None:
        call.need("pair")
    box = await call.relay.store.read(mailboxes.find, nameplate, call.relay.now())
    if call.token is not None:
        return box if box is not None and box.account == call.token.account else None
    if box is None:
        call.count_refused()  # otherwise a stranger could find open mailboxes by trying numbers
        return None
    if call.claim is None or not is_secret_of(call.claim, box.claim_hash):
        raise call.unauthenticated()
    return box


async def _need_mailbox(call: Call, nameplate: int) -> None:
    """Refuse a client that is no side of the mailbox."""
    if await _mine(call, nameplate) is None:
        raise mailboxes.gone(nameplate)


def _place(call: Call) -> tuple[int, str, str]:
    return call.path("nameplate", NAMEPLATE), call.path("side", SIDE), call.path("phase", PHASE)


# -- for operators and monitors: nothing about stored data


async def healthz(_: Call) -> Reply:
    """Answer that the process is alive, whatever the state of the store."""
    return json_reply({"status": "ok"})


async def readyz(call: Call) -> Reply:
    """Answer whether the store accepts writes."""
    if call.relay.signals.stopping:
        raise RequestRefusedError("unavailable", "the relay is stopping", retry_after=5)
    await call.relay.probe()
    return json_reply({"status": "ready"})


async def openapi(call: Call) -> Reply:
    """Return the OpenAPI description as JSON or YAML."""
    name = call.route.removeprefix("/")
    return Reply(200, ((b"content-type", f"application/{name[8:]}".encode()),), _document(name))


@cache
def _document(name: str) -> bytes:
    return (Path(__file__).resolve().parent.parent / name).read_bytes()


BEARER = ("bearer",)
CLAIM = ("claim",)
EITHER = ("bearer", "claim")
OPEN: tuple[str, ...] = ()

# Tried in this order, so the most frequent come first.
ROUTES: tuple[tuple[str, dict[str, Handler], tuple[str, ...]], ...] = (
    ("/v1/streams/{stream}/blobs/{seq}", {"PUT": put_blob, "GET": get_blob}, BEARER),
    ("/v1/streams", {"GET": list_streams}, BEARER),
    ("/v1/streams/{stream}/blobs", {"GET": list_blobs}, BEARER),
    ("/v1/streams/{stream}/ack", {"POST": acknowledge}, BEARER),
    ("/v1/streams/{stream}", {"GET": get_stream}, BEARER),
    ("/v1/objects/{id}", {"PUT": put_object, "GET": get_object, "DELETE": delete_object}, BEARER),
    ("/v1/objects", {"GET": list_objects}, BEARER),
    ("/v1/tokens", {"GET": list_tokens, "POST": make_token}, BEARER),
    ("/v1/tokens/{token_id}", {"DELETE": revoke_token}, BEARER),
    ("/v1/pair", {"POST": open_mailbox}, BEARER),
    ("/v1/pair/{nameplate}", {"DELETE": close_mailbox}, EITHER),
    ("/v1/pair/{nameplate}/claim", {"PUT": claim_mailbox}, CLAIM),
    ("/v1/pair/{nameplate}/{side}/{phase}", {"PUT": put_mail, "GET": get_mail}, EITHER),
    ("/healthz", {"GET": healthz}, OPEN),
    ("/readyz", {"GET": readyz}, OPEN),
    ("/openapi.json", {"GET": openapi}, OPEN),
    ("/openapi.yaml", {"GET": openapi}, OPEN),
)
