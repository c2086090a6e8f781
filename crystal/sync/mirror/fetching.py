"""Fetch missing objects in one run, in order; check, open and apply each before the next.

An existing mirror is extended in place. A first one, or one that does not continue the existing history, is built in a
separate file and moved into place when complete.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crystal.config.paths import alone_in, make_private_dir, sync_folder, write_private
from crystal.errors import DamagedError
from crystal.store import Store
from crystal.store.health import checks
from crystal.store.search.space import empty_log
from crystal.store.sync.mirror_apply import MirrorProgress, applied, apply, copy_over, finish, open_mirror
from crystal.store.sync.mirror_content import ObjectRows
from crystal.sync.client import RelayClient
from crystal.sync.envelope.blob import Channel, open_blob
from crystal.sync.envelope.refusals import EnvelopeError
from crystal.sync.errors import NotAtRelayError
from crystal.sync.mirror.content import unpack
from crystal.sync.mirror.listing import MirrorManifest, MirrorObject

SURE = 2
"""After this many failures in a row a damaged object is reported to home; a missing one is reported at once."""

Sift = Callable[[Store, ObjectRows, int], None]
"""Removes from an object what is forgotten here, given the mirror and the time of publication."""


class WantedManifest(msgspec.Struct):
    """The last manifest from home, and what could not be fetched.

    Attributes:
        serial: Serial of the document.
        manifest: Its content.
        bad: Objects that could not be fetched or opened: id to number of failures in a row.
        problem: The problem in words, or None.
        starts_over: The mirror must be built from scratch, because it does not continue the published history.
    """

    serial: int = 0
    manifest: MirrorManifest | None = None
    bad: dict[str, int] = {}
    problem: str | None = None
    starts_over: bool = False


@dataclass(frozen=True)
class MirrorFiles:
    """The files of a mirror.

    Attributes:
        path: Path of the complete mirror: ``mirror.db`` in the data folder.
    """

    path: Path

    @property
    def building(self) -> Path:
        """Return the path of a mirror that is being built."""
        return self.path.with_name(self.path.name + ".new")

    @property
    def memo(self) -> Path:
        """Return the path of the newest manifest. It holds keys, so only its owner can read it."""
        return self.path.with_suffix(".json")

    @property
    def lock(self) -> Path:
        """Return the path of the lock that the fetching process holds."""
        return self.path.with_name(self.path.name + ".lock")

    def read_wanted(self) -> WantedManifest:
        """Return the last manifest; an empty one if there is none or the file is damaged: home sends it again."""
        try:
            return msgspec.json.decode(self.memo.read_bytes(), type=WantedManifest)
        except (FileNotFoundError, msgspec.MsgspecError, ValueError, RecursionError):
            return WantedManifest()
        except OSError as error:
            raise DamagedError(f"{self.memo} cannot be read: {error.strerror}", hint="check its permissions") from error

    def write_wanted(self, wanted: WantedManifest) -> None:
        """Store the last manifest."""
        make_private_dir(self.memo.parent)
        write_private(self.memo, msgspec.json.encode(wanted))


def remove_file(path: Path) -> None:
    """Delete a database and its log."""
    for name in ("", "-wal", "-shm"):
        path.with_name(path.name + name).unlink(missing_ok=True)


@dataclass(slots=True)
class MirrorReport:
    """Result of one run.

    Attributes:
        objects: Number of applied objects.
        left: Number of objects still to be fetched.
        is_whole: The mirror satisfies the newest manifest.
        problem: The reason if not, in words.
        code: The same as a code: ``missing``, ``sha256``, ``place``, ``damaged``, or the code of the envelope.
    """

    objects: int = 0
    left: int = 0
    is_whole: bool = False
    problem: str | None = None
    code: str | None = None


class FetchRun:
    """One run of fetching."""

    def __init__(
        self,
        files: MirrorFiles,
        manifest: MirrorManifest,
        wanted: WantedManifest,
        client: RelayClient,
        should_stop: Callable[[], bool],
        sift: Sift | None,
    ) -> None:
        self.files, self.manifest, self.wanted, self.client = files, manifest, wanted, client
        self.should_stop, self.sift = should_stop, sift
        self.keys = manifest.keys()
        self.report = MirrorReport()

    def remember(self) -> None:
        """Record a problem, or None. A manifest that arrived meanwhile is kept."""
        with alone_in(self.files.memo.parent):
            newest = self.files.read_wanted()
            if newest.serial == self.wanted.serial:
                newest.bad = self.wanted.bad
            newest.starts_over, newest.problem = self.wanted.starts_over, self.report.problem
            self.files.write_wanted(newest)

    def bring(self) -> None:
        """Fetch into the existing mirror, or into a new one if it is missing or has another history."""
        path, building = self.files.path, self.files.building
        if path.exists() and not building.exists() and not self.wanted.starts_over:
            with open_mirror(path) as store:
                if self._apply_all(store):
                    self._finish(store)
                if not self.wanted.starts_over:
                    return
        if not self._build():
            self._build()  # the partial mirror does not continue the published history: start from scratch

    def _build(self) -> bool:
        """Build the mirror in a separate file. Return False if it has to start from scratch."""
        building = self.files.building
        if self.wanted.starts_over:
            remove_file(building)
            self.wanted.starts_over = False
        with open_mirror(building) as store:
            is_whole = self._apply_all(store)
            if is_whole:
                self._prove(store)
                self._finish(store)
                empty_log(store)
        if is_whole:
            self._put_in_place()
        return not self.wanted.starts_over

    # ---------------------------------------------------------------------------------------------------- applying

    def _apply_all(self, store: Store) -> bool:
        """Apply missing objects in order.

        Return False if the run ended early; ``starts_over`` is set if it cannot continue.
        """
        at = applied(store)
        here = next((entry for entry in self.manifest.entries if entry.last == at.position), None)
        if at.position > self.manifest.head[0] or (here is not None and here.mark != at.mark):
            self.wanted.starts_over = True
            return False
        entries = [entry for entry in self.manifest.entries if entry.last > at.position]
        self.report.left = len(entries)
        for entry in entries:
            content = None if self.should_stop() else self._content(entry)
            if content is None:
                return False
            if not _follows(content, at):
                self.wanted.starts_over = True
                return False
            if self.sift is not None:
                self.sift(store, content, self.manifest.published_at)
            if not apply(store, content, at):
                return False
            at = applied(store)
            self.report.objects += 1
            self.report.left -= 1
        return True

    def _content(self, entry: MirrorObject) -> ObjectRows | None:
        """Fetch and open one object. Return None on failure, which is recorded."""
        try:
            blob = self.client.get_object(entry.object_id)
        except NotAtRelayError:
            self._refuse(entry, "missing", "is not at the relay")
            return None
        if hashlib.sha256(blob).digest() != entry.sha256:
            self._refuse(entry, "sha256", "is not what home uploaded")
            return None
        try:
            opened = open_blob(
                blob, self.keys.get, channel=Channel.MIRROR, stream=self.manifest.stream, seq=entry.number, prev=None
            )
        except EnvelopeError as error:
            self._refuse(entry, error.code, f"cannot be opened: {error.message}")
            return None
        self.wanted.bad.pop(entry.object_id.hex(), None)
        content = unpack(opened.payload)
        if content.last != entry.last or content.marks[-8:] != entry.mark:
            self._refuse(entry, "place", "holds other positions than the list says")
            return None
        return content

    def _refuse(self, entry: MirrorObject, code: str, words: str) -> None:
        ident = entry.object_id.hex()
        self.wanted.bad[ident] = self.wanted.bad.get(ident, 0) + (SURE if code == "missing" else 1)
        self.report.problem, self.report.code = f"object {ident[:8]} of the mirror {words}", code

    # -------------------------------------------------------------------------------------------------- when whole

    def _finish(self, store: Store) -> None:
        finish(store, self.manifest.published_at, self.manifest.serving)
        self.report.is_whole = True

    def _prove(self, store: Store) -> None:
        """Verify a new mirror before it is used.

        Raises:
            DamagedError: The file is damaged. It is built from scratch.
        """
        fault, _ = checks.quick_fault(store)
        if fault is None:
            return
        self.wanted.starts_over = True
        self.report.problem, self.report.code = f"the new mirror is not whole: {fault}", "damaged"
        raise DamagedError(self.report.problem, hint="the next run builds it again")

    def _put_in_place(self) -> None:
        path, building = self.files.path, self.files.building
        if path.exists():
            copy_over(building, path)
        else:
            for name in ("-wal", "-shm"):  # left by a mirror that was deleted by hand
                path.with_name(path.name + name).unlink(missing_ok=True)
            os.replace(building, path)  # noqa: PTH105 - as one step
        remove_file(building)
        sync_folder(path.parent)


def _follows(content: ObjectRows, at: MirrorProgress) -> bool:
    """Return True if an object that covers an applied position has the same history up to it."""
    if at.position < content.first:
        return True
    place = (at.position - content.first) * 8
    return content.marks[place : place + 8] == at.mark
