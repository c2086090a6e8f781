"""The poller of the home machine: list, fetch, verify, open, ingest, acknowledge, in this order and per stream.

Nothing that it refuses is deleted, and nothing that stands still in one stream holds up another. What the relay says
is a hint of where to look; only what a key proves is believed. Two pollers at once are harmless: the cursor moves in
the transaction that used it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from crystal.envelope import (
    Channel,
    Forked,
    LinkKeys,
    Opened,
    Refused,
    UnknownVersion,
    WrongKey,
    open_blob,
    read_header,
)
from crystal.errors import CrystalError, StoreDamaged, Unavailable, WatermarkMoved
from crystal.relay.answers import BlobPage, StreamInfo
from crystal.relay.client import RelayClient
from crystal.relay.documents import LATEST_WINS, newest_documents, read_document
from crystal.relay.errors import NotAtRelay, RelayDenied, RelayUnavailable
from crystal.relay.taking import Taker
from crystal.relay.wire import BadRecord
from crystal.store import Store, inbox, relay_peers
from crystal.store.inbox import InStream
from crystal.store.relay_peers import Peer

PAGE = 100
LIVE_TURN = 400
"""How many blobs of a live stream are taken before other streams have their turn."""
PAST_TURN = 20
"""The same for a stream of the past: live conversation never waits longer than these."""
FIRST_WAIT_MS = 5_000
LONGEST_WAIT_MS = 600_000
MOST_SILENT = 3
"""So many streams in a row that could not be fetched mean that the relay is gone."""


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


class Poller:
    """Reads what devices sent.

    Args:
        store: The home machine's store, open for writing.
        client: The relay, with home's token.
        taker: What is done with conversations.
        senders: Gives who may seal, anew for every poll: devices come and go.
        clock: Gives the time, ms.
        own_prefixes: Of streams that home writes for itself.
    """

    def __init__(
        self,
        store: Store,
        client: RelayClient,
        taker: Taker,
        senders: Callable[[], Senders],
        clock: Callable[[], int],
        own_prefixes: frozenset[bytes] = frozenset(),
    ) -> None:
        self._store, self._client, self._taker = store, client, taker
        self._senders_now, self._clock, self._own_prefixes = senders, clock, own_prefixes
        self._senders: Senders = {}
        self._silent = 0

    def poll(
        self, *, should_stop: Callable[[], bool] = lambda: False, wait: float = 0, after: int | None = None
    ) -> PollReport:
        """Take all that has come, until nothing more comes or ``should_stop``.

        Args:
            should_stop: Asked between blobs.
            wait: Seconds that the relay may keep the first question until something changes after ``after``.
            after: The change number of an earlier report.

        Raises:
            RelayUnavailable, RelayDenied: The relay cannot be asked. What was taken before is committed.
            StoreFull, StoreBusy, Unavailable: This machine cannot write. The same.
        """
        report = PollReport()
        self._senders = self._senders_now()
        listed = self._client.streams(changed_after=after, wait=wait)
        while True:
            report.change = listed.change
            before = report.blobs
            for info in sorted(listed.streams, key=self._turn):
                if should_stop():
                    return self._counted(report)
                self._stream(info, report, should_stop)
            if report.blobs == before:
                return self._counted(report)
            listed = self._client.streams()

    def _counted(self, report: PollReport) -> PollReport:
        for one in inbox.all_streams(self._store):
            report.stuck += one.state in ("fork", "wrong-key", "revoked", "damaged")
            report.waiting += one.state == "waiting"
        return report

    def _turn(self, info: StreamInfo) -> tuple[bool, bytes]:
        known = inbox.find_stream(self._store, info.stream)
        return known is not None and known.lane == "past", info.stream

    # -- one stream --------------------------------------------------------------------------------------------------

    def _stream(self, info: StreamInfo, report: PollReport, should_stop: Callable[[], bool]) -> None:
        """Take what one stream has; whatever is wrong with it is written down, and the others go on."""
        if self._is_ours(info.stream):
            return
        now = self._clock()
        known = inbox.meet_stream(self._store, info.stream, now)
        if known.listed < info.head:
            inbox.note_listed(self._store, known.id, info.head)
        if known.state == "left" or (known.retry_at is not None and known.retry_at > now):
            return
        try:
            if known.channel in LATEST_WINS or self._looks_like_documents(known, info):
                self._documents(known, info, report)
            else:
                self._conversation(known, info, report, should_stop)
            self._silent = 0
        except RelayUnavailable as error:
            # One stream that cannot be fetched must not hold up the others; a relay that is gone must not be asked on.
            self._silent += 1
            if error.retry_after or self._silent >= MOST_SILENT:
                raise
            self._stand_still(known, "waiting", "relay", error.message, None)
        except (Unavailable, StoreDamaged, RelayDenied):
            raise
        except WatermarkMoved:
            return  # another poller took it
        except NotAtRelay:
            needed = inbox.meet_stream(self._store, info.stream, now).last_seq + 1
            why = f"the relay has lost number {needed}: it must be sent again"
            self._stand_still(known, "waiting", "gap", why, needed, at_once=True)
        except Exception as error:  # noqa: BLE001 - a fault in one stream is named and must not hold up the others
            words = error.message if isinstance(error, CrystalError) else type(error).__name__
            self._stand_still(known, "damaged", "error", f"taking it failed: {words}", None)

    def _is_ours(self, stream: bytes) -> bool:
        return stream[:8] in self._own_prefixes or any(
            stream[:8] == sender.peer.down_prefix for sender in self._senders.values()
        )

    def _looks_like_documents(self, known: InStream, info: StreamInfo) -> bool:
        """Whether a stream that nothing was taken of says that it holds documents. It proves nothing."""
        if known.channel or info.head <= known.last_seq:
            return False
        page = self._client.blobs(info.stream, known.last_seq, 1)
        if not page.blobs:
            return False
        try:
            return read_header(self._client.get(info.stream, page.blobs[0].seq)).channel in LATEST_WINS
        except Refused:
            return False

    def _conversation(
        self, known: InStream, info: StreamInfo, report: PollReport, should_stop: Callable[[], bool]
    ) -> None:
        left = PAST_TURN if known.lane == "past" else LIVE_TURN
        acked = 0
        try:
            while left > 0:
                page = self._client.blobs(info.stream, known.last_seq, min(PAGE, left))
                acked = page.acked
                known = self._compare(known, page)
                if not page.blobs:
                    return
                for blob in page.blobs:
                    if should_stop() or blob.seq != known.last_seq + 1:
                        return
                    if not self._take(known, blob.seq, self._client.get(info.stream, blob.seq), report):
                        return
                    left -= 1
                    known = inbox.meet_stream(self._store, info.stream, self._clock())
        finally:
            known = inbox.meet_stream(self._store, info.stream, self._clock())
            if known.last_seq > acked:
                self._client.ack(known.stream, known.last_seq)

    def _compare(self, known: InStream, page: BlobPage) -> InStream:
        """Find out whether what should come next can still come, and write down where it cannot."""
        needed = known.last_seq + 1
        gone = max(page.acked, page.expired_upto) >= needed
        skipped = bool(page.blobs) and page.blobs[0].seq > needed
        if gone or skipped:
            found = f"number {page.blobs[0].seq}" if page.blobs else "nothing"
            why = f"the relay has {found} after {known.last_seq}: number {needed} must be sent again"
            self._stand_still(known, "waiting", "gap", why, needed, at_once=True)
        elif known.state == "waiting" and known.code == "gap":
            inbox.go_on(self._store, known)
        else:
            return known
        return inbox.meet_stream(self._store, known.stream, self._clock())

    def _take(self, known: InStream, seq: int, data: bytes, report: PollReport) -> bool:
        """Open and take one blob; False when the stream cannot go on."""
        now = self._clock()
        try:
            sender, opened = self._open(known, seq, data)
            if sender.refused:
                return self._refuse(known, seq, data, "revoked", sender.refused, self._words(sender))
            if known.peer is None or not known.channel:
                inbox.bind(self._store, known.id, sender.peer.id, opened.header.channel, "live")
                known = inbox.meet_stream(self._store, known.stream, now)
            self._note_generation(sender)
            took = self._taker.take(sender.peer, known, seq, opened, now)
        except Forked as error:
            return self._refuse(known, seq, data, "fork", error.code, error.message)
        except WrongKey as error:
            return self._refuse(known, seq, data, "wrong-key", error.code, error.message)
        except UnknownVersion as error:
            return self._refuse(known, seq, data, "waiting", error.code, error.message)
        except (Refused, BadRecord) as error:
            return self._refuse(known, seq, data, "damaged", error.code, error.message, resend=seq)
        report.blobs += 1
        report.turns += took.turns
        report.chunks += took.chunks
        report.repeated += took.repeated
        report.heard.add(sender.peer.id)
        return True

    def _open(self, known: InStream, seq: int, data: bytes, documents: int | None = None) -> tuple[Sender, Opened]:
        """Open a blob with the keys of whoever may write this stream; ``documents`` names a channel without chain."""

        def keys_of(key_id: bytes) -> LinkKeys | None:
            sender = self._senders.get(key_id)
            if sender is None or sender.peer.up_prefix != known.stream[:8]:
                return None
            return sender.keys if known.peer in (None, sender.peer.id) else None

        channel = documents or Channel.CONVERSATIONS
        # Empty after a skip: then any predecessor is taken once, and the blob's own tag vouches for its place.
        prev = (known.last_tag or None) if documents is None else None
        opened = open_blob(data, keys_of, channel=channel, stream=known.stream, seq=seq, prev=prev)
        return self._senders[opened.header.key_id], opened

    def _words(self, sender: Sender) -> str:
        if sender.refused == "old-key":
            return f"{sender.peer.name} sealed it with keys of generation {sender.generation}, which were rotated"
        return f"{sender.peer.name} was revoked"

    def _note_generation(self, sender: Sender) -> None:
        """The first blob under new keys: from now on the old ones are refused."""
        peer = sender.peer
        if sender.generation > peer.accepted_from:
            relay_peers.set_generation(self._store, peer.id, peer.generation, sender.generation)
            self._senders = self._senders_now()

    def _refuse(
        self, known: InStream, seq: int, data: bytes, state: str, code: str, detail: str, resend: int | None = None
    ) -> bool:
        inbox.set_aside(self._store, known.stream, seq, data, code, detail, self._clock())
        self._stand_still(known, state, code, f"number {seq}: {detail}", resend)
        return False

    def _stand_still(
        self, known: InStream, state: str, code: str, detail: str, resend: int | None, *, at_once: bool = False
    ) -> None:
        now = self._clock()
        tries = known.tries if (known.state, known.code) == (state, code) else 0
        wait = 0 if at_once or tries == 0 else min(LONGEST_WAIT_MS, FIRST_WAIT_MS << min(tries - 1, 10))
        known = inbox.meet_stream(self._store, known.stream, now)
        inbox.stand_still(
            self._store, known, state, code, detail, now=now, retry_at=now + wait if wait else None, resend=resend
        )

    # -- documents ---------------------------------------------------------------------------------------------------

    def _documents(self, known: InStream, info: StreamInfo, report: PollReport) -> None:
        """Take the newest document of a stream that opens; all before it are done with."""
        for newest in newest_documents(self._client, info, known.last_seq):
            try:
                sender, opened = self._open(known, newest.seq, newest.data, newest.channel)
                if sender.refused:
                    self._refuse(known, newest.seq, newest.data, "revoked", sender.refused, self._words(sender))
                    return
                document = read_document(opened)
            except (Refused, BadRecord) as error:
                self._refuse(known, newest.seq, newest.data, "damaged", error.code, error.message)
                continue
            now = self._clock()
            with self._store.transaction():
                inbox.bind(self._store, known.id, sender.peer.id, newest.channel, "latest")
                inbox.advance(self._store, known, newest.seq, opened.tag)
            self._note_generation(sender)
            if relay_peers.take_document(
                self._store, sender.peer.id, newest.channel, document, now, keep=document.body
            ):
                self._note_heads(sender.peer, document.body)
                report.heard.add(sender.peer.id)
            self._client.ack(info.stream, newest.seq)
            return

    def _note_heads(self, peer: Peer, body: Mapping[str, object]) -> None:
        """Learn from a heartbeat how far the device has sealed: what a relay keeps back is known to be missing."""
        told = body.get("streams")
        for name, head in told.items() if isinstance(told, dict) else ():
            try:
                stream = bytes.fromhex(name)
            except ValueError:
                continue
            if len(stream) == 16 and stream[:8] == peer.up_prefix and type(head) is int and 0 < head < 1 << 62:
                known = inbox.meet_stream(self._store, stream, self._clock())
                if known.peer is None:
                    inbox.bind(self._store, known.id, peer.id, Channel.CONVERSATIONS, "live")
                if known.state != "left":
                    inbox.note_head(self._store, known.id, head)
