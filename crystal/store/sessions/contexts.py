"""Store data for the context at a session's start: working folders, earlier sessions, and past injections."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, field

from crystal.errors import StoreDamagedError
from crystal.model.capture import Project
from crystal.model.quick_dataclass import dataclass
from crystal.store.connection import GIVEN, Store
from crystal.store.json_columns import CHOSEN, WHY, read_json

ASSIST = "assist"
"""Source of the facts that a session got before edits and after failures, taken together."""


@dataclass(frozen=True, slots=True)
class Injection:
    """The context that a session got at its start, or the facts that assist injected later.

    ``chosen`` are ids of memories and of sessions; ``why`` counts the candidates by the reason for which they were
    chosen or omitted.
    """

    at: int
    session_id: str
    source: str
    candidates: int
    chosen: tuple[str, ...]
    omitted: int
    tokens: int
    why: dict[str, int] = field(default_factory=dict)


def add_injection(store: Store, told: Injection) -> None:
    """Store an injection. Idempotent: the longest record for a session and a source is kept."""
    values = {**asdict(told), "chosen": json.dumps(told.chosen), "why": json.dumps(told.why)}
    longer = (
        "(session_id, source) DO UPDATE SET candidates = excluded.candidates, chosen = excluded.chosen,"
        " tokens = excluded.tokens, why = excluded.why WHERE excluded.tokens > tokens"
    )
    store.insert("injection_logs", ", ".join(values), *values.values(), on_conflict=longer)


def injections(store: Store, limit: int) -> list[Injection]:
    """Return the latest injections, newest first, without damaged rows, which ``crystal verify`` reports."""
    rows = store.rows(
        "SELECT at, session_id, source, candidates, chosen, omitted, tokens, why FROM injection_logs"
        " ORDER BY at DESC, id DESC LIMIT ?",
        (limit,),
    )
    found = []
    for at, session, source, candidates, chosen, omitted, tokens, why in rows:
        with contextlib.suppress(StoreDamagedError):
            ids, reasons = tuple(read_json(CHOSEN, chosen)), read_json(WHY, why)
            found.append(Injection(at, session, source, candidates, ids, omitted, tokens, reasons))
    return found


def working_folders(store: Store, device: str, limit: int) -> list[Project]:
    """Return the folders in which sessions of a machine began, most recent session first."""
    return store.all(
        Project,
        "SELECT p.cwd, p.git_root, p.remote, p.name FROM sessions s JOIN projects p ON p.id = s.project"
        " WHERE s.device = ? GROUP BY p.id ORDER BY max(s.last_at) IS NULL, max(s.last_at) DESC, p.id LIMIT ?",
        (device, limit),
    )


def project_rows(store: Store) -> list[tuple[int, Project]]:
    """Return every project with its row id."""
    rows = store.rows("SELECT id, cwd, git_root, remote, name FROM projects ORDER BY id")
    return [(int(row[0]), Project(*row[1:])) for row in rows]


def blocked_sessions(store: Store, sessions: Sequence[str]) -> set[str]:
    """Return those of the sessions of which a part was forgotten."""
    sql = f"SELECT session_id FROM forgotten_sessions WHERE session_id IN {GIVEN}"
    return set(store.all(str, sql, (sessions,)))


def state_of_memory(store: Store) -> tuple[int, ...]:
    """Return values that change when a memory is added or changed, or anything is forgotten, to detect changes."""
    return store.rows(
        "SELECT (SELECT count(*) FROM memories), (SELECT coalesce(max(updated_at), 0) FROM memories),"
        " (SELECT coalesce(max(id), 0) FROM tombstones), (SELECT count(*) FROM tombstones WHERE done_at IS NULL)"
    )[0]
