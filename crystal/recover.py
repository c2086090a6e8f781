"""Take archive files into a store that knows nothing of them: where the database is lost, the archive is the memory."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from crystal.archive import frames_in
from crystal.capture.engine import Capture, Tally
from crystal.errors import CrystalError
from crystal.paths import make_private_dir


def recover_archives(capture: Capture, archives: Sequence[Path], folder: Path) -> list[str]:
    """Capture each archive file as if it were a transcript; gives what was done, in words.

    The lines were cleaned when they were archived, so they are taken as they are. The old file is kept beside the new
    one with the ending ``.recovered`` until its lines are written again, then removed.

    Args:
        capture: The machine's capture.
        archives: Files below ``agents/<agent>/memory/transcripts``.
        folder: A private folder for the decompressed lines, removed at the end.
    """
    done = []
    verbatim = replace(capture, cleaner=replace(capture.cleaner, clean_line=lambda line: (line, {})))
    for path in archives:
        agent_folder = _transcripts_folder(path)
        key = path.relative_to(agent_folder).as_posix().removesuffix(".jsonl.zst")
        session, _, subagent = key.partition("/")
        plain = folder / (f"{session}.jsonl" if not subagent else f"{session}/subagents/{subagent}.jsonl")
        make_private_dir(plain.parent)
        aside = path.with_name(path.name + ".recovered")
        path.replace(aside)
        try:
            with plain.open("wb") as out:
                for text in frames_in(aside):
                    out.write(text)
            tally = Tally()
            replace(verbatim, agent=agent_folder.parent.parent.name).capture_tail(plain, tally)
        except (CrystalError, OSError):
            aside.replace(path)
            raise
        aside.unlink()
        done.append(f"{path.name}: {tally.turns} turns taken in from the archive")
    shutil.rmtree(folder, ignore_errors=True)
    return done


def _transcripts_folder(path: Path) -> Path:
    return next(parent for parent in path.parents if parent.name == "transcripts")
