"""Who may have sealed what the poller finds, and what is said of what it finds: values, and pure questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from crystal.envelope import Forked, LinkKeys, Refused, UnknownVersion, WrongKey
from crystal.relay.answers import BlobInfo, BlobPage
from crystal.relay.errors import RelayBroken, RelayUnavailable
from crystal.relay.wire import BadRecord
from crystal.store.relay_peers import Peer


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose key sealed a blob, with which generation, and whether it may."""

    peer: Peer
    generation: int
    keys: LinkKeys
    refused: str | None = None


Senders = Mapping[bytes, Sender]
"""Who may have sealed a blob, by key id."""


@dataclass(slots=True)
class PollReport:
    """What a poll brought. ``stuck`` counts streams that stand still, ``waiting`` those that need only time."""

    blobs: int = 0
    turns: int = 0
    chunks: int = 0
    repeated: int = 0
    stuck: int = 0
    waiting: int = 0
    change: int = 0
    heard: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a blob is not taken: the state that its stream gets, and the blob itself."""

    seq: int
    data: bytes
    state: str
    code: str
    detail: str
    resend: bool = False


def is_about_one_blob(error: RelayUnavailable) -> bool:
    """Whether the relay did answer, with what cannot be believed."""
    return isinstance(error, RelayBroken) or error.code == "digest"


def run_after(page: BlobPage, last: int) -> list[BlobInfo]:
    """The blobs of a page that follow on each other, from the one after ``last``."""
    numbered = zip(page.blobs, range(last + 1, last + 1 + len(page.blobs)), strict=True)
    return [blob for blob, seq in takewhile(lambda pair: pair[0].seq == pair[1], numbered)]


def refusal_of(seq: int, data: bytes, error: Refused | BadRecord) -> Refusal:
    """What a blob's error means for its stream. Only what was damaged on the way is worth sending again."""
    states = {Forked: "fork", WrongKey: "wrong-key", UnknownVersion: "waiting"}
    state = next((states[kind] for kind in states if isinstance(error, kind)), "damaged")
    resend = state == "damaged" and not isinstance(error, BadRecord)
    return Refusal(seq, data, state, error.code, error.message, resend)


def in_words(sender: Sender) -> str:
    """Why a sender is refused."""
    if sender.refused == "old-key":
        return f"{sender.peer.name} sealed it with keys of generation {sender.generation}, which were rotated"
    return f"{sender.peer.name} was revoked"


def claims_of(peer: Peer, body: Mapping[str, object]) -> dict[bytes, int]:
    """How far a heartbeat says that streams are sealed, as far as they are its device's."""
    told = body.get("streams")
    claims: dict[bytes, int] = {}
    for name, head in told.items() if isinstance(told, dict) else ():
        try:
            stream = bytes.fromhex(name)
        except ValueError:
            continue
        if len(stream) == 16 and stream[:8] == peer.up_prefix and type(head) is int and 0 < head < 1 << 53:
            claims[stream] = head
    return claims
