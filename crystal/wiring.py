"""The only place that knows which machine does what: it looks around (environment, clock, home) and joins the rooms."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.config import Config, load_config
from crystal.errors import Unavailable
from crystal.paths import Places, make_private_dir, resolve_places
from crystal.store import Store

if TYPE_CHECKING:
    from crystal.capture.engine import Capture, Past, Tally
    from crystal.capture.tail import Cleaner
    from crystal.embedding import Embedder
    from crystal.restore import Restored
    from crystal.store.vectors import Generation
    from crystal.summarize.llm import SummaryModel
    from crystal.verify import Proof

CAPTURE_LOCK = "capture.lock"
ENRICH_LOCK = "enrich.lock"
BACKFILL_LOCK = "backfill.lock"
LOCK_SECONDS = 120.0


def now_ms() -> int:
    """The time, ms since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def this_home() -> Path:
    """The user's home folder."""
    return Path.home()


def these_places(data_dir: Path | None = None) -> Places:
    """Where everything lives on this machine; cheap."""
    return resolve_places(os.environ, this_home(), data_dir=data_dir)


def this_config(overrides: Mapping[str, object] | None = None) -> Config:
    """The settings that hold on this machine now."""
    return load_config(os.environ, this_home(), overrides=overrides or {})


def usable_config(config: Config) -> Config:
    """The settings, with the usual data folder where the legacy one holds another program's database."""
    from crystal.errors import StoreForeign
    from crystal.store.migrate import refuse_foreign

    if config.places.data_dir_source.startswith("legacy"):
        try:
            refuse_foreign(config.places.db)
        except StoreForeign:
            return this_config({"data_dir": config.places.ldm_home / "memory"})
    return config


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine's settings and its open store. Whoever opened it closes it."""

    config: Config
    store: Store

    @property
    def places(self) -> Places:
        """Where everything lives."""
        return self.config.places

    def now(self) -> int:
        """The time, ms since the epoch, UTC."""
        return now_ms()

    def bytes_to_prove(self) -> int:
        """How many bytes ``prove`` will read, about."""
        from crystal.store.stats import bytes_by_state

        return 2 * bytes_by_state(self.store).get("captured", 0)

    def agent_folder(self) -> Path:
        """The folder of this machine's agent."""
        return self.places.agent_folder(self.config.agent_id)

    def embedder(self) -> Embedder | None:
        """The embedder that the settings choose, None when they choose none. It loads its parts when first used.

        Raises:
            NotConfigured: The chosen provider needs something that is not there, such as a key.
        """
        from crystal.embedding import make_embedder

        config = self.config
        provider = config.embedding_provider
        if provider == "none":
            return None
        return make_embedder(
            provider,
            model=config.embedding_model,
            dimension=config.embedding_dimension,
            base_url=config.embedding_base_url,
            key=lambda: self._key(provider),
        )

    def summary_model(self) -> SummaryModel | None:
        """The model that the settings choose to write summaries, None for simple ones."""
        config = self.config
        if config.summary_mode == "simple" or (config.summary_mode == "auto" and not config.summary_consent):
            return None
        from crystal.summarize.models import choose_model

        provider = config.summary_provider
        return choose_model(
            config.summary_mode,
            provider,
            model=config.summary_model,
            base_url=config.summary_base_url,
            key=self._key(provider),
            consent=config.summary_consent,
        )

    def _key(self, provider: str) -> str | None:
        from crystal.credentials import key_for

        if provider in ("embedded", "ollama"):
            return None
        found = key_for(self.config, provider, os.environ)
        return None if found is None else found.reveal()

    def capture(self) -> Capture:
        """The hands of capture, joined to ``ingest``."""
        from crystal.capture.engine import Capture, Claim
        from crystal.capture.tail import Cleaner
        from crystal.ingest import IngestReport, ingest
        from crystal.model import Segment
        from crystal.project import find_project
        from crystal.redact import Redactor
        from crystal.store.privacy import store_key

        config, places, store = self.config, self.places, self.store
        key = store_key(store)
        redactor = Redactor(hashlib.blake2b(b"redaction", key=key).digest(), secrets=config.redact_enabled)
        remembered = cache(find_project)

        def sink(segment: Segment, claim: Claim) -> IngestReport:
            return ingest(
                store,
                segment,
                ldm_home=places.ldm_home,
                archive_folder=self.agent_folder() / "transcripts",
                find_project=remembered,
                now=now_ms(),
                claim=claim,
            )

        return Capture(
            store=store,
            sink=sink,
            cleaner=Cleaner(redactor.clean_line, key),
            agent=config.agent_id,
            device=config.device,
            roots=places.transcript_roots,
            private_projects=tuple(config.private_projects),
            private_sessions=tuple(config.private_sessions),
            clock=now_ms,
        )


