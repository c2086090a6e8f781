"""Moving past a blob that cannot be taken, on record."""

from __future__ import annotations

from crystal.app.context import Machine, now_ms
from crystal.app.sync.devices import find_device
from crystal.app.sync.names import short_ids
from crystal.errors import UsageError
from crystal.store.sync import inbox
from crystal.store.sync.inbox import InStream
from crystal.store.sync.relay_peers import Peer
from crystal.sync.envelope.header import Channel


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

    The next blob may name any predecessor: its own HMAC vouches for its place in the stream.

    Raises:
        WatermarkMovedError: A poll has taken it meanwhile.
    """
    seq = known.last_seq + 1
    with machine.store.transaction():
        inbox.skip_over(machine.store, known, seq, now_ms())
    return max(0, known.head - seq)
