"""Run the queries of the reflector: new turns of a session, the lines that taught a memory, its runs."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

from crystal.model.capture import Project
from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import GIVEN, Store, columns_of
from crystal.store.sessions.turn_texts import turn_texts

ROLES = ("user", "assistant", "tool_call", "tool_result")
READ_CHARACTERS = 2_100
"""Maximum characters read of a turn: nothing is learned from a longer message of the user."""
CONTEXT_TURNS = 8
"""Number of turns before the cursor that are read again, to see which statement the user's answer accepts."""
MAX_STATEMENTS = 100
"""Maximum number of statements in a turn. A sentence that no rule matches is numbered from here on."""


COMMAND_WORKS = "` works here"
"""End of the text of a command that was learned; before it are a backtick and the command."""
LEARNED_WORDS = ("proposed", "learned", "reviewed", "refused")
"""First words of a learned memory's source, see ``crystal.reflect.learn``."""
_IS_LEARNED = f"substr(source, 1, instr(source || ' ', ' ') - 1) IN {LEARNED_WORDS}"
_ANSWERED = "('assistant', 'tool_call')"


class ReadTurn(NamedTuple):
    """A turn of a session; ``uuid`` is its transcript line, ``project`` the project of its folder."""

    id: int
    uuid: str
    part: int
    role: str
    text: str
    at: int
    tool: str | None = None
    message_id: str | None = None
    project: Project | None = None


class DueSession(NamedTuple):
    """A session with turns that were not read yet; ``cursor`` is the last turn that was read."""

    row: int
    id: str
    harness: str
    cursor: int
    last_turn: int


class Evidence(NamedTuple):
    """A line that taught a memory."""

    memory: str
    line: str
    session: str
    kind: str
    confidence: float
    at: int


class ReflectorRun(NamedTuple):
    """Result of one run; see the table ``reflector_runs``. Times in ms."""

    at: int
    ms: int = 0
    sessions: int = 0
    turns: int = 0
    extracted: int = 0
    inserted: int = 0
    confirmed: int = 0
    replaced: int = 0
    archived: int = 0
    skipped: int = 0
    usd: float = 0.0
    asked: int = 0
    unusable: int = 0


# ---------------------------------------------------------------------------------------------------------- reading


def sessions_to_reflect(store: Store, limit: int) -> list[DueSession]:
    """Return sessions with turns after their cursor, oldest first, so that later statements replace earlier ones."""
    return store.all(
        DueSession,
        "SELECT id, session_id, harness, reflected_turn, last_turn FROM sessions WHERE last_turn > reflected_turn"
        " ORDER BY last_at, id LIMIT ?",
        (limit,),
    )


def read_after(store: Store, session: DueSession, limit: int) -> list[ReadTurn]:
    """Return up to ``limit`` turns after the cursor, and a few before it, in the order of capture.

    Subagents' turns are left out: neither the user nor the main assistant wrote them.
    """
    columns = (
        "t.id, t.uuid, t.part, t.role, coalesce(t.ts, 0), t.tool, t.message_id, p.cwd, p.git_root, p.remote, p.name"
    )
    where = (
        f"SELECT {columns} FROM turns t LEFT JOIN projects p ON p.id = t.project WHERE t.session = ?1"
        " AND t.subagent IS NULL AND t.role IN (SELECT value FROM json_each(?2))"
    )
    values = (session.row, ROLES, session.cursor)
    before = store.rows(f"{where} AND t.id <= ?3 ORDER BY t.id DESC LIMIT {CONTEXT_TURNS}", values)
    after = store.rows(f"{where} AND t.id > ?3 ORDER BY t.id LIMIT {int(limit)}", values)
    rows = [*reversed(before), *after]
    texts = turn_texts(store, [int(row[0]) for row in rows], READ_CHARACTERS)
    return [
        ReadTurn(
            ident, uuid, part, role, texts[ident][1], at, tool, message, None if place[0] is None else Project(*place)
        )
        for ident, uuid, part, role, at, tool, message, *place in rows
        if ident in texts
    ]


def evidence_for(store: Store, memories: Collection[str]) -> dict[str, list[Evidence]]:
    """Return the lines that taught memories, oldest first, by the memory's id."""
    found: dict[str, list[Evidence]] = {}
    rest = f"learned_from WHERE memory IN {GIVEN} ORDER BY at, id"
    for one in store.select(Evidence, rest, (memories,)):
        found.setdefault(one.memory, []).append(one)
    return found


def taught_by(store: Store, lines: Collection[str]) -> list[tuple[str, str]]:
    """Return (line, memory) for those of these lines that taught a memory."""
    sql = f"SELECT line, memory FROM learned_from WHERE line IN {GIVEN} ORDER BY id"
    return store.rows(sql, (lines,))


