"""Act on the notes of prompts that ask to remember something: what may be kept is stored at once, before a capture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crystal.capture import spool
from crystal.capture.engine import Capture
from crystal.capture.spool import Note
from crystal.errors import CrystalError, UsageError
from crystal.store import problems

ROOM = "remember"
"""The row in ``problems`` that says why words of a prompt were not remembered."""

Remember = Callable[[Note], object]
"""Stores the words of a note. It may be called twice for one note."""


def take_asked(capture: Capture, folder: Path, remember: Remember, failed: set[Path]) -> None:
    """Store what every such note asks for, then remove the note; what is private is removed only.

    Words that can never be stored (too many, or secrets alone) are recorded as a problem, without them. A note whose
    words cannot be stored just now stays; its file is added to ``failed``.
    """
    for note in spool.read_notes(folder):
        if note.asked is None or note.file in failed:
            continue
        try:
            if capture.policy().why_private(note.session_id or "", note.at, note.cwd) is None:
                _remember(capture, note, remember)
            spool.drop(note)
        except CrystalError as error:
            problems.record_problem(capture.store, ROOM, error.message, now=capture.clock())
            failed.add(note.file)


def _remember(capture: Capture, note: Note, remember: Remember) -> None:
    try:
        if note.asked is not None and note.asked.words is None:
            raise UsageError(
                f"a prompt asked to remember {note.asked.length:,} characters, a memory has at most 8,000",
                hint="shorten it",
            )
        remember(note)
    except UsageError as error:
        problems.record_problem(capture.store, ROOM, error.message, now=capture.clock())
    else:
        problems.clear_problem(capture.store, ROOM)
