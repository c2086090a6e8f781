"""Send and read documents: the state of one end, sealed for the other. The newest replaces all earlier ones.

Each has a serial that only rises, across streams, so that a replay is recognized. A lost document does no harm: the
next one contains everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from crystal.store import Store
from crystal.store.sync import relay_peers
from crystal.sync.answers import StreamInfo
from crystal.sync.client import RelayClient
from crystal.sync.envelope.blob import Channel, VerifiedBlob, read_header
from crystal.sync.envelope.refusals import EnvelopeError
from crystal.sync.errors import NotAtRelayError, RelayUnavailableError, StreamConflictError
from crystal.sync.opening import is_about_one_blob
from crystal.sync.sending import Link, open_another, seal_document
from crystal.sync.wire import InvalidRecordError

LATEST_WINS = (Channel.RECEIPTS, Channel.MIRROR, Channel.HEARTBEAT)
PAGE = 100
MAX_TRIED = 10
"""Maximum number of documents of a stream that one run fetches, newest first, to find one that opens."""


class Document(Struct, frozen=True):
    """Document received from the other end.

    Attributes:
        serial: Higher than that of every document before it.
        as_of: Time of writing by the writer's clock, ms.
        body: The content.
    """

    serial: Annotated[int, Meta(gt=0, lt=relay_peers.HIGHEST_SERIAL)]
    as_of: Annotated[int, Meta(ge=0, lt=1 << 62)]
    body: dict[str, Any]


def put_document(
    store: Store,
    client: RelayClient,
    link: Link,
    channel: Channel,
    body: Mapping[str, Any],
    now: int,
    *,
    supersede: bool = False,
) -> None:
    """Seal a document and store it at the relay. Every call sends.

    With ``supersede``, which needs home's token, earlier documents are deleted at the relay: after months offline a
    device finds one document, and the stream never fills.

    Raises:
        RelayUnavailableError, RelayFullError, RelayDeniedError: See ``crystal.sync.errors``.
    """
    for _ in range(2):
        with store.transaction():
            serial = relay_peers.next_serial(store, link.peer.id, now)
        payload = json.dumps({"serial": serial, "as_of": now, "body": body}, separators=(",", ":")).encode()
        stream, seq, blob = seal_document(store, link, channel, payload, now)
        try:
            client.put(stream, seq, blob)
        except StreamConflictError:
            # This machine was restored from a backup or lost the number in a crash: continue in another stream.
            with store.transaction():
                open_another(store, link, channel, "latest", now, "fork")
            continue
        with store.transaction():
            relay_peers.note_sent(store, link.peer.id, channel, body, now)
        if supersede and seq > 1:
            client.ack(stream, seq - 1)
        return


@dataclass(frozen=True, slots=True)
class FetchedDocument:
    """Blob whose header says that it is a document of a channel. Not verified."""

    seq: int
    channel: int
    data: bytes


def newest_documents(client: RelayClient, info: StreamInfo, taken: bytes = b"") -> Iterator[FetchedDocument]:
    """Fetch the documents of a stream one by one, newest first, and yield them. Invalid blobs are skipped.

    Args:
        client: The relay.
        info: The stream.
        taken: Tag of the newest processed document: it and earlier ones are skipped. Numbers are not reliable: a sender
            restored from a backup, at a relay that lost everything, starts with lower ones.
    """
    if not info.count:
        return
    page = client.blobs(info.stream, 0, PAGE)
    if len(page.blobs) == PAGE and info.head > page.blobs[-1].seq:
        page = client.blobs(info.stream, info.head - PAGE, PAGE)
    for blob in page.blobs[: -MAX_TRIED - 1 : -1]:
        if blob.tag == taken:
            return
        data = client.get(info.stream, blob.seq)
        try:
            channel = read_header(data).channel
        except EnvelopeError:
            continue
        if channel in LATEST_WINS:
            yield FetchedDocument(blob.seq, channel, data)


def looks_like_documents(client: RelayClient, info: StreamInfo) -> bool:
    """Return True if the newest blob of a stream has the header of a document. This proves nothing."""
    page = client.blobs(info.stream, info.head - 1, 1)
    if not page.blobs:
        return False
    try:
        return read_header(client.get(info.stream, page.blobs[0].seq)).channel in LATEST_WINS
    except (EnvelopeError, NotAtRelayError):
        return False
    except RelayUnavailableError as error:
        if is_about_one_blob(error):
            return False
        raise


def read_document(opened: VerifiedBlob) -> Document:
    """Parse the sealed content.

    Raises:
        InvalidRecordError: It is not a document.
    """
    try:
        return msgspec.convert(json.loads(opened.payload), Document)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"the document cannot be understood ({type(error).__name__})") from error
