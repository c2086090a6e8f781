"""Write sessions, turns, chunks and their texts. A turn that several files contain is stored once."""

from collections import Counter
from collections.abc import Iterable, Sequence

from crystal.config.harnesses import EXPORTS
from crystal.model.capture import Chunk, Origin, Project, Segment, Turn
from crystal.model.named_tuple import NamedTuple
from crystal.store.capture.projects import project_row
from crystal.store.connection import GIVEN, Store
from crystal.store.text_blocks import put_texts
from crystal.store.texts import text_hash

CONVERSATION = "conversation"

_TURN = (
    "id, uuid, part, session, segment, offset, role, tool, subagent, ts, project, branch, message_id, model,"
    " full_length"
)
_NAMED = (
    "(session_id = ?1 OR session_id BETWEEN ?1 || '~' AND ?1 || '~~')"  # the agent's own id, see model.capture.ID_END
)
_EXPORTS = ", ".join(f"'{name}'" for name in sorted(EXPORTS))
_OF_ITS_AGENT = (
    "(session_id) DO UPDATE SET harness = excluded.harness"
    f" WHERE harness IN ({_EXPORTS}) AND excluded.harness NOT IN ({_EXPORTS})"
)
"""Conflict clause: a session that came first from an export becomes its agent's when the agent's transcript is read."""
_CHUNK = "id, turn, start, body, text_sha256, source, role, session, project, agent, device, branch, subagent, ts"


class AddedTurns(NamedTuple):
    """The result of a write: numbers of new turns, new chunks, and turns that were stored already."""

    turns: int
    chunks: int
    repeated: int


def add_turns(
    store: Store,
    origin: Origin,
    said: Sequence[tuple[Turn, int | None, list[Chunk]]],
    projects: dict[str, Project],
    title: str | None,
) -> AddedTurns:
    """Write the turns of one part of a transcript. Inside a transaction; repeating the call changes nothing.

    Args:
        store: The store.
        origin: The origin of the transcript.
        said: Each turn with the id of its ledger row (or None) and its chunks, in transcript order.
        projects: The project of each folder that the turns name.
        title: A title that the transcript gives the session, or None.
    """
    if not said and title is None:
        return AddedTurns(0, 0, 0)
    session = _session(store, origin)
    folders = {cwd: project_row(store, project) for cwd, project in projects.items()}
    stored = set(tools_of(store, {turn.uuid for turn, _, _ in said}))
    next_turn, next_chunk = _next_id(store, "turns"), _next_id(store, "chunks")
    turns = with_tools(store, [turn for turn, _, _ in said])
    turn_rows: list[tuple[object, ...]] = []
    chunk_rows: list[tuple[object, ...]] = []
    texts: list[tuple[int, str]] = []
    copies: list[Turn] = []
    for turn, (_, segment, chunks) in zip(turns, said, strict=True):
        if (turn.uuid, turn.part) in stored:
            copies.append(turn)
            continue
        stored.add((turn.uuid, turn.part))
        folder = None if turn.cwd is None else folders.get(turn.cwd)
        ident = next_turn + len(turn_rows)
        turn_rows.append(_turn_row(origin, turn, ident, session, segment, folder))
        place = (session, folder, origin.agent, origin.device, turn.branch, origin.subagent, turn.timestamp)
        for chunk in chunks:
            number, sha = next_chunk + len(chunk_rows), text_hash(chunk.text)
            chunk_rows.append((number, ident, chunk.start, b"", sha, CONVERSATION, turn.role, *place))
            texts.append((number, chunk.text))
    store.insert_many("turns", _TURN, turn_rows)
    store.insert_many("chunks", _CHUNK, chunk_rows)
    put_texts(store, texts)
    _note_copies(store, copies, session)
    newest = next_turn + len(turn_rows) - 1 if turn_rows else 0
    _touch_session(store, session, turns, folders, newest, title)
    return AddedTurns(len(turn_rows), len(chunk_rows), len(copies))


def _next_id(store: Store, table: str) -> int:
    """Return the id after the largest ever used. It stays free because the caller holds the write lock."""
    return 1 + int(store.value("SELECT max(seq) FROM sqlite_sequence WHERE name = ?", (table,)) or 0)


def _session(store: Store, origin: Origin) -> int:
    values = (origin.session_id, origin.agent, origin.device, origin.harness)
    store.insert("sessions", "session_id, agent, device, harness", *values, on_conflict=_OF_ITS_AGENT)
    return int(store.value("SELECT id FROM sessions WHERE session_id = ?", (origin.session_id,)))


def turns_with_parts(store: Store, named: Iterable[tuple[str, int]]) -> list[int]:
    """Return the row ids of the stored turns among some, each given as (line, part)."""
    sql = "SELECT t.id FROM json_each(?) j JOIN turns t ON t.uuid = j.value ->> 0 AND t.part = j.value ->> 1"
    return store.all(int, sql, ([*named],))


def stored_uuids(store: Store, uuids: set[str]) -> set[str]:
    """Return those of these lines that have stored turns."""
    return {uuid for uuid, _ in tools_of(store, uuids)}


def is_of_another_session(store: Store, uuid: str, session_id: str) -> bool:
    """Return whether a line has a turn that is stored with another session."""
    sql = "SELECT 1 FROM turns t JOIN sessions s ON s.id = t.session WHERE t.uuid = ? AND s.session_id <> ? LIMIT 1"
    return store.has(sql, (uuid, session_id))


