"""Record which files could not be read, for status and doctor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crystal.capture.safe_open import REFUSED
from crystal.errors import CrystalError, UnavailableError
from crystal.store import Store, problems
from crystal.store.capture import ledger

MAX_NAMED = 5
"""Number of unreadable files that are named; the others are counted."""
SWEEP = "sweep"
"""The name under which files that a sweep could not read are recorded."""
FIXES = {
    REFUSED: "nothing, unless you keep transcripts there: see capture.transcript_folders in the settings",
    SWEEP: "mend it, or make it readable (chmod u+r); crystal then reads it by itself",
}
"""The next step for each problem that ``crystal sync`` does not solve."""


def reason_of(path: Path, error: Exception) -> str:
    """Return why a file could not be captured, with the next step if the archive refuses it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    reason = error.message if isinstance(error, CrystalError) else str(error)
    if reason.startswith(f"{path}"):
        return reason.removeprefix(f"{path}").lstrip(": ")
    return f"{reason} (fix: {error.hint})" if type(error) is UnavailableError else reason


def record_refused(store: Store, device: str, refused: Mapping[str, str], now: int) -> None:
    """Record the files that a sweep could not read, each with the reason, until a sweep can read them."""
    if not refused:
        problems.clear_problem(store, SWEEP)
        return
    begun = {state.path for state in ledger.all_states(store, device) if state.mark.offset}
    named = [
        f"{path}: {reason} ({'what was read before is kept' if path in begun else 'nothing of it is kept yet'})"
        for path, reason in sorted(refused.items())[:MAX_NAMED]
    ]
    others = [f"and {len(refused) - MAX_NAMED} more: crystal sync names them"] if len(refused) > MAX_NAMED else []
    problems.record_problem(store, SWEEP, "; ".join(named + others), now=now)
