"""Leave out the turns of an exported session that the agent's own transcripts have too, whichever came first.

An export lacks the agent's ids, so turns are compared by their text. The result is not stored: ``verify`` and a
rebuild compute it again from the archived lines of the export and the stored turns of the agent.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from crystal.config.harnesses import EXPORTS
from crystal.ingest import archive
from crystal.model.capture import Origin, Turn
from crystal.model.named_tuple import NamedTuple
from crystal.store import Store
from crystal.store.capture import ledger, turns
from crystal.transcript.reader import reader_of

if TYPE_CHECKING:
    from crystal.store.sessions.conversations import SaidTurn

Twins: TypeAlias = Mapping[tuple[str, int], str]
"""Turns of exports by line and part, each with the agent's line that says the same."""

MAX_CALLS = 200
"""Calls of the same tool that one in an export is compared with, the first that are left."""
MIN_SHARE = 0.5
"""Share of a call's words that an export of it must have: it shortens paths, and has words of its own."""
_SPEAKERS = ("user", "assistant", "thinking")
_WORD = re.compile(r"\w+")


def _is_exported(origin: Origin) -> bool:
    """Return whether a transcript is a session in an export, or in the store of another program.

    What somebody wrote about a session, as if it was a subagent of it, repeats nothing.
    """
    return origin.harness in EXPORTS and origin.subagent is None


def said_by_agent(store: Store, ldm_home: Path, session_id: str) -> Twins:
    """Return the turns in a session's exports that its agent's transcripts have too.

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
    """Return the turns of a transcript's session that need not be stored: none if it is no export."""
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
    from crystal.store.memories.learned import hand_over  # noqa: PLC0415 - the same

    checks.drop_turns(store, stored)
    lines = {uuid: twins[uuid, part] for uuid, part in sorted(twins, reverse=True)}
    gone = lines.keys() - turns.stored_uuids(store, {*lines})
    hand_over(store, {uuid: lines[uuid] for uuid in gone})


def _exported_turns(store: Store, ldm_home: Path, state: ledger.TranscriptState) -> list[Turn]:
    """Return the turns of an export's archived lines; if a record was archived several times, its newest turns."""
    reader, found = reader_of(state.origin.harness), dict[tuple[str, int], Turn]()
    for frame in ledger.frames_of(store, state.id):
        text = archive.text_of(ldm_home / str(state.archive), archive.Frame(*frame)) or b""
        said = reader.turns(enumerate(text.split(b"\n")), state.mark.transcript, subagent=False)
        found.update({(turn.uuid, turn.part): turn for turn in said})
    return list(found.values())


class _Call(NamedTuple):
    """A tool call of the agent.

    ``words`` are those of its main argument, or of all arguments; ``file`` those of the name of the file that it names.
    """

    line: str
    tool: str | None
    words: frozenset[str]
    file: frozenset[str]

    def may_be(self, tool: str | None) -> bool:
        """Return whether an export may have it as a call of a tool, or of one that it does not name."""
        return tool == self.tool or (tool is None and bool(self.words))

    def share_in(self, said: AbstractSet[str]) -> float:
        """Return the share of the call's words among some words, 0 to 1; 1 if the name of its file is among them."""
        has_file = bool(self.file) and self.file <= said
        return 1.0 if has_file or not self.words else len(self.words & said) / len(self.words)


def _twins(exported: Sequence[Turn], own: Sequence[SaidTurn]) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield each exported turn that matches a turn of the agent, with the id of the agent's line."""
    texts, calls = defaultdict[tuple[bool, str], deque[str]](deque), list[_Call]()
    exports = {turn.uuid for turn in exported}
    for one in (one for one in own if one.uuid not in exports):  # their rows may say no more whose they are
        if one.role == "tool_call":
            calls.append(_call_of(one))
        else:
            texts[_gist(one.role, one.text)].append(one.uuid)
    for turn in exported:
        if turn.role == "tool_call":
            place = _same_call(turn, calls)
            if place is not None:
                yield (turn.uuid, turn.part), calls.pop(place).line
        elif turn.role in _SPEAKERS and (left := texts[_gist(turn.role, turn.text)]):
            yield (turn.uuid, turn.part), left.popleft()


def _same_call(turn: Turn, calls: Sequence[_Call]) -> int | None:
    """Return the index of the call that shares the most words with an exported one; of equal ones the first."""
    said = set(_WORD.findall(turn.text))
    possible = ((place, call) for place, call in enumerate(calls) if call.may_be(turn.tool))
    shares = {place: call.share_in(said) for place, call in islice(possible, MAX_CALLS)}
    best = max(shares, key=shares.__getitem__, default=None)
    return best if best is not None and shares[best] >= MIN_SHARE else None


def _call_of(turn: SaidTurn) -> _Call:
    head, rest = turn.text.partition("\n")[::2]
    main = head.partition(": ")[2]
    words = _WORD.findall(main) or _WORD.findall(rest)
    file = main.rpartition("/")[2] if "/" in main and not re.search(r"\s", main) else ""
    return _Call(turn.uuid, turn.tool, frozenset(words), frozenset(_WORD.findall(file)))


def _gist(role: str, text: str) -> tuple[bool, str]:
    """Return who said a text, and its words: an export may give a thought as something that was said."""
    return role == "user", " ".join(text.split())
