"""The archived lines of a session with everything that was said in them, stretch by stretch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crystal.errors import DamagedError, UnavailableError
from crystal.ingest import archive
from crystal.model.capture import Turn
from crystal.model.named_tuple import NamedTuple
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.capture.ledger import TranscriptState
from crystal.store.capture.turns import tools_of
from crystal.store.health import checks
from crystal.transcript.parts import whole_results
from crystal.transcript.reader import is_forgotten, reader_of


class ArchivedLine(NamedTuple):
    """A line, where it begins, and its turns, with long results whole."""

    offset: int
    raw: bytes
    turns: list[Turn]


@dataclass(frozen=True, slots=True)
class ArchivedStretch:
    """Lines that were captured together: the bytes [start, stop) of one generation of the transcript's file."""

    generation: int
    start: int
    stop: int
    lines: list[ArchivedLine]


def states_by_session(store: Store) -> dict[str, list[TranscriptState]]:
    """Return the archived transcripts of each session: its own first, then its subagents'."""
    found: dict[str, list[TranscriptState]] = {}
    for state in ledger.all_states(store):
        if state.archive is not None:
            found.setdefault(state.origin.session_id, []).append(state)
    for states in found.values():
        states.sort(key=lambda state: (state.origin.subagent or "", state.mark.transcript, state.origin.device))
    return found


def stretches(store: Store, state: TranscriptState, ldm_home: Path) -> Iterator[ArchivedStretch]:
    """Yield the stretches of a transcript by generation and place. What was forgotten leaves a gap.

    Raises:
        DamagedError: A frame cannot be read.
        UnavailableError: The archive was rewritten meanwhile.
    """
    reader = reader_of(state.origin.harness)
    for row in checks.ledger_rows(store, state.id):
        if row.state != "captured" or not row.length:
            continue
        clean = _read(store, state, archive.Frame(row.offset, row.length), ldm_home)
        lines = list(_lines(clean, row.start))
        with whole_results():
            said = list(reader.turns(lines, state.mark.transcript, subagent=state.origin.subagent is not None))
        tools = tools_of(store, {turn.uuid for turn in said if turn.role == "tool_result" and turn.tool is None})
        turns: dict[int, list[Turn]] = {}
        for turn in said:
            tool = turn.tool or tools.get((turn.uuid, turn.part))  # the call may be in another stretch
            turns.setdefault(turn.offset, []).append(turn._replace(tool=tool))
        yield ArchivedStretch(
            row.generation, row.start, row.stop, [ArchivedLine(at, line, turns.get(at, [])) for at, line in lines]
        )


def _read(store: Store, state: TranscriptState, frame: archive.Frame, ldm_home: Path) -> bytes:
    try:
        return archive.read_frame(ldm_home / str(state.archive), frame)
    except DamagedError as error:
        now = ledger.state_of(store, state.origin.device, state.mark.transcript)
        if now is None or now.archive != state.archive:
            hint = "run the command again"
            raise UnavailableError("something was forgotten while it was exported", hint=hint) from error
        raise


def _lines(clean: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that say something, each with its offset."""
    at = start
    for line in clean.split(b"\n")[:-1]:
        if line.strip() and not is_forgotten(line):
            yield at, line
        at += len(line) + 1
