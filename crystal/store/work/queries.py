"""Query the work index: who wrote lines, which files were changed, and what a call answered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from crystal.model.capture import Memory
from crystal.model.named_tuple import NamedTuple
from crystal.model.quick_dataclass import dataclass
from crystal.store.capture.projects import places_of
from crystal.store.connection import GIVEN, Store
from crystal.store.sessions.turn_texts import turn_texts
from crystal.work.blame import FileEdit
from crystal.work.calls import file_name
from crystal.work.command_ranking import CommandRun
from crystal.work.cures import WorkStep
from crystal.work.short_answers import in_words, is_short

MAX_SAID = 600
"""Maximum characters read of a request and of a reason."""
MAX_FAILURES = 300
MAX_STEPS = 400
"""Number of calls after a failure among which its cure is searched."""


class ChangedRow(NamedTuple):
    """A successful edit. ``folder`` is the root of its project, ``cwd`` the agent's working folder.

    ``call`` is the same in every store: the line, the call in it, and the file's number in the call. ``turn`` and
    ``part`` identify it in this store.
    """

    call: str
    turn: int
    part: int
    session_id: str
    at: int
    path: str
    added: int
    removed: int
    project: str | None
    cwd: str | None
    folder: str | None


class MemoryCall(NamedTuple):
    """A call of an agent that asks crystal; ``command`` is None for a tool of MCP."""

    turn: int
    session_id: str
    at: int
    tool: str
    command: str | None


class FailedRun(NamedTuple):
    """A command that failed with an error, by its hash; ``result`` is the turn that printed it."""

    error: int
    result: int
    run: WorkStep


class CallEnd(NamedTuple):
    """A call and its outcome, None if unknown. ``folder`` and ``cwd`` as in ``ChangedRow``."""

    turn: int
    is_edit: bool
    what: str
    exit: int | None
    added: int
    removed: int
    cwd: str | None
    folder: str | None


class RunEnd(NamedTuple):
    """Outcome of a command: seconds until its result, passed and failed tests; None if unknown."""

    seconds: float | None
    passed: int | None
    failed: int | None


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A tool call that edited a file or ran a command.

    Attributes:
        session_id: Its session.
        title: The session's title, or None.
        uuid: Its line, for ``crystal show``.
        at: Its time, ms.
        device: The machine.
        harness: The program in which the agent ran.
        project: The project's name.
        request: The beginning of the user's message that it answered; after a short one, what it stands for.
        reason: The beginning of the agent's last text before it.
        memory: Where it was found.
    """

    session_id: str
    title: str | None
    uuid: str
    at: int | None
    device: str
    harness: str
    project: str | None
    request: str | None
    reason: str | None
    memory: Memory = "local"


def edits_that_wrote(
    store: Store, lines: Collection[int], projects: Sequence[int]
) -> tuple[list[FileEdit], dict[int, list[int]]]:
    """Return the edits in projects that wrote any of these lines, and for each line the indexes of its edits."""
    numbers: dict[tuple[int, int], int] = {}
    edits, wrote = list[FileEdit](), dict[int, list[int]]()
    for line, turn, part, session, at, what in store.rows(
        "SELECT l.line, l.turn, l.part, t.session, coalesce(t.ts, 0), c.what FROM work_lines l"
        " JOIN turns t ON t.id = l.turn JOIN work_calls c ON c.turn = l.turn AND c.part = l.part"
        " WHERE l.line IN (SELECT value FROM json_each(?1)) AND c.exit = 0"
        " AND t.project IN (SELECT value FROM json_each(?2))",
        (set(lines), projects),
    ):
        if (turn, part) not in numbers:
            numbers[turn, part] = len(edits)
            edits.append(FileEdit(turn, part, session, at, file_name(what)))
        wrote.setdefault(line, []).append(numbers[turn, part])
    return edits, wrote


