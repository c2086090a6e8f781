"""The engine of capture on this machine: transcripts go into the store, on a device into the outbox for home."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.app.context import Machine
from crystal.app.project_finder import project_finder
from crystal.capture.engine import Capture, Sink, WholeFiles
from crystal.capture.off_files import off_periods
from crystal.capture.safe_open import Folders
from crystal.capture.spool import PrivateNotes
from crystal.capture.tail import Cleaner
from crystal.config.harnesses import Root
from crystal.errors import CrystalError, NotConfiguredError
from crystal.ingest.ingest import Claim, IngestReport, ingest
from crystal.model.capture import Segment
from crystal.store import Store
from crystal.store.capture.privacy import PrivatePeriod, store_key
from crystal.store.health.stats import has_home

if TYPE_CHECKING:
    from crystal.capture.finder import TranscriptFile
    from crystal.store.capture.ledger import TranscriptState
    from crystal.sync.sending import Link
    from crystal.sync.wire import Lane


def make_capture(machine: Machine, lane: Lane = "live") -> Capture:
    """Make the engine of capture: into the store, on a device that has joined a home into the outbox.

    Args:
        machine: This machine.
        lane: Whether the captured text is new, or past text that is sent after new text.
    """
    config, store = machine.config, machine.store
    sink, ended = _device_sinks(machine, lane) if _sends(machine) else (_store_sink(machine), lambda *_: None)
    folders = machine.transcript_folders
    redactor = cache(machine.redactor)  # its rules are loaded with the first line: often nothing is new
    return Capture(
        store=store,
        sink=sink,
        ended=ended,
        cleaner=Cleaner(lambda line: redactor().clean_line(line), store_key(store)),
        agent=config.agent_id,
        device=config.device,
        roots=folders.roots,
        allowed=folders.allowed,
        private_projects=tuple(config.private_projects),
        private_sessions=tuple(config.private_sessions),
        clock=machine.now,
        announced=_announced(machine),
        whole_files=_whole_files,
        projects=lambda: _project_roots(machine),
        resume=partial(_resume, machine.places.ldm_home),
    )


def _announced(machine: Machine) -> Callable[[], tuple[PrivatePeriod, ...]]:
    notes = PrivateNotes(machine.places.spool)
    return lambda: off_periods(machine.places.data_dir) + notes.marks()


def _sends(machine: Machine) -> bool:
    if machine.config.role != "device":
        return False
    from crystal.store.sync.relay_peers import home_peer  # noqa: PLC0415 - only a device has a home

    return home_peer(machine.store) is not None


def _whole_files() -> WholeFiles:
    from crystal.capture.snapshots import WHOLE_FILES  # noqa: PLC0415 - 8 ms; a turn of Claude Code needs none

    return WHOLE_FILES


def _resume(ldm_home: Path, capture: Capture, state: TranscriptState, found: TranscriptFile) -> bool:
    from crystal.integrity.resume_point import RECOVERED, resume_rebuilt  # noqa: PLC0415 - once after a rebuild

    if Path(state.path).is_relative_to(ldm_home / RECOVERED):
        resume_rebuilt(capture, ldm_home, state, found)
        return True
    return False


def capture_folders(machine: Machine) -> Folders:
    """Return the folders to capture from: those to read transcripts from, and the known projects'."""
    folders = machine.transcript_folders
    return folders._replace(roots=(*folders.roots, *_project_roots(machine)))


def _project_roots(machine: Machine) -> tuple[Root, ...]:
    from crystal.capture.project_roots import project_roots  # noqa: PLC0415 - only a sweep looks there

    return project_roots(machine.store)


def _local_sink(machine: Machine) -> Sink:
    find_project = cache(project_finder(machine.store))

    def sink(segment: Segment, claim: Claim) -> IngestReport:
        return ingest(
            machine.store,
            segment,
            ldm_home=machine.places.ldm_home,
            archive_folder=machine.agent_folder() / "transcripts",
            find_project=find_project,
            now=machine.now(),
            claim=claim,
        )

    return sink


def _store_sink(machine: Machine) -> Sink:
    store_here = _local_sink(machine)
    return lambda segment, claim: store_here(segment, partial(_claim_here, claim))


def _claim_here(claim: Claim, store: Store, segment: Segment, now: int) -> int:
    ident = claim(store, segment, now)
    if has_home(store):  # this machine has joined a home since this process began
        from crystal.store.sync import past  # noqa: PLC0415 - only where there is a home

        past.include(store, len(segment.pieces), private=bool(segment.private_uuids))
    return ident


def _device_sinks(machine: Machine, lane: Lane) -> tuple[Sink, Callable[[str, int], None]]:
    """Return where segments go on a device, and the callback for the end of a session."""
    from crystal.sync.sink import DeviceSink, tell_ended  # noqa: PLC0415 - brings cryptography: only a device seals

    link = _DeviceLink(machine)
    sink = DeviceSink(
        machine.store,
        link,
        lane,
        cache(project_finder(machine.store)),
        machine.now,
        _local_sink(machine) if machine.config.relay_local_memory else None,
    )

    def ended(session: str, at: int) -> None:
        with contextlib.suppress(CrystalError):  # the key cannot be read now: home sees the end once it is idle
            tell_ended(machine.store, link(), session, at, machine.now())

    return sink, ended


class _DeviceLink:
    """The link to home; its key is read once, and again when it was rotated."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._link: Link | None = None

    def __call__(self) -> Link:
        from crystal.store.sync.relay_peers import home_peer  # noqa: PLC0415 - as above

        peer = home_peer(self._machine.store)
        if self._link is None or peer is None or self._link.peer.generation != peer.generation:
            from crystal.app.relay_links import device_link  # noqa: PLC0415 - the same

            self._link = device_link(self._machine)
        if self._link is None:
            raise NotConfiguredError("this machine no longer has a home", hint="run: crystal relay join")
        return self._link