def chunks_of(store: Store, uuids: Sequence[str]) -> list[tuple[str, int, bytes]]:
    """Return (line, chunk id, hash of its text) for the chunks of some lines."""
    sql = f"SELECT t.uuid, c.id, c.text_sha256 FROM turns t JOIN chunks c ON c.turn = t.id WHERE t.uuid IN {GIVEN}"
    return store.rows(sql, (uuids,))


def harness_of(store: Store, session_id: str) -> str | None:
    """Return the harness of a session, or None if the session is not stored."""
    return store.find(str, "SELECT harness FROM sessions WHERE session_id = ?", (session_id,))


def is_followed(store: Store, transcript: int, segment: Segment) -> bool:
    """Return True if what follows a segment in its file was captured before it."""
    return store.has(
        "SELECT 1 FROM segments WHERE transcript = ? AND generation = ? AND start = ? AND state = 'captured'",
        (transcript, segment.after.generation, segment.pieces[-1].end),
    )


def frames_with_results(store: Store, transcript: int) -> list[tuple[int, int, int, bool]]:
    """Return (start, archive offset, length, whether a result in it lacks its tool's name) of a transcript's rows."""
    unnamed = "SELECT 1 FROM turns t WHERE t.segment = g.id AND t.role = 'tool_result' AND t.tool IS NULL"
    return store.rows(
        f"SELECT g.start, g.archive_offset, g.archive_length, EXISTS ({unnamed}) FROM segments g"
        " WHERE g.transcript = ? AND g.archive_length > 0 ORDER BY g.generation, g.start",
        (transcript,),
    )


def name_results(store: Store, turns: Iterable[Turn]) -> None:
    """Store the tool's name of results that lack it. Inside a transaction."""
    named = [(turn.tool, turn.uuid, turn.part) for turn in turns if turn.tool is not None]
    where = "uuid = ? AND part = ? AND role = 'tool_result' AND tool IS NULL"
    store.execute_many(f"UPDATE turns SET tool = ? WHERE {where}", named)


def tools_of(store: Store, uuids: set[str]) -> dict[tuple[str, int], str | None]:
    """Return the tool's name of each stored turn of some lines, by (line, part)."""
    rows = store.rows(f"SELECT uuid, part, tool FROM turns WHERE uuid IN {GIVEN}", (uuids,))
    return {(uuid, part): tool for uuid, part, tool in rows}


def with_tools(store: Store, turns: Iterable[Turn]) -> list[Turn]:
    """Return the turns with the tool's name added to each result that lacks it.

    A line may call several tools, also in an earlier segment: its results are in the order of its calls.
    """
    here: dict[str, list[str | None]] = {}
    results: Counter[str] = Counter()
    named = []
    for turn in turns:
        if turn.role == "tool_call":
            here.setdefault(turn.uuid, []).append(turn.tool)
        parent = turn.parent_uuid if turn.role == "tool_result" else None
        if parent is not None and turn.tool is None:
            tools = here.get(parent) or _tools_called(store, parent)
            turn = turn._replace(tool=tools[min(results[turn.uuid], len(tools) - 1)]) if tools else turn  # noqa: PLW2901
        results[turn.uuid] += turn.role == "tool_result"
        named.append(turn)
    return named


def _tools_called(store: Store, uuid: str) -> list[str | None]:
    rows = store.rows("SELECT tool FROM turns WHERE uuid = ? AND role = 'tool_call' ORDER BY part", (uuid,))
    return [tool for (tool,) in rows]


def _turn_row(
    origin: Origin, turn: Turn, ident: int, session: int, segment: int | None, project: int | None
) -> tuple[object, ...]:
    return (
        ident,
        turn.uuid,
        turn.part,
        session,
        segment,
        turn.offset,
        turn.role,
        turn.tool,
        origin.subagent,
        turn.timestamp,
        project,
        turn.branch,
        turn.message_id,
        turn.model,
        turn.full_length or len(turn.text),
    )


def _note_copies(store: Store, copies: Sequence[Turn], session: int) -> None:
    """Record that stored turns of other sessions are in this session's transcript too."""
    store.execute_many(
        "INSERT INTO turn_copies (session, turn) SELECT ?, id FROM turns WHERE uuid = ? AND part = ? AND session <> ?"
        " ON CONFLICT DO NOTHING",
        [(session, turn.uuid, turn.part, session) for turn in copies],
    )


def _touch_session(
    store: Store, session: int, turns: Sequence[Turn], folders: dict[str, int], newest: int, title: str | None
) -> None:
    times = [turn.timestamp for turn in turns if turn.timestamp is not None]
    first_folder = next((folders[turn.cwd] for turn in turns if turn.cwd in folders), None)
    branch = next((turn.branch for turn in reversed(turns) if turn.branch), None)
    store.execute(
        "UPDATE sessions SET project = coalesce(project, ?1), branch = coalesce(?2, branch),"
        " title = coalesce(?3, title), started_at = min(coalesce(started_at, ?4), coalesce(?4, started_at)),"
        " last_at = max(coalesce(last_at, ?5), coalesce(?5, last_at)), last_turn = max(last_turn, ?6) WHERE id = ?7",
        (first_folder, branch, title, min(times, default=None), max(times, default=None), newest, session),
    )


def end_session(store: Store, session_id: str, at: int) -> None:
    """Record that a session has ended; its summary becomes due."""
    store.execute(f"UPDATE sessions SET ended_at = ?2 WHERE {_NAMED}", (session_id, at))


def reopen_session(store: Store, session_id: str) -> None:
    """Record that a session continues after its end."""
    store.execute(f"UPDATE sessions SET ended_at = NULL WHERE {_NAMED} AND ended_at IS NOT NULL", (session_id,))