def changed_rows(
    store: Store,
    *,
    session: int | None = None,
    since: int | None = None,
    before: int | None = None,
    projects: Sequence[int] | None,
    keys: Collection[int] | None = None,
) -> list[ChangedRow]:
    """Return edits in order of time, by session, time, projects and hashes of file names; None means all."""
    conditions, values = ["c.is_edit", "c.exit = 0"], list[Any]()
    for condition, value in (("t.session = ?", session), ("t.ts >= ?", since), ("t.ts < ?", before)):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    for column, among in (("t.project", projects), ("c.key", keys)):
        if among is not None:
            conditions.append(f"{column} IN {GIVEN}")
            values.append(among)
    return store.all(
        ChangedRow,
        "SELECT t.uuid || ' ' || t.part || ' ' || c.part, c.turn, c.part, s.session_id, coalesce(t.ts, 0) AS at,"
        " c.what, c.added, c.removed, p.name, p.cwd, coalesce(p.git_root, p.cwd)"
        " FROM work_calls c JOIN turns t ON t.id = c.turn JOIN sessions s ON s.id = t.session"
        " LEFT JOIN projects p ON p.id = t.project"
        f" WHERE {' AND '.join(conditions)} ORDER BY at, c.turn, c.part",
        values,
    )


def edited_files(
    store: Store, sessions: Collection[str], projects: Sequence[int] | None
) -> list[tuple[str, str, str | None, str | None]]:
    """Return the files that sessions edited in projects (None: in all).

    Each as (session, path, the agent's working folder, the project's folder).
    """
    return store.rows(
        "SELECT DISTINCT s.session_id, c.what, p.cwd, coalesce(p.git_root, p.cwd)"
        " FROM sessions s CROSS JOIN turns t ON t.session = s.id JOIN work_calls c ON c.turn = t.id"
        " LEFT JOIN projects p ON p.id = t.project WHERE c.is_edit AND c.exit = 0"
        " AND s.session_id IN (SELECT value FROM json_each(?1))"
        " AND (?2 IS NULL OR t.project IN (SELECT value FROM json_each(?2)))",
        (sessions, projects),
    )


def edits_of_chunks(store: Store, chunks: Collection[int]) -> list[tuple[int, int, int, str, str]]:
    """Return the edits made by the calls in some chunks.

    Each as (chunk, call, number of the file in the call, the agent's working folder, the project's folder).
    """
    return store.rows(
        "SELECT k.id, c.turn, c.part, p.cwd, coalesce(p.git_root, p.cwd) FROM chunks k"
        " JOIN work_calls c ON c.turn = k.turn JOIN turns t ON t.id = c.turn JOIN projects p ON p.id = t.project"
        f" WHERE k.id IN {GIVEN} AND c.is_edit AND c.exit = 0 ORDER BY k.id, c.part",
        (chunks,),
    )


def folders_of(store: Store, turns: Collection[int]) -> dict[int, tuple[str | None, str | None]]:
    """Return (the agent's working folder, the project's folder) of each turn."""
    rows = store.rows(
        "SELECT t.id, p.cwd, coalesce(p.git_root, p.cwd) FROM turns t JOIN projects p ON p.id = t.project"
        f" WHERE t.id IN {GIVEN}",
        (turns,),
    )
    return {turn: (cwd, folder) for turn, cwd, folder in rows}


def failed_commands(store: Store, projects: Sequence[int]) -> list[tuple[int, int, str]]:
    """Return (turn of the result, time, session) of the failed commands in projects."""
    return store.rows(
        "SELECT c.result, coalesce(t.ts, 0), s.session_id FROM work_calls c JOIN turns t ON t.id = c.turn"
        " JOIN sessions s ON s.id = t.session WHERE NOT c.is_edit AND c.exit AND c.result IS NOT NULL"
        f" AND t.project IN {GIVEN} ORDER BY c.turn",
        (projects,),
    )


def latest_runs(store: Store, projects: Sequence[int] | None, limit: int) -> list[CommandRun]:
    """Return successful commands in projects (None: in all), last captured first."""
    return store.all(
        CommandRun,
        "SELECT c.turn, t.session, coalesce(t.ts, 0), c.what, c.about FROM work_calls c JOIN turns t ON t.id = c.turn"
        " WHERE NOT c.is_edit AND c.exit = 0 AND (?1 IS NULL OR t.project IN (SELECT value FROM json_each(?1)))"
        " ORDER BY c.turn DESC LIMIT ?2",
        (projects, limit),
    )


