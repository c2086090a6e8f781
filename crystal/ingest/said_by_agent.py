"""Leave out the turns of an exported session that are also in the agent's own transcripts, whichever came first.

An export lacks the agent's ids, so turns are compared by their text. The result is not stored: ``verify`` and a
rebuild compute it again from the archived lines of the export and the stored turns of the agent.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from crystal.config.harnesses import EXPORTS
from crystal.ingest import archive
from crystal.model.capture import Origin, Turn
from crystal.store import Store
from crystal.store.capture import ledger, turns
from crystal.transcript.reader import reader_of

if TYPE_CHECKING:
    from crystal.store.sessions.conversations import SaidTurn

Twins: TypeAlias = Mapping[tuple[str, int], str]
"""Turns of exports by line and part, each with the agent's line that has the same content."""

_SPEAKERS = ("user", "assistant", "thinking")


def _is_exported(origin: Origin) -> bool:
    """Return whether a transcript is a session in an export, or in the store of another program.

    A text about a session, stored like a subagent of it, repeats nothing and does not count.
    """
    return origin.harness in EXPORTS and origin.subagent is None


def said_by_agent(store: Store, ldm_home: Path, session_id: str) -> Twins:
    """Return the turns in a session's exports that are also in its agent's transcripts.

    Each turn of the agent matches at most one turn of each export.
    """
    exports = ledger.states_of_session(store, session_id, EXPORTS)
    if not exports:
        return {}
    from crystal.store.sessions.conversations import said_in_session  # noqa: PLC0415 - most turns ask nothing

    own = said_in_session(store, session_id, EXPORTS)
    found = dict[tuple[str, int], str]()
    for state in (one for one in exports if own and _is_exported(one.origin)):
        found.update(_twins(_exported_turns(store, ldm_home, state), own))
    return found


def repeated_turns(store: Store, ldm_home: Path, origin: Origin) -> Twins:
    """Return the turns of a transcript's session that need not be stored; empty if it is no export."""
    return said_by_agent(store, ldm_home, origin.session_id) if _is_exported(origin) else {}


def leave_to_agent(store: Store, ldm_home: Path, origin: Origin, repeated: Twins) -> None:
    """Delete the matched turns that are stored; what was learned from them now refers to the agent's lines.

    Runs inside a transaction, after turns of ``origin`` were added; ``repeated`` are those of ``repeated_turns``.
    """
    twins = repeated if _is_exported(origin) else said_by_agent(store, ldm_home, origin.session_id)
    stored = turns.turns_with_parts(store, twins) if twins else []
    if not stored:
        return
    from crystal.store.health import checks  # noqa: PLC0415 - 6 ms; only what was exported needs it
    from crystal.store.memories.learned import replace_evidence  # noqa: PLC0415 - the same

    checks.drop_turns(store, stored)
    lines = {uuid: twins[uuid, part] for uuid, part in sorted(twins, reverse=True)}
    gone = lines.keys() - turns.stored_uuids(store, {*lines})
    replace_evidence(store, {uuid: lines[uuid] for uuid in gone})


def _exported_turns(store: Store, ldm_home: Path, state: ledger.TranscriptState) -> list[Turn]:
    """Return the turns of an export's archived lines; if a record was archived several times, its newest turns."""
    reader, found = reader_of(state.origin.harness), dict[tuple[str, int], Turn]()
    for frame in ledger.frames_of(store, state.id):
        text = archive.text_of(ldm_home / str(state.archive), archive.Frame(*frame)) or b""
        said = reader.turns(enumerate(text.split(b"\n")), state.mark.transcript, subagent=False)
        found.update({(turn.uuid, turn.part): turn for turn in said})
    return list(found.values())


def _twins(exported: Sequence[Turn], own: Sequence[SaidTurn]) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield each exported turn that matches a turn of the agent, with the id of the agent's line."""
    from crystal.ingest.same_calls import match_calls  # noqa: PLC0415 - for an export alone

    texts = defaultdict[tuple[bool, str], deque[str]](deque)
    calls: list[SaidTurn] = []
    exports = {turn.uuid for turn in exported}
    for one in (one for one in own if one.uuid not in exports):  # their rows may no longer show the harness
        if one.role == "tool_call":
            calls.append(one)
        else:
            texts[_gist(one.role, one.text)].append(one.uuid)
    shown = [turn for turn in exported if turn.role == "tool_call"]
    matched = match_calls(shown, calls)
    yield from (((shown[place].uuid, shown[place].part), line) for place, line in matched.items())
    for turn in exported:
        if turn.role in _SPEAKERS and (left := texts[_gist(turn.role, turn.text)]):
            yield (turn.uuid, turn.part), left.popleft()


def _gist(role: str, text: str) -> tuple[bool, str]:
    """Return whether the user wrote a text, and its words; an export may give a thought as a message."""
    return role == "user", " ".join(text.split())
