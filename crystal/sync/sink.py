"""Store captured segments on a device: sealed segment, watermark and optionally its own rows in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crystal.errors import CrystalError
from crystal.ingest.forgotten_filter import note_touched, without_forgotten
from crystal.ingest.ingest import Claim, IngestReport, note_pieces, turns_of
from crystal.model.capture import Project, Segment
from crystal.store import Store, problems
from crystal.store.capture import ledger
from crystal.store.forget.forgetting import read_blocks
from crystal.store.sync import past
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.sending import Link, put_control, put_message
from crystal.sync.wire import Lane, encode_segment

PART = "relay"
"""Name of the note that nothing can be sealed."""


@dataclass(frozen=True, slots=True)
class DeviceSink:
    """Sink for captured segments on a device.

    Attributes:
        store: The device's store.
        link: Returns the link to home; called at the first segment because it reads a key.
        lane: Live conversation or the past.
        find_project: Returns the git project of a folder.
        clock: Returns the time, ms.
        store_here: Writes the device's own rows and archive; None if it keeps none.
    """

    store: Store
    link: Callable[[], Link]
    lane: Lane
    find_project: Callable[[str], Project]
    clock: Callable[[], int]
    store_here: Callable[[Segment, Claim], IngestReport] | None

    def __call__(self, segment: Segment, claim: Claim) -> IngestReport:
        """Store one segment; it is durable when this returns, or nothing is written."""
        try:
            link = self.link()
            _ = link.keys
        except CrystalError as error:
            if self.store_here is None:
                raise
            problems.record_problem(self.store, PART, error.message, self.clock())
            return self.store_here(segment, _claim_for_later(claim))
        payload = encode_segment(segment, self._projects(segment), self.lane)

        def claim_and_seal(store: Store, claimed: Segment, now: int) -> int:
            ident = claim(store, claimed, now)
            # the claim removes lines that were forgotten since the segment was read
            said = payload if claimed is segment else encode_segment(claimed, self._projects(claimed), self.lane)
            put_message(store, link, said, kind=PayloadKind.RECORDS, lane=self.lane, now=now)
            return ident

        if self.store_here is None:
            return _only_ledger(self.store, segment, claim_and_seal, self.clock())
        return self.store_here(segment, claim_and_seal)

    def _projects(self, segment: Segment) -> dict[str, Project]:
        return {cwd: self.find_project(cwd) for cwd in sorted({turn.cwd for turn in turns_of(segment) if turn.cwd})}


def _claim_for_later(claim: Claim) -> Claim:
    """Return a claim that queues bytes that cannot be sealed now; they are sent with the past when the key is back.

    Transcripts cannot wait: the client deletes them after some weeks.
    """

    def claim_and_include(store: Store, claimed: Segment, now: int) -> int:
        ident = claim(store, claimed, now)
        past.include(store, len(claimed.pieces), private=bool(claimed.private_uuids))
        return ident

    return claim_and_include


def _only_ledger(store: Store, segment: Segment, claim: Claim, now: int) -> IngestReport:
    """Move the watermark and keep the ledger; only home stores the lines themselves."""
    with store.transaction():
        blocks = read_blocks(store)
        segment = segment if blocks is None else without_forgotten(blocks, segment)
        note_touched(store, segment, now)
        ident = claim(store, segment, now)
        for piece in segment.pieces:
            if piece.state == "captured":
                ledger.add_relayed(store, ident, segment.after.generation, piece, now)
        return note_pieces(store, segment, ident, now)


def tell_ended(store: Store, link: Link, session_id: str, at: int, now: int) -> None:
    """Tell home that a session has ended, so that it is summarized without waiting for the idle time.

    Optional: home notices by itself after the idle time.
    """
    with store.transaction():
        put_control(store, link, "ended", {"session": session_id, "at": at}, lane="live", now=now)
