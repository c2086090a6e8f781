"""Write an archived session back to the place where ``claude --resume`` finds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from crystal.capture import finder, tail
from crystal.config.harnesses import Root
from crystal.config.paths import make_private_dir, write_private
from crystal.errors import NotFoundError, UsageError
from crystal.ingest import archive
from crystal.model.capture import RESTORED, Watermark
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.health import checks
from crystal.transcript.line_context import without_context
from crystal.transcript.reader import TranscriptReader, reader_of


@dataclass(frozen=True, slots=True)
class Restored:
    """A file that was written, or would be.

    Attributes:
        path: Path of the file.
        bytes: Its length.
        missing: Number of bytes of the transcript that were never captured.
        cwd: The folder in which ``claude --resume`` finds it; None if no line names one.
    """

    path: Path
    bytes: int
    missing: int
    cwd: str | None


def archived_lines(store: Store, state: ledger.TranscriptState, ldm_home: Path) -> Iterator[bytes]:
    """Return the archived lines of one transcript as they were in the file, without newlines, each uuid once.

    If the file was replaced, for example compacted by the client, lines that only older versions had come first, then
    the latest version.

    Raises:
        DamagedError: A frame cannot be read.
    """
    everything = checks.ledger_rows(store, state.id)
    rows = [row for row in everything if row.state == "captured"]
    latest = max((row.generation for row in rows), default=0)
    whole = _same_file(everything, latest)
    reader = reader_of(state.origin.harness)
    seen: set[str] = set()
    kept: list[bytes] = []
    for row in sorted(rows, key=lambda row: (row.generation != latest, row.generation, row.start)):
        clean = archive.read_frame(ldm_home / str(state.archive), archive.Frame(row.offset, row.length))
        for line in clean.split(b"\n")[:-1]:
            if line and not line.strip(b" "):
                continue  # forgotten
            uuid = reader.facts(line).uuid
            if uuid is None and row.generation not in whole:
                continue
            if uuid is not None:
                if uuid in seen:
                    continue
                seen.add(uuid)
            if row.generation == latest:
                kept.append(without_context(line))
            else:
                yield without_context(line)
    yield from kept


def _same_file(rows: list[checks.LedgerRow], latest: int) -> set[int]:
    """Return the generations that the latest one continues: a restored file begins with the earlier content."""
    restored = {row.generation for row in rows if row.rule == RESTORED}
    captured = sorted({row.generation for row in rows if row.state == "captured" and row.generation < latest})
    whole = {latest}
    while min(whole) in restored and captured:
        whole.add(captured.pop())
    return whole


def restore(
    store: Store,
    session: str,
    *,
    ldm_home: Path,
    roots: Sequence[Root],
    project: Path | None,
    cleaner: tail.Cleaner,
    now: int,
    dry_run: bool = False,
) -> list[Restored]:
    """Write a session's transcript, and those of its subagents, back to disk.

    Args:
        store: The store, open for writing.
        session: The complete session id.
        ldm_home: The folder to which archive paths are relative.
        roots: The agents' folders of transcripts on this machine.
        project: The folder to resume in; None for the session's own folder.
        cleaner: The hashes of this store.
        now: The time, ms.
        dry_run: Only return what would be written.

    Raises:
        UsageError: The session is unknown, or its file still exists.
    """
    states = _archived(store, session)
    reader = reader_of(states[0].origin.harness)
    root = next(root.folder for root in roots if root.harness == states[0].origin.harness)
    chosen, folder, done = str(project) if project else None, Path(states[0].path).parent, []
    resumed = reader.resume_folder(root, chosen or _cwd_of(archived_lines(store, states[0], ldm_home), reader))
    if chosen or folder.parent != root:
        folder = resumed
    for name, same in groupby(states, _subagent_file):
        target, parts = folder / reader.path_of(session, name), list(same)
        if target.exists():
            if not name:
                raise UsageError(f"{target} is still there", hint="move it away to restore the archived one")
            continue
        lines = reader.relinked(list(_joined(store, parts, ldm_home)))
        data = b"\n".join([*lines, b""])
        missing = sum(_missing(store, state) for state in parts)
        done.append(Restored(target, len(data), missing, chosen or _cwd_of(lines, reader)))
        if not dry_run:
            make_private_dir(target.parent)
            write_private(target, data)
            for state in parts:
                _note(store, state, target, cleaner, now)
    return done


def _joined(store: Store, parts: Sequence[ledger.TranscriptState], ldm_home: Path) -> Iterator[bytes]:
    """Yield the lines of a transcript that several machines sent, the earlier machine's first, each uuid once."""
    seen: set[str] = set()
    for state in parts:
        reader = reader_of(state.origin.harness)
        for line in archived_lines(store, state, ldm_home):
            uuid = reader.facts(line).uuid
            if uuid is None or uuid not in seen:
                yield line
            if uuid is not None:
                seen.add(uuid)


def _archived(store: Store, session: str) -> list[ledger.TranscriptState]:
    """Return the archived transcripts of a session, its own before those of its subagents."""
    states = [state for state in ledger.all_states(store) if state.origin.session_id == session and state.archive]
    if not states:
        raise NotFoundError(f"no session {session} is archived", hint="run: crystal sessions")
    return sorted(states, key=_subagent_file)


def _subagent_file(state: ledger.TranscriptState) -> str:
    """Return the name of a subagent's transcript; empty for the session's own."""
    return "" if state.origin.subagent is None else state.mark.transcript.split("/")[-1]


def _missing(store: Store, state: ledger.TranscriptState) -> int:
    """Return how many bytes of a transcript are not archived."""
    rows = checks.ledger_rows(store, state.id)
    return sum(row.stop - row.start for row in rows if row.state != "captured" and row.rule != RESTORED)


def _cwd_of(lines: Iterable[bytes], reader: TranscriptReader) -> str | None:
    return next((cwd for line in lines if (cwd := reader.facts(line).cwd) is not None), None)


def _note(store: Store, state: ledger.TranscriptState, target: Path, cleaner: tail.Cleaner, now: int) -> None:
    """Record in the ledger that this file has archived lines, so that no sweep captures it again."""
    found = finder.look_at(target)
    if found is None:
        return
    with target.open("rb") as file:
        tail_hash = tail.tail_hash(file, found.size, cleaner)
    place = (found.size, found.dev, found.inode)
    mark = Watermark(state.mark.transcript, *place, state.mark.generation + 1, tail_hash)
    with store.transaction():
        ledger.move_mark(store, state.id, str(target), mark, now)
        ledger.add_row(store, state.id, mark.generation, 0, found.size, "skipped", RESTORED, now)
