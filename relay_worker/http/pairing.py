"""The pairing mailbox. See docs/spec/relay-http.md, section 7.

Side ``a`` is home with its token, side ``b`` the first client that claimed the mailbox, with a secret that it chose.
"""

from __future__ import annotations

import hashlib

import msgspec

from relay_worker.errors import RequestRefusedError
from relay_worker.http.body import read_json, received
from relay_worker.http.call import SECONDS, Call, Form, number
from relay_worker.http.reply import NO_CONTENT, Reply, bytes_reply, json_reply
from relay_worker.model import Mailbox
from relay_worker.store import mailboxes
from relay_worker.tokens import hash_secret, is_secret_of

MAX_MAIL = 16_384
NAMEPLATE = number(1, 999_999)
SIDE = Form("[ab]", "a or b", str)
PHASE = Form("[a-z0-9-]{1,32}", "1 to 32 of a-z, 0-9 and -", str)


def nameplates(random: bytes) -> list[int]:
    """Return candidates for a nameplate from random bytes: short ones first, longer ones if those are taken."""
    numbers = [int.from_bytes(random[at : at + 4], "big") for at in range(0, len(random) - 3, 4)]
    return [number % 10 ** min(6, 1 + at // 4) or 10 for at, number in enumerate(numbers)]


class MailboxRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body for opening a mailbox: nothing, or ``{}``."""


async def open_mailbox(call: Call) -> Reply:
    """Open a mailbox for ten minutes."""
    relay = call.relay
    call.need("pair")
    await read_json(call, MailboxRequest)
    box = await relay.store.write(mailboxes.open_one, call.account, nameplates(relay.random(96)), relay.now())
    return json_reply({"nameplate": box.nameplate, "expires_at": box.expires_at}, 201)


async def claim_mailbox(call: Call) -> Reply:
    """Become side ``b``."""
    relay = call.relay
    nameplate = call.path("nameplate", NAMEPLATE)
    wait = relay.claims.take(call.address)
    if wait:
        raise RequestRefusedError("rate-limited", "too many claims of this address", retry_after=wait)
    assert call.claim is not None, "the route takes a claim"
    box, result = await relay.store.write(mailboxes.claim, nameplate, hash_secret(call.claim), relay.now())
    return json_reply({"nameplate": nameplate, "expires_at": box.expires_at}, 201 if result == "created" else 200)


async def put_mail(call: Call) -> Reply:
    """Write a message. It cannot be replaced."""
    relay = call.relay
    nameplate, side, phase = _place(call)
    if await _mine(call, nameplate) is None:
        raise mailboxes.gone(nameplate)
    if side != ("a" if call.token else "b"):
        raise RequestRefusedError("forbidden", "only the other side may do this")
    async with received(call, MAX_MAIL) as (body, _):
        if not body:
            raise RequestRefusedError("bad-request", "a message has at least one byte")
        result = await relay.store.write(mailboxes.put_mail, nameplate, side, phase, body, relay.now())
    relay.signals.notify(f"mailbox {nameplate}")
    return json_reply({"result": result}, 200 if result == "duplicate" else 201)


async def get_mail(call: Call) -> Reply:
    """Read a message, waiting for it."""
    relay = call.relay
    nameplate, side, phase, wait = *_place(call), call.query("wait", SECONDS, 0.0)
    ends_at = relay.monotonic() + wait
    while True:
        with relay.signals.expect(f"mailbox {nameplate}") as news:
            if await _mine(call, nameplate) is None:
                raise mailboxes.gone(nameplate)
            message = await relay.store.read(mailboxes.get_mail, nameplate, side, phase, relay.now())
            if message is not None:
                return bytes_reply(message, hashlib.sha256(message).digest())
            if not await call.wait_for(news, ends_at - relay.monotonic()):
                return NO_CONTENT


async def close_mailbox(call: Call) -> Reply:
    """Delete the mailbox."""
    nameplate = call.path("nameplate", NAMEPLATE)
    if await _mine(call, nameplate) is not None:
        await call.relay.store.write(mailboxes.close, nameplate)
        call.relay.signals.notify(f"mailbox {nameplate}")
    return NO_CONTENT


async def _mine(call: Call, nameplate: int) -> Mailbox | None:
    """Return the mailbox if the client is one of its sides. Another account's mailbox is reported as missing."""
    if call.token is not None:
        call.need("pair")
    box = await call.relay.store.read(mailboxes.find, nameplate, call.relay.now())
    if box is None:
        if call.token is None:
            call.count_refused()  # otherwise a stranger could find open mailboxes by trying numbers
        return None
    if call.token is not None:
        return box if box.account == call.token.account else None
    if call.claim is None or not is_secret_of(call.claim, box.claim_hash):
        raise call.unauthenticated()
    return box


def _place(call: Call) -> tuple[int, str, str]:
    return call.path("nameplate", NAMEPLATE), call.path("side", SIDE), call.path("phase", PHASE)
