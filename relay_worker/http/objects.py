"""The routes of write-once objects. See docs/spec/relay-http.md, section 4."""

from __future__ import annotations

from relay_worker.errors import RequestRefusedError
from relay_worker.http.body import received
from relay_worker.http.call import ID, RESEND, Call, number
from relay_worker.http.reply import NO_CONTENT, Reply, json_reply, stored_as, stored_reply
from relay_worker.model import NewBody
from relay_worker.store import objects


async def put_object(call: Call) -> Reply:
    """Store an object. The answer is sent after the fsync."""
    relay = call.relay
    object_id, resend = call.path("id", ID), call.query("resend", RESEND, default=False)
    call.need("objects:write")
    async with received(call, relay.settings.max_body) as (body, digest):
        if not body:
            raise RequestRefusedError("bad-request", "an object has at least one byte")
        new = NewBody(call.account, body, digest, resend, relay.now())
        result = await relay.store.put(objects.put, new, object_id)
    if result != "duplicate":
        relay.metrics.put_bytes.inc(len(body))
    return stored_as(result, id=object_id.hex(), size=len(body))


async def get_object(call: Call) -> Reply:
    """Send an object."""
    object_id = call.path("id", ID)
    call.need("objects:read")
    return stored_reply(await call.relay.store.fetch(objects.find, call.account, object_id))


async def delete_object(call: Call) -> Reply:
    """Delete an object if it exists."""
    object_id = call.path("id", ID)
    call.need("objects:write")
    await call.relay.store.write(objects.delete, call.account, object_id)
    return NO_CONTENT


async def list_objects(call: Call) -> Reply:
    """List a page of objects."""
    after, limit = call.query("after", ID, b""), call.query("limit", number(1, 1000), 1000)
    call.need("objects:read", "objects:write")
    return json_reply({"objects": await call.relay.store.read(objects.list_after, call.account, after, limit)})
