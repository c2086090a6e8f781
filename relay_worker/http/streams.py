"""The routes of streams and blobs. See docs/spec/relay-http.md, section 3."""

from __future__ import annotations

from typing import Annotated

import msgspec

from relay_worker.crb1 import TAG_BYTES, check_envelope
from relay_worker.errors import RequestRefusedError
from relay_worker.http.body import read_json, received
from relay_worker.http.call import ID, RESEND, SECONDS, Call, number
from relay_worker.http.reply import NO_CONTENT, Reply, json_reply, stored_as, stored_reply
from relay_worker.model import MAX_NUMBER, NewBody
from relay_worker.store import blobs
from relay_worker.tokens import prefixes_of

SEQ = number(1)


class Acknowledgement(msgspec.Struct, forbid_unknown_fields=True):
    """Body of an acknowledgement. JSON Schema takes 1.0 for a whole number; all of these are exact as a float."""

    upto: Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER, multiple_of=1)]


async def put_blob(call: Call) -> Reply:
    """Store a blob. The answer is sent after the fsync."""
    relay = call.relay
    stream, seq, resend = call.path("stream", ID), call.path("seq", SEQ), call.query("resend", RESEND, default=False)
    call.need_stream(stream, "write")
    async with received(call, relay.settings.max_body) as (body, digest):
        check_envelope(body, stream=stream, seq=seq)
        tag = bytes(body[-TAG_BYTES:])
        new = NewBody(call.account, body, digest, resend, relay.now())
        result = await relay.store.put(blobs.put, new, stream, seq, tag)
    if result != "duplicate":
        relay.metrics.put_bytes.inc(len(body))
        relay.signals.notify(f"account {call.account}")
    return stored_as(result, seq=seq, tag=tag.hex())


async def get_blob(call: Call) -> Reply:
    """Send a blob."""
    stream, seq = call.path("stream", ID), call.path("seq", SEQ)
    call.need_stream(stream, "read")
    return stored_reply(await call.relay.store.fetch(blobs.find, call.account, stream, seq))


async def list_blobs(call: Call) -> Reply:
    """List a page of a stream."""
    stream = call.path("stream", ID)
    after, limit = call.query("after", number(), 0), call.query("limit", number(1, 1000), 100)
    call.need_stream(stream, "write", "read", "ack")
    state, page = await call.relay.store.read(blobs.list_after, call.account, stream, after, limit)
    return json_reply(
        {
            "blobs": page,
            "head": state.head,
            "acked": state.acked,
            "expired_upto": state.expired_upto,
        }
    )


async def get_stream(call: Call) -> Reply:
    """Return the state of a stream."""
    stream = call.path("stream", ID)
    call.need_stream(stream, "write", "read", "ack")
    return json_reply(await call.relay.store.read(blobs.state, call.account, stream))


async def acknowledge(call: Call) -> Reply:
    """Delete what the reader has acknowledged."""
    stream = call.path("stream", ID)
    call.need_stream(stream, "ack")
    asked = await read_json(call, Acknowledgement)
    await call.relay.store.write(blobs.ack, call.account, stream, int(asked.upto), call.relay.now())
    return NO_CONTENT


async def list_streams(call: Call) -> Reply:
    """List changed streams, waiting for the first change."""
    relay = call.relay
    assert call.token is not None, "the route takes a token"
    changed_after, wait = call.query("changed_after", number(), 0), call.query("wait", SECONDS, 0.0)
    prefixes = prefixes_of(call.token.scopes)
    if prefixes is not None and not prefixes:
        raise RequestRefusedError("forbidden", "the token names no streams")
    ends_at = relay.monotonic() + wait
    while True:
        with relay.signals.expect(f"account {call.account}") as news:
            change, streams = await relay.store.read(blobs.streams, call.account, prefixes, changed_after)
            if streams or not await call.wait_for(news, ends_at - relay.monotonic()):
                return json_reply({"change": change, "streams": streams})
