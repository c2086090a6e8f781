"""Take archive files into a store that knows nothing of them: where the database is lost, the archive is the memory.

What was private is not in the archive, and which lines that was is lost with the database. So a transcript that is
still on disk is not read again: up to the last line that is archived its bytes are taken as kept, what follows counts
as said before crystal, which only backfill imports.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from crystal import transcript
from crystal.archive import frames_in
from crystal.capture import files, tail
from crystal.capture.engine import Capture, Tally
from crystal.model import BEFORE_CRYSTAL, RESTORED, Watermark
from crystal.paths import make_private_dir
from crystal.store import ledger
from crystal.store.forgetting import Tombstone, add_tombstones
from crystal.transcript import FORGOTTEN

ASIDE = ".recovered"
_REWRITTEN = re.compile(r"\+\d+$")
"""The end of the name of an archive that was written anew without what was forgotten, see archive.next_name."""


def recover_archives(capture: Capture, archives: Sequence[Path], folder: Path) -> list[str]:
    """Capture each archive file as if it were a transcript; gives what was done, in words.

    The lines were cleaned when they were archived, so they are taken as they are. The old file stays beside the new
    one with the ending ``.recovered`` until its lines are written again. If that is cut short, give that file the
    next time: what was written already is known by its lines' uuids.

    Args:
        capture: The machine's capture.
        archives: Files below ``agents/<agent>/memory/transcripts``, or what is left of an earlier recovery.
        folder: A private folder for the decompressed lines, removed at the end.
    """
    done = []
    there = files.all_transcripts(capture.roots, folders=capture.folders)
    on_disk = {transcript.transcript_key(found.path)[0]: found for found in there}
    verbatim = replace(capture, anywhere=True, cleaner=replace(capture.cleaner, clean_line=lambda line: (line, {})))
    for path in archives:
        target = path.with_suffix("") if path.suffix == ASIDE else path
        aside = target.with_name(target.name + ASIDE)
        if path == target:
            if aside.exists():
                continue  # its beginning only, of a recovery that was killed
            path.replace(aside)
        agent_folder = _transcripts_folder(path)
        key = target.relative_to(agent_folder).as_posix().removesuffix(".jsonl.zst")
        key = _REWRITTEN.sub("", key)
        plain = _plain_name(folder, key)
        make_private_dir(plain.parent)
        with os.fdopen(os.open(plain, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            for text in frames_in(aside):
                out.write(text)
                _block_again(capture, target, text)
        tally = Tally()
        replace(verbatim, agent=agent_folder.parent.parent.name).capture_tail(plain, tally)
        if key in on_disk:
            _take_as_seen(capture, on_disk[key], key, plain)
        aside.unlink()
        done.append(f"{target.name}: {tally.turns} turns taken in from the archive")
    shutil.rmtree(folder, ignore_errors=True)
    return done


def _block_again(capture: Capture, target: Path, text: bytes) -> None:
    """Where the words of a line were forgotten, its place is still in the archive: it stays forgotten."""
    if FORGOTTEN.encode() not in text:
        return
    shells = [fields for line in text.split(b"\n") if (fields := transcript.parse_line(line) or {}).get(FORGOTTEN)]
    lines = sorted({uuid for fields in shells if (uuid := transcript.facts_of(fields).uuid)})
    sessions = sorted({session for fields in shells if (session := transcript.facts_of(fields).session_id)})
    if not lines:
        return
    uid = hashlib.sha256("\n".join((target.name, *lines)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    value = {"lines": lines, "sessions": sessions}
    tombstone = Tombstone(uid, "lines", value, None, capture.clock(), capture.device)
    with capture.store.transaction():
        add_tombstones(capture.store, [tombstone], capture.clock())


def _plain_name(folder: Path, key: str) -> Path:
    session, _, subagent = key.partition("/")
    return folder / (f"{session}.jsonl" if not subagent else f"{session}/subagents/{subagent}.jsonl")


def _take_as_seen(capture: Capture, found: files.Found, key: str, plain: Path) -> None:
    """Let the watermark stand at the end of the transcript that is on disk, whatever in it is archived."""
    state = ledger.state_of(capture.store, capture.device, key)
    if state is None:
        return
    with files.opened(plain) as file:
        archived = {uuid for line in file if (uuid := transcript.line_facts(line).uuid)}
    with files.opened(found.path) as file:
        end = transcript.last_newline(file, found.size)
        kept = _end_of_last(archived, file, end)
        generation = state.mark.generation + 1
        tail_hash = tail.tail_hash(file, end, capture.cleaner)
    mark = Watermark(key, end, found.dev, found.inode, generation, tail_hash)
    with capture.store.transaction():
        ledger.set_restored(capture.store, state, str(found.path), mark, capture.clock())
        for start, stop, rule in ((0, kept, RESTORED), (kept, end, BEFORE_CRYSTAL)):
            if start < stop:
                ledger.add_row(capture.store, state.id, generation, start, stop, "skipped", rule, capture.clock())


def _end_of_last(uuids: set[str], file: BinaryIO, end: int) -> int:
    """The byte after the last line before ``end`` that has one of these uuids, 0 if none has."""
    at = last = 0
    file.seek(0)
    for line in file:
        at += len(line)
        if at > end:
            break
        if transcript.line_facts(line).uuid in uuids:
            last = at
    return last


def _transcripts_folder(path: Path) -> Path:
    return next(parent for parent in path.parents if parent.name == "transcripts")
