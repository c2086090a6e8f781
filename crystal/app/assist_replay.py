"""Replay past sessions: at how many moments assist had a fact, and how often it was used afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

from crystal.app.assist import facts_in
from crystal.app.assist_packet import packet_of
from crystal.app.context import Machine
from crystal.app.file_paths import FilePaths
from crystal.app.session_context_content import context_sources
from crystal.app.used_afterwards import is_used, said_words, words_around, words_of
from crystal.assist import facts as wording
from crystal.assist.facts import Fact, Known
from crystal.assist.replay import Moment, MomentFacts, ReplayTally, common_words, replay_moments
from crystal.errors import StoreDamagedError
from crystal.hook.assist import MAX_PACKET_AGE_NS, MOMENTS, is_in_summary
from crystal.store import Store
from crystal.store.health.checks import database_faults
from crystal.store.sessions.conversations import (
    Session,
    TurnRow,
    list_sessions,
    session_days,
    session_turns,
)
from crystal.store.sessions.turn_texts import turn_texts
from crystal.store.work.index import tools_of
from crystal.store.work.queries import changed_rows, failed_commands
from crystal.work.calls import calls_of

MAX_TURNS = 100_000
REPAIR = "run: crystal verify --repair"
MAX_PACKET_AGE_MS = MAX_PACKET_AGE_NS // 1_000_000
SUBAGENTS = ("Agent", "Task")
"""The tools with which Claude Code begins a subagent."""
FRAME = words_of(" ".join(value for value in vars(wording).values() if isinstance(value, str)))
"""The words of every sentence that is told."""


def replay(machine: Machine, is_wanted: Callable[[str], bool] = lambda _: True) -> dict[str, ReplayTally]:
    """Return what sessions of this machine would have been told, by the kind of moment.

    Args:
        machine: This machine.
        is_wanted: Whether a session, by its id, is judged; what the others did before still counts as known.

    Raises:
        StoreDamagedError: What was done has no text, or there is nothing and the store is damaged.
    """
    tallies, said = {kind: ReplayTally() for kind in MOMENTS.values()}, _Said(machine.store)
    for rows in _projects(machine):
        history = Known(facts_in(machine.store, "local", rows))
        moments = [one for one in _moments(machine.store, rows) if is_wanted(one.session)]
        told = replay_moments(moments, history, machine.config.assist_tokens)
        for kind, tally in tallies.items():
            _judge(tally, [one for one in told if one[0].kind == kind], said)
    faults = [] if any(tally.moments for tally in tallies.values()) else database_faults(machine.store)
    if faults:
        raise StoreDamagedError(f"{machine.places.db} is damaged: {faults[0]}", hint=REPAIR)
    return tallies


def _projects(machine: Machine) -> Iterator[list[int]]:
    """Yield the rows of each project, in the store of this machine."""
    sources, known = context_sources(machine, None), set[int]()
    for row, project in sources.projects[0][1]:
        if row not in known:
            rows = next(iter(sources.rows_of(project)))[1]
            known.update(rows)
            yield list(rows)


def _moments(store: Store, rows: Sequence[int]) -> list[Moment]:
    """Return the prompts, edits and failed commands of a project, in the order of time."""
    edits = changed_rows(store, projects=rows)
    turns = {one.turn for one in edits}
    texts, tools, paths = _texts(store, turns), tools_of(store, turns), FilePaths(store)
    found = list[Moment]()
    for one in edits:
        for call in calls_of(tools.get(one.turn), texts[one.turn][1])[one.part : one.part + 1]:
            given = {"file_path": paths.inside(one.path, one.cwd, one.folder), "old_string": "\n".join(call.removed)}
            found.append(Moment("edit", one.at, one.session_id, given))
    failed = failed_commands(store, rows)
    outputs = _texts(store, {result for result, *_ in failed})
    found += [Moment("failure", at, session, outputs[result][1]) for result, at, session in failed]
    sessions = list_sessions(store, projects=rows, since=None, before=None, limit=MAX_TURNS)
    found += chain.from_iterable(map(partial(_own_moments, store), sessions))
    return sorted(found, key=lambda one: one.at)


def _texts(store: Store, turns: set[int]) -> dict[int, tuple[int, str]]:
    """Return the texts of turns in the work index.

    Raises:
        StoreDamagedError: A turn has none.
    """
    texts = turn_texts(store, turns)
    if lost := turns - texts.keys():
        raise StoreDamagedError(f"{store.path} is damaged: {len(lost)} turns have no text", hint=REPAIR)
    return texts


def _own_moments(store: Store, session: Session) -> Iterator[Moment]:
    """Yield the prompts of a session, and its compactions and subagents with what its packet contained then.

    The packet is as old as it may be for the hook: from the end of the last turn, or from two minutes before.
    """
    turns, asked = session_turns(store, session.id), 0
    wanted = [one.id for one in turns if one.role in ("user", "summary") or one.tool in SUBAGENTS]
    texts = defaultdict(str, {turn: text for turn, (_, text) in turn_texts(store, wanted).items()})
    for at, turn in enumerate(turns):
        moment = turn.ts or 0
        packet = partial(packet_of, store, session.id, session.cwd or "", max(asked, moment - MAX_PACKET_AGE_MS))
        if turn.role == "user":
            asked = moment
            yield Moment("prompt", moment, session.session_id, texts[turn.id])
        elif turn.role == "summary":
            left = [fact for fact in map(Fact.told, packet()) if not is_in_summary(fact["body"], texts[turn.id])]
            yield Moment("compaction", moment, session.session_id, left, texts[turn.id])
        elif turn.role == "tool_call" and turn.tool in SUBAGENTS:
            own, answer = [one.told(str(turn.id).encode()) for one in packet()], _result_in(turns[at:], turn.tool)
            yield Moment("subagent", moment, session.session_id, own, texts[turn.id], texts[answer])


def _result_in(turns: Sequence[TurnRow], tool: str) -> int:
    """Return the first turn in which a tool answers; 0 if it does not."""
    return next((one.id for one in turns if one.role == "tool_result" and one.tool == tool), 0)


class _Said:
    """The words of sessions, by time."""

    def __init__(self, store: Store) -> None:
        names = [name for name, _ in session_days(store, 0)]
        self._words = {name: said_words(store, name, MAX_TURNS) for name in names}
        self.common = common_words([set().union(*(words for _, words in one)) for one in self._words.values()])

    def around(self, moment: Moment) -> tuple[set[str], set[str]]:
        """Return the words of a session until a moment, the call itself with them, and after it."""
        before, after = words_around(self._words.get(moment.session, []), moment.at)
        return (
            before if moment.before is None else words_of(moment.before),
            after if moment.after is None else words_of(moment.after),
        )


def _judge(tally: ReplayTally, told: Sequence[MomentFacts], said: _Said) -> None:
    with_fact = [(moment, "\n".join(fact["body"] for fact in facts), facts) for moment, facts in told if facts]
    words = [words_of(text) - FRAME - said.common for _, text, _ in with_fact]
    tally.moments += len(told)
    for at, (moment, text, facts) in enumerate(with_fact):
        around = said.around(moment)
        used = is_used(words[at], *around)
        tally.used += used
        tally.by_chance += is_used(words[at - len(words) // 2], *around)
        tally.tokens += sum(int(fact["tokens"]) for fact in facts)
        tally.told.append((moment, text, used))
