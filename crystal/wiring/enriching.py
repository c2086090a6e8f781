"""What may wait until a turn is safe: vectors, summaries, the daily log, the rest of forgetting."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from crystal.errors import Unavailable
from crystal.wiring import upkeep
from crystal.wiring.contexts import refresh
from crystal.wiring.machine import Machine

if TYPE_CHECKING:
    from crystal.store.vectors import Generation

ENRICH_LOCK = "enrich.lock"
SOON = 200
"""So many chunks get their vectors while a person waits."""


def insist(machine: Machine) -> None:
    """Forget that embedding failed and rests: somebody asks for it now, and may have mended what no setting shows."""
    from crystal.store.problems import clear_problem

    clear_problem(machine.store, "embedding")


def _enrich(machine: Machine, deadline: float) -> list[str]:
    problems = []
    for step in (_forget, _retain, _log, _index, _embed, _index, _summarize, _tidy):
        if time.monotonic() < deadline:
            try:
                problem = step(machine, deadline)
            except Unavailable as error:
                problem = error.message
            problems += [problem] if problem and problem not in problems else []
    return problems


def _forget(machine: Machine, _deadline: float) -> None:
    """First: what is forgotten is neither summarized nor embedded."""
    from crystal.wiring.forgetting import finish_forgetting

    finish_forgetting(machine)


def _retain(machine: Machine, _deadline: float) -> None:
    from crystal.wiring.retention import apply_retention

    apply_retention(machine)


def _embed(machine: Machine, deadline: float) -> str | None:
    """Give vectors to the chunks that wait; what fails is recorded, and said."""
    from crystal.errors import CrystalError
    from crystal.store import problems, vectors

    if machine.config.embedding_provider == "none":
        return None
    serving = vectors.serving_generation(machine.store)
    if not vectors.count_pending(machine.store, serving.id if serving else 0) and _is_embedder_of(machine, serving):
        return None
    from crystal.embedding.pending import embed_pending

    try:
        embedder = machine.embedder()
    except CrystalError as error:
        problems.record_problem(machine.store, "embedding", error.message, now=machine.now())
        return error.message
    if embedder is None:
        return None
    return embed_pending(machine.store, embedder, now=machine.now, budget_seconds=deadline - time.monotonic()).problem


def embed_soon(machine: Machine, *, budget_seconds: float = 2.0) -> None:
    """Give vectors to what was stored just now, where that takes a blink: with the embedded model, without a backlog.

    What is left waits in the ordinary queue, which the next capture or ``crystal sync`` works off.
    """
    from crystal.capture.lock import try_lock
    from crystal.store import vectors

    serving = vectors.serving_generation(machine.store)
    if machine.config.embedding_provider != "embedded" or (serving is not None and serving.provider != "embedded"):
        return
    if not 0 < vectors.count_pending(machine.store, serving.id if serving else 0) <= SOON:
        return
    with try_lock(machine.places.data_dir / ENRICH_LOCK) as held, contextlib.suppress(Unavailable):
        if held:
            _embed(machine, time.monotonic() + budget_seconds)


def _index(machine: Machine, deadline: float) -> None:
    """Before the vectors, which may take long, and after them."""
    from crystal.store.index_log import is_worth_while

    if is_worth_while(machine.store):
        upkeep.index(machine.store, machine.now(), deadline)


def _tidy(machine: Machine, deadline: float) -> None:
    upkeep.tidy(machine.store, deadline)


def _is_embedder_of(machine: Machine, serving: Generation | None) -> bool:
    """Whether the settings still choose the model that serves, as far as can be told without loading it."""
    config = machine.config
    if serving is None:
        return True
    if serving.provider == "local":  # the name may stand for another model by now: its description tells
        return False
    if config.embedding_provider != serving.provider or config.embedding_model not in (None, serving.model):
        return False
    return config.embedding_dimension in (None, serving.dimension)


def _summarize(machine: Machine, deadline: float) -> str | None:
    """Write the summaries that are due."""
    from crystal.store.sessions import due_sessions, sessions_summarized_as

    now = machine.now()
    idle_ms = machine.config.summary_idle_minutes * 60_000
    is_any_due = due_sessions(machine.store, now=now, idle_ms=idle_ms, limit=1)
    if not is_any_due and not sessions_summarized_as(machine.store, ["deferred"], limit=1):
        return None
    from crystal.summarize import is_due, summarize_due

    if not is_due(machine.store, now=now, idle_ms=idle_ms):
        return None

    report = summarize_due(
        machine.store,
        agent_folder=machine.places.agent_folder,
        model=machine.summary_model(),
        daily_cap_usd=machine.config.summary_daily_cap_usd,
        now=now,
        idle_ms=idle_ms,
        limit=1_000,
        should_stop=lambda: time.monotonic() > deadline,
    )
    return "; ".join(report.problems) or None


def _log(machine: Machine, deadline: float) -> str | None:
    """Write the daily log's lines that are missing."""
    from crystal.store.daily import stretches_unseen

    idle_ms = machine.config.summary_idle_minutes * 60_000
    if not any(_is_new_part(*stretch, idle_ms) for stretch in stretches_unseen(machine.store)):
        return None
    from crystal.summarize.daily import log_sessions

    report = log_sessions(
        machine.store,
        agent_folder=machine.places.agent_folder,
        now=machine.now(),
        tz=None,
        idle_ms=idle_ms,
        should_stop=lambda: time.monotonic() > deadline,
    )
    return "; ".join(report.problems) or None


def _is_new_part(seen: int | None, first: int | None, last: int | None, idle_ms: int) -> bool:
    """Whether turns that the daily log has not seen (``first`` to ``last``, ms) need a line of their own."""
    if seen is None or first is None or last is None or first < seen or last - seen >= idle_ms:
        return True
    try:
        return time.localtime(seen / 1000)[:3] != time.localtime(last / 1000)[:3]
    except (OverflowError, ValueError, OSError):
        return True


def write_summaries_again(machine: Machine) -> list[str]:
    """Let the model write the summaries that were written without it. Gives what went wrong, in words."""
    from crystal.errors import NotConfigured
    from crystal.summarize import summarize_again

    model = machine.summary_model()
    if model is None:
        raise NotConfigured(
            "no model writes summaries here",
            hint="crystal config set summary.consent true, and give its provider a key",
        )
    report = summarize_again(
        machine.store,
        agent_folder=machine.places.agent_folder,
        model=model,
        daily_cap_usd=machine.config.summary_daily_cap_usd,
        now=machine.now(),
    )
    return report.problems


def enrich(machine: Machine, *, budget_seconds: float) -> list[str]:
    """Do what may wait, outside of capture's lock: embed what has no vector, write due summaries and log lines.

    One process at a time. Another finds the lock taken and goes; whoever holds it looks once more after letting go,
    so that what was committed meanwhile is not left behind. Gives what went wrong, in words.
    """
    from crystal.capture.lock import try_lock
    from crystal.store.stats import newest_turn

    deadline = time.monotonic() + budget_seconds
    problems: list[str] = []
    done = -1
    while done != (newest := newest_turn(machine.store)) and time.monotonic() < deadline:
        with try_lock(machine.places.data_dir / ENRICH_LOCK) as held:
            if not held:
                return []
            problems = _enrich(machine, deadline)
        done = newest
    refresh(machine)
    return problems
