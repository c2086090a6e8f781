"""Define the results of polling, and select the keys that may open a blob: values and pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile

from crystal.store.sync.relay_peers import Peer
from crystal.sync.answers import BlobInfo, BlobPage
from crystal.sync.envelope.link import LinkKeys
from crystal.sync.envelope.refusals import EnvelopeError, ForkedError, UnknownVersionError, WrongKeyError
from crystal.sync.errors import RelayProtocolError, RelayUnavailableError
from crystal.sync.wire import InvalidRecordError

MAX_CLAIMS = 64
"""Maximum number of streams in one heartbeat."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Owner of the key that sealed a blob, its generation, and whether it is allowed."""

    peer: Peer
    generation: int
    keys: LinkKeys
    refused: str | None = None


Senders = Mapping[bytes, Sender]
"""Possible senders of a blob by key id."""


@dataclass(slots=True)
class PollReport:
    """Result of a poll.

    ``stuck`` counts blocked streams, ``waiting`` those that will continue without help. ``heads`` is the relay's
    listing of every stream; ``lost`` describes what it lost.
    """

    blobs: int = 0
    turns: int = 0
    chunks: int = 0
    repeated: int = 0
    stuck: int = 0
    waiting: int = 0
    opened: set[bytes] = field(default_factory=set)
    heads: Mapping[bytes, int] = field(default_factory=dict)
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class BlobRefusal:
    """A refused blob: its number and the new state of its stream."""

    seq: int
    state: str
    code: str
    detail: str
    resend: bool = False


def is_about_one_blob(error: RelayUnavailableError) -> bool:
    """Return True if the relay did answer, but with one invalid blob."""
    return isinstance(error, RelayProtocolError) or error.code == "digest"


def run_after(page: BlobPage, last: int) -> list[BlobInfo]:
    """Return the consecutive blobs of a page that follow ``last``."""
    numbered = zip(page.blobs, range(last + 1, last + 1 + len(page.blobs)), strict=True)
    return [blob for blob, seq in takewhile(lambda pair: pair[0].seq == pair[1], numbered)]


def refusal_of(seq: int, error: EnvelopeError | InvalidRecordError) -> BlobRefusal:
    """Return the consequence of a blob's error for its stream. Only damage in transit is worth sending again."""
    states = {ForkedError: "fork", WrongKeyError: "wrong-key", UnknownVersionError: "waiting"}
    state = next((states[kind] for kind in states if isinstance(error, kind)), "damaged")
    resend = state == "damaged" and not isinstance(error, InvalidRecordError)
    return BlobRefusal(seq, state, error.code, error.message, resend)


def refusal_of_sender(seq: int, sender: Sender) -> BlobRefusal:
    """Return the consequence of a blob from a sender that is refused."""
    detail = f"{sender.peer.name} was revoked"
    if sender.refused == "old-key":
        detail = f"{sender.peer.name} sealed it with keys of generation {sender.generation}, which were rotated"
    return BlobRefusal(seq, "revoked", sender.refused or "", detail)


def claims_of(peer: Peer, body: Mapping[str, object]) -> dict[bytes, int]:
    """Return the number of the last sealed blob of each stream, as a device's heartbeat reports it."""
    told = body.get("streams")
    claims: dict[bytes, int] = {}
    for name, head in islice(told.items() if isinstance(told, dict) else (), MAX_CLAIMS):
        try:
            stream = bytes.fromhex(name)
        except ValueError:
            continue
        if len(stream) == 16 and stream[:8] == peer.up_prefix and type(head) is int and 0 < head < 1 << 53:
            claims[stream] = head
    return claims
