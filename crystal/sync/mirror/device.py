"""A device's side of the mirror: what home tells is checked, what is missing fetched, opened and applied in order.

Nothing of the device's own is ever touched: the mirror is a file beside the device's store. The first copy, and one
that does not follow from what is there, is built in a file of its own and put in place when it is whole; until then
searches use what there was. Whatever is interrupted goes on where it stopped.

Source: docs/spec/mirror.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crystal.config.paths import alone_in, make_private_dir
from crystal.errors import Denied
from crystal.search import index
from crystal.store import Store
from crystal.store.search.space import empty_log
from crystal.store.sync.mirror_apply import Applied, applied, open_mirror, refresh
from crystal.sync.mirror.fetching import SURE, Fetcher, Files, MirrorDamaged, MirrorReport, Run
from crystal.sync.mirror.listing import Manifest, parse_manifest
from crystal.sync.mirror.place import MOST_EPOCHS, ROLLBACK, Wanted, read_wanted, remove_file, try_alone, write_wanted
from crystal.sync.mirror.sifting import Sift, take_all

__all__ = ["Fetcher", "Mirror", "MirrorDamaged", "MirrorReport", "MirrorRollback", "MirrorStatus"]

TOLD_BAD = 64
"""So many objects that cannot be had are told to home at once."""


class MirrorRollback(Denied):
    """Somebody showed an older state of home's memory than this device has seen. It was not taken.

    Attributes:
        code: ``rollback``.
    """

    code = ROLLBACK


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """How a mirror stands. ``as_of`` is home's clock, ms: what home knew then is in it. None for what is not known."""

    is_there: bool
    as_of: int | None
    version: int | None
    wanted_version: int | None
    counts: Mapping[str, int] = field(default_factory=dict)
    size: int = 0
    is_building: bool = False
    problem: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Mirror:
    """The mirror of this device.

    Attributes:
        path: Where the mirror is when it is whole: ``mirror.db`` in the data folder.
    """

    path: Path

    @property
    def building(self) -> Path:
        """Where one is built."""
        return self.path.with_name(self.path.name + ".new")

    @property
    def memo(self) -> Path:
        """Where the newest manifest is kept."""
        return self.path.with_suffix(".json")

    @property
    def files(self) -> Files:
        """Where everything of it lies."""
        return Files(self.path, self.building, self.memo)

    def take(self, manifest: Mapping[str, Any], serial: int) -> None:
        """Remember what home told, if it is newer than what was told before. Taking the same again is harmless.

        Raises:
            MirrorRollback: It is older. That is remembered too, and told by ``status``.
            ManifestUnreadable: It is of a newer crystal, or none.
        """
        told = parse_manifest(manifest)
        make_private_dir(self.path.parent)
        with alone_in(self.path.parent):
            self._take(told, manifest, serial)

    def _take(self, told: Manifest, manifest: Mapping[str, Any], serial: int) -> None:
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
            wanted.problem, wanted.code = f"an old state of the mirror was refused: {reason}", MirrorRollback.code
            write_wanted(self.memo, wanted)
            raise MirrorRollback(wanted.problem, hint="if home was restored from a backup, it says so by itself soon")
        is_same = known is not None and (known.epoch, known.version) == (told.epoch, told.version)
        epochs = [*(one for one in wanted.epochs if one != epoch), epoch][-MOST_EPOCHS:]
        bad = wanted.bad if is_same else {}
        write_wanted(self.memo, Wanted(serial, manifest, epochs, bad, starts_over=wanted.starts_over))

    def fetch(
        self,
        client: Fetcher,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
        sift: Sift = take_all,
    ) -> MirrorReport:
        """Fetch and apply what is missing. Goes on where the last run stopped.

        Args:
            client: The relay, with the device's token.
            should_stop: Asked before every object.
            progress: Told how many bytes of how many are there.
            sift: Takes out of an object what is forgotten on this device.

        Returns:
            What was done. An object that is missing or damaged ends the run and is told; the next run tries again.

        Raises:
            RelayUnavailable: The relay does not answer. What was applied stays.
            MirrorDamaged: All of it together is not what home published. It is built anew by the next run.
            StoreFull, StoreBusy: Nothing was lost.
        """
        with try_alone(self.path.with_name(self.path.name + ".lock")) as alone:
            wanted = read_wanted(self.memo)
            if not alone or wanted.manifest is None:
                return MirrorReport()
            manifest = parse_manifest(wanted.manifest)
            if (at := self._whole(manifest)) is not None and not wanted.starts_over and not self.building.exists():
                self._renew(manifest, at)
                return MirrorReport(is_whole=True, problem=wanted.problem, code=wanted.code)
            run = Run(self.files, manifest, wanted, client, should_stop, progress, sift)
            try:
                run.bring()
            finally:
                run.remember()
            return run.report

    def told(self) -> dict[str, Any]:
        """What a device tells home about its mirror in its heartbeat."""
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
        """How the mirror stands; cheap."""
        wanted, at = read_wanted(self.memo), self._applied()
        return MirrorStatus(
            is_there=self.path.exists(),
            as_of=at.published_at,
            version=at.version,
            wanted_version=None if wanted.manifest is None else wanted.manifest["version"],
            counts=at.counts or {},
            size=self.path.stat().st_size if self.path.exists() else 0,
            is_building=self.building.exists(),
            problem=wanted.problem,
            code=wanted.code,
        )

    def stop_building(self) -> None:
        """Let go of a mirror that is being built and holds what was forgotten since; it is begun anew."""
        if self.building.exists():
            with try_alone(self.path.with_name(self.path.name + ".lock")) as alone:
                if alone:
                    remove_file(self.building)

    def discard(self) -> None:
        """Delete the mirror and all that is known of it: this device has another home now, or none."""
        for path in (self.building, self.path):
            remove_file(path)
        index.discard(self.path)
        self.memo.unlink(missing_ok=True)

    def _applied(self) -> Applied:
        if not self.path.exists():
            return Applied()
        with Store.open_existing(self.path) as store:
            return applied(store)

    def _whole(self, manifest: Manifest) -> Applied | None:
        """How far the mirror is, if it has all that a manifest lists."""
        if not self.path.exists():
            return None
        at = self._applied()
        if manifest.entries:
            is_whole = (at.position, at.mark) == (manifest.head, manifest.entries[-1].mark)
        else:
            is_whole = manifest.index is None and at.position == 0
        return at if is_whole and at.version is not None else None

    def _renew(self, manifest: Manifest, at: Applied) -> None:
        """Note that an applied mirror is also that of a newer manifest; cut the log if a reader prevented it before."""
        log = self.path.with_name(self.path.name + "-wal")
        if log.exists() and log.stat().st_size:
            with open_mirror(self.path) as store:
                empty_log(store)
        if (at.epoch, at.version, at.published_at) == (manifest.epoch, manifest.version, manifest.published_at):
            return
        with open_mirror(self.path) as store:
            refresh(store, manifest.epoch, manifest.version, manifest.published_at)
