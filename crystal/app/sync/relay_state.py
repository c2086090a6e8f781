"""Return the state of the relay for this machine: streams, devices, refusals; skip a blob that blocks a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crystal.app.context import Machine, now_ms
from crystal.app.relay_links import relay_client
from crystal.app.sync.forget import unconfirmed
from crystal.errors import CrystalError, DeniedError, UnavailableError, UsageError
from crystal.store import Store
from crystal.store.problems import LastingProblem, find_problem, list_problems
from crystal.store.sync import inbox, outbox, refusal_counts
from crystal.store.sync.inbox import InStream, Skip
from crystal.store.sync.outbox import Backlog
from crystal.store.sync.refusal_counts import RefusalCount, refusals
from crystal.store.sync.relay_peers import Peer, all_peers, devices_in_use, find_peer, home_peer
from crystal.sync.client import RelayClient
from crystal.sync.delivery import PART
from crystal.sync.documents import LATEST_WINS
from crystal.sync.envelope.blob import Channel
from crystal.sync.losses import LOST_PARTS

STUCK = ("fork", "wrong-key", "damaged", "revoked")
"""States of a stream that do not resolve with time."""
UNHEARD_MS = 3_600_000
MAX_PAGES = 20
"""Limit for counting the blobs at the relay, in thousands."""
_ORDER = ("damaged", "wrong-key", "fork", "revoked", "waiting", "ok")


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One stream that this machine reads.

    Attributes:
        device: The name of the device that writes it; None if the sender is unknown.
        missing: How many numbers are known to exist and are not taken.
        at_relay: How many of them the relay has; None when it was not asked.
        is_settled: It ended because its device was revoked; no action is needed.
    """

    device: str | None
    known: InStream
    missing: int
    at_relay: int | None
    is_settled: bool

    @property
    def is_unproven(self) -> bool:
        """Return True if no blob in the stream was ever proved to be a device's."""
        return self.known.peer is None and not self.known.channel

    @property
    def is_stuck(self) -> bool:
        """Return True if a person has to look at it."""
        return self.known.state in STUCK and not self.is_settled


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """State of a device's streams: the worst state, and how much is known to exist and was not taken here.

    ``successor`` is a device that has sent the same transcripts later, see ``inbox.successors``.
    """

    peer: Peer
    state: str
    missing: int
    waiting: int
    successor: str | None


@dataclass(frozen=True, slots=True)
class RelayState:
    """State of the relay for this machine.

    Attributes:
        role: ``home``, ``device`` or ``standalone``.
        url: The relay's address, None when none is set.
        reachable: Whether it answered; None when it was not asked.
        problem: Why it did not, or what it said; or why it could not be asked.
        home: On a device: its home.
        backlog: On a device: what waits.
        resting: On a device: the failure that is waited out.
        streams: What this machine reads.
        skips: Holes that were left on purpose.
        refused: What was refused, with the name of its device.
        lost: What the relay confirmed and does not have.
        unheard: On home: devices from which nothing has arrived since they were paired, an hour ago or more.
        successors: On home: devices that may be gone, each with the one that has its transcripts.
        forgotten: What other machines have not confirmed of forgetting, see ``unconfirmed``.
    """

    role: str
    url: str | None
    reachable: bool | None
    problem: CrystalError | None
    home: Peer | None
    backlog: Backlog | None
    resting: LastingProblem | None
    streams: tuple[StreamStatus, ...]
    skips: tuple[Skip, ...]
    refused: tuple[tuple[str | None, RefusalCount], ...]
    lost: tuple[LastingProblem, ...]
    unheard: tuple[Peer, ...]
    successors: dict[str, str]
    forgotten: dict[str, Any]


# ---------------------------------------------------------------------------------------------------------- looking


def list_devices(machine: Machine) -> list[DeviceStatus]:
    """Return every device that was ever paired, in the order of pairing; on a device, its home."""
    streams, successors = stream_states(machine.store), inbox.successors(machine.store)
    found = []
    for peer in all_peers(machine.store):
        own = [one for one in streams if one.known.peer == peer.id or one.known.stream[:8] == peer.up_prefix]
        states = [one.known.state for one in own if one.known.state != "left"]
        found.append(
            DeviceStatus(
                peer,
                min(states, key=_ORDER.index, default="ok"),
                sum(one.missing for one in own),
                sum(max(0, min(one.known.listed, one.known.head) - one.known.last_seq) for one in own),
                successors.get(peer.name),
            )
        )
    return found


def stream_states(store: Store, client: RelayClient | None = None) -> list[StreamStatus]:
    """Return every stream of conversations that this machine reads, and any other that is stuck."""
    peers = all_peers(store)
    found = []
    for known in inbox.all_streams(store):
        if known.channel in LATEST_WINS and known.state in ("ok", "left"):
            continue
        peer = next((one for one in peers if known.peer == one.id or known.stream[:8] == one.up_prefix), None)
        missing = 0 if known.state == "left" else max(0, known.head - known.last_seq)
        there = _at_relay(client, known) if client is not None and missing else None if client is None else 0
        settled = peer is not None and peer.revoked_at is not None
        name = None if peer is None else peer.name
        found.append(StreamStatus(name, known, missing, there, settled))
    return found


def _at_relay(client: RelayClient, known: InStream) -> int:
    """Return how many of the numbers not yet taken the relay has."""
    count, after = 0, known.last_seq
    for _ in range(MAX_PAGES):
        page = client.blobs(known.stream, after, 1000)
        count += len(page.blobs)
        if len(page.blobs) < 1000:
            break
        after = page.blobs[-1].seq
    return count