@contextlib.contextmanager
def open_machine(overrides: Mapping[str, object] | None = None) -> Iterator[Machine]:
    """Open this machine's memory for writing; make it if there is none."""
    config = this_config(overrides)
    make_private_dir(config.places.data_dir)
    with Store.open(config.places.db) as store:
        yield Machine(config, store)


@contextlib.contextmanager
def open_reader(overrides: Mapping[str, object] | None = None) -> Iterator[Machine]:
    """Open this machine's memory for reading.

    Raises:
        NotConfigured: There is none yet.
    """
    config = this_config(overrides)
    with Store.open_existing(config.places.db) as store:
        yield Machine(config, store)


def run_capture(machine: Machine, step: Callable[[Capture], Tally]) -> Tally:
    """Hold the capture lock, act on waiting notes, then take a step of capture (a sweep, off, on)."""
    from crystal.capture.drain import drain, merge
    from crystal.capture.lock import wait_lock

    with wait_lock(machine.places.data_dir / CAPTURE_LOCK, seconds=LOCK_SECONDS):
        capture = machine.capture()
        tally = drain(capture, machine.places.spool, flush_ms=1000 * machine.config.hook_flush_seconds)
        merge(tally, step(capture))
    return tally


def _enrich(machine: Machine, deadline: float) -> list[str]:
    problems = []
    for step in (_log, _embed, _summarize):
        if time.monotonic() < deadline:
            try:
                problem = step(machine, deadline)
            except Unavailable as error:
                problem = error.message
            problems += [problem] if problem else []
    return problems


def _embed(machine: Machine, deadline: float) -> str | None:
    """Give vectors to the chunks that wait; what fails is recorded, and said."""
    from crystal.errors import CrystalError
    from crystal.store import problems, vectors

    if machine.config.embedding_provider == "none":
        return None
    serving = vectors.serving_generation(machine.store)
    if not vectors.count_pending(machine.store, serving.id if serving else 0) and _is_embedder_of(machine, serving):
        return None
    from crystal.embedding import embed_pending

    try:
        embedder = machine.embedder()
    except CrystalError as error:
        problems.record_problem(machine.store, "embedding", error.message, now=machine.now())
        return error.message
    if embedder is None:
        return None
    return embed_pending(machine.store, embedder, now=machine.now, budget_seconds=deadline - time.monotonic()).problem


def _is_embedder_of(machine: Machine, serving: Generation | None) -> bool:
    """Whether the settings still choose the model that serves, as far as can be told without loading it."""
    config = machine.config
    if serving is None:
        return True
    if config.embedding_provider != serving.provider or config.embedding_model not in (None, serving.model):
        return False
    return config.embedding_dimension in (None, serving.dimension)


def _summarize(machine: Machine, deadline: float) -> str | None:
    """Write the summaries that are due."""
    from crystal.summarize import is_due, summarize_due

    now = machine.now()
    idle_ms = machine.config.summary_idle_minutes * 60_000
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
    from crystal.summarize.daily import log_sessions

    report = log_sessions(
        machine.store,
        agent_folder=machine.places.agent_folder,
        now=machine.now(),
        tz=None,
        idle_ms=machine.config.summary_idle_minutes * 60_000,
        should_stop=lambda: time.monotonic() > deadline,
    )
    return "; ".join(report.problems) or None


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


