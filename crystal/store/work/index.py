"""Write the work index: process turns after a cursor, which moves in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from crystal.model.named_tuple import NamedTuple
from crystal.store.capture.privacy import store_key
from crystal.store.connection import GIVEN, Store
from crystal.store.notes import WORK_CURSOR, WORK_FORM, drop_note, work_cursor, write_note
from crystal.store.sessions.turn_texts import turn_texts
from crystal.work.call_results import Pair, PairedTurn, pair
from crystal.work.calls import ToolCall, calls_of
from crystal.work.errors import error_lines
from crystal.work.line_hashes import Hash, hasher, line_hashes
from crystal.work.outcomes import CallOutcome, outcome_of

BATCH = 2_000
CONTEXT = 200
"""Turns of a session before a batch that are read again, because their calls may have results in the batch."""
TABLES = ("work_lines", "work_errors", "work_calls")


class CallRows(NamedTuple):
    """The index rows of one call, by table."""

    calls: list[tuple[object, ...]]
    lines: list[tuple[int, int, int]]
    errors: set[tuple[int, int]]


def hash_for(store: Store) -> Hash:
    """Return the keyed hash of this store for lines, names and commands."""
    return hasher(store_key(store))


def clear(store: Store) -> None:
    """Empty the index, so that it is rebuilt. Inside a transaction."""
    for table in TABLES:
        store.execute(f"DELETE FROM {table}")
    drop_note(store, WORK_CURSOR)


def advance(store: Store, hash_of: Hash) -> bool:
    """Index the next turns in one transaction, so that a killed process leaves nothing. Return False at the end."""
    with store.transaction():
        start = work_cursor(store)
        newest = int(store.value("SELECT coalesce(max(id), 0) FROM turns"))
        if start >= newest:
            return False
        if not start:
            clear(store)
        start, end = _batch(store, start, newest)
        for ident, rows in _rows(store, hash_of, start, end):
            _write(store, ident, rows)
        write_note(store, WORK_CURSOR, f"{WORK_FORM}:{end}")
    return end < newest


def bring_up_to_date(store: Store, is_over: Callable[[], bool] = lambda: False) -> None:
    """Index the missing turns, or as many as time allows. May be killed at any time."""
    hash_of = hash_for(store)
    while advance(store, hash_of) and not is_over():
        pass


def make_again(store: Store) -> None:
    """Empty the index and rebuild it from all turns."""
    with store.transaction():
        clear(store)
    bring_up_to_date(store)


def count_faults(store: Store) -> int:
    """Return the number of calls whose rows in the index differ from those derived from their turns.

    Results are not compared: forgetting a result, or a message before it, changes the pairing. Calls indexed by another
    version are not compared either: the index is rebuilt.
    """
    hash_of, after, wrong = hash_for(store), 0, 0
    sql = "SELECT turn, max(result), max(exit) FROM work_calls WHERE turn BETWEEN ? AND ? GROUP BY 1 ORDER BY 1 LIMIT ?"
    with store.reading():  # one snapshot, because a worker pairs later results meanwhile
        upto = work_cursor(store)
        while calls := store.rows(sql, (after + 1, upto, BATCH)):
            after, tools = calls[-1][0], tools_of(store, [turn for turn, *_ in calls])
            texts = turn_texts(store, [turn for call in calls for turn in call[:2] if turn is not None])
            for turn, result, code in calls:
                text, said = (texts.get(one, (0, ""))[1] for one in (turn, result))
                pair_of = Pair(turn, result, is_silent=False, settled=0)
                told = _rows_of(pair_of, tools.get(turn), text, CallOutcome(code), said, hash_of)
                wrong += not _is_stored(store, turn, told)
    return wrong


def _batch(store: Store, after: int, upto: int) -> tuple[int, int]:
    """Return the turns (after, up to) of the next batch."""
    first = int(store.value("SELECT coalesce(min(id), ?1 + 1) FROM turns WHERE id > ?1", (after,)))
    return first - 1, min(upto, first - 1 + BATCH)


def _rows(store: Store, hash_of: Hash, after: int, upto: int) -> Iterator[tuple[int, CallRows]]:
    """Yield the calls that have a turn in a batch, each with its index rows."""
    pairs = [one for one in pair(_turns(store, after, upto)) if max(one.call, one.settled) > after]
    calls = [one.call for one in pairs]
    texts = turn_texts(store, [*calls, *(one.result for one in pairs if one.result is not None)])
    tools = tools_of(store, calls)
    for one in pairs:
        text, said = texts.get(one.call, (0, ""))[1], texts.get(one.result or 0, (0, ""))[1]
        outcome = CallOutcome(0 if one.is_silent else None) if one.result is None else outcome_of(said)
        yield one.call, _rows_of(one, tools.get(one.call), text, outcome, said, hash_of)


def _turns(store: Store, after: int, upto: int) -> list[PairedTurn]:
    columns = "SELECT id, session, subagent, role, tool, message_id FROM turns"
    rows = store.rows(f"{columns} WHERE id > ? AND id <= ? ORDER BY id", (after, upto))
    for session in {row[1] for row in rows}:
        before = f"{columns} WHERE session = ? AND id <= ? ORDER BY id DESC LIMIT {CONTEXT}"
        rows += store.rows(before, (session, after))
    return [PairedTurn(row[0], (row[1], row[2]), *row[3:]) for row in sorted(rows)]


def _rows_of(one: Pair, tool: str | None, text: str, outcome: CallOutcome, said: str, hash_of: Hash) -> CallRows:
    rows, done = CallRows([], [], set()), calls_of(tool, text)
    if outcome.refused or (outcome.exit and any(call.is_edit for call in done)):  # not run, or not edited
        return rows
    for part, call in enumerate(done):
        known = (one.result, outcome.exit, outcome.passed, outcome.failed, len(call.added), len(call.removed))
        rows.calls.append((one.call, part, int(call.is_edit), call.what, hash_of(call.key), *known, call.about))
        hashes = {line for line in line_hashes(call.added, hash_of) if line is not None}
        rows.lines.extend((line, one.call, part) for line in hashes)
        if outcome.exit:
            rows.errors.update((hash_of(error.plain), one.call) for error in error_lines(said))
    return rows


def _write(store: Store, ident: int, rows: CallRows) -> None:
    """Write the rows of a call, replacing earlier ones."""
    for table in TABLES:
        store.execute(f"DELETE FROM {table} WHERE turn = ?", (ident,))
    store.execute_many("INSERT INTO work_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows.calls)
    store.execute_many("INSERT INTO work_lines VALUES (?, ?, ?)", rows.lines)
    store.execute_many("INSERT INTO work_errors VALUES (?, ?)", rows.errors)


def _is_stored(store: Store, ident: int, told: CallRows) -> bool:
    """Return whether the index has the rows derived from a call."""
    columns = "turn, part, is_edit, what, key, added, removed, about"
    calls = store.rows(f"SELECT {columns} FROM work_calls WHERE turn = ?", (ident,))
    lines = store.rows("SELECT line, turn, part FROM work_lines WHERE turn = ?", (ident,))
    errors = store.rows("SELECT error, turn FROM work_errors WHERE turn = ?", (ident,))
    has_calls = set(calls) == {(*row[:5], *row[9:]) for row in told.calls}
    return has_calls and set(lines) == set(told.lines) and set(errors) == told.errors


def tools_of(store: Store, turns: Iterable[int]) -> dict[int, str | None]:
    """Return the tool of each call, by turn."""
    sql = f"SELECT id, tool FROM turns WHERE id IN {GIVEN}"
    return {int(ident): tool for ident, tool in store.rows(sql, ([*turns],))}


def calls_in(store: Store, turns: Collection[int]) -> dict[int, list[ToolCall]]:
    """Return the calls of tools that turns contain, by turn; those that were forgotten meanwhile have none."""
    tools = tools_of(store, turns)
    return {turn: calls_of(tools.get(turn), text) for turn, (_, text) in turn_texts(store, turns).items()}
