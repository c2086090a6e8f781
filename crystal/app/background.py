"""Work done after a turn is stored: vectors, index, summaries, the daily log, the rest of forgetting."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from crystal.app import maintenance
from crystal.app.context import Machine
from crystal.app.forget_rest import finish_forgetting
from crystal.app.model_texts import sending_rule
from crystal.app.progress import PENDING_IMPORT_FILE, ProgressFile, Report
from crystal.app.session_context import refresh_unless_changed
from crystal.capture.lock import ENRICH_LOCK, lock_problem, try_lock
from crystal.config.harnesses import reader_versions
from crystal.embedding.embedder import Embedder
from crystal.errors import CrystalError, NotConfiguredError, UnavailableError
from crystal.model.named_tuple import NamedTuple
from crystal.store import problems
from crystal.store.forget.word_blocks import are_words_due
from crystal.store.health import stats
from crystal.store.health.stats import newest_turn
from crystal.store.notes import READERS, count_unindexed, read_note
from crystal.store.search import vectors
from crystal.store.search.index_log import changed_files, is_worth_while
from crystal.store.search.vectors import Generation
from crystal.store.sessions import waiting

if TYPE_CHECKING:
    from crystal.store.sessions.conversations import Session

SOON = 200
"""Maximum number of chunks that get their vectors while a person waits."""
SOON_SECONDS = 2.0
"""Maximum time that such a person waits."""
ROUND_SECONDS = 60.0
"""Maximum time for vectors before new text goes into the index and summaries are written."""
WORDS_SECONDS = 10.0  # of each round, before the vectors
MAX_PAUSE_SECONDS = 10.0


class Round(NamedTuple):
    """One round of the steps: its deadline, its progress callback, its pauses."""

    deadline: float
    tell: Callable[[str, int, int], None]
    pause: Callable[[], None] = lambda: None

    @property
    def is_over(self) -> bool:
        """Return True if no time is left."""
        return time.monotonic() > self.deadline

    def advance(self, step: str, done: int, total: int) -> None:
        """Report a step's progress, then pause if this runs in the background."""
        self.tell(step, done, total)
        self.pause()

    def should_stop(self) -> bool:
        """Pause if this runs in the background, then return True if no time is left."""
        self.pause()
        return self.is_over


