"""Figures of ``crystal usage``: memories learned, context given to sessions, and costs by period."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crystal.app.context import Machine
from crystal.app.memory_queries import list_memories
from crystal.app.session_context_content import injection_log
from crystal.app.used_afterwards import Used, found_and_used, told_and_used
from crystal.model.recall import Remembered
from crystal.reflect.learn import LEARNED, LOW_CONFIDENCE, PROPOSED, is_known
from crystal.reflect.run import add_runs
from crystal.store.capture.hook_runs import KEEP, last_runs, latency
from crystal.store.costs import DAY_MS, spent_by_purpose
from crystal.store.memories import learned
from crystal.store.memories.learned import ReflectorRun
from crystal.store.sessions.contexts import ASSIST, Injection

PERIODS = {"24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS}
MAX_LISTED = 100_000


@dataclass(frozen=True, slots=True)
class Period:
    """Figures of the time since a moment.

    Attributes:
        runs, run: Number of runs of the reflector, and their sums.
        injections, candidates, selected, omitted, tokens: Contexts that sessions were given, and their sums.
        coverage: Selected of all candidates, 0 to 1; None without a candidate.
        assisted, assisted_tokens: Facts that sessions were told by assist, and their tokens.
        usd: What models cost, by purpose.
        told, used: Memories that the latest sessions were told, and those whose words were said afterwards.
        searches, opened, opened_used: Searches of agents, hits that they opened then, and those used as ``used``.
        hook_runs, hook_p50_ms, hook_p95_ms: Runs of the hook, the latest 2,000 at most, and what half and 95 % took.
    """

    runs: int
    run: ReflectorRun
    injections: int
    candidates: int
    selected: int
    omitted: int
    tokens: int
    coverage: float | None
    assisted: int
    assisted_tokens: int
    usd: dict[str, float]
    told: int
    used: int
    searches: int
    opened: int
    opened_used: int
    hook_runs: int
    hook_p50_ms: float
    hook_p95_ms: float


@dataclass(frozen=True, slots=True)
class UsageReport:
    """``pool`` counts memories by state, ``periods`` has the figures of each of ``PERIODS``."""

    pool: dict[str, int]
    sessions_to_read: int
    periods: dict[str, Period]


def usage(machine: Machine) -> UsageReport:
    """Return the figures of this machine. Reads only."""
    now = machine.now()
    waiting = len(learned.sessions_to_reflect(machine.store, MAX_LISTED))
    every = list_memories(machine, status=None, limit=MAX_LISTED)
    log = [one for one in injection_log(machine, MAX_LISTED) if one.at >= now - max(PERIODS.values())]
    used = told_and_used(machine.store, log, {one.id: one.text for one in every})
    found = found_and_used(machine, now - max(PERIODS.values()))
    hook_runs = last_runs(machine.store, KEEP)
    periods = {name: _period(machine, now - ms, log, used, found, hook_runs) for name, ms in PERIODS.items()}
    return UsageReport(_pool(machine, every), waiting, periods)


def _pool(machine: Machine, every: Sequence[Remembered]) -> dict[str, int]:
    active, known = sum(one.status == "active" for one in every), sum(map(is_known, every))
    pool = {"active": active, "proposed": known - active, "archived": len(every) - known}
    mine = [one.id for one in every if one.source.startswith((LEARNED, PROPOSED)) and is_known(one)]
    evidence = learned.evidence_for(machine.store, mine)
    pool["unreviewed"] = len(mine)
    pool["low_confidence"] = sum(learned.confidence_of(evidence.get(uid, [])) < LOW_CONFIDENCE for uid in mine)
    return pool


def _period(
    machine: Machine,
    since: int,
    log: Sequence[Injection],
    used: Sequence[Used],
    found: Sequence[Used],
    hook_runs: Sequence[tuple[int, float]],
) -> Period:
    runs = learned.runs_since(machine.store, since)
    recent = [one for one in log if one.at >= since]
    told = [one for one in recent if one.source != ASSIST]
    candidates, selected, omitted, tokens = _sums(told)
    _, assisted, _, assisted_tokens = _sums(one for one in recent if one.source == ASSIST)
    hook = latency(sorted(ms for at, ms in hook_runs if at >= since))
    return Period(
        len(runs),
        functools.reduce(add_runs, runs, ReflectorRun(since)),
        len(told),
        candidates,
        selected,
        omitted,
        tokens,
        round(selected / candidates, 3) if candidates else None,
        assisted,
        assisted_tokens,
        spent_by_purpose(machine.store, since),
        *_used_since(used, since)[1:],
        *_used_since(found, since),
        hook.runs,
        round(hook.p50_ms or 0.0, 1),
        round(hook.p95_ms or 0.0, 1),
    )


def _used_since(used: Iterable[Used], since: int) -> tuple[int, int, int]:
    """Return how many there are since a moment, and the sums of what was known and used."""
    recent = [one for one in used if one.at >= since]
    return len(recent), sum(one.known for one in recent), sum(one.used for one in recent)


def _sums(told: Iterable[Injection]) -> tuple[int, ...]:
    """Return the sums of candidates, chosen, omitted, and tokens."""
    rows = [(one.candidates, len(one.chosen), one.omitted, one.tokens) for one in told]
    return tuple(map(sum, zip((0, 0, 0, 0), *rows, strict=True)))