def relay_state(machine: Machine) -> RelayState:
    """Return the state of the relay: what is recorded here, and whether it answers now."""
    store, role = machine.store, machine.config.role
    problem: CrystalError | None = None
    reachable: bool | None = None
    streams = None
    if machine.config.relay_url is not None and role != "standalone":
        try:
            with relay_client(machine) as asked:
                asked.streams()
                reachable = True
                streams = stream_states(store, asked) if role == "home" else None
        except UnavailableError as error:
            reachable, problem = False, error
        except CrystalError as error:
            reachable, problem = True if isinstance(error, DeniedError) else None, error
    home = home_peer(store)
    return RelayState(
        role,
        machine.config.relay_url,
        reachable,
        problem,
        home,
        outbox.backlog(store) if home is not None else None,
        find_problem(store, PART) if home is not None else None,
        tuple(stream_states(store) if streams is None else streams),
        tuple(inbox.skips(store)),
        tuple(read_refused(store)),
        tuple(one for one in list_problems(store) if one.part in LOST_PARTS),
        tuple(unheard_devices(store, machine.now())),
        inbox.successors(store),
        unconfirmed(store),
    )


def unheard_devices(store: Store, now: int) -> list[Peer]:
    """Return devices of which nothing arrived in an hour or more after the pairing: a relay may keep nothing of them.

    Home cannot notice a gap in a stream of which it has never seen anything.
    """
    unheard = [one for one in devices_in_use(store) if one.heard_at is None]
    return [one for one in unheard if now - one.paired_at >= UNHEARD_MS]


def read_refused(store: Store, device: str | None = None) -> list[tuple[str | None, RefusalCount]]:
    """Return what was refused (of one device), with the names of the devices.

    Raises:
        NotFoundError, UsageError: The name is not that of one device.
    """
    names = {peer.id: peer.name for peer in all_peers(store)}
    peer = None if device is None else find_peer(store, device).id
    return [(names.get(one.peer), one) for one in refusals(store) if peer in (None, one.peer)]


def purge_refused(machine: Machine, device: str | None) -> None:
    """Delete the counts of refused blobs (of one device)."""
    peer = None if device is None else find_peer(machine.store, device).id
    with machine.store.transaction():
        refusal_counts.purge(machine.store, peer)


def short_ids(streams: Sequence[bytes]) -> dict[bytes, str]:
    """Return unique prefixes of the streams' own part, 8 digits or more.

    All streams of a device begin with the same 16 digits; what comes after is random.
    """
    own = {stream: stream.hex()[16:] for stream in streams}
    for digits in range(8, 16):
        if len({name[:digits] for name in own.values()}) == len(own):
            return {stream: name[:digits] for stream, name in own.items()}
    return {stream: stream.hex() for stream in streams}


def find_device(machine: Machine, name: str) -> Peer:
    """Find a device of this home.

    Raises:
        UsageError: No device has that name.
    """
    peer = find_peer(machine.store, name)
    if peer.side != "device":
        raise UsageError(f"{peer.name} is this machine's home, not a device of it", hint="run this on the home machine")
    return peer


# --------------------------------------------------------------------------------------------------------- skipping


def plan_skip(machine: Machine, name: str, seq: int, stream: str | None) -> tuple[Peer, InStream]:
    """Find the stream that a number blocks.

    Raises:
        UsageError: It blocks no stream, or several and ``stream`` does not say which.
    """
    peer = find_device(machine, name)
    if peer.revoked_at is not None:
        raise UsageError(f"{peer.name} was revoked: home accepts nothing from it", hint="there is nothing to skip")
    wanted = (stream or "").lower()
    ids = [(one, one.stream.hex()) for one in inbox.all_streams(machine.store) if _may_skip(one, peer)]
    own = [one for one, ident in ids if ident.startswith(wanted) or ident[16:].startswith(wanted)]
    found = [one for one in own if one.last_seq + 1 == seq]
    if len(found) == 1:
        return peer, found[0]
    if found:
        names = ", ".join(short_ids([one.stream for one in found]).values())
        raise UsageError(f"blob {seq} blocks {len(found)} streams", hint=f"--stream, one of: {names}")
    ways = ", ".join(str(one.last_seq + 1) for one in own)
    hint = f"only the next one can be skipped: {ways}" if ways else "see: crystal relay status"
    raise UsageError(f"blob {seq} of {peer.name} does not block a stream", hint=hint)


def _may_skip(known: InStream, peer: Peer) -> bool:
    """Return whether a stream is one of conversations of this device, and blobs of it wait."""
    is_of_peer = known.peer == peer.id or known.stream[:8] == peer.up_prefix
    is_waiting = known.state != "left" and known.head > known.last_seq
    return is_of_peer and is_waiting and known.channel in (0, Channel.CONVERSATIONS)


def skip(machine: Machine, known: InStream) -> int:
    """Skip the number that blocks a stream, and record it; return how many numbers are known after it.

    The next blob may name any predecessor: its own HMAC vouches for its place in the stream.

    Raises:
        WatermarkMovedError: A poll has taken it meanwhile.
    """
    seq = known.last_seq + 1
    with machine.store.transaction():
        inbox.skip_over(machine.store, known, seq, now_ms())
    return max(0, known.head - seq)
