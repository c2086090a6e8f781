"""Record streams that cannot continue: why, since when, when to try again, and what to request."""

from __future__ import annotations

from collections.abc import Callable

from crystal.errors import CrystalError
from crystal.store import Store
from crystal.store.sync import inbox
from crystal.store.sync.inbox import InStream
from crystal.store.sync.refusal_counts import count_refusal
from crystal.sync.answers import BlobPage
from crystal.sync.errors import NotAtRelayError, RelayUnavailableError
from crystal.sync.opening import BlobRefusal, is_about_one_blob

FIRST_WAIT_MS = 5_000
MAX_WAIT_MS = 600_000


class StoppedStreams:
    """Records why streams are blocked.

    Args:
        store: The home machine's store, open for writing.
        clock: Returns the time, ms.
    """

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store, self._clock = store, clock

    def met(self, known: InStream) -> InStream:
        """Return the current state of a stream."""
        return inbox.find_stream(self._store, known.stream) or known

    def is_resting(self, known: InStream) -> bool:
        """Return True if a stream must not be tried yet."""
        if known.retry_at is None:
            return False
        # A later time was written while the clock was wrong.
        return 0 < known.retry_at - self._clock() <= 2 * MAX_WAIT_MS

    def compare(self, known: InStream, page: BlobPage) -> InStream:
        """Check whether the next blob can still arrive, and record streams for which it cannot."""
        needed = known.last_seq + 1
        is_there = bool(page.blobs) and page.blobs[0].seq == needed
        if not is_there and (page.blobs or max(page.acked, page.expired_upto) >= needed):
            why = f"the relay does not have number {needed}; the device sends it again when it syncs"
            self.suspend(known, "waiting", "gap", why, needed, at_once=True)
        elif is_there and known.state == "waiting" and known.code == "gap":
            inbox.resume(self._store, known)
        else:
            return known
        return self.met(known)

    def not_fetched(self, known: InStream, seq: int, error: CrystalError) -> None:
        """Record that a blob could not be fetched; raise errors that concern the relay as a whole."""
        if isinstance(error, RelayUnavailableError) and is_about_one_blob(error):
            # The answer is invalid: if the stored blob is damaged, sending it again repairs it.
            self.suspend(known, "waiting", "relay", error.message, seq)
            return
        if not isinstance(error, NotAtRelayError):
            raise error
        why = f"the relay has lost number {seq}; the device sends it again when it syncs"
        self.suspend(known, "waiting", "gap", why, seq, at_once=True)

    def refuse(self, known: InStream, why: BlobRefusal, writer: int) -> None:
        """Record a refused blob.

        Args:
            known: The state of its stream.
            why: The blob and the reason.
            writer: The device that may write the stream.
        """
        count_refusal(self._store, writer, why.code, self._clock())
        if why.state == "fork" and known.forked:
            # One of the copies uses another stream already; tell other writers to do so too.
            self.leave(known, why)
            return
        resend = why.seq if why.resend else None
        self.suspend(known, why.state, why.code, f"number {why.seq}: {why.detail}", resend)

    def leave(self, known: InStream, why: BlobRefusal) -> None:
        """Stop waiting for blobs of a stream."""
        with self._store.transaction():
            inbox.leave(self._store, known, why.code, f"number {why.seq}: {why.detail}", self._clock())

    def suspend(
        self,
        known: InStream,
        state: str,
        code: str,
        detail: str,
        resend: int | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Record why a stream cannot continue, and when to try again: later each time, or ``at_once``."""
        now = self._clock()
        tries = known.tries if (known.state, known.code) == (state, code) else 0
        wait = 0 if tries == 0 else min(MAX_WAIT_MS, FIRST_WAIT_MS << min(tries - 1, 10))
        inbox.suspend(
            self._store, known, state, code, detail, now=now, retry_at=None if at_once else now + wait, resend=resend
        )