def run_ends(store: Store, turns: Collection[int]) -> dict[int, RunEnd]:
    """Return the outcomes of some commands, by the turns of their calls."""
    rows = store.rows(
        "SELECT c.turn, CASE WHEN r.ts >= t.ts THEN (r.ts - t.ts) / 1000.0 END, c.passed, c.failed FROM work_calls c"
        " JOIN turns t ON t.id = c.turn LEFT JOIN turns r ON r.id = c.result"
        f" WHERE NOT c.is_edit AND c.turn IN {GIVEN}",
        (turns,),
    )
    return {turn: RunEnd(*end) for turn, *end in rows}


def moving_commands(
    store: Store, name: str, projects: Sequence[int] | None
) -> list[tuple[int, str, str | None, str | None]]:
    """Return the successful commands with ``mv`` that name a file, in projects (None: in all), latest first.

    Each as (time, command, the agent's working folder, the project's folder).
    """
    return store.rows(
        "SELECT coalesce(t.ts, 0) AS at, c.what, p.cwd, coalesce(p.git_root, p.cwd) FROM work_calls c"
        " JOIN turns t ON t.id = c.turn LEFT JOIN projects p ON p.id = t.project WHERE NOT c.is_edit AND c.exit = 0"
        " AND instr(c.what, 'mv ') AND instr(c.what, ?1)"
        " AND (?2 IS NULL OR t.project IN (SELECT value FROM json_each(?2))) ORDER BY at DESC LIMIT ?3",
        (name, projects, MAX_STEPS),
    )


def memory_calls(store: Store, since: int, device: str) -> list[MemoryCall]:
    """Return a machine's calls of crystal's tools and commands since a moment (ms): latest session first, by time."""
    return store.all(
        MemoryCall,
        "SELECT t.id, s.session_id, t.ts, t.tool, c.what FROM sessions s JOIN turns t ON t.session = s.id"
        " LEFT JOIN work_calls c ON c.turn = t.id AND NOT c.is_edit WHERE s.last_at >= ?1 AND t.ts >= ?1"
        " AND s.device = ?2 AND t.role = 'tool_call' AND (t.tool LIKE '%crystal%' OR instr(c.what, 'crystal s'))"
        " ORDER BY s.last_at DESC, s.id, t.ts, t.offset, t.part",
        (since, device),
    )


