"""Read archive files without a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crystal.ingest.archive import placed_frames


def frames_in(path: Path) -> Iterator[bytes]:
    """Yield the text of every readable frame of an archive file."""
    return (text for _, text in placed_frames(path) if text is not None)
