"""Poll the relay on the home machine: list, fetch, verify, open, ingest, acknowledge, in this order, per stream.

Refused blobs are not deleted, and a blocked stream does not block others. The relay's listing is only a hint; only
authenticated data is used. Two pollers at once are harmless: the cursor moves in the transaction that used it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from crystal.errors import CrystalError, StoreDamagedError, UnavailableError, WatermarkMovedError
from crystal.store import Store
from crystal.store.notes import read_note, write_note
from crystal.store.sync import inbox, outbox, relay_peers
from crystal.store.sync.inbox import InStream
from crystal.store.sync.refusal_counts import set_listed
from crystal.store.sync.relay_peers import Peer
from crystal.sync.answers import BlobInfo, StreamInfo, StreamList
from crystal.sync.cleaning import BECAUSE as FORGOTTEN
from crystal.sync.client import RelayClient
from crystal.sync.documents import LATEST_WINS, looks_like_documents, newest_documents, read_document
from crystal.sync.envelope.blob import Channel, VerifiedBlob, open_blob
from crystal.sync.envelope.link import LinkKeys
from crystal.sync.envelope.refusals import EnvelopeError
from crystal.sync.errors import NotAtRelayError, RelayDeniedError, RelayUnavailableError
from crystal.sync.losses import LOST, MESSAGES, note_losses
from crystal.sync.opening import (
    BlobRefusal,
    PollReport,
    Sender,
    Senders,
    claims_of,
    refusal_of,
    refusal_of_sender,
    run_after,
)
from crystal.sync.prefetch import fetched
from crystal.sync.stopping import StoppedStreams
from crystal.sync.taking import MessageHandler, OpenedBlob, PartialMessage
from crystal.sync.triage import Effort, count_listed, starting_after, triage
from crystal.sync.wire import InvalidRecordError

PAGE = 100
LIVE_TURN = 400
"""Number of blobs read from a live stream before other streams have their turn."""
PAST_TURN = 20
"""The same for a stream of the past: live conversation never waits longer than for these."""
AT_ONCE = 50
"""Maximum number of blobs committed together: they wait for the disk once."""
BYTES_AT_ONCE = 2 << 20
LAST_UNPROVEN = "relay_last_unproven"
"""The store's note of the last unproven stream tried, if not all could be."""
MAX_SILENT = 3
"""After this many consecutive failed streams the relay counts as unavailable."""