class Throttle:
    """Sleeps after each piece of work, so that no more than a share of one core is used.

    Args:
        share: The share of the time spent working, from 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._rest_each = (1 - share) / share
        self._cpu = time.process_time()

    def __call__(self) -> None:
        """Sleep in proportion to the processor time used since the last call."""
        worked = time.process_time() - self._cpu
        time.sleep(min(MAX_PAUSE_SECONDS, worked * self._rest_each))
        self._cpu = time.process_time()


def _enrich(machine: Machine, work: Round) -> list[str]:
    problems = []
    for step in (
        _forget,
        _retain,
        _import,
        _work,
        _assist,
        _log,
        _index,
        partial(_words, seconds=WORDS_SECONDS),
        _embed,
        _index,
        _reflect,
        _summarize,
        _words,
        _tidy,
        _read_again,  # behind the others: a reader that fails stops none of them
    ):
        if not work.is_over or step in (_index, _summarize):  # each round does a part of these
            try:
                problem = step(machine, work)
            except UnavailableError as error:
                problem = error.message
            problems += [problem] if problem and problem not in problems else []
    return problems


def _forget(machine: Machine, _work: Round) -> None:
    """Do the remaining work of forgetting; it runs first, so that nothing forgotten is summarized or embedded."""
    finish_forgetting(machine)


def _retain(machine: Machine, _work: Round) -> None:
    if machine.config.retention_days:
        from crystal.app.retention import apply_retention  # noqa: PLC0415 - seldom set

        apply_retention(machine)


def _import(machine: Machine, work: Round) -> None:
    """Continue an import that was interrupted."""
    if (machine.places.data_dir / PENDING_IMPORT_FILE).exists():
        from crystal.app.import_past import continue_import  # noqa: PLC0415 - seldom there

        continue_import(machine, partial(work.advance, "import"), lambda: work.is_over)


def _read_again(machine: Machine, work: Round) -> None:
    """Read the archive again if an update changed what the readers understand."""
    if read_note(machine.store, READERS) != json.dumps(reader_versions()):
        from crystal.app.read_again import read_again  # noqa: PLC0415 - after an update alone

        read_again(machine, work.should_stop)


def _work(machine: Machine, work: Round) -> None:
    """Index what tools did."""
    if count_unindexed(machine.store):
        from crystal.store.work.index import bring_up_to_date  # noqa: PLC0415 - only where a tool was called

        bring_up_to_date(machine.store, lambda: work.is_over)


def _assist(machine: Machine, work: Round) -> None:
    """Write the facts for edits and failed commands."""
    if machine.config.assist_moments:
        from crystal.app.assist import refresh_facts  # noqa: PLC0415 - off by default

        refresh_facts(machine, work.pause)


def _embed(machine: Machine, work: Round) -> str | None:
    """Embed the pending chunks; a failure is recorded, and returned in words."""
    if machine.config.embedding_provider == "none":
        return None
    rule = sending_rule(machine, "embedding")
    rule.release()
    serving = vectors.serving_generation(machine.store)
    if not vectors.count_pending(machine.store, serving.id if serving else 0) and _is_embedder_of(machine, serving):
        return None
    from crystal.embedding.pending import embed_pending  # noqa: PLC0415 - only where a chunk waits

    try:
        embedder = machine.embedder()
    except CrystalError as error:
        problems.record_problem(machine.store, "embedding", error.message, now=machine.now())
        return error.message
    if embedder is None:
        return None
    advance = _vector_counter(machine, embedder, work)
    seconds = work.deadline - time.monotonic()
    return embed_pending(
        machine.store, embedder, now=machine.now, budget_seconds=seconds, progress=advance, may_send=rule.sendable
    ).problem


def _vector_counter(machine: Machine, embedder: Embedder, work: Round) -> Callable[[int], None]:
    """Count from the chunks that have a vector to all chunks; if few are pending, from 0 to their number."""
    known = vectors.find_generation(machine.store, embedder.provider, embedder.model, embedder.dimension)
    pending = vectors.count_pending(machine.store, known.id if known else 0)
    total = pending if pending <= SOON else stats.counts(machine.store)["chunks"]
    made = max(0, total - pending)
    work.tell("vectors", made, total)

    def advance(count: int) -> None:
        nonlocal made
        made += count
        work.advance("vectors", made, max(made, total))

    return advance


def embed_soon(machine: Machine) -> None:
    """Embed what was stored just now, if that takes milliseconds: with the embedded model and no backlog.

    The rest stays in the ordinary queue, which the next capture or ``crystal sync`` processes.
    """
    serving = vectors.serving_generation(machine.store)
    if machine.config.embedding_provider != "embedded" or (serving is not None and serving.provider != "embedded"):
        return
    if not 0 < vectors.count_pending(machine.store, serving.id if serving else 0) <= SOON:
        return
    # The text is stored already; ``status`` and ``doctor`` report a lock that cannot be used.
    with contextlib.suppress(CrystalError), try_lock(machine.places.data_dir / ENRICH_LOCK) as held:
        if held:
            _embed(machine, Round(time.monotonic() + SOON_SECONDS, lambda *_: None))


def _index(machine: Machine, work: Round) -> None:
    """Update the index: before the vectors, which may take long, and after them; judge files of another time."""
    if is_worth_while(machine.store) or any(changed_files(machine.store)):
        maintenance.index(
            machine.store, machine.now(), work.deadline, lambda done, all_: work.advance("index", done, all_)
        )


def is_reflection_due(machine: Machine) -> bool:
    """Return True if sessions wait to be read, and the interval is over or one of them has ended. Cheap."""
    config = machine.config
    if (
        config.reflect_mode == "off"
        or config.role == "device"
        or (waits := waiting.unread_since(machine.store)) is None
    ):
        return False
    has_ended, last = waits
    if config.reflect_extractor == "model" and problems.find_waiting_retry(machine.store, "learning", machine.now()):
        return False
    return has_ended or not 0 <= machine.now() - last < config.reflect_interval * 60_000


def _reflect(machine: Machine, work: Round) -> None:
    """Learn from sessions with new turns."""
    if not is_reflection_due(machine):
        return
    from crystal.app.reflect import reflect  # noqa: PLC0415 - once in a quarter of an hour

    reflect(machine, work.should_stop)


def _words(machine: Machine, work: Round, seconds: float = ROUND_SECONDS) -> None:
    """Keep which words archived lines may have, so that a preview of forgetting need not read them all."""
    if are_words_due(machine.store):
        from crystal.forgetting.match.archive_words import bring_up_to_date  # noqa: PLC0415 - once in some megabytes

        work = work._replace(deadline=min(work.deadline, time.monotonic() + seconds))
        bring_up_to_date(machine.store, machine.places.ldm_home, work.should_stop)


def _tidy(machine: Machine, work: Round) -> None:
    maintenance.tidy(machine.store, work.deadline)


def _is_embedder_of(machine: Machine, serving: Generation | None) -> bool:
    """Return whether the settings still choose the serving model, as far as known without loading it."""
    config = machine.config
    if serving is None:
        return True
    if serving.provider == "local":  # the name may mean another model by now: compare the description
        return False
    if config.embedding_provider != serving.provider or config.embedding_model not in (None, serving.model):
        return False
    return config.embedding_dimension in (None, serving.dimension)


def _summarize(machine: Machine, work: Round) -> str | None:
    """Write the summaries that are due; at least one, so that vectors that take long do not keep them waiting."""
    now = machine.now()
    idle_ms = machine.config.summary_idle_minutes * 60_000
    due = count_due(machine)
    if not due and not waiting.is_any_deferred(machine.store):
        return None
    from crystal.summarize.due import SummaryRun, is_due  # noqa: PLC0415 - reads transcripts: only where a session is due

    if not is_due(machine.store, now=now, idle_ms=idle_ms):
        return None
    done = -1

    def should_stop() -> bool:
        nonlocal done
        done += 1
        work.advance("summaries", done, max(done, due))
        return done > 0 and work.is_over

    paid, rule = machine.summary_model(), _may_summarize(machine)
    report = SummaryRun(machine.store, machine.places.agent_folder, paid, now, rule).write_due(idle_ms, should_stop)
    return "; ".join(report.problems) or None


def _log(machine: Machine, work: Round) -> str | None:
    """Write the daily log's lines that are missing."""
    idle_ms = machine.config.summary_idle_minutes * 60_000
    if not any(_is_new_part(*stretch, idle_ms) for stretch in waiting.stretches_unseen(machine.store)):
        return None
    from crystal.summarize.daily import DailyLog  # noqa: PLC0415 - the same

    log = DailyLog(machine.store, machine.places.agent_folder, machine.now(), idle_ms)
    log.write_missing(lambda: work.is_over)
    return "; ".join(log.problems) or None


