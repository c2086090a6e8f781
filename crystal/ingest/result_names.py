"""Name the results of tools whose calls were captured after them, as ``backfill`` brings what is older than crystal."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from crystal.ingest import archive
from crystal.store import Store
from crystal.store.capture import turns
from crystal.store.capture.ledger import TranscriptState
from crystal.transcript.reader import reader_of


def name_results(store: Store, ldm_home: Path, state: TranscriptState) -> None:
    """Give the results of a transcript that lack it their tool's name. Inside a transaction.

    Lines name a call by its id, which is not stored: all archived lines are read, those of such results again at last.
    """
    frames = turns.frames_with_results(store, state.id)
    unnamed = [frame for frame in frames if frame[3]]
    if not unnamed:
        return
    path = ldm_home / str(state.archive)
    lines = chain.from_iterable(_lines(path, *frame[:3]) for frame in (*frames, *unnamed))
    said = reader_of(state.origin.harness).turns(
        lines, state.mark.transcript, subagent=state.origin.subagent is not None
    )
    tools = {(turn.uuid, turn.part): turn._replace(text="") for turn in said if turn.tool or turn.role == "tool_result"}
    turns.name_results(store, turns.with_tools(store, tools.values()))


def _lines(path: Path, at: int, offset: int, length: int) -> Iterator[tuple[int, bytes]]:
    for line in (archive.text_of(path, archive.Frame(offset, length)) or b"").split(b"\n"):
        yield at, line
        at += len(line) + 1
