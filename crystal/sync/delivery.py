"""Run the device's side of the sync: send waiting blobs, read receipts, report this device's state.

It never blocks capture. A blob stays in the outbox until a receipt from home covers it, so nothing is lost if the
relay loses its data. Failures are recorded with the time of the next try, so a hook spends no time during an outage.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from crystal.errors import CrystalError, UnavailableError
from crystal.store import Store, problems
from crystal.store.sync import inbox, outbox, relay_peers
from crystal.store.sync.outbox import OutStream
from crystal.store.sync.refusal_counts import count_refusal
from crystal.sync.answers import StreamInfo
from crystal.sync.client import RelayClient
from crystal.sync.documents import Document, newest_documents, put_document, read_document
from crystal.sync.envelope.blob import Channel, open_blob
from crystal.sync.envelope.link import LinkKeys
from crystal.sync.envelope.refusals import EnvelopeError, WrongKeyError
from crystal.sync.errors import (
    RelayDeniedError,
    RelayFullError,
    RelayProtocolError,
    RelayUnavailableError,
    StreamConflictError,
)
from crystal.sync.losses import LOST, MESSAGES, note_losses
from crystal.sync.receipts import FORK, act_on_receipts, mend_streams, read_receipts
from crystal.sync.sending import Link, is_damaged, seal_again
from crystal.sync.triage import Effort
from crystal.sync.wire import InvalidRecordError

PART = "relay"
PAGE = 50
FIRST_WAIT_MS = 5_000
MAX_WAIT_MS = 3_600_000
CHECK_AFTER_MS = 600_000
"""Time for which a blob waits for its receipt before the relay is asked whether it still stores it."""
TELL_AGAIN_MS = 6 * 3_600_000
"""Interval at which a device reports its state if nothing changes."""
MAX_FORKS = 6
"""Maximum number of new streams in one delivery. More conflicts mean that the relay cannot be trusted."""


@dataclass(slots=True)
class DeliveryReport:
    """Result of a delivery. ``problem`` is why it ended early; ``hint`` and ``exit_code`` are those of the error."""

    sent: int = 0
    sent_bytes: int = 0
    heard: bool = False
    noticed: list[str] = field(default_factory=list)
    problem: str | None = None
    exit_code: int = 0
    hint: str | None = None

    def notice(self, words: str) -> None:
        """Record a notice for the user, once."""
        if words not in self.noticed:
            self.noticed.append(words)


@dataclass(slots=True)
class Delivery:
    """Exchange between one device and the relay.

    Attributes:
        store: The device's store, open for writing.
        client: The relay, with the device's token.
        link: The link to home.
        down_keys: Keys that home may have sealed with, by key id.
        clock: Returns the time, ms.
        send_all: Marks everything archived here to be sent again.
        on_state: Called with home's state document, before its receipts are processed; returns the link to use from
            then on, which a key rotation changes.
        on_mirror: Called with the mirror's newest manifest and its serial.
        about: Further fields of the heartbeat, such as the mirror's objects that cannot be read.
        keep_ms: How long a blob is kept after its receipt.
    """

    store: Store
    client: RelayClient
    link: Link
    down_keys: Callable[[bytes], LinkKeys | None]
    clock: Callable[[], int]
    send_all: Callable[[], None]
    on_state: Callable[[Link, Document], Link]
    on_mirror: Callable[[Mapping[str, Any], int], None] | None = None
    about: Callable[[], Mapping[str, Any]] = dict
    keep_ms: int = 14 * 86_400_000

    def deliver(self, *, should_stop: Callable[[], bool] = lambda: False, skip_delay: bool = False) -> DeliveryReport:
        """Read documents from home, send waiting blobs, send a heartbeat. Does nothing while a retry is not due.

        Args:
            should_stop: Checked between blobs.
            skip_delay: Requested by the user: do not wait for the next try.
        """
        report = DeliveryReport()
        resting = problems.find_problem(self.store, PART)
        if resting is not None and not skip_delay and 0 < (resting.retry_at or 0) - self.clock() <= 2 * MAX_WAIT_MS:
            report.problem = resting.message  # a later time was written while the clock was wrong
            return report
        full = None
        try:
            mend_streams(self.store, self.link, self.clock())
            try:
                self._send(report, should_stop)
            except RelayFullError as error:
                full = error  # continue with home's documents: their receipts free space
            lost = self._check_relay(self._read_home(report))
            words = note_losses(self.store, LOST, lost, MESSAGES, self.clock())
            report.noticed += [words] if words else []
            self._send(report, should_stop)
            self._tell()
            outbox.prune(self.store, self.clock() - self.keep_ms)
            if full is not None and outbox.backlog(self.store).unsent:
                raise full
        except CrystalError as error:
            self._rest(error, resting.tries if resting else 0)
            report.problem, report.exit_code, report.hint = error.message, error.exit_code, error.hint
            return report
        problems.clear_problem(self.store, PART)
        return report

    def _rest(self, error: CrystalError, tries: int) -> None:
        now = self.clock()
        wait = min(MAX_WAIT_MS, FIRST_WAIT_MS << min(tries, 12))
        wait = int(wait * random.uniform(0.5, 1.5))
        asked = 1000 * error.retry_after if isinstance(error, (RelayUnavailableError, RelayFullError)) else 0
        retry_at = now + max(wait, asked) if isinstance(error, UnavailableError) else now + MAX_WAIT_MS
        problems.record_problem(self.store, PART, error.message, now, retry_at)

    # -- sending -----------------------------------------------------------------------------------------------------

    def _send(self, report: DeliveryReport, should_stop: Callable[[], bool]) -> None:
        """Send waiting blobs: live conversation first, then older ones, each stream in order."""
        for _ in range(MAX_FORKS):
            streams = [one for one in outbox.streams(self.store, self.link.peer.id) if one.lane != "latest"]
            streams.sort(key=lambda one: (one.lane == "past", one.id))
            if not any(self._send_stream(stream, report, should_stop) for stream in streams):
                return
        raise RelayProtocolError("the relay already has other blobs in each new stream of this machine")

    def _send_stream(self, stream: OutStream, report: DeliveryReport, should_stop: Callable[[], bool]) -> bool:
        """Send the waiting blobs of one stream. Return True if a new stream had to be started."""
        try:
            while not should_stop() and self._send_some(stream, report, should_stop):
                pass
        except StreamConflictError:
            # Another copy of this machine used this number first: start a new stream.
            start = outbox.stream_by_id(self.store, stream.id).verified + 1
            seal_again(self.store, self.link, stream, start, self.clock(), "fork")
            report.notice(FORK)
            return True
        except RelayDeniedError:
            waiting = outbox.unsent(self.store, stream.id, 1)
            if not waiting or not is_damaged(self.store, self.link, stream, waiting[0].seq):
                raise
            seal_again(self.store, self.link, stream, waiting[0].seq, self.clock(), "resend")
            return True
        return False

    def _send_some(self, stream: OutStream, report: DeliveryReport, should_stop: Callable[[], bool]) -> bool:
        """Send a few blobs and record what the relay accepted. Return False if none is left."""
        done: list[int] = []
        try:
            for blob in outbox.unsent(self.store, stream.id, PAGE):
                sealed = outbox.sealed_blob(self.store, stream.id, blob.seq)
                if should_stop() or sealed is None:
                    break
                self.client.put(stream.stream, blob.seq, sealed, resend=bool(blob.again))
                done.append(blob.seq)
                report.sent += 1
                report.sent_bytes += len(sealed)
        finally:
            if done:
                with self.store.transaction():
                    outbox.mark_sent(self.store, stream.id, done, self.clock())
        return bool(done)

    def _check_relay(self, heads: Mapping[bytes, int]) -> int:
        """Send again what the relay has lost: blobs that are neither listed nor acknowledged. Return their number."""
        now = self.clock()
        count = 0
        if outbox.is_lost(self.store, self.link.peer.id, heads):
            relay_peers.tell_again(self.store, self.link.peer.id)
            count += 1
        for stream in outbox.streams(self.store, self.link.peer.id):
            if stream.lane == "latest":
                continue
            sent = [blob for blob in outbox.unreceipted(self.store, stream.id) if blob.sent_at is not None]
            if not sent:
                continue
            rests = now - CHECK_AFTER_MS < (sent[0].sent_at or 0) <= now
            if rests and heads.get(stream.stream, 0) >= sent[-1].seq:
                continue
            lost = _lost(self.client, stream.stream, [blob.seq for blob in sent])
            if lost:
                outbox.mark_again(self.store, stream.id, lost)
            with self.store.transaction():
                kept = [blob.seq for blob in sent if blob.seq not in set(lost)]
                outbox.mark_sent(self.store, stream.id, kept[:1], now)
            count += len(lost)
        return count

    # -- documents from home -----------------------------------------------------------------------------------------

    def _read_home(self, report: DeliveryReport) -> Mapping[bytes, int]:
        """Read home's documents. Return how far the relay lists each stream."""
        listed = self.client.streams().streams
        effort = Effort(self.clock)
        known = {one.stream: one for one in inbox.all_streams(self.store)}
        ours = [info for info in listed if info.stream[:8] == self.link.peer.down_prefix]
        for info in sorted(ours, key=lambda info: info.stream not in known):
            if effort.is_over:
                break
            began = self.clock()
            is_opened = self._read_stream(info, report)
            effort.count(began, is_fruitful=is_opened, is_unproven=info.stream not in known)
        return {info.stream: info.head for info in listed}

    def _read_stream(self, info: StreamInfo, report: DeliveryReport) -> bool:
        """Process the newest document of home that opens. It stays at the relay: a copy of this device may need it."""
        known = inbox.find_stream(self.store, info.stream)
        for newest in newest_documents(self.client, info, b"" if known is None else known.last_tag):
            try:
                opened = open_blob(
                    newest.data, self.down_keys, channel=newest.channel, stream=info.stream, seq=newest.seq, prev=None
                )
                document = read_document(opened)
                self._take(newest.channel, document, report)
            except (EnvelopeError, InvalidRecordError) as error:
                count_refusal(self.store, self.link.peer.id, error.code, self.clock())
                if isinstance(error, WrongKeyError):
                    report.notice("home seals with keys that this machine does not have")
                continue
            # Delete documents with keys: an old key would open the new ones.
            upto = newest.seq if "rotate" in document.body else newest.seq - 1
            if upto > info.acked:
                self.client.ack(info.stream, upto)
            with self.store.transaction():
                known = inbox.meet_stream(self.store, info.stream, self.clock())
                inbox.bind(self.store, known.id, self.link.peer.id, newest.channel, "latest")
                inbox.advance(self.store, known, newest.seq, opened.tag)
            return True
        return False

    def _take(self, channel: int, document: Document, report: DeliveryReport) -> None:
        """Process a document once. It is recorded as processed afterwards, so a crash repeats the processing."""
        peer = relay_peers.peer_by_id(self.store, self.link.peer.id)
        is_new = document.serial > peer.serials_in.get(str(channel), 0)
        if is_new and channel == Channel.RECEIPTS:
            receipts = read_receipts(document.body)
            self._keep_up(document.body.get("generation"))
            self.link = self.on_state(self.link, document)
            now = self.clock()
            report.noticed += act_on_receipts(self.store, self.link, receipts, now=now, send_all=self.send_all)
        elif is_new and channel == Channel.MIRROR and self.on_mirror is not None:
            self.on_mirror(document.body, document.serial)
        # Only part of the message: the whole may hold keys.
        keep = {"home": document.body.get("home")} if channel == Channel.RECEIPTS else {}
        with self.store.transaction():
            if relay_peers.take_document(self.store, peer.id, channel, document.serial, self.clock(), keep=keep):
                relay_peers.exceed(self.store, peer.id, document.body.get("stale"))
                report.heard = True

    def _keep_up(self, generation: object) -> None:
        """Use the key generation that home accepts, after a restore from before a rotation, if its keys are here."""
        peer = self.link.peer
        if type(generation) is not int or generation <= peer.generation or self.link.keys_of(generation) is None:
            return
        with self.store.transaction():
            relay_peers.set_generation(self.store, peer.id, generation, generation)
        self.link = replace(self.link, peer=replace(peer, generation=generation, accepted_from=generation))
        mend_streams(self.store, self.link, self.clock())

    def _tell(self) -> None:
        """Report to home how far this device has sealed, if that changed or the last report is old."""
        streams = {
            one.stream.hex(): one.last_seq
            for one in outbox.streams(self.store, self.link.peer.id)
            if one.channel == Channel.CONVERSATIONS and one.closed_at is None and one.last_seq
        }
        peer, now = relay_peers.peer_by_id(self.store, self.link.peer.id), self.clock()
        stale = {"stale": dict(peer.stale)} if peer.stale else {}
        body = {"streams": streams, **stale, **self.about()}
        is_late = not relay_peers.was_sent_since(peer, Channel.HEARTBEAT, now - TELL_AGAIN_MS, now)
        if is_late or not relay_peers.was_sent(peer, Channel.HEARTBEAT, body):
            put_document(self.store, self.client, self.link, Channel.HEARTBEAT, body, now)


def _lost(client: RelayClient, stream: bytes, seqs: list[int]) -> list[int]:
    """Return the numbers that the relay neither lists nor was told to delete."""
    there: set[int] = set()
    after, last = seqs[0] - 1, seqs[-1]
    while after < last:
        page = client.blobs(stream, after)
        there.update(blob.seq for blob in page.blobs)
        if not page.blobs:
            break
        after = page.blobs[-1].seq
    else:
        page = client.blobs(stream, after, 1)
    return [seq for seq in seqs if seq not in there and (seq > page.acked or seq <= page.expired_upto)]
