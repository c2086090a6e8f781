"""A real store with sessions in it, written the way ingest writes them: for the tests of summaries, log and costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crystal.model.capture import Origin, Project, Turn
from crystal.store import Store
from crystal.store.capture.turns import add_turns
from crystal.store.sessions.conversations import Session
from crystal.store.sessions.sessions import session_named
from crystal.text.chunking import split

START = 1_795_219_200_000  # 2026-11-21T00:00:00Z
MINUTE = 60_000
HOUR = 60 * MINUTE
SESSION = "1f35fa49-0000-4000-8000-00000000cafe"
FOLDER = Project("/home/ada/work/engine", "/home/ada/work/engine", None, "engine")

Line = tuple[str, str] | tuple[str, str, str]


def open_store(folder: Path) -> Store:
    return Store.open(folder / "crystal.db")


def say(
    store: Store,
    lines: Sequence[Line],
    *,
    session: str = SESSION,
    at: int | None = START,
    step: int = MINUTE,
    agent: str = "cc-test",
    subagent: str | None = None,
    project: Project | None = FOLDER,
    branch: str | None = "main",
    title: str | None = None,
    prefix: str = "",
) -> Session:
    """Add lines (role, text[, tool]) to a session, a minute apart; give the session."""
    origin = Origin(agent, "desk", session, subagent)
    before = int(store.value("SELECT count(*) FROM turns") or 0)
    said = []
    for index, line in enumerate(lines):
        role, text, *tool = line
        turn = Turn(
            f"{prefix or session}-{before + index}",
            0,
            role,
            text,
            (before + index) * 10,  # type: ignore[arg-type]
            None if at is None else at + index * step,
            cwd=project.cwd if project else None,
            branch=branch,
            tool=tool[0] if tool else None,
            full_length=len(text),
        )
        said.append((turn, None, split(text)))
    with store.transaction():
        add_turns(store, origin, said, {project.cwd: project} if project else {}, title)
    found = session_named(store, session)
    assert found is not None
    return found
