"""A device's side of the mirror: what home tells is checked, what is missing fetched, opened and applied in order.

Nothing of the device's own is ever touched: the mirror is a file beside the device's store. The first copy, and one
that does not follow from what is there, is built in a file of its own and put in place when it is whole; until then
searches use what there was. Whatever is interrupted goes on where it stopped.

Source: docs/spec/mirror.md, section 5.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from crystal.envelope import Channel, Refused, open_blob
from crystal.errors import Damaged, Denied
from crystal.paths import alone_in, make_private_dir, sync_folder
from crystal.relay.errors import NotAtRelay
from crystal.relay.mirror.content import unpack
from crystal.relay.mirror.listing import Entry, Manifest, parse_index, parse_manifest
from crystal.relay.mirror.place import MOST_EPOCHS, Wanted, read_wanted, try_alone, write_wanted
from crystal.store import Store, checks
from crystal.store.mirror import count_rows
from crystal.store.mirror_apply import Applied, applied, apply, copy_over, empty_log, finish, open_mirror, refresh
from crystal.store.mirror_content import Content

TOLD_BAD = 64
"""So many objects that cannot be had are told to home at once."""

SURE = 2
"""An object that was damaged so often in a row is told to home; one that the relay does not have, at once."""


class MirrorRollback(Denied):
    """Somebody showed an older state of home's memory than this device has seen. It was not taken.

    Attributes:
        code: ``rollback``.
    """

    code = "rollback"


class MirrorDamaged(Damaged):
    """What was fetched does not make the mirror that home published. It is fetched again."""


class Fetcher(Protocol):
    """What a mirror asks of the relay."""

    def get_object(self, object_id: bytes) -> bytes:
        """Fetch an object."""
        ...


@dataclass(slots=True)
class MirrorReport:
    """What one run brought.

    Attributes:
        objects: Objects that were applied.
        bytes: Their size, sealed.
        left: Objects of the list that are still to be fetched.
        is_whole: The mirror is that of the newest manifest.
        problem: Why not, in words.
        code: The same as a word: ``missing``, ``sha256``, or the code of the envelope.
    """

    objects: int = 0
    bytes: int = 0
    left: int = 0
    is_whole: bool = False
    problem: str | None = None
    code: str | None = None


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
    ) -> MirrorReport:
        """Fetch and apply what is missing. Goes on where the last run stopped.

        Args:
            client: The relay, with the device's token.
            should_stop: Asked before every object.
            progress: Told how many bytes of how many are there.

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
                return MirrorReport(is_whole=True)
            run = _Run(self, manifest, wanted, client, should_stop, progress)
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

    def discard(self) -> None:
        """Delete the mirror and all that is known of it: this device has another home now, or none."""
        for path in (self.building, self.path):
            _remove(path)
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
        """Note that an applied mirror is also that of a newer manifest."""
        if (at.epoch, at.version, at.published_at) == (manifest.epoch, manifest.version, manifest.published_at):
            return
        with open_mirror(self.path) as store:
            refresh(store, manifest.epoch, manifest.version, manifest.published_at)