def confidence_of(evidence: Sequence[Evidence]) -> float:
    """Return the confidence in a memory: each session that repeats it reduces the remaining doubt."""
    doubt = 1.0
    for one in {each.session: each for each in evidence}.values():
        doubt *= 1 - one.confidence
    return round(min(0.99, 1 - doubt), 2)


def runs_since(store: Store, since: int) -> list[ReflectorRun]:
    """Return the runs that began at or after a moment, latest first."""
    return store.select(ReflectorRun, "reflector_runs WHERE at >= ? ORDER BY at DESC", (since,))


# ---------------------------------------------------------------------------------------------------------- writing


def add_evidence(store: Store, one: Evidence) -> bool:
    """Record that a line taught a memory. Inside a transaction; idempotent. Return True if the row is new."""
    sql = f"INSERT INTO learned_from ({columns_of(Evidence)}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    return store.has(f"{sql} RETURNING id", one)


def replace_evidence(store: Store, lines: Mapping[str, str]) -> None:
    """Replace lines to be deleted by other lines as evidence: ``lines`` maps old to new. Inside a transaction."""
    columns = "memory, session, kind, confidence, at"
    for old in {line for line, _ in taught_by(store, lines)}:
        sql = f"INSERT INTO learned_from (line, {columns}) SELECT ?2, {columns} FROM learned_from WHERE line = ?1"
        store.execute(f"{sql} ON CONFLICT DO NOTHING", (old, lines[old]))
        store.execute("DELETE FROM learned_from WHERE line = ?", (old,))


def move_cursor(store: Store, session: DueSession, turn: int) -> bool:
    """Record that a session was read up to a turn. Inside the transaction that writes the learned memories.

    Returns:
        False if another process moved the cursor, or the session is gone: then write nothing.
    """
    sql = "UPDATE sessions SET reflected_turn = ? WHERE id = ? AND session_id = ? AND reflected_turn = ? RETURNING id"
    return store.has(sql, (turn, session.row, session.id, session.cursor))


def add_run(store: Store, run: ReflectorRun) -> None:
    """Store the result of a run."""
    store.insert("reflector_runs", columns_of(ReflectorRun), *run)


# ------------------------------------------------------------------------------------------------------- forgetting


def learned_only_from(store: Store, lines: Collection[str]) -> set[str]:
    """Return the memories that only these lines taught, or whose learned text is in no remaining line.

    The learned text is a memory's first version: an edit does not change its source. A memory that a
    person wrote, and that lines only confirm, is not returned.
    """
    named = store.all(str, f"SELECT memory FROM learned_from WHERE line IN {GIVEN}", (lines,))
    named += [uid for uid, _ in _answers_to(store, lines)]
    sql = f"SELECT uid FROM memories WHERE uid IN {GIVEN} AND {_IS_LEARNED}"
    words = {uid: as_learned(store, uid) or "" for uid in store.all(str, sql, (named,))}
    taught = {uid for uid, text in words.items() if not _is_said_elsewhere(store, uid, text, lines)}
    return taught | _named_after(store, lines)


def drop_answers(store: Store, lines: Collection[str]) -> None:
    """Delete evidence lines that only accepted or reported what these lines contain. Inside a transaction."""
    for memory, line in _answers_to(store, lines):
        store.execute("DELETE FROM learned_from WHERE memory = ? AND line = ?", (memory, line))


def _answers_to(store: Store, lines: Collection[str]) -> list[tuple[str, str]]:
    """Return (memory, line) of evidence that accepted the assistant's words in these lines, or is a call's result.

    A command that is no memory yet is known only by a keyed hash: every result after a call in these lines may match.
    """
    rows = store.rows(
        "SELECT DISTINCT l.memory, l.line FROM turns t JOIN sessions s ON s.id = t.session"
        f" JOIN learned_from l ON l.session = s.session_id WHERE t.role IN {_ANSWERED}"
        " AND t.uuid IN (SELECT value FROM json_each(?1)) AND l.line NOT IN (SELECT value FROM json_each(?1))",
        (lines,),
    )
    return [(uid, line) for uid, line in rows if _answered(store, line, as_learned(store, uid)) & {*lines}]


def _answered(store: Store, line: str, text: str | None) -> set[str]:
    """Return the line that an evidence line answers, see ``answered_line``; without a text, all lines it may answer."""
    if text is None:
        return {uuid for _, uuid in _before(store, line)[1]}
    return {found for found in [answered_line(store, line, text)] if found is not None}


