"""Rewrite an archive without forgotten lines, under another name, and point the ledger to the new file.

The new file is durable before the ledger's transaction commits; the old one is deleted afterwards. After a crash at any
point one of them is the archive: a new file unknown to the ledger is written again at the next run, an old one is on
the list of files to delete.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crystal import transcript
from crystal.errors import DamagedError
from crystal.ingest import archive
from crystal.ingest.forgotten_filter import BY_FORGETTING
from crystal.store import Store
from crystal.store.forget import forgotten_rows, forgotten_work
from crystal.store.forget.forgotten_rows import KeptRow
from crystal.store.health import checks

Lines = Mapping[int, set[int]]
"""Numbers of forgotten lines by ledger row."""


def rewrite(store: Store, transcript_row: int, gone: Lines, ldm_home: Path, now: int) -> None:
    """Write one transcript's archive without some lines.

    Runs inside a transaction; schedules the old file for deletion.

    Raises:
        StoreFullError, Unavailable: Nothing has changed.
    """
    rows = forgotten_rows.kept_rows_of(store, transcript_row)
    if not any(row.id in gone for row in rows):
        return
    old = rows[0].archive
    kept: list[tuple[KeptRow, bytes | None]] = []
    for row in rows:
        text = _without(row, gone[row.id], ldm_home) if row.id in gone else None
        if text == b"":
            forgotten_rows.close_row(store, row.id, BY_FORGETTING)
        else:
            kept.append((row, text))
    name = _free_name(store, old) if kept else None
    frames = archive.write_anew(ldm_home / name, _frames(kept, ldm_home)) if name is not None else []
    forgotten_rows.move_archive(store, transcript_row, name)
    for (row, text), frame in zip(kept, frames, strict=True):
        if text is None:
            checks.place_frame(store, row.id, frame.offset, frame.length)
        else:
            sha = hashlib.sha256(text).digest()
            forgotten_rows.place_lines(store, row.id, frame.offset, frame.length, sha, len(text))
    forgotten_work.add_work(store, "file", old, None, now)


def _free_name(store: Store, old: str) -> str:
    """Return the next name that no transcript has. An unknown file of that name was left by a killed run."""
    name = archive.next_name(old)
    while name in checks.known_archives(store):
        name = archive.next_name(name)
    return name


def _frames(kept: Sequence[tuple[KeptRow, bytes | None]], ldm_home: Path) -> Iterator[bytes]:
    for row, text in kept:
        if text is None:
            yield archive.read_raw(ldm_home / row.archive, archive.Frame(row.offset, row.length))
        else:
            yield archive.compressed(text)


def _without(row: KeptRow, numbers: set[int], ldm_home: Path) -> bytes:
    """Return a row's lines without the forgotten ones; empty if none is left or it cannot be read."""
    try:
        text = archive.read_frame(ldm_home / row.archive, archive.Frame(row.offset, row.length))
    except DamagedError:
        return b""  # it is unknown whether it holds the text
    lines = text.split(b"\n")[:-1]
    shell_of = transcript.reader_of(row.harness).shell_of
    kept = [shell_of(line) if number in numbers else line for number, line in enumerate(lines)]
    return b"".join(line + b"\n" for line in kept) if any(line.strip() for line in kept) else b""


def title_left(store: Store, session_id: str, ldm_home: Path) -> str | None:
    """Return the title that is left in a session's own transcript."""
    rows = [row for row in forgotten_rows.kept_rows_of_session(store, session_id) if row.subagent is None]
    lines: list[tuple[int, bytes]] = []
    for row in rows:
        with contextlib.suppress(DamagedError):
            text = archive.read_frame(ldm_home / row.archive, archive.Frame(row.offset, row.length))
            lines += [(row.start, line) for line in text.split(b"\n")[:-1]]
    return transcript.reader_of(rows[0].harness).title(lines) if rows else None
