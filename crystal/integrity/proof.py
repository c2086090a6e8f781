"""Define the result of a verification: defects, and the number of bytes in each state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FaultKind = Literal[
    "behind", "unreadable", "edited", "ledger", "archive", "archive-unknown", "index", "turns", "database", "chunks",
    "vectors", "memories", "work",
]  # fmt: skip
MAX_UNPROVED = 99.999
"""Maximum percentage for something that has a gap of unknown size."""
HARMLESS = ("behind", "unreadable")
"""Kinds that are not damage: the next sync captures the bytes, or the system refuses to read them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One defect.

    Attributes:
        kind: ``behind``: the next sync captures it; ``unreadable``: the system refuses to read it; all others are
            damage.
        what: The affected path or table.
        message: The defect in words.
        start, stop: The byte range, or None.
        transcript: The row of the transcript in the ledger, or None.
        row: The row of the ledger, or None.
    """

    kind: FaultKind
    what: str
    message: str
    start: int | None = None
    stop: int | None = None
    transcript: int | None = None
    row: int | None = None


@dataclass(slots=True)
class Proof:
    """Result of a verification. ``bytes_by_state``: captured, private, each rule's name, behind, unreadable."""

    transcripts: int = 0
    files_gone: int = 0
    bytes_by_state: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def count(self, state: str, size: int) -> None:
        """Add bytes in one state."""
        self.bytes_by_state[state] = self.bytes_by_state.get(state, 0) + size

    def add_behind(self, path: str, words: str, start: int, stop: int, transcript: int | None = None) -> None:
        """Add bytes of a file that were not captured, if there are any."""
        if stop > start:
            self.count("behind", stop - start)
            self.faults.append(Fault("behind", path, words, start, stop, transcript))

    @property
    def damaged(self) -> bool:
        """Return True if any captured data is damaged."""
        return any(fault.kind not in HARMLESS for fault in self.faults)

    @property
    def percent(self) -> float:
        """Return the percentage of all known transcript bytes whose state is proved."""
        total = max(1, sum(self.bytes_by_state.values()))
        unproved = sum((fault.stop or 0) - (fault.start or 0) for fault in self.faults if fault.stop is not None)
        return 100.0 if not self.faults else min(MAX_UNPROVED, 100.0 * max(0, total - unproved) / total)
