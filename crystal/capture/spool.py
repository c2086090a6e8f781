"""The hook's notes: small files that name a session with new lines. Losing a note delays capture, nothing else.

One kind holds words: that of a prompt that asks to remember them.
"""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crystal.config.paths import delete_file, system_errors
from crystal.model.named_tuple import NamedTuple
from crystal.store.capture.privacy import PrivatePeriod

LATENCY_LOG = "latency.log"
LEFTOVER_MS = 3_600_000
ASIDE = ".aside.json"
ASIDE_MS = 15 * 60_000
"""A note that was set aside waits so long until it is tried again."""
FAR_FUTURE_MS = 1 << 62
ENVIRONMENT = "environment"
"""The reason of private times that ``CRYSTAL_PRIVATE`` brought."""


class RememberHint(NamedTuple):
    """Request of a prompt to remember. ``words`` are None when there are too many; ``length`` is in characters.

    ``memory_id`` is the id that the user was told; None in notes of an older hook.
    """

    words: str | None
    length: int
    everywhere: bool
    memory_id: str | None = None


class Note(NamedTuple):
    """A note of the hook: times in ms, sizes in bytes when the hook ran, None if unknown.

    ``awaited`` is (CRC-32, characters) of the assistant's last text, which may not be in the transcript yet.
    ``harness`` is the program whose hook it was, None for Claude Code.
    """

    file: Path
    at: int
    event: str | None = None
    session_id: str | None = None
    transcript_path: str | None = None
    agent_transcript_path: str | None = None
    size: int | None = None
    private: bool = False
    awaited: tuple[int, int] | None = None
    cwd: str | None = None
    asked: RememberHint | None = None
    harness: str | None = None


def read_notes(spool: Path) -> list[Note]:
    """Return every note to act on, oldest first. A note that cannot be read counts as a hint without content."""
    names = [name for name in _names(spool) if not name.endswith(ASIDE)]
    return [note for name in names if (note := _read(spool / name)) is not None]


def named_in(notes: Iterable[Note]) -> frozenset[str]:
    """Return the ids of the sessions and the paths of the transcripts that notes name."""
    return frozenset(name for note in notes for name in (note.session_id, note.transcript_path) if name)


def set_aside(note: Note) -> None:
    """Take a note out of those to act on, until ``take_back``: its transcript does not answer.

    Raises:
        UnavailableError, UsageError: The system refuses.
    """
    with system_errors(note.file), contextlib.suppress(FileNotFoundError):
        note.file.rename(note.file.with_suffix(ASIDE))


def is_any_aside(spool: Path) -> bool:
    """Return whether any note was set aside."""
    return any(name.endswith(ASIDE) for name in _names(spool))


def take_back(spool: Path, now: int) -> None:
    """Put notes that were set aside more than ``ASIDE_MS`` ago back among those to act on."""
    with contextlib.suppress(OSError):
        for path in (spool / name for name in _names(spool) if name.endswith(ASIDE)):
            if now - path.lstat().st_ctime_ns // 1_000_000 >= ASIDE_MS:
                path.rename(path.with_name(path.name.removesuffix(ASIDE) + ".json"))


def _names(spool: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in spool.iterdir() if entry.name.endswith(".json"))
    except (FileNotFoundError, NotADirectoryError):
        return []


class PrivateNotes:
    """Private periods in waiting notes. A sweep or an import may read a session before its note is processed."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._read: dict[str, Note | None] = {}

    def marks(self) -> tuple[PrivatePeriod, ...]:
        """Return a mark for each session with a private note.

        If that is its oldest note, all that is added now is private; else what was said since that note.
        """
        names = _names(self._spool)
        self._read = {name: self._read[name] if name in self._read else _read(self._spool / name) for name in names}
        notes = [note for name in names if (note := self._read[name]) is not None and note.session_id is not None]
        oldest = {note.session_id: note for note in reversed(notes)}
        private = {note.session_id: note for note in reversed(notes) if note.private}
        return tuple(
            PrivatePeriod(session, ENVIRONMENT, note.at, None if oldest[session] is note else FAR_FUTURE_MS)
            for session, note in private.items()
        )


def kept_name(note: Note) -> Path:
    """Return the second name that the hook gave the transcript; it exists only for notes of a compaction."""
    return note.file.with_suffix(".kept")


def drop(note: Note) -> None:
    """Remove a note that has been acted on, and the transcript's second name.

    Raises:
        UsageError, UnavailableError: The system refuses, or it is no file.
    """
    for path in (kept_name(note), note.file):
        delete_file(path)


def sweep_leftovers(spool: Path, now: int) -> None:
    """Remove the temporary files, older than an hour, of hooks that were killed."""
    with contextlib.suppress(OSError):
        for path in spool.iterdir():
            has_note = any(path.with_suffix(ending).exists() for ending in (".json", ASIDE))
            is_left = path.name.endswith(".tmp") or (path.suffix == ".kept" and not has_note)
            if is_left and now - path.lstat().st_ctime_ns // 1_000_000 > LEFTOVER_MS:
                path.unlink()


def take_latencies(spool: Path) -> list[tuple[int, str, float]]:
    """Take the hook's own measurements out of its log: (time ms, event, duration ms)."""
    log, taken = spool / LATENCY_LOG, spool / f"{LATENCY_LOG}.taken"
    try:
        log.replace(taken)
        text = taken.read_text("utf-8", "replace")
        taken.unlink()
    except OSError:
        return []
    return _runs(text)


def read_latencies(spool: Path) -> list[tuple[int, str, float]]:
    """Read the hook's measurements that nobody has taken yet."""
    try:
        return _runs((spool / LATENCY_LOG).read_text("utf-8", "replace"))
    except OSError:
        return []


def _runs(text: str) -> list[tuple[int, str, float]]:
    runs = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            at, event, duration = line.split()
            runs.append((int(at), event, float(duration)))
    return runs


def _read(file: Path) -> Note | None:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        content = {}
    fields: dict[str, Any] = content if isinstance(content, dict) else {}
    at = fields.get("at")
    if not _is_size(at):
        with contextlib.suppress(ValueError):
            at = int(file.name.split("-")[0]) // 1_000_000
    return Note(
        file=file,
        at=at if isinstance(at, int) else 0,
        **{
            name: _text(fields.get(name))
            for name in ("event", "session_id", "transcript_path", "agent_transcript_path", "cwd", "harness")
        },
        size=fields["size"] if _is_size(fields.get("size")) else None,
        private=fields.get("private") is True,
        awaited=_awaited(fields.get("awaited")),
        asked=_asked(fields.get("remember")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value and "\x00" not in value else None


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _awaited(value: object) -> tuple[int, int] | None:
    if isinstance(value, dict) and _is_size(value.get("crc")) and _is_size(value.get("length")):
        return int(value["crc"]), int(value["length"])
    return None


def _asked(value: object) -> RememberHint | None:
    if not isinstance(value, dict) or not _is_size(value.get("length")):
        return None
    from crystal.memories.rules import MEMORY_ID  # few notes have one, and it brings every type of the model

    words = value.get("words")  # a NUL in them is replaced where they are stored
    kept = words if isinstance(words, str) and words else None
    ident = value.get("id")
    told = ident if isinstance(ident, str) and MEMORY_ID.fullmatch(ident) else None
    return RememberHint(kept, int(value["length"]), value.get("everywhere") is True, told)