def as_learned(store: Store, uid: str) -> str | None:
    """Return a memory's text as first learned, or None if there is no such memory."""
    former = "(SELECT h.text FROM memory_history h WHERE h.memory = m.id ORDER BY h.id LIMIT 1)"
    return store.find(str, f"SELECT coalesce({former}, m.text) FROM memories m WHERE m.uid = ?", (uid,))


def memory_id(line: str, part: int, number: int) -> str:
    """Return the id of the memory for statement ``number`` in one part of a line."""
    name = f"{line}:{part}:{number}".encode("utf-8", "surrogatepass")
    return f"mem-{hashlib.sha256(name).hexdigest()[:12]}"


def _named_after(store: Store, lines: Collection[str]) -> set[str]:
    """Return the memories whose id derives from one of these lines; after a rebuild they have no evidence rows yet."""
    known = {str(uid) for (uid,) in store.rows(
        f"SELECT uid FROM memories WHERE uid NOT IN (SELECT memory FROM learned_from) AND {_IS_LEARNED}"
    )}  # fmt: skip
    sql = f"SELECT uuid, part FROM turns WHERE role = 'user' AND uuid IN {GIVEN}"
    parts = store.rows(sql, (lines,)) if known else []
    taught = {memory_id(line, part, at) for line, part in parts for at in range(2 * MAX_STATEMENTS)}
    return known & taught


def _is_said_elsewhere(store: Store, uid: str, text: str, lines: Collection[str]) -> bool:
    """Return True if a remaining line, or the line that it answers, contains a memory's text."""
    stays = [one.line for one in evidence_for(store, [uid]).get(uid, []) if one.line not in lines]
    turns = store.all(int, f"SELECT id FROM turns WHERE uuid IN {GIVEN}", (stays,))
    if any(_words_of(text) in _plain(said) for _, said in turn_texts(store, turns).values()):
        return True
    return any(found not in (None, *lines) for found in (answered_line(store, line, text) for line in stays))


def answered_line(store: Store, line: str, text: str) -> str | None:
    """Return the line with a memory's text that an evidence line answers: the proposal it accepts, or the call.

    None if the evidence line contains the text itself, or none of the few lines before it does.
    """
    own, before = _before(store, line)
    said = turn_texts(store, [*own, *(ident for ident, _ in before)])
    has = {ident for ident, (_, words) in said.items() if _words_of(text) in _plain(words)}
    return None if has.intersection(own) else next((uuid for ident, uuid in before if ident in has), None)


def _before(store: Store, line: str) -> tuple[list[int], list[tuple[int, str]]]:
    """Return the turn ids of a line, and (turn id, line) of the assistant's turns and calls before it, latest first."""
    turns = store.rows("SELECT id, session FROM turns WHERE uuid = ? ORDER BY id", (line,))
    sql = (
        f"SELECT id, uuid FROM turns WHERE session = ? AND id < ? AND subagent IS NULL AND role IN {_ANSWERED}"
        f" ORDER BY id DESC LIMIT {CONTEXT_TURNS}"
    )
    return [ident for ident, _ in turns], store.rows(sql, (turns[0][1], turns[0][0])) if turns else []


def _words_of(text: str) -> str:
    """Return the part of a memory's text that a line contains: for a command memory, the command alone."""
    return _plain(text.removeprefix("`").removesuffix(COMMAND_WORKS) if text.endswith(COMMAND_WORKS) else text)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


# --------------------------------------------------------------------------------------------------------- checking

_FALSE = "(confidence NOT BETWEEN 0 AND 1 OR NOT EXISTS (SELECT 1 FROM turns t WHERE t.uuid = learned_from.line))"
_TOO_FAR = "reflected_turn > (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'turns')"


def falsely_taught(store: Store) -> list[str]:
    """Return the memories with evidence whose line is no longer stored or whose confidence is not in 0 to 1."""
    return store.all(str, f"SELECT DISTINCT memory FROM learned_from WHERE {_FALSE} ORDER BY memory")


def sessions_read_too_far(store: Store) -> list[str]:
    """Return the sessions whose cursor is after the newest turn: nothing more would be learned from them."""
    return store.all(str, f"SELECT session_id FROM sessions WHERE {_TOO_FAR} ORDER BY id")


def mend_evidence(store: Store) -> None:
    """Delete invalid evidence and reset the cursors of its sessions. Inside a transaction. The memories stay."""
    again = f"session_id IN (SELECT session FROM learned_from WHERE {_FALSE})"
    store.execute(f"UPDATE sessions SET reflected_turn = 0 WHERE {_TOO_FAR} OR {again}")
    store.execute(f"DELETE FROM learned_from WHERE {_FALSE}")