class Poller:
    """Reads what devices sent.

    Args:
        store: The home machine's store, open for writing.
        client: The relay, with home's token.
        taker: Handles conversation messages.
        senders: Returns the allowed senders; called for every poll, because devices come and go.
        clock: Returns the time, ms.
        own_prefixes: Prefixes of the streams that home writes.
        at_once: Number of concurrent fetches.
    """

    def __init__(
        self,
        store: Store,
        client: RelayClient,
        taker: MessageHandler,
        senders: Callable[[], Senders],
        clock: Callable[[], int],
        own_prefixes: frozenset[bytes] = frozenset(),
        *,
        at_once: int = 4,
    ) -> None:
        self._store, self._client, self._taker = store, client, taker
        self._senders_now, self._clock, self._own_prefixes = senders, clock, own_prefixes
        self._at_once = at_once
        self._stopped = StoppedStreams(store, clock)
        self._senders: Senders = {}
        self._writers: dict[bytes, Peer] = {}
        self._silent = 0

    def poll(self) -> PollReport:
        """Process all new blobs, until none is left.

        Raises:
            RelayUnavailableError, RelayDeniedError: The relay cannot be used. Earlier blobs are committed.
            StoreFullError, StoreBusyError, Unavailable: This machine cannot write. Earlier blobs are committed.
        """
        report = PollReport()
        self._senders = self._senders_now()
        effort = Effort(self._clock)
        while True:
            listed = self._client.streams()
            self._find_lost(listed, report)
            before = report.blobs
            self._read_listed(listed, report, effort)
            if report.blobs == before:
                return self._counted(report)

    def _read_listed(self, listed: StreamList, report: PollReport, effort: Effort) -> None:
        """Read the listed streams. Unread ones are recorded with the refused ones."""
        peers = relay_peers.all_peers(self._store, "device")
        own = self._own_prefixes | {peer.down_prefix for peer in peers}
        known = {one.stream: one for one in inbox.all_streams(self._store)}
        self._writers = {peer.up_prefix: peer for peer in peers}
        sorted_ = triage(listed.streams, known, self._writers, own)
        last = bytes.fromhex(read_note(self._store, LAST_UNPROVEN) or "")
        unproven = starting_after(sorted_.unproven, last)
        left = len(unproven)
        for at, info in enumerate([*sorted_.proven, *unproven], -len(sorted_.proven)):
            if effort.is_over:
                left = max(0, at)
                break
            began, before = self._clock(), report.blobs
            self._stream(info, report)
            effort.count(began, is_fruitful=report.blobs > before or info.stream in report.opened, is_unproven=at >= 0)
        untried = [((self._writers[info.stream[:8]].id, "untried"), info) for info in unproven[left:]]
        if untried and left:
            with self._store.transaction():
                write_note(self._store, LAST_UNPROVEN, unproven[left - 1].stream.hex())
        set_listed(self._store, sorted_.refused | count_listed(untried), self._clock())
        inbox.drop_unlisted(self._store, {info.stream for info in listed.streams})

    def _find_lost(self, listed: StreamList, report: PollReport) -> None:
        """Queue documents to devices again that the relay has lost."""
        report.heads = {info.stream: info.head for info in listed.streams}
        lost = 0
        for peer in relay_peers.all_peers(self._store, "device"):
            if peer.sent and outbox.is_lost(self._store, peer.id, report.heads):
                relay_peers.tell_again(self._store, peer.id)
                lost += 1
        report.lost = note_losses(self._store, LOST, lost, MESSAGES, self._clock()) or report.lost

    def _counted(self, report: PollReport) -> PollReport:
        inbox.end_waiting(self._store)
        for one in inbox.all_streams(self._store):
            report.stuck += one.state in ("fork", "wrong-key", "revoked", "damaged")
            report.waiting += one.state == "waiting"
        return report

    # -- one stream --------------------------------------------------------------------------------------------------

    def _stream(self, info: StreamInfo, report: PollReport) -> None:
        """Process one stream. Its problems are recorded, and the other streams continue."""
        known = inbox.seen_stream(self._store, info.stream, self._clock())
        if known.listed < info.head and known.state != "left":
            inbox.note_listed(self._store, known.id, info.head)
        is_resting = self._stopped.is_resting(known)
        if known.state == "left":
            if known.code == FORGOTTEN and info.count:
                self._client.ack(info.stream, info.head)  # sealed while the forgotten text was still in it
        elif not is_resting and (info.count or info.head > known.last_seq):
            self._take_or_record(known, info, report)

    def _take_or_record(self, known: inbox.InStream, info: StreamInfo, report: PollReport) -> None:
        try:
            self._take(known, info, report)
            self._silent = 0
        except RelayUnavailableError as error:
            # One failing stream must not block the others, but an unavailable relay must not be asked again and again.
            self._silent += 1
            if error.retry_after or self._silent >= MAX_SILENT:
                raise
            self._stopped.suspend(self._stopped.met(known), "waiting", "relay", error.message)
        except (UnavailableError, StoreDamagedError, RelayDeniedError):
            raise
        except (WatermarkMovedError, NotAtRelayError):
            return  # another poller has processed it, or the document was replaced: the next one contains everything
        except Exception as error:  # noqa: BLE001 - a fault in one stream is named and must not hold up the others
            words = error.message if isinstance(error, CrystalError) else type(error).__name__
            self._stopped.suspend(self._stopped.met(known), "damaged", "error", f"crystal could not store it: {words}")

    def _take(self, known: InStream, info: StreamInfo, report: PollReport) -> None:
        """Process one stream by its channel; the first blob of a new stream shows its channel."""
        is_new = not known.channel and info.head > known.last_seq
        if known.channel in LATEST_WINS or (is_new and looks_like_documents(self._client, info)):
            self._documents(known, info, report)
        else:
            self._conversation(known, info, report)

    def _conversation(self, known: InStream, info: StreamInfo, report: PollReport) -> None:
        if info.count and info.acked < known.last_seq and known.peer is not None:
            # A device that sends a stored blob again has no receipt yet.
            relay_peers.tell_again(self._store, known.peer)
        taken, goes_on, acked = 0, True, info.acked
        try:
            while goes_on:
                turn = PAST_TURN if known.lane == "past" else LIVE_TURN
                if taken >= turn:
                    break
                # Read only one blob of a new stream: it shows whether the stream is of the past, which must wait.
                limit = 1 if known.lane is None else min(PAGE, turn - taken)
                page = self._client.blobs(info.stream, known.last_seq, limit)
                acked = page.acked
                known = self._stopped.compare(known, page)
                before = report.blobs
                known, goes_on = self._take_run(known, run_after(page, known.last_seq), report)
                taken += report.blobs - before
        finally:
            known = self._stopped.met(known)
            if known.last_seq > acked and info.head:
                self._client.ack(known.stream, known.last_seq)

    def _take_run(self, known: InStream, run: Sequence[BlobInfo], report: PollReport) -> tuple[InStream, bool]:
        """Process consecutive blobs. Return the new state of the stream, and False if it cannot continue."""
        waiting: list[OpenedBlob] = []
        size = 0
        for blob, data in fetched(self._client, known.stream, run, self._at_once):
            if isinstance(data, CrystalError):
                self._stopped.not_fetched(self._commit(known, waiting, report), blob.seq, data)
                return self._stopped.met(known), False
            if waiting and (len(waiting) >= AT_ONCE or size >= BYTES_AT_ONCE):
                known, size = self._commit(known, waiting, report), 0
                waiting = []
            found = self._read(known, waiting, blob.seq, data)
            if isinstance(found, BlobRefusal):
                self._refuse(self._commit(known, waiting, report), found)
                return self._stopped.met(known), False
            sender, item = found
            waiting.append(item)
            size += len(data)
            is_first = known.peer is None or not known.channel or sender.generation > sender.peer.accepted_from
            if is_first or isinstance(item.message, PartialMessage):
                known, size = self._commit(self._bound(known, sender), waiting, report), 0
                waiting = []
        return self._commit(known, waiting, report), bool(run)

    def _bound(self, known: InStream, sender: Sender) -> InStream:
        known = known if known.id else inbox.meet_stream(self._store, known.stream, self._clock())
        if known.peer is None or not known.channel:
            inbox.bind(self._store, known.id, sender.peer.id, Channel.CONVERSATIONS, known.lane)
        self._note_generation(sender)
        # Not read from the store again: another poller may have moved the cursor, and then this one must stop.
        return replace(known, peer=sender.peer.id, channel=int(Channel.CONVERSATIONS))

    def _read(
        self, known: InStream, waiting: Sequence[OpenedBlob], seq: int, data: bytes
    ) -> tuple[Sender, OpenedBlob] | BlobRefusal:
        """Open one blob, the next after those waiting to be committed."""
        tag = waiting[-1].tag if waiting else known.last_tag
        try:
            sender, opened = self._open(known, seq, data, tag)
            if sender.refused:
                return refusal_of_sender(seq, sender)
            return sender, self._taker.read(known, seq, opened)
        except (EnvelopeError, InvalidRecordError) as error:
            return refusal_of(seq, error)

    def _commit(self, known: InStream, waiting: Sequence[OpenedBlob], report: PollReport) -> InStream:
        """Commit the read blobs together; on failure one by one, so that only the faulty one stays."""
        if not waiting:
            return known
        peer = relay_peers.peer_by_id(self._store, known.peer or 0)
        try:
            new = self._taker.take(peer, known, waiting, self._clock())
        except (UnavailableError, StoreDamagedError, WatermarkMovedError):
            raise
        except Exception:  # one of the blobs is faulty; committed one by one, only that one raises
            if len(waiting) == 1:
                raise
            for one in waiting:
                self._commit(known, [one], report)
                known = replace(known, last_seq=one.seq, last_tag=one.tag)
        else:
            report.blobs += len(waiting)
            report.turns += new["turns"]
            report.chunks += new["chunks"]
            report.repeated += new["repeated"]
        return self._stopped.met(known)

    def _open(
        self, known: InStream, seq: int, data: bytes, tag: bytes, documents: int | None = None
    ) -> tuple[Sender, VerifiedBlob]:
        """Open a blob with the keys of the stream's allowed writers; ``documents`` names a channel without a chain."""

        def keys_of(key_id: bytes) -> LinkKeys | None:
            sender = self._senders.get(key_id)
            if sender is None or sender.peer.up_prefix != known.stream[:8]:
                return None
            return sender.keys if known.peer in (None, sender.peer.id) else None

        channel = documents or Channel.CONVERSATIONS
        # Empty after a skip: then any predecessor is accepted once; the blob's own tag authenticates its number.
        prev = (tag or None) if documents is None else None
        opened = open_blob(data, keys_of, channel=channel, stream=known.stream, seq=seq, prev=prev)
        return self._senders[opened.header.key_id], opened

    def _note_generation(self, sender: Sender) -> None:
        """Record the first blob under new keys; from then on blobs under the old ones are refused."""
        peer = sender.peer
        if sender.generation > peer.accepted_from:
            newest = max(peer.generation, sender.generation)  # higher if home was restored from before the rotation
            relay_peers.set_generation(self._store, peer.id, newest, sender.generation)
            self._senders = self._senders_now()

    def _refuse(self, known: InStream, why: BlobRefusal) -> None:
        self._stopped.refuse(known, why, known.peer or self._writers[known.stream[:8]].id)

    # -- documents ---------------------------------------------------------------------------------------------------

    def _documents(self, known: InStream, info: StreamInfo, report: PollReport) -> None:
        """Process the newest document of a stream that opens, which supersedes all earlier ones."""
        for newest in newest_documents(self._client, info, known.last_tag):
            try:
                sender, opened = self._open(known, newest.seq, newest.data, b"", newest.channel)
                if sender.refused:
                    why = refusal_of_sender(newest.seq, sender)
                    self._refuse(self._stopped.met(known), why)
                    if sender.refused == "old-key":
                        self._stopped.leave(
                            self._stopped.met(known), why
                        )  # the device sends its state under its new keys
                    return
                document = read_document(opened)
            except (EnvelopeError, InvalidRecordError) as error:
                self._refuse(self._stopped.met(known), replace(refusal_of(newest.seq, error), resend=False))
                continue
            claims = claims_of(sender.peer, document.body) if newest.channel == Channel.HEARTBEAT else {}
            now = self._clock()
            known = known if known.id else inbox.meet_stream(self._store, known.stream, now)
            with self._store.transaction():
                inbox.bind(self._store, known.id, sender.peer.id, newest.channel, "latest")
                inbox.advance(self._store, known, newest.seq, opened.tag)
                if relay_peers.take_document(
                    self._store, sender.peer.id, newest.channel, document.serial, now, keep=document.body
                ):
                    self._take_claims(known, sender.peer, claims, now)
                    relay_peers.exceed(self._store, sender.peer.id, document.body.get("stale"))
            report.opened.add(info.stream)
            self._note_generation(sender)
            break
        last = self._stopped.met(known).last_seq
        if last and (last > info.acked or info.count):
            self._client.ack(info.stream, last)

    def _take_claims(self, known: InStream, peer: Peer, claims: Mapping[bytes, int], now: int) -> None:
        """Record how far a device's heartbeat says it has sealed, to detect blobs that a relay withholds."""
        for stream in claims:
            met = inbox.meet_stream(self._store, stream, now)
            if met.peer is None:
                inbox.bind(self._store, met.id, peer.id, Channel.CONVERSATIONS, None)
        inbox.take_claims(self._store, known.id, claims)
