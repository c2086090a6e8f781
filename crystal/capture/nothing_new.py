"""Detect notes whose transcripts have not changed since the last read, without loading the code of capture.

Whatever is not certain is left to the full run: this answers False, and has changed nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from crystal.capture import finder, spool
from crystal.capture.safe_open import ANYWHERE
from crystal.capture.spool import Note
from crystal.config.harnesses import CLAUDE_CODE, Root
from crystal.errors import CrystalError
from crystal.store import Store
from crystal.store.health.idle import Mark, marks_of_session

EVENTS = ("Stop", "SubagentStop", "PreCompact")
"""Others end a session, or ask for a look at every transcript."""


def drop_empty_notes(folder: Path, db: Path) -> bool:
    """Remove the notes if none of them brings anything new; False, and nothing is changed, if any may.

    Under the capture lock. It reads no transcript, only their sizes.
    """
    notes = spool.read_notes(folder)
    if not notes or spool.is_any_aside(folder) or not all(_is_plain(note) for note in notes):
        return False
    try:
        with Store.open_existing(db) as store:
            known = {note.session_id: marks_of_session(store, note.session_id or "") for note in notes}
        if not all(_is_read(note, known[note.session_id]) for note in notes):
            return False
    except (CrystalError, OSError):
        return False  # the full run says what is wrong
    for note in notes:
        with contextlib.suppress(CrystalError):
            spool.drop(note)
    return True


def _is_plain(note: Note) -> bool:
    """Return whether a note only reports the end of a turn, with no answer to wait for."""
    return (
        note.event in EVENTS
        and None not in (note.session_id, note.transcript_path)
        and not note.private
        and (note.asked, note.awaited) == (None, None)
        and not os.path.lexists(spool.kept_name(note))
    )


def _is_read(note: Note, marks: Sequence[Mark] | None) -> bool:
    if marks is None or note.transcript_path is None:
        return False
    path = Path(note.transcript_path)
    root = Root(path.parent, note.harness or CLAUDE_CODE)
    named = [path, *([Path(note.agent_transcript_path)] if note.agent_transcript_path else [])]
    found = [*(finder.examine(one, ANYWHERE) for one in named), *finder.subagents_of(path, ANYWHERE, root)]
    return all(one is not None and (str(one.path), one.dev, one.inode, one.size) in marks for one in found)
