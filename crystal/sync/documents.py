"""Documents: what one end tells the other about its state, sealed for it alone. The newest replaces all before it.

Each has a serial that only rises, in whichever stream it comes, so that an old one is known as a replay. A lost
document is no loss: the next one says everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crystal.store import Store
from crystal.store.sync import relay_peers
from crystal.sync.answers import StreamInfo
from crystal.sync.client import RelayClient
from crystal.sync.envelope import Channel, Opened, Refused, read_header
from crystal.sync.errors import NotAtRelay, RelayUnavailable, StreamConflict
from crystal.sync.opening import is_about_one_blob
from crystal.sync.sending import Link, open_another, seal_document
from crystal.sync.wire import BadRecord

LATEST_WINS = (Channel.RECEIPTS, Channel.MIRROR, Channel.HEARTBEAT)
PAGE = 100
MAX_TRIED = 10
"""How many documents of a stream are fetched in one go, the newest first, until one opens."""


@dataclass(frozen=True, slots=True)
class Document:
    """What the other end told.

    Attributes:
        serial: Higher than that of every document before it.
        as_of: When it was written, by the writer's clock, ms.
        body: What it says.
    """

    serial: int
    as_of: int
    body: Mapping[str, Any]


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
    """Seal a document and put it at the relay. Every call sends.

    With ``supersede``, which only home's token may, those before it are deleted there: a device that is away for
    months finds one document, and the stream never fills.

    Raises:
        RelayUnavailable, RelayFull, RelayDenied: As their names say.
    """
    for _ in range(2):
        with store.transaction():
            serial = relay_peers.next_serial(store, link.peer.id, now)
        payload = json.dumps({"serial": serial, "as_of": now, "body": body}, separators=(",", ":")).encode()
        stream, seq, blob = seal_document(store, link, channel, payload, now)
        try:
            client.put(stream, seq, blob)
        except StreamConflict:
            # This machine was restored from a backup, or its crash lost the number: go on in another stream.
            with store.transaction():
                open_another(store, link, channel, "latest", now, "fork")
            continue
        with store.transaction():
            relay_peers.note_sent(store, link.peer.id, channel, body, now)
        if supersede and seq > 1:
            client.ack(stream, seq - 1)
        return


@dataclass(frozen=True, slots=True)
class Fetched:
    """A blob that says of itself that it is a document of a channel; nothing of it is proved."""

    seq: int
    channel: int
    data: bytes


def newest_documents(client: RelayClient, info: StreamInfo, after: int, taken: bytes = b"") -> Iterator[Fetched]:
    """The documents of a stream, the newest first, fetched one by one; what is no blob is left out.

    Args:
        client: The relay.
        info: The stream.
        after: Only those above this number.
        taken: The tag of the newest that was taken: it and those before it are left out. Numbers do not tell: a
            sender that was restored from a backup, at a relay that has lost everything, begins with lower ones.
    """
    if not info.count:
        return
    page = client.blobs(info.stream, after, PAGE)
    if len(page.blobs) == PAGE and info.head > page.blobs[-1].seq:
        page = client.blobs(info.stream, max(after, info.head - PAGE), PAGE)
    for blob in page.blobs[: -MAX_TRIED - 1 : -1]:
        if blob.tag == taken:
            return
        data = client.get(info.stream, blob.seq)
        try:
            channel = read_header(data).channel
        except Refused:
            continue
        if channel in LATEST_WINS:
            yield Fetched(blob.seq, channel, data)


def looks_like_documents(client: RelayClient, info: StreamInfo) -> bool:
    """Whether the newest blob of a stream says that it is a document. It proves nothing."""
    page = client.blobs(info.stream, info.head - 1, 1)
    if not page.blobs:
        return False
    try:
        return read_header(client.get(info.stream, page.blobs[0].seq)).channel in LATEST_WINS
    except (Refused, NotAtRelay):
        return False
    except RelayUnavailable as error:
        if is_about_one_blob(error):
            return False
        raise


def read_document(opened: Opened) -> Document:
    """Read what was sealed.

    Raises:
        BadRecord: It is no document.
    """
    try:
        fields = json.loads(opened.payload)
        serial, as_of, body = fields["serial"], fields["as_of"], fields["body"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadRecord(f"the document cannot be understood ({type(error).__name__})") from error
    if type(serial) is not int or type(as_of) is not int or not isinstance(body, dict):
        raise BadRecord("the document has something else where a serial, a time or its body should be")
    if not 0 < serial < relay_peers.HIGHEST_SERIAL or not 0 <= as_of < 1 << 62:
        raise BadRecord("the document's serial or time is out of range")
    return Document(serial, as_of, body)
