"""Moving past a blob that cannot be taken, on record."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from crystal.app.context import Machine, now_ms
from crystal.app.relay_links import relay_keys, senders
from crystal.app.sync.devices import find_device
from crystal.app.sync.names import short_ids
from crystal.errors import UsageError
from crystal.store.sync import inbox
from crystal.store.sync.inbox import InStream
from crystal.store.sync.quarantine import quarantined_at
from crystal.store.sync.relay_peers import Peer
from crystal.sync.envelope.blob import open_blob
from crystal.sync.envelope.header import Channel, read_header
from crystal.sync.envelope.link import LinkKeys
from crystal.sync.envelope.refusals import EnvelopeError


def plan_skip(machine: Machine, name: str, seq: int, stream: str | None) -> tuple[Peer, InStream]:
    """Find the stream in which a number stands in the way.

    Raises:
        UsageError: There is none, or more than one and ``stream`` does not say which.
    """
    peer = find_device(machine, name)
    if peer.revoked_at is not None:
        raise UsageError(f"{peer.name} was revoked: home accepts nothing from it", hint="there is nothing to skip")
    wanted = (stream or "").lower()
    own = [
        one
        for one in inbox.all_streams(machine.store)
        if (one.peer == peer.id or one.stream[:8] == peer.up_prefix)
        and one.channel in (0, Channel.CONVERSATIONS)
        and one.state != "left"
        and one.head > one.last_seq
        and (one.stream.hex().startswith(wanted) or one.stream.hex()[16:].startswith(wanted))
    ]
    found = [one for one in own if one.last_seq + 1 == seq]
    if len(found) == 1:
        return peer, found[0]
    if found:
        names = ", ".join(short_ids([one.stream for one in found]).values())
        raise UsageError(f"number {seq} blocks {len(found)} streams", hint=f"--stream, one of: {names}")
    ways = ", ".join(str(one.last_seq + 1) for one in own)
    hint = f"only the next one can be skipped: {ways}" if ways else "see: crystal relay status"
    raise UsageError(f"number {seq} of {peer.name} blocks nothing", hint=hint)


def skip(machine: Machine, known: InStream) -> int:
    """Move over the number that stands in the way, on record; return how many numbers are known after it.

    Nothing is deleted, what was kept of it stays.

    Raises:
        WatermarkMovedError: A poll has taken it meanwhile.
    """
    seq = known.last_seq + 1
    tag = _proved_tag(machine, known, seq)
    with machine.store.transaction():
        inbox.skip_over(machine.store, known, seq, tag, now_ms())
    return max(0, known.head - seq)


def _proved_tag(machine: Machine, known: InStream, seq: int) -> bytes:
    """Return the tag of the skipped blob if a quarantined one was sealed by its device; empty if unknown.

    The next blob must name it. After an empty one any predecessor is taken once: the blob's own HMAC vouches for its
    place in the stream.
    """
    sealed: Mapping[bytes, LinkKeys] = {
        key_id: one.keys
        for key_id, one in senders(machine, relay_keys(machine)).items()
        if known.peer in (None, one.peer.id)
    }
    tags = set()
    for blob in quarantined_at(machine.store, known.stream, seq):
        with contextlib.suppress(EnvelopeError):
            channel = read_header(blob).channel
            tags.add(open_blob(blob, sealed.get, channel=channel, stream=known.stream, seq=seq, prev=None).tag)
    return tags.pop() if len(tags) == 1 else b""
