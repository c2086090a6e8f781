"""Capture on a device: sealed segment, watermark and, if wanted, the device's own rows, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crystal.errors import CrystalError
from crystal.ingest.forgotten_filter import note_touched, without_forgotten
from crystal.ingest.ingest import Claim, IngestReport, ingest
from crystal.model.capture import Project, Segment
from crystal.store import Store, problems
from crystal.store.capture import ledger, privacy
from crystal.store.forget.forgetting import read_blocks
from crystal.store.sync import past
from crystal.sync.envelope import Kind
from crystal.sync.sending import Link, put_message
from crystal.sync.wire import Lane, encode_segment
from crystal.transcript import parse_turns

ROOM = "relay"
"""The room under which it is noted that nothing can be sealed."""


@dataclass(frozen=True, slots=True)
class DeviceSink:
    """Takes what a device captures.

    Attributes:
        store: The device's store.
        link: Gives the link to home; it reads a key, so it is asked for at the first segment.
        lane: Whether what comes is said now or comes from the past.
        ldm_home, archive_folder: Where the device's own archive is.
        find_project: What git says of a folder.
        clock: Gives the time, ms.
        local_memory: Whether the device keeps rows and archive of its own.
    """

    store: Store
    link: Callable[[], Link]
    lane: Lane
    ldm_home: Path
    archive_folder: Path
    find_project: Callable[[str], Project]
    clock: Callable[[], int]
    local_memory: bool

    def __call__(self, segment: Segment, claim: Claim) -> IngestReport:
        """Take one segment: all of it is durable when this returns, or nothing of it happened."""
        try:
            link = self.link()
            _ = link.keys
        except CrystalError as error:
            if not self.local_memory:
                raise
            return self._keep_unsealed(segment, claim, error)
        payload = encode_segment(segment, self._projects(segment), self.lane)

        def claim_and_seal(store: Store, claimed: Segment, now: int) -> int:
            ident = claim(store, claimed, now)
            # Another one where something of it was forgotten since it was read.
            said = payload if claimed is segment else encode_segment(claimed, self._projects(claimed), self.lane)
            put_message(store, link, said, kind=Kind.RECORDS, lane=self.lane, now=now)
            return ident

        if not self.local_memory:
            return _only_ledger(self.store, segment, claim_and_seal, self.clock())
        return self._ingest(segment, claim_and_seal)

    def _keep_unsealed(self, segment: Segment, claim: Claim, error: CrystalError) -> IngestReport:
        """Keep here what cannot be sealed now, and let it be sent with the past when the key is there again.

        Transcripts do not wait for ever: the client deletes them after some weeks.
        """
        problems.record_problem(self.store, ROOM, error.message, self.clock())

        def claim_and_remember(store: Store, claimed: Segment, now: int) -> int:
            ident = claim(store, claimed, now)
            past.include(store, len(claimed.pieces), private=bool(claimed.private_uuids))
            return ident

        return self._ingest(segment, claim_and_remember)

    def _ingest(self, segment: Segment, claim: Claim) -> IngestReport:
        return ingest(
            self.store,
            segment,
            ldm_home=self.ldm_home,
            archive_folder=self.archive_folder,
            find_project=self.find_project,
            now=self.clock(),
            claim=claim,
        )

    def _projects(self, segment: Segment) -> dict[str, Project]:
        lines = [line for piece in segment.pieces for line in piece.lines]
        subagent = segment.origin.subagent is not None
        folders = {turn.cwd for turn in parse_turns(lines, segment.before.transcript, subagent=subagent) if turn.cwd}
        return {cwd: self.find_project(cwd) for cwd in sorted(folders)}


def _only_ledger(store: Store, segment: Segment, claim: Claim, now: int) -> IngestReport:
    """Move the watermark and keep the ledger; the lines themselves are home's."""
    with store.transaction():
        blocks = read_blocks(store)
        segment = segment if blocks is None else without_forgotten(blocks, segment)
        note_touched(store, segment, now)
        ident = claim(store, segment, now)
        generation = segment.after.generation
        for piece in segment.pieces:
            if piece.state == "captured":
                ledger.add_relayed(store, ident, generation, piece, now)
            else:
                ledger.add_row(store, ident, generation, piece.start, piece.end, piece.state, piece.rule, now)
        privacy.add_private_lines(store, segment.private_uuids)
        privacy.add_redactions(store, [(finding.kind, finding.count) for finding in segment.findings])
    return IngestReport(
        sum(piece.end - piece.start for piece in segment.pieces if piece.state == "captured"),
        sum(piece.end - piece.start for piece in segment.pieces if piece.state == "private"),
        0,
        0,
        0,
    )


def tell_ended(store: Store, link: Link, session_id: str, at: int, now: int) -> None:
    """Let home know that a session has ended, so that its summary need not wait until it has rested.

    Nothing is lost without: home finds out when it has rested.
    """
    words = {"v": 1, "kind": "ended", "session": session_id, "at": at}
    with store.transaction():
        put_message(store, link, json.dumps(words).encode(), kind=Kind.CONTROL, lane="live", now=now)
