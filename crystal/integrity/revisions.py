"""Find archived lines of records that later lines replace, in files that are rewritten."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crystal.config.harnesses import CLAUDE_CODE
from crystal.ingest import archive
from crystal.store.capture import ledger
from crystal.store.health import checks
from crystal.transcript.line_context import revised_ids


def revised_after(
    state: ledger.TranscriptState, rows: Iterable[checks.LedgerRow], row: checks.LedgerRow, ldm_home: Path
) -> set[str]:
    """Return the ids of the records that later rows of a transcript replace or delete."""
    if state.origin.harness == CLAUDE_CODE:
        return set()
    later = [one for one in rows if one.id > row.id and one.state == "captured" and one.length]
    path = ldm_home / str(state.archive)
    texts = (archive.text_of(path, archive.Frame(one.offset, one.length)) for one in later)
    return set().union(*(revised_in(text) for text in texts if text is not None))


def revised_in(clean: bytes) -> set[str]:
    """Return the ids of the records in archived lines that replace an earlier state of the same record."""
    return revised_ids(clean.split(b"\n"))
