"""Device side of the mirror: check the manifest, fetch missing objects, open and apply them in order.

The device's own data is never touched: the mirror is a file next to the device's store. The first copy, and one that
does not continue the existing one, is built in a separate file and moved into place when complete; until then searches
use the old one. An interrupted run continues where it stopped.

Source: docs/spec/mirror.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crystal.capture.lock import try_lock
from crystal.config.paths import alone_in, make_private_dir
from crystal.errors import DeniedError
from crystal.search import index
from crystal.store import Store
from crystal.store.search.space import empty_log
from crystal.store.sync.mirror_apply import Applied, applied, count_chunks, open_mirror, refresh
from crystal.sync.mirror.fetching import SURE, Fetcher, MirrorDamagedError, MirrorReport, Run
from crystal.sync.mirror.listing import MirrorManifest, parse_manifest
from crystal.sync.mirror.place import (
    MAX_EPOCHS,
    ROLLBACK,
    MirrorFiles,
    WantedManifest,
    read_wanted,
    remove_file,
    write_wanted,
)
from crystal.sync.mirror.sifting import Sift, take_all

__all__ = ["Fetcher", "Mirror", "MirrorDamagedError", "MirrorReport", "MirrorRollbackError", "MirrorStatus"]

TOLD_BAD = 64
"""Maximum number of unavailable objects reported to home at once."""


class MirrorRollbackError(DeniedError):
    """An older state of home's memory was offered than this device has seen. It was not used.

    Attributes:
        code: ``rollback``.
    """

    code = ROLLBACK


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """State of a mirror. ``as_of`` is home's clock, ms: everything home knew then is included. None means unknown."""

    is_there: bool
    as_of: int | None
    version: int | None
    wanted_version: int | None
    chunks: int = 0
    size: int = 0
    is_building: bool = False
    problem: str | None = None
    code: str | None = None


class Mirror(MirrorFiles):
    """Mirror on this device."""

    def take(self, manifest: Mapping[str, Any], serial: int) -> None:
        """Store a manifest from home if it is newer than the stored one. Idempotent.

        Raises:
            MirrorRollbackError: It is older. That is recorded, and reported by ``status``.
            MirrorManifestError: It is malformed, or from a newer version.
        """
        told = parse_manifest(manifest)
        make_private_dir(self.path.parent)
        with alone_in(self.path.parent):
            self._take(told, manifest, serial)

    def _take(self, told: MirrorManifest, manifest: Mapping[str, Any], serial: int) -> None:
        wanted = read_wanted(self.memo)
        if serial == wanted.serial:
            return
        known = None if wanted.manifest is None else parse_manifest(wanted.manifest)
        epoch = told.epoch.hex()
        reason = None
        if serial < wanted.serial:
            reason = f"document {serial} is older than {wanted.serial}, which was taken before"
        elif known is not None and epoch != known.epoch.hex() and epoch in wanted.epochs:
            reason = f"its epoch {epoch[:8]} has ended"
        elif known is not None and epoch == known.epoch.hex() and told.version < known.version:
            reason = f"version {told.version} is older than {known.version}, which was taken before"
        if reason is not None:
            wanted.problem, wanted.code = f"an old state of the mirror was refused: {reason}", MirrorRollbackError.code
            write_wanted(self.memo, wanted)
            raise MirrorRollbackError(
                wanted.problem, hint="if home was restored from a backup, it says so by itself soon"
            )
        is_same = known is not None and (known.epoch, known.version) == (told.epoch, told.version)
        epochs = [*(one for one in wanted.epochs if one != epoch), epoch][-MAX_EPOCHS:]
        bad = wanted.bad if is_same else {}
        write_wanted(self.memo, WantedManifest(serial, manifest, epochs, bad, starts_over=wanted.starts_over))

    def fetch(
        self,
        client: Fetcher,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
        sift: Sift = take_all,
    ) -> MirrorReport:
        """Fetch and apply missing objects. Continues where the last run stopped.

        Args:
            client: The relay, with the device's token.
            should_stop: Checked before every object.
            progress: Called with bytes fetched and bytes in total.
            sift: Removes from an object what is forgotten on this device.

        Returns:
            What was done. A missing or damaged object ends the run and is reported; the next run tries again.

        Raises:
            RelayUnavailableError: The relay does not answer. Applied objects stay.
            MirrorDamagedError: The result is not what home published. The next run builds it from scratch.
            StoreFullError, StoreBusyError: Nothing was lost.
        """
        with try_lock(self.lock) as alone:
            wanted = read_wanted(self.memo)
            if not alone or wanted.manifest is None:
                return MirrorReport()
            manifest = parse_manifest(wanted.manifest)
            if (at := self._whole(manifest)) is not None and not wanted.starts_over and not self.building.exists():
                self._renew(manifest, at)
                return MirrorReport(is_whole=True, problem=wanted.problem, code=wanted.code)
            run = Run(self, manifest, wanted, client, should_stop, progress, sift)
            try:
                run.bring()
            finally:
                run.remember()
            return run.report

    def told(self) -> dict[str, Any]:
        """Return the heartbeat fields about the mirror."""
        wanted = read_wanted(self.memo)
        if wanted.manifest is None:
            return {}
        return {
            "epoch": wanted.manifest["epoch"],
            "version": wanted.manifest["version"],
            "applied": self._applied().version,
            "bad": [ident for ident, times in wanted.bad.items() if times >= SURE][:TOLD_BAD],
        }

    def status(self) -> MirrorStatus:
        """Return the state of the mirror. Cheap."""
        wanted, at = read_wanted(self.memo), self._applied()
        return MirrorStatus(
            is_there=self.path.exists(),
            as_of=at.published_at,
            version=at.version,
            wanted_version=None if wanted.manifest is None else wanted.manifest["version"],
            chunks=self._chunks(),
            size=self.path.stat().st_size if self.path.exists() else 0,
            is_building=self.building.exists(),
            problem=wanted.problem,
            code=wanted.code,
        )

    def discard(self) -> None:
        """Delete the mirror and its state: this device has another home now, or none."""
        for path in (self.building, self.path):
            remove_file(path)
        index.discard(self.path)
        self.memo.unlink(missing_ok=True)

    def _applied(self) -> Applied:
        if not self.path.exists():
            return Applied()
        with Store.open_existing(self.path) as store:
            return applied(store)

    def _chunks(self) -> int:
        if not self.path.exists():
            return 0
        with Store.open_existing(self.path) as store:
            return count_chunks(store)

    def _whole(self, manifest: MirrorManifest) -> Applied | None:
        """Return the position of the mirror if it has everything that a manifest lists."""
        if not self.path.exists():
            return None
        at = self._applied()
        mark = manifest.entries[-1].mark if manifest.entries else b""
        is_whole = (at.position, at.mark) == (manifest.head, mark)
        return at if is_whole and at.version is not None else None

    def _renew(self, manifest: MirrorManifest, at: Applied) -> None:
        """Record that an applied mirror satisfies a newer manifest; truncate the log if a reader prevented it."""
        log = self.path.with_name(self.path.name + "-wal")
        is_same = (at.epoch, at.version, at.published_at) == (manifest.epoch, manifest.version, manifest.published_at)
        if is_same and not (log.exists() and log.stat().st_size):
            return
        with open_mirror(self.path) as store:
            refresh(store, manifest.epoch, manifest.version, manifest.published_at)
            empty_log(store)
