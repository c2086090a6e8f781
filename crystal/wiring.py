"""The only place that knows which machine does what: it looks around (environment, clock, home) and joins the rooms."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.config import Config, load_config
from crystal.paths import Places, make_private_dir, resolve_places
from crystal.store import Store

if TYPE_CHECKING:
    from crystal.capture.engine import Capture, Tally
    from crystal.embedding import Embedder

CAPTURE_LOCK = "capture.lock"
ENRICH_LOCK = "enrich.lock"
BACKFILL_LOCK = "backfill.lock"
LOCK_SECONDS = 120.0


def now_ms() -> int:
    """The time, ms since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def this_home() -> Path:
    """The user's home folder."""
    return Path(os.path.expanduser("~"))


def these_places(data_dir: Path | None = None) -> Places:
    """Where everything lives on this machine; cheap."""
    return resolve_places(os.environ, this_home(), data_dir=data_dir)


def this_config(overrides: Mapping[str, object] | None = None) -> Config:
    """The settings that hold on this machine now."""
    return load_config(os.environ, this_home(), overrides=overrides or {})


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

    def agent_folder(self) -> Path:
        """The folder of this machine's agent."""
        return self.places.agent_folder(self.config.agent_id)

    def embedder(self) -> Embedder | None:
        """The embedder that the settings choose, None when they choose none. Loads its parts lazily."""
        from crystal.embedding import embedder_of

        return embedder_of(self.config, os.environ)

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
                store, segment, ldm_home=places.ldm_home, archive_folder=self.agent_folder() / "transcripts",
                find_project=remembered, now=now_ms(), claim=claim,
            )

        return Capture(
            store=store, sink=sink, cleaner=Cleaner(redactor.clean_line, key), agent=config.agent_id,
            device=config.device, roots=places.transcript_roots, private_projects=tuple(config.private_projects),
            private_sessions=tuple(config.private_sessions), clock=now_ms,
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
        tally = drain(capture, machine.places.spool)
        merge(tally, step(capture))
    return tally


def enrich(machine: Machine, *, budget_seconds: float, should_stop: Callable[[], bool] = lambda: False) -> list[str]:
    """Do what may wait, outside of capture's lock: embed what has no vector, write due summaries and log lines.

    One process at a time; another finds the lock taken and leaves the work to it. Gives what went wrong, in words.
    """
    from crystal.capture.lock import try_lock

    with try_lock(machine.places.data_dir / ENRICH_LOCK) as held:
        if not held:
            return []
        return _enrich(machine, budget_seconds, should_stop)


def _enrich(machine: Machine, budget_seconds: float, should_stop: Callable[[], bool]) -> list[str]:
    raise NotImplementedError
