"""Print Claude Code's status line: whether this conversation is captured, what crystal told it, its last search.

Claude Code runs it after each message. It uses the standard library and the hook's modules, reads small files and
queries the database once; it never waits for other processes and always exits with 0.
"""

import os
import time

from crystal.hook import event as hook
from crystal.hook.session_start import stalled_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WIDTH = 60
BUSY_SECONDS = 0.05
MAX_BEHIND = 1 << 20
PAUSED = "paused; resume: crystal --on"
NO_MEMORY = "no memory yet; run: crystal init"
QUERY_FILE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "store", "capture", "statusline.sql")


def main() -> None:
    """Print the line for the client's input on stdin, whatever that is."""
    hook._attempt(hook._open_standard_streams)
    hook._attempt(hook._hurry_on_signals)
    payload = hook.parse_hook_input(hook._attempt(hook._read_stdin) or b"")
    state = hook._attempt(line_for, payload, dict(os.environ), time.time_ns()) or "cannot tell; run: crystal status"
    line = "".join(letter if " " <= letter <= "~" else "?" for letter in f"crystal: {state}")
    line = line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."
    hook._attempt(os.write, 1, f"{line}\n".encode())


def line_for(payload: "dict[str, object]", env: "dict[str, str]", now: int) -> str:
    """Return the state of a session's capture, what crystal told it, and its last search; ``now`` is in ns."""
    data_dir = hook.find_data_dir(env)
    path = os.path.join(data_dir, "crystal.db")
    if not os.path.exists(path):
        has_archive = os.path.exists(os.path.join(os.path.dirname(data_dir), "agents"))
        return f"NOT kept: {'no database; run: crystal verify --repair' if has_archive else NO_MEMORY}"
    session, transcript = hook._word(payload.get("session_id")), hook._path(payload.get("transcript_path"))
    if _has_off_file(data_dir, session):
        return PAUSED
    is_off, is_private, state, offset, told, searched = _ask(path, {"session": session, "path": transcript})
    if is_off:
        return PAUSED
    stalled = hook._attempt(stalled_text, data_dir, payload, now, hook.parse_hook_input)
    if stalled:
        return f"NOT kept: {stalled}"
    if is_private or state == "private" or hook.truthy(env.get("CRYSTAL_PRIVATE")):
        return "private: this conversation is not kept"
    if state == "before-crystal":
        return "NOT kept: older than crystal; run: crystal backfill"
    kept = _kept(transcript, offset or 0, env)
    kept += f", told {told} {'thing' if told == 1 else 'things'}" if told else ""
    return kept + (f", searched {max(0, now // 1_000_000 - searched) // 60_000} min ago" if searched else "")


def _has_off_file(data_dir: str, session: "str | None") -> bool:
    """Return True if capture is off although the database could not hold that, see crystal/capture/off_files.py."""
    return any(name.startswith("off-") and name.endswith(("-", f"-{session}")) for name in os.listdir(data_dir))


def _ask(path: str, named: "dict[str, str | None]") -> "Any":
    """Query the database, without waiting for a writer."""
    import sqlite3

    with open(QUERY_FILE, encoding="ascii") as file:
        query = file.read()
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    db = sqlite3.connect(f"file:{escaped}?mode=ro", timeout=BUSY_SECONDS, uri=True)
    try:
        return db.execute(query, named).fetchone()
    finally:
        db.close()


def _kept(transcript: "str | None", offset: int, env: "dict[str, str]") -> str:
    """Describe how much of a transcript was captured."""
    size = hook._attempt(hook._size, transcript, env) if transcript else None
    if not transcript or not size:
        return "on"
    # The offset may be after a newline that is not written yet; a replaced transcript is read from its start.
    behind = max(0, size - offset) if offset <= size + 1 else size
    begun = "kept" if offset else "nothing kept yet"
    if behind > MAX_BEHIND:
        return f"{begun}, {behind >> 20} MB wait"
    with open(os.path.expanduser(transcript), "rb") as file:
        file.seek(size - behind)
        waiting = file.read(behind)
    lines = waiting.count(b"\n") + waiting.endswith(b"}")
    return f"{begun}, {lines} {'line waits' if lines == 1 else 'lines wait'}" if lines else begun
