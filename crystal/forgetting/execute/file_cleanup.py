"""Clean the files that hold forgotten text: archives, summaries, daily logs, copies of the store, the index."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from crystal.config.paths import MEMORY_RECORD, delete_file, refused, write_private
from crystal.config.temporary_files import TEMPORARY_FILES, delete_left_behind
from crystal.errors import UnavailableError
from crystal.forgetting.archive_links import archive_elsewhere
from crystal.forgetting.match.archive_lines import text_of_row
from crystal.ingest import archive
from crystal.ingest.forgotten_filter import BY_FORGETTING
from crystal.memories.record import DAMAGED_SUFFIX
from crystal.search.index import bring_up_to_date, folder_of
from crystal.search.index.index_files import files_in, path_of, remove_file
from crystal.store import Store
from crystal.store.capture import ledger, snapshots
from crystal.store.forget import forgotten_rows, forgotten_work
from crystal.store.forget.forgotten_rows import KeptRow
from crystal.store.health import checks
from crystal.store.search import index_log
from crystal.summarize.markdown import file_stem
from crystal.transcript.line_context import parse_completed
from crystal.transcript.reader import reader_of

_MARK = re.compile(rb"<!-- ([a-z0-9_-]+) \d+ -->\s*$")
INDEX_SECONDS = 300.0
YOUNG_MS = 60_000
"""A file that another process linked, and that is younger than this, may still get its note."""


def delete_leftovers(ldm_home: Path, data_dir: Path, made_at: int, now: int) -> None:
    """Delete files that hold copies of the memory and are no part of it; only the way back to an older version is lost.

    Raises:
        UnavailableError: A temporary file may still be written, or the system refuses.
    """
    for path in sorted(_copies(ldm_home, data_dir, made_at, now)):
        delete_file(path)
    for folder in ("recovered", "imports"):
        shutil.rmtree(data_dir / folder, ignore_errors=True)
    for path in dict.fromkeys(path for folder in (ldm_home, data_dir) for path in folder.rglob(TEMPORARY_FILES)):
        with contextlib.suppress(FileNotFoundError):  # it was renamed
            if not delete_left_behind(path, delete_file):
                raise UnavailableError(f"{path} is being written", hint="the next run continues")


def _copies(ldm_home: Path, data_dir: Path, made_at: int, now: int) -> Iterator[Path]:
    """Yield files that hold copies of the memory.

    Copies of the store that an upgrade left, complete or not; damaged databases kept by a repair before something was
    forgotten (ms); contexts; what a recovery left; transcripts linked for a hook whose note is gone; damaged lines of
    the record of memories, whose content is unknown.
    """
    for name in ("crystal.db", "mirror.db"):
        yield from data_dir.glob(f"{name}.v*.backup*")
    damaged = [path for path in data_dir.glob("crystal.db.damaged-*") if path.is_file()]
    yield from (path for path in damaged if path.stat().st_mtime_ns // 1_000_000 <= made_at)
    for folder in ("context", "recovered"):
        yield from (path for path in (data_dir / folder).rglob("*") if not path.is_dir() or path.is_symlink())
    linked = [path for path in (data_dir / "spool").glob("*.kept") if not path.with_suffix(".json").exists()]
    yield from (path for path in linked if now - path.lstat().st_ctime_ns // 1_000_000 > YOUNG_MS)
    yield from ldm_home.glob(f"agents/*/memory/{MEMORY_RECORD}{DAMAGED_SUFFIX}")


def purge_index(store: Store, now: int, progress: Callable[[int, int], None] = lambda *_: None) -> None:
    """Remove what was deleted from the store from all files of the derived index.

    Raises:
        UnavailableError: The index cannot be written now or is not ready yet.
    """
    if index_log.read_state(store) is None:
        return
    folder = folder_of(store.path)
    try:
        if bring_up_to_date(store, now=now, budget_seconds=INDEX_SECONDS, progress=progress):
            raise UnavailableError(f"the search index {folder} is not up to date", hint="the next run continues")
        known = {path_of(folder, name) for name in index_log.listed(store)}
        for path in files_in(folder):
            if path not in known:
                remove_file(path)
    except OSError as error:
        raise UnavailableError(f"the search index {folder}: {error}", hint="check the folder and its disk") from error


def clean_daily(folder: Path, session_id: str) -> None:
    """Remove a session's lines from an agent's daily logs. A log without other lines is deleted.

    Raises:
        UnavailableError: The system refuses.
    """
    stem = file_stem(session_id).encode()
    for path in sorted((folder / "daily").glob("*.md")):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise refused(error, path) from error
        lines = content.splitlines(keepends=True)
        rest = [line for line in lines if (found := _MARK.search(line)) is None or found[1] != stem]
        if len(rest) == len(lines):
            continue
        if any(line.strip() and not line.startswith(b"# ") for line in rest):
            write_private(path, b"".join(rest))
        else:
            delete_file(path)


# --------------------------------------------------------------------------------------------------------- archives


def rewrite_archive(store: Store, transcript_row: int, gone: Mapping[int, set[int]], ldm_home: Path, now: int) -> None:
    """Write one transcript's archive without some lines, under another name, and point the ledger to the new file.

    Runs inside a transaction. The new file is durable before that commits; the old one is scheduled for deletion. After
    a crash at any point one of them is the archive: a new file unknown to the ledger is written again at the next run.

    Args:
        store: The store.
        transcript_row: The row of the transcript.
        gone: Numbers of forgotten lines by ledger row.
        ldm_home: What archive paths are relative to.
        now: The time, ms.

    Raises:
        StoreFullError, UnavailableError: Nothing has changed.
    """
    rows = forgotten_rows.kept_rows_of(store, transcript_row)
    if not any(row.id in gone for row in rows):
        return
    kept: list[tuple[KeptRow, bytes | None]] = []
    for row in rows:
        text = _without(row, gone[row.id], ldm_home) if row.id in gone else None
        if text is not None:
            snapshots.close_records(store, transcript_row, _records_among(row, gone[row.id], ldm_home))
        if text == b"":
            forgotten_rows.close_row(store, row.id, BY_FORGETTING)
        else:
            kept.append((row, text))
    name, frames = None, []
    if kept:
        name = archive.next_name(rows[0].archive)
        while name in checks.known_archives(store):  # a file that the ledger does not know was left by a killed run
            name = archive.next_name(name)
        contents = (_raw_frame(row, ldm_home) if text is None else archive.compressed(text) for row, text in kept)
        frames = archive.write_anew(ldm_home / name, contents)
    ledger.set_archive(store, transcript_row, name)
    for (row, text), frame in zip(kept, frames, strict=True):
        if text is None:
            checks.place_frame(store, row.id, frame.offset, frame.length)
        else:
            sha = hashlib.sha256(text).digest()
            forgotten_rows.place_lines(store, row.id, frame.offset, frame.length, sha, len(text))
    forgotten_work.add_work(store, "file", rows[0].archive, _moved_to(store, rows, ldm_home), now)


def _moved_to(store: Store, rows: Sequence[KeptRow], ldm_home: Path) -> list[str] | None:
    """Return where a person moved the archive of some rows, leaving a link; None for another file or archive."""
    path = ldm_home / rows[0].archive
    if (
        not path.is_symlink()
        or archive_elsewhere(path, ldm_home)
        or all(text_of_row(row, ldm_home) is None for row in rows)
    ):
        return None
    target = os.path.realpath(path)
    is_archive = os.path.relpath(target, os.path.realpath(ldm_home)) in checks.known_archives(store)
    return None if is_archive else [target]


def _records_among(row: KeptRow, numbers: set[int], ldm_home: Path) -> list[str]:
    """Return the ids of records in the lines of a row with these numbers."""
    lines = (text_of_row(row, ldm_home) or b"").split(b"\n")
    idents = (parse_completed(lines[number])[1].id for number in numbers if number < len(lines))
    return [ident.partition(":")[2] for ident in idents if ident is not None]


def _raw_frame(row: KeptRow, ldm_home: Path) -> bytes:
    return archive.read_raw(ldm_home / row.archive, archive.Frame(row.offset, row.length))


def _without(row: KeptRow, numbers: set[int], ldm_home: Path) -> bytes:
    """Return a row's lines without the forgotten ones; empty if none is left.

    Empty as well if it cannot be read: it is unknown whether it holds the text.
    """
    lines = (text_of_row(row, ldm_home) or b"").split(b"\n")[:-1]
    shell_of = reader_of(row.harness).shell_of
    kept = [shell_of(line) if number in numbers else line for number, line in enumerate(lines)]
    return b"".join(line + b"\n" for line in kept) if any(line.strip() for line in kept) else b""


def title_left(store: Store, session_id: str, ldm_home: Path) -> str | None:
    """Return the title that is left in the notes of a session's own transcript.

    One that depends on a message is not taken: the message may be among the forgotten ones.
    """
    rows = [row for row in forgotten_rows.kept_rows_of_session(store, session_id) if row.subagent is None]
    if not rows:
        return None
    reader = reader_of(rows[0].harness)
    texts = ((row.start, text_of_row(row, ldm_home) or b"") for row in rows)
    lines = ((start, line) for start, text in texts for line in text.split(b"\n")[:-1])
    return reader.title(one for one in lines if reader.facts(one[1]).is_bookkeeping)
