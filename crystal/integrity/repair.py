"""Repair what ``verify`` found: from the transcripts if they still exist, else from the archive.

Nothing is deleted unless it is written again in the same transaction. Faults that cannot be repaired stay reported.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from crystal.capture import finder, tail
from crystal.config.harnesses import HARNESSES
from crystal.ingest import archive
from crystal.ingest.forgotten_filter import BY_FORGETTING, forgotten_among
from crystal.integrity.proof import Fault
from crystal.integrity.rebuild import FindProject, write_turns
from crystal.integrity.revisions import revised_after
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.forget import forgotten_rows
from crystal.store.forget.forgetting import read_blocks
from crystal.store.health import checks
from crystal.store.work import index
from crystal.transcript.framing import read_lines
from crystal.transcript.reader import reader_of


def repair(
    store: Store, faults: Sequence[Fault], *, ldm_home: Path, cleaner: tail.Cleaner, find_project: FindProject
) -> list[str]:
    """Repair what needs no capture; the sweep handles ``behind``. Return what was done, in words.

    The order matters: archive frames first, because turns are written again from them.
    """
    work = _Repair(store, faults, ldm_home, cleaner, find_project)
    return [*work.mend_archive(), *work.mend_turns(), *work.restart_transcripts(), *_repair_index(store)]


@dataclass(frozen=True)
class _Repair:
    """Repairs of transcripts, with their shared state."""

    store: Store
    faults: Sequence[Fault]
    ldm_home: Path
    cleaner: tail.Cleaner
    find_project: FindProject

    @cached_property
    def states(self) -> dict[int, ledger.TranscriptState]:
        """Return the transcripts of known agents in the ledger, by row id."""
        return {state.id: state for state in ledger.all_states(self.store) if state.origin.harness in HARNESSES}

    def mend_archive(self) -> Iterator[str]:
        """Archive damaged frames again."""
        for fault in self.faults:
            state = self.states.get(fault.transcript or 0) if fault.kind == "archive" else None
            rows = [] if state is None else checks.ledger_rows(self.store, state.id)
            row = next((row for row in rows if row.id == fault.row), None)
            if state is not None and row is not None and self._mend_frame(state, row):
                yield f"{fault.what}: archived bytes {row.start} to {row.stop} again"

    def mend_turns(self) -> Iterator[str]:
        """Remove rows that refer to missing rows, and write turns again from the archive."""
        wanted = {fault.row for fault in self.faults if fault.kind == "turns"}
        are_orphans_gone = checks.mend_orphans(self.store)
        if are_orphans_gone:
            yield "rows that referred to missing rows were deleted"
        broken = checks.broken_turns(self.store) if any(fault.kind == "chunks" for fault in self.faults) else {}
        written = 0
        for state in self.states.values():
            rows = checks.ledger_rows(self.store, state.id)
            for row in rows:
                is_wanted = are_orphans_gone or row.id in wanted or row.id in broken
                if not is_wanted or row.state != "captured" or not row.length:
                    continue
                clean = archive.text_of(self.ldm_home / str(state.archive), archive.Frame(row.offset, row.length))
                if clean is not None:  # turns whose archived lines cannot be read are left unchanged
                    later = revised_after(state, rows, row, self.ldm_home)
                    with self.store.transaction():
                        checks.drop_turns(self.store, broken.get(row.id, []))
                        written += write_turns(
                            self.store, state, row.id, row.start, clean, self.find_project, self.ldm_home, later
                        )
        if written:
            yield f"{written} turns written again from the archive"

    def restart_transcripts(self) -> Iterator[str]:
        """Reset the watermark of each existing transcript that was edited or has a wrong ledger."""
        for fault in self.faults:
            if fault.kind in ("edited", "ledger") and fault.transcript in self.states and Path(fault.what).exists():
                with self.store.transaction():
                    checks.restart(self.store, fault.transcript)
                yield f"{fault.what}: will be read again from its first byte"

    def _mend_frame(self, state: ledger.TranscriptState, row: checks.LedgerRow) -> bool:
        """Archive a row's lines again from the transcript, if it still has exactly the captured bytes."""
        path = Path(state.path)
        if state.archive is None or finder.look_at(path) is None or row.generation != state.mark.generation:
            return False
        if not reader_of(state.origin.harness).lines_are_complete:
            return False  # the file does not have the archived bytes
        with path.open("rb") as file:
            raw = read_lines(file, row.start, row.stop)
        if self.cleaner.hash(raw) != row.raw_hash:
            return False
        clean = b"".join(self.cleaner.clean_line(line)[0] + b"\n" for line in raw.split(b"\n")[:-1])
        if hashlib.sha256(clean).digest() != row.clean_hash:
            return False
        if archive.text_of(self.ldm_home / state.archive, archive.Frame(row.offset, row.length)) == clean:
            return False  # only the file's name was wrong
        with self.store.transaction():
            self._archive_again(state, row, self.ldm_home / state.archive, raw, clean)
        return True

    def _archive_again(
        self, state: ledger.TranscriptState, row: checks.LedgerRow, target: Path, raw: bytes, clean: bytes
    ) -> None:
        kept = _without_forgotten(self.store, state, row, raw, clean)
        if not kept.strip():
            forgotten_rows.close_row(self.store, row.id, BY_FORGETTING)
            return
        frames = [archive.Frame(*one) for one in ledger.frames_of(self.store, state.id)]
        archive.void(target, archive.Frame(row.offset, row.length), frames)
        size = target.stat().st_size if target.exists() else 0
        written: archive.Written = {}
        # What is behind the ledger's end was left by a repair that was killed before its commit.
        end = min(size, ledger.archive_end(self.store, state.id))
        frame = archive.append(target, end, [kept], written)[0]
        archive.make_durable(written)
        sha = hashlib.sha256(kept).digest()
        if kept == clean:
            checks.place_frame(self.store, row.id, frame.offset, frame.length)
        else:
            forgotten_rows.place_lines(self.store, row.id, frame.offset, frame.length, sha, len(kept))


def _repair_index(store: Store) -> Iterator[str]:
    """Repair the data that search derives from the text: the chunks of memories and the vectors."""
    if remade := checks.mend_memories(store):
        yield f"memories indexed for search again: {remade}"
    if wrong := index.count_faults(store):
        index.make_again(store)
        yield f"the work index was made again: {wrong} calls were wrong"
    for vector_fault in (fault for fault in checks.vector_faults(store) if not fault.lost):
        checks.mend_vectors(store, vector_fault)
        yield f"vectors of generation {vector_fault.generation}: {len(vector_fault.missing)} will be made again"


def _without_forgotten(
    store: Store, state: ledger.TranscriptState, row: checks.LedgerRow, raw: bytes, clean: bytes
) -> bytes:
    """Return a row's lines with forgotten ones blanked, because the transcript still has what the archive had lost."""
    blocks = read_blocks(store)
    if blocks is None:
        return clean
    lines = clean.split(b"\n")[:-1]
    starts = itertools.accumulate((len(line) + 1 for line in raw.split(b"\n")[:-1]), initial=row.start)
    placed = list(zip(starts, lines))  # noqa: B905 - the last start is the end
    gone = forgotten_among(blocks, placed, state.origin, state.mark.transcript)
    return b"".join((b" " * len(line) if at in gone else line) + b"\n" for at, line in placed)