class _Run:
    """One run of fetching."""

    def __init__(
        self,
        mirror: Mirror,
        manifest: Manifest,
        wanted: Wanted,
        client: Fetcher,
        should_stop: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> None:
        self.mirror, self.manifest, self.wanted, self.client = mirror, manifest, wanted, client
        self.should_stop, self.progress = should_stop, progress
        self.keys = manifest.keys()
        self.report = MirrorReport()

    def remember(self) -> None:
        """Note what is wrong, or that nothing is; what home told meanwhile stays, and so does a refused rollback."""
        memo = self.mirror.memo
        with alone_in(memo.parent):
            newest = read_wanted(memo)
            if newest.serial == self.wanted.serial:
                newest.bad = self.wanted.bad
            newest.starts_over = self.wanted.starts_over
            if newest.code != MirrorRollback.code or self.report.problem is not None:
                newest.problem, newest.code = self.report.problem, self.report.code
            write_wanted(memo, newest)

    def bring(self) -> None:
        """Fetch into the mirror that is there; into a new one when there is none, or when it does not follow."""
        path, building = self.mirror.path, self.mirror.building
        if path.exists() and not building.exists() and not self.wanted.starts_over:
            with open_mirror(path) as store:
                if not self._apply_all(store):
                    return
                if not self.wanted.starts_over:
                    self._finish(store)
                    return
        if not self._build():
            self._build()  # what was begun does not follow from what home publishes now: once more from nothing

    def _build(self) -> bool:
        """Build the mirror beside its place. False when it has to begin anew."""
        building = self.mirror.building
        if self.wanted.starts_over:
            _remove(building)
            self.wanted.starts_over = False
        with open_mirror(building) as store:
            is_whole = self._apply_all(store)
            if self.wanted.starts_over:
                return False
            if is_whole:
                self._prove(store)
                self._finish(store)
                empty_log(store)
        if is_whole:
            self._put_in_place()
        return True

    # ---------------------------------------------------------------------------------------------------- applying

    def _apply_all(self, store: Store) -> bool:
        """Apply what is missing, in order. False when it ended early; ``starts_over`` is set when it cannot go on."""
        at = applied(store)
        entries = self._missing(at)
        if entries is None:
            return self.report.problem is None
        total = sum(entry.size for entry in entries)
        self.report.left = len(entries)
        for entry in entries:
            if self.should_stop():
                return False
            self.progress(self.report.bytes, total)
            content = self._content(entry)
            if content is None:
                return False
            if not _follows(content, at):
                self.wanted.starts_over = True
                return True
            if not apply(store, content, at):
                return False
            at = applied(store)
            self.report.objects += 1
            self.report.bytes += entry.size
            self.report.left -= 1
        self.progress(total, total)
        return True

    def _missing(self, at: Applied) -> list[Entry] | None:
        """The entries after a position; None when they cannot be told or do not follow from it."""
        entries = self.manifest.entries
        index = self.manifest.index
        if index is not None and at.position < index.last:
            data = self._object(index)
            if data is None:
                return None
            entries = (*parse_index(data, index.last), *entries)
        if index is not None and at.position == index.last and at.mark != index.mark:
            self.wanted.starts_over = True
            return None
        here = next((entry for entry in entries if entry.last == at.position), None)
        if at.position > self.manifest.head or (here is not None and here.mark != at.mark):
            self.wanted.starts_over = True
            return None
        return [entry for entry in entries if entry.last > at.position]

    def _content(self, entry: Entry) -> Content | None:
        data = self._object(entry)
        if data is None:
            return None
        content = unpack(data)
        if content.last != entry.last or content.marks[-8:] != entry.mark:
            self._refuse(entry, "place", "holds other positions than the list says")
            return None
        return content

    def _object(self, entry: Entry) -> bytes | None:
        """Fetch and open one object; None when that fails, which is noted."""
        try:
            blob = self.client.get_object(entry.object_id)
        except NotAtRelay:
            self._refuse(entry, "missing", "is not at the relay")
            return None
        if hashlib.sha256(blob).digest() != entry.sha256:
            self._refuse(entry, "sha256", "is not what home uploaded")
            return None
        try:
            opened = open_blob(
                blob, self.keys.get, channel=Channel.MIRROR, stream=self.manifest.stream, seq=entry.number, prev=None
            )
        except Refused as error:
            self._refuse(entry, error.code, f"cannot be opened: {error.message}")
            return None
        self.wanted.bad.pop(entry.object_id.hex(), None)
        return opened.payload

    def _refuse(self, entry: Entry, code: str, words: str) -> None:
        ident = entry.object_id.hex()
        self.wanted.bad[ident] = self.wanted.bad.get(ident, 0) + (SURE if code == "missing" else 1)
        self.report.problem, self.report.code = f"object {ident[:8]} of the mirror {words}", code

    # -------------------------------------------------------------------------------------------------- when whole

    def _finish(self, store: Store) -> None:
        manifest = self.manifest
        finish(store, manifest.epoch, manifest.version, manifest.published_at, manifest.serving)
        self.report.is_whole = True

    def _prove(self, store: Store) -> None:
        """Check a new mirror before it is used.

        Raises:
            MirrorDamaged: It is not whole. It is built anew.
        """
        fault = checks.quick_fault(store)
        counted = count_rows(store)
        wrong = [table for table, rows in self.manifest.counts.items() if counted.get(table, rows) != rows]
        if fault is None and not wrong:
            return
        self.wanted.starts_over = True
        said = fault or f"{counted[wrong[0]]} {wrong[0]} where home has {self.manifest.counts[wrong[0]]}"
        self.report.problem, self.report.code = f"the new mirror is not whole: {said}", "counts"
        raise MirrorDamaged(self.report.problem, hint="it is built anew by the next run")

    def _put_in_place(self) -> None:
        path, building = self.mirror.path, self.mirror.building
        if path.exists():
            copy_over(building, path)
            _remove(building)
            return
        for name in ("-wal", "-shm"):  # of a mirror that was deleted by hand
            path.with_name(path.name + name).unlink(missing_ok=True)
        os.replace(building, path)  # noqa: PTH105 - as one step
        _remove(building)
        sync_folder(path.parent)


def _follows(content: Content, at: Applied) -> bool:
    """Whether an object, which covers a position that was applied, has seen the same history up to it."""
    if at.position < content.first:
        return True
    place = (at.position - content.first) * 8
    return content.marks[place : place + 8] == at.mark


def _remove(path: Path) -> None:
    for name in ("", "-wal", "-shm"):
        path.with_name(path.name + name).unlink(missing_ok=True)