def _is_new_part(seen: int | None, first: int | None, last: int | None, idle_ms: int) -> bool:
    """Return True if turns that the daily log lacks (``first`` to ``last``, ms) need a line of their own."""
    if seen is None or first is None or last is None or first < seen or last - seen >= idle_ms:
        return True
    try:
        return time.localtime(seen / 1000)[:3] != time.localtime(last / 1000)[:3]
    except (OverflowError, ValueError, OSError):
        return True


def write_summaries_again(machine: Machine) -> list[str]:
    """Rewrite with the model the summaries that were written without it. Return what went wrong, in words."""
    from crystal.summarize.due import SummaryRun  # noqa: PLC0415 - the same

    paid = machine.summary_model()
    if paid is None:
        hint = "run: crystal config set summary.consent true; then give the provider its key, see: crystal config"
        raise NotConfiguredError("no model writes summaries here", hint=hint)
    folder, rule = machine.places.agent_folder, _may_summarize(machine)
    return SummaryRun(machine.store, folder, paid, machine.now(), rule).write_again().problems


def _may_summarize(machine: Machine) -> Callable[[Session], bool]:
    """Return whether the model may be sent a session: every turn of it, those that a fork copied too."""
    rule = sending_rule(machine, "summary")
    return lambda session: bool(rule.sendable([session.id], "session"))


def enrich(
    machine: Machine,
    *,
    budget_seconds: float,
    report: Report = lambda _: None,
    pause: Callable[[], None] = lambda: None,
) -> list[str]:
    """Do deferred work outside of the capture lock: embed pending chunks, write due summaries and log lines.

    One process at a time. A process that finds the lock taken returns; the holder checks once more after releasing
    it, so that nothing committed meanwhile is missed. May be interrupted or killed anywhere.

    Args:
        machine: This machine.
        budget_seconds: No new piece of work begins later.
        report: Called with the progress of each step.
        pause: Called after each piece of work.

    Returns:
        What went wrong, in words.
    """
    deadline = time.monotonic() + budget_seconds
    if (unusable := lock_problem(machine.places.data_dir / ENRICH_LOCK)) is not None:
        return [f"vectors and summaries wait: {unusable.message} (fix: {unusable.hint})"]
    problems: list[str] = []
    is_more = True
    while is_more and time.monotonic() < deadline:
        newest, tell = newest_turn(machine.store), ProgressFile(machine.places.data_dir, report)
        work = Round(min(deadline, time.monotonic() + ROUND_SECONDS), tell, pause)
        with try_lock(machine.places.data_dir / ENRICH_LOCK) as held:
            if not held:
                return []
            try:
                problems = _enrich(machine, work)
            finally:
                tell.clear()
        cut_off = work.is_over and tell.has_advanced and not problems
        is_more = cut_off or newest_turn(machine.store) != newest
    refresh_unless_changed(machine)
    return problems


def count_due(machine: Machine) -> int:
    """Return how many sessions wait for a summary."""
    idle_ms = machine.config.summary_idle_minutes * 60_000
    return waiting.count_due(machine.store, now=machine.now(), idle_ms=idle_ms)


def count_waiting(machine: Machine) -> int:
    """Return how many chunks wait for a vector of the model that the settings choose; 0 when they choose none.

    Raises:
        NotConfiguredError: That model cannot be used.
    """
    if machine.config.embedding_provider == "none":
        return 0
    known = vectors.serving_generation(machine.store)
    if known is None or not _is_embedder_of(machine, known):
        embedder = machine.embedder()
        if embedder is None:
            return 0
        known = vectors.find_generation(machine.store, embedder.provider, embedder.model, embedder.dimension)
    return vectors.count_pending(machine.store, known.id if known else 0)
