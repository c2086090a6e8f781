"""Export sessions: choose them, and write them to a folder in one of three forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from crystal.app.context import Machine
from crystal.errors import NotFoundError
from crystal.export.html import write_html
from crystal.export.jsonl import write_jsonl
from crystal.export.labels import Wording
from crystal.export.markdown import write_markdown
from crystal.export.whole_folder import whole_folder
from crystal.sessions.reading import SessionSummary, find_session, session_summary, sessions

Form = Literal["markdown", "jsonl", "html"]
FORMS: tuple[Form, ...] = get_args(Form)
_ALL = 2**31


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of an export: the folder, its files and their bytes, the sessions and their turns."""

    folder: Path
    form: Form
    sealed: bool
    sessions: int
    turns: int
    files: int
    bytes: int


def choose_sessions(
    machine: Machine, *, session: str | None = None, project: str | None = None, since: int | None = None
) -> tuple[list[SessionSummary], tuple[str, ...]]:
    """Return the sessions to export, the oldest first, and notes about what is left out.

    Args:
        machine: This machine.
        session: Only this session: its id or its beginning.
        project: Only this project: its name, or a folder and all below it.
        since: Only sessions that went on at this time or later; each is whole.

    Raises:
        UsageError: ``session`` is the beginning of several.
        NotFoundError: There is no such session.
    """
    if session is not None:
        one = session_summary(machine.store, find_session(machine.store, session))
        found: list[SessionSummary] = [] if one is None else [one]
        notes: tuple[str, ...] = ()
    else:
        found, notes = sessions([machine.store], project=project, since=since, limit=_ALL)
    if not found:
        raise NotFoundError("no session is chosen", hint="; ".join(notes) or "run: crystal sessions")
    found.sort(key=lambda one: (one.started_at is None, one.started_at or 0, one.id))
    return found, notes


def export(
    machine: Machine,
    chosen: Sequence[SessionSummary],
    folder: Path,
    form: Form,
    wording: Wording,
    progress: Callable[[int], None],
    version: str,
    passphrase: str | None = None,
) -> Exported:
    """Write sessions to a new folder, which an error removes again.

    Args:
        machine: This machine.
        chosen: The sessions, in the order in which they are written.
        folder: A folder that does not exist, or is empty.
        form: The form.
        wording: How speakers are called.
        progress: Told the number of turns after each session.
        version: Of this program.
        passphrase: Seals a page; the other forms have no seal.

    Raises:
        UsageError: The folder exists.
        UnavailableError: The system refuses, or the disk is full.
        DamagedError: The archive cannot be read.
    """
    store, now, told = machine.store, machine.now(), _with_progress(chosen, progress)
    with whole_folder(folder) as into:
        if form == "jsonl":
            write_jsonl(store, told, into, machine.places.ldm_home, version, now)
        elif form == "markdown":
            write_markdown(store, told, into, wording, now)
        else:
            write_html(store, told, into, wording, now, passphrase)
        sizes = [path.stat().st_size for path in into.iterdir()]
    turns = sum(one.turns for one in chosen)
    return Exported(folder, form, passphrase is not None, len(chosen), turns, len(sizes), sum(sizes))


def _with_progress(chosen: Sequence[SessionSummary], progress: Callable[[int], None]) -> Iterator[SessionSummary]:
    """Yield the sessions; report the turns of each after it is written, when the next one is requested."""
    for one in chosen:
        yield one
        progress(one.turns)