def plan_import(machine: Machine, paths: Sequence[Path], since: int | None) -> list[Past]:
    """What backfill would import, newest first. Meets the machine first, so that the ledger knows what is old."""
    from crystal.capture.engine import plan_past

    capture = machine.capture()
    capture.meet()
    return plan_past(capture, paths, since)


def import_sessions(machine: Machine, plan: Sequence[Past], progress: Callable[[int], None]) -> Tally:
    """Import past transcripts. Holds no lock that capture needs, so that nobody waits for the past."""
    from crystal.capture.engine import Tally
    from crystal.capture.lock import wait_lock

    tally = Tally()
    capture = machine.capture()
    with wait_lock(machine.places.data_dir / BACKFILL_LOCK, seconds=24 * 3600):
        for past in plan:
            tally.files += 1
            capture.attempt(past.found.path, tally, partial(_import, capture, past, progress))
    return tally


def _import(capture: Capture, past: Past, progress: Callable[[int], None], _: Path, tally: Tally) -> None:
    from crystal.capture.engine import import_past

    import_past(capture, past, tally, progress)


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
    return problems


def _cleaner(machine: Machine) -> Cleaner:
    return machine.capture().cleaner


def prove(machine: Machine, progress: Callable[[int], None]) -> Proof:
    """Verify this machine's memory, see crystal/verify.py."""
    from crystal.verify import verify

    return verify(
        machine.store,
        ldm_home=machine.places.ldm_home,
        agents=machine.places.ldm_home / "agents",
        device=machine.config.device,
        roots=machine.places.transcript_roots,
        cleaner=_cleaner(machine),
        progress=progress,
    )


def repair_all(machine: Machine, proof: Proof) -> list[str]:
    """Mend what a proof found, capture what is behind, and make derived things again. Gives what was done, in words."""
    from crystal.project import find_project
    from crystal.recover import recover_archives
    from crystal.repair import repair

    done: list[str] = []

    def mend(capture: Capture) -> Tally:
        done.extend(
            repair(
                machine.store,
                proof.faults,
                ldm_home=machine.places.ldm_home,
                cleaner=capture.cleaner,
                find_project=find_project,
            )
        )
        unknown = [Path(fault.what) for fault in proof.faults if fault.kind == "archive-unknown"]
        done.extend(recover_archives(capture, unknown, machine.places.data_dir / "recovered"))
        return capture.sweep()

    tally = run_capture(machine, mend)
    if tally.bytes_captured:
        done.append(f"{tally.bytes_captured:,} bytes captured")
    enrich(machine, budget_seconds=600)
    return done


def restore_session(machine: Machine, session: str, project: Path | None, *, dry_run: bool) -> list[Restored]:
    """Write a session back for ``claude --resume``, see crystal/restore.py."""
    from crystal.reading import find_session
    from crystal.restore import restore

    return restore(
        machine.store,
        find_session(machine.store, session),
        ldm_home=machine.places.ldm_home,
        root=machine.places.transcript_roots[0],
        project=project,
        cleaner=_cleaner(machine),
        now=machine.now(),
        dry_run=dry_run,
    )


SETTLE_SECONDS = 2.0


def turn_off(machine: Machine, session: str | None) -> None:
    """Stop capturing (one session, or all). What was said until now is captured first."""
    _settle(machine)
    run_capture(machine, lambda capture: _swept(capture, capture.turn_off, session))


def turn_on(machine: Machine, session: str | None) -> None:
    """Capture again. What was said until now is marked private first."""
    _settle(machine)
    run_capture(machine, lambda capture: _swept(capture, capture.turn_on, session))


def _swept(capture: Capture, turn: Callable[[str | None], bool], session: str | None) -> Tally:
    tally = capture.sweep()
    turn(session)
    return tally


def _settle(machine: Machine) -> None:
    """Wait until no transcript has grown for a moment: the client writes an answer a little after it is shown."""
    from crystal.capture.files import all_transcripts

    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        newest = max((found.modified for found in all_transcripts(machine.places.transcript_roots)), default=0)
        if not 0 <= machine.now() - newest < 700:
            return
        time.sleep(0.05)
