"""Run the device's side of the mirror: keep the newest manifest, fetch missing objects, apply them in order.

The device's own data is never touched: the mirror is a file next to the device's store. A first copy, or one that
does not continue the existing copy, is built in a separate file and moved into place when complete; until then searches
use the old one. An interrupted run continues where it stopped.

Source: docs/spec/mirror.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crystal.capture.lock import try_lock
from crystal.config.paths import alone_in, make_private_dir
from crystal.search import index
from crystal.store import Store
from crystal.store.search.index_log import count_chunks
from crystal.store.search.space import empty_log
from crystal.store.sync.mirror_apply import MirrorProgress, applied, open_mirror, refresh
from crystal.sync.client import RelayClient
from crystal.sync.mirror.fetching import (
    SURE,
    FetchRun,
    MirrorFiles,
    MirrorReport,
    Sift,
    WantedManifest,
    remove_file,
)
from crystal.sync.mirror.listing import MirrorManifest, parse_manifest

TOLD_BAD = 64
"""Maximum number of unavailable objects reported to home at once."""


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """State of a mirror. It contains everything that home knew at ``as_of`` (home's clock, ms; None if unknown).

    ``is_complete``: it satisfies the newest manifest.
    """

    is_there: bool
    as_of: int | None
    is_complete: bool
    chunks: int
    size: int
    is_building: bool
    problem: str | None


class Mirror(MirrorFiles):
    """This device's mirror."""

    def take(self, manifest: Mapping[str, Any], serial: int) -> None:
        """Store a manifest from home if its document is newer than the last one. Idempotent.

        Raises:
            DamagedError: It is malformed, or from a newer version.
        """
        told = parse_manifest(manifest)
        make_private_dir(self.path.parent)
        with alone_in(self.path.parent):
            wanted = self.read_wanted()
            if serial > wanted.serial:
                listed = {one.object_id.hex() for one in told.entries}
                bad = {ident: times for ident, times in wanted.bad.items() if ident in listed}
                self.write_wanted(WantedManifest(serial, told, bad, starts_over=wanted.starts_over))

    def fetch(
        self, client: RelayClient, *, should_stop: Callable[[], bool] = lambda: False, sift: Sift | None = None
    ) -> MirrorReport:
        """Fetch and apply missing objects. Continues where the last run stopped.

        Args:
            client: The relay, with the device's token.
            should_stop: Checked before every object.
            sift: Removes from an object what is forgotten on this device.

        Returns:
            What was done. A missing or damaged object ends the run and is reported; the next run tries again.

        Raises:
            RelayUnavailableError: The relay does not answer. Applied objects stay.
            DamagedError: The result is not what home published. The next run builds it from scratch.
            StoreFullError, StoreBusyError: Nothing was lost.
        """
        with try_lock(self.lock) as alone:
            wanted = self.read_wanted()
            if not alone or wanted.manifest is None:
                return MirrorReport()
            at = self._applied()[0]
            if _is_whole(at, wanted.manifest) and not wanted.starts_over and not self.building.exists():
                self._renew(wanted.manifest, at)
                return MirrorReport(is_whole=True)
            run = FetchRun(self, wanted.manifest, wanted, client, should_stop, sift)
            try:
                run.bring()
            finally:
                run.remember()
            return run.report

    def told(self) -> dict[str, Any]:
        """Return the heartbeat fields about the mirror."""
        bad = [ident for ident, times in self.read_wanted().bad.items() if times >= SURE]
        return {"bad": bad[:TOLD_BAD]} if bad else {}

    def status(self) -> MirrorStatus:
        """Return the state of the mirror. Fast."""
        wanted, (at, chunks) = self.read_wanted(), self._applied()
        is_there = self.path.exists()
        return MirrorStatus(
            is_there=is_there,
            as_of=at.published_at,
            is_complete=wanted.manifest is not None and _is_whole(at, wanted.manifest),
            chunks=chunks,
            size=self.path.stat().st_size if is_there else 0,
            is_building=self.building.exists(),
            problem=wanted.problem,
        )

    def discard(self) -> None:
        """Delete the mirror and its state: this device has another home now, or none."""
        for path in (self.building, self.path):
            remove_file(path)
        index.discard(self.path)
        self.memo.unlink(missing_ok=True)

    def _applied(self) -> tuple[MirrorProgress, int]:
        """Return the progress of the mirror and the number of its chunks."""
        if not self.path.exists():
            return MirrorProgress(), 0
        with Store.open_existing(self.path) as store:
            return applied(store), count_chunks(store)

    def _renew(self, manifest: MirrorManifest, at: MirrorProgress) -> None:
        """Record that an applied mirror satisfies a newer manifest; truncate the log if a reader prevented it."""
        log = self.path.with_name(self.path.name + "-wal")
        if at.published_at == manifest.published_at and not (log.exists() and log.stat().st_size):
            return
        with open_mirror(self.path) as store:
            refresh(store, manifest.published_at)
            empty_log(store)


def _is_whole(at: MirrorProgress, manifest: MirrorManifest) -> bool:
    """Return True if a mirror has everything that a manifest lists."""
    return at.published_at is not None and (at.position, at.mark) == manifest.head
