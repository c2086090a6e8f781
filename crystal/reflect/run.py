"""Read sessions from their cursors and write what they teach, a few turns in each transaction."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache

from crystal.errors import CrystalError
from crystal.reflect.by_model import ModelExtractor
from crystal.reflect.compare import Similarity
from crystal.reflect.extract import candidates, chosen_by_rules, extract
from crystal.reflect.learn import Learner, archive_stale
from crystal.store.memories import learned
from crystal.store.memories.learned import DueSession, ReflectorRun

BATCH_TURNS = 300
MAX_SESSIONS = 100
Embed = Callable[[Sequence[str]], list[bytes]]


def reflect_sessions(
    learner: Learner, model: ModelExtractor | None, now: Callable[[], int], should_stop: Callable[[], bool]
) -> ReflectorRun:
    """Read the sessions with new turns, oldest first; stop if a session has to wait, or ``should_stop`` returns True.

    Idempotent: a cursor moves in the transaction that writes what was learned up to it.

    Args:
        learner: Where memories are written.
        model: Chooses the user's sentences; None to use the rules.
        now: Returns the time, ms.
        should_stop: Checked before every session.
    """
    began, total = time.monotonic(), ReflectorRun(now())
    read: set[str] = set()
    while due := learned.sessions_to_reflect(learner.store, MAX_SESSIONS):
        for session in due:
            done = None if should_stop() else read_session(learner, model, session, now())
            if done is None:
                break
            read.add(session.id)
            total = add_runs(total, done)
        else:
            continue
        break
    more = {} if model is None else model.tally()
    if read or more:
        with learner.store.transaction():
            archived = archive_stale(learner.store, total.at)
            ms = round(1000 * (time.monotonic() - began))
            total = add_runs(total, ReflectorRun(0, ms, len(read), archived=archived, **more))  # type: ignore[arg-type]
            learned.add_run(learner.store, total)
    return total


def read_session(learner: Learner, model: ModelExtractor | None, session: DueSession, now: int) -> ReflectorRun | None:
    """Read the next turns of a session, and move its cursor in the transaction that writes what they teach.

    Returns:
        The counts of what was done; None if the session has to wait.
    """
    turns = learned.read_after(learner.store, session, BATCH_TURNS)
    new = [turn.id for turn in turns if turn.id > session.cursor]
    upto = session.last_turn if len(new) < BATCH_TURNS else new[-1]
    own = candidates(turns, session.cursor)
    chosen = chosen_by_rules(own) if model is None else model.choose(session, own)
    if chosen is None:
        return None
    lessons = extract(turns, session.cursor, chosen)
    with learner.store.transaction():
        if not learned.move_cursor(learner.store, session, upto):
            return ReflectorRun(now)
        if model is not None:
            model.close(session)
        return learner.learn(session, lessons, now)._replace(turns=len(new))


def add_runs(one: ReflectorRun, other: ReflectorRun) -> ReflectorRun:
    """Return the sum of two runs, with the time of the first."""
    counts = (mine + theirs for mine, theirs in zip(one[1:], other[1:], strict=True))
    return ReflectorRun(one.at, *counts)  # type: ignore[arg-type] # only the last is no whole number


def similarity_of(embed: Embed | None) -> Similarity:
    """Return a function that compares texts by their vectors; it returns 0 without a model, or if the model fails."""
    if embed is None:
        return lambda _, __: 0.0

    @lru_cache(maxsize=2_000)
    def vector(text: str) -> array[float] | None:
        try:
            return array("f", embed([text])[0])
        except CrystalError:
            return None

    def similarity(one: str, other: str) -> float:
        mine, theirs = vector(one), vector(other)
        return 0.0 if mine is None or theirs is None else sum(map(float.__mul__, mine, theirs))

    return similarity