def folders_and_trees(store: Store, folder: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return all folders of a folder's project, and the commands that added git working trees to it.

    Each command as (text, the agent's working folder).
    """
    rows = [row for row, *_ in places_of(store, folder)]
    folders = store.rows(f"SELECT coalesce(git_root, cwd), cwd FROM projects WHERE id IN {GIVEN}", (rows,))
    commands = store.rows(
        "SELECT c.what, p.cwd FROM work_calls c JOIN turns t ON t.id = c.turn JOIN projects p ON p.id = t.project"
        f" WHERE NOT c.is_edit AND c.exit = 0 AND instr(c.what, 'worktree add ') AND t.project IN {GIVEN}",
        (rows,),
    )
    return list(dict.fromkeys(one for row in sorted(folders) for one in row)), commands


def failures_with(store: Store, errors: Collection[int] | None, projects: Sequence[int] | None) -> list[FailedRun]:
    """Return the commands in projects (None: in all) that failed with one of some errors (None: any error).

    The last captured come first.
    """
    rows = store.rows(
        "SELECT e.error, c.result, c.turn, c.part, c.is_edit, c.what, c.key, c.exit FROM work_errors e"
        " JOIN work_calls c ON c.turn = e.turn JOIN turns t ON t.id = e.turn"
        " WHERE (?1 IS NULL OR e.error IN (SELECT value FROM json_each(?1))) AND c.result IS NOT NULL"
        " AND (?2 IS NULL OR t.project IN (SELECT value FROM json_each(?2))) ORDER BY c.turn DESC LIMIT ?3",
        (errors, projects, MAX_FAILURES if errors is not None else 10 * MAX_FAILURES),
    )
    return [FailedRun(error, result, WorkStep(*step)) for error, result, *step in rows]


def steps_after(store: Store, turn: int) -> list[WorkStep]:
    """Return what the same agent did in the session after a call, in order."""
    return _steps(store, "f.id = ? AND t.subagent IS f.subagent AND t.id > f.id", (turn, MAX_STEPS))


def steps_of_session(store: Store, session: int, before: int | None = None) -> list[WorkStep]:
    """Return what a session's main agent did, until a moment (ms), in order."""
    row = "(SELECT min(id) FROM turns WHERE session = ?1)"
    return _steps(store, f"f.id = {row} AND t.subagent IS NULL AND (?2 IS NULL OR t.ts < ?2)", (session, before, -1))


def _steps(store: Store, condition: str, values: tuple[int | None, ...]) -> list[WorkStep]:
    return store.all(
        WorkStep,
        "SELECT c.turn, c.part, c.is_edit, c.what, c.key, c.exit FROM turns f JOIN turns t ON t.session = f.session"
        f" JOIN work_calls c ON c.turn = t.id WHERE {condition} ORDER BY c.turn, c.part LIMIT ?",
        values,
    )


def call_ends(store: Store, chunks: Collection[int]) -> dict[int, CallEnd]:
    """Return calls with their outcomes, by chunks of the calls and of their results."""
    rows = store.rows(
        "SELECT k.id, c.turn, c.is_edit, c.what, c.exit, c.added, c.removed, p.cwd, coalesce(p.git_root, p.cwd)"
        " FROM chunks k JOIN turns t ON t.id = k.turn JOIN work_calls c ON c.turn = t.id OR c.result = t.id"
        f" LEFT JOIN projects p ON p.id = t.project WHERE k.id IN {GIVEN} ORDER BY c.part DESC",
        (chunks,),
    )
    return {chunk: CallEnd(*call) for chunk, *call in rows}


def has_branch(store: Store, name: str) -> bool:
    """Return True if the last branch of a session has this name."""
    return store.has("SELECT 1 FROM sessions WHERE branch = ? LIMIT 1", (name,))


_BEFORE = (
    "(SELECT u.id FROM turns u WHERE u.session = t.session AND u.role = '{}' AND u.subagent IS {} AND u.ts <= t.ts"
    " ORDER BY u.ts DESC, u.offset DESC LIMIT 1)"
)


def _in_words(store: Store, answers: Mapping[int, str]) -> dict[int, str]:
    """Return the short answers of a user, such as "yes", by turn, with the question that they answer."""
    before: dict[int, int | None] = dict(
        store.rows(f"SELECT t.id, {_BEFORE.format('assistant', 'NULL')} FROM turns t WHERE t.id IN {GIVEN}", (answers,))
    )
    said = turn_texts(store, filter(None, before.values()))
    return {turn: in_words(text, said.get(before[turn] or 0, (0, ""))[1])[:MAX_SAID] for turn, text in answers.items()}


def calls(store: Store, turns: Collection[int], memory: Memory) -> dict[int, RecordedCall]:
    """Return what is known about some calls, by turn; forgotten calls are left out."""
    rows = store.rows(
        "SELECT t.id, s.session_id, s.title, t.uuid, t.ts, s.device, s.harness, p.name,"
        f" {_BEFORE.format('user', 'NULL')}, {_BEFORE.format('assistant', 't.subagent')}"
        " FROM turns t JOIN sessions s ON s.id = t.session LEFT JOIN projects p ON p.id = t.project"
        f" WHERE t.id IN {GIVEN}",
        (turns,),
    )
    said = {ident for *_, request, reason in rows for ident in (request, reason) if ident is not None}
    texts = {ident: text for ident, (_, text) in turn_texts(store, said, MAX_SAID).items()}
    texts |= _in_words(store, {one: texts[one] for *_, one, _ in rows if is_short(texts.get(one, ""))})
    found = {}
    for turn, session, title, uuid, at, device, harness, project, request, reason in rows:
        said_last = texts.get(reason) if reason is not None and (request is None or reason > request) else None
        asked = texts.get(request)
        found[turn] = RecordedCall(session, title, uuid, at, device, harness, project, asked, said_last, memory)
    return found
