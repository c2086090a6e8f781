"""Run home's side of the mirror: upload new rows as objects, and send the list of objects to the devices.

Each step is durable before the next: a position is decided (its rows are fixed), read, sealed, uploaded, and only then
listed. After any crash the next run continues; objects that were uploaded but never listed are deleted later. The list
is sent when nothing is left to publish.

Source: docs/spec/mirror.md, section 4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crystal.store import Store
from crystal.store.notes import drop_note, read_note, write_note
from crystal.store.problems import find_problem
from crystal.store.sync import mirror
from crystal.store.sync.mirror_export import decide, export
from crystal.sync.client import RelayClient
from crystal.sync.envelope.blob import ZERO_TAG, Channel, seal
from crystal.sync.envelope.link import keys_of_link
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.losses import LOST_MIRROR, note_losses
from crystal.sync.mirror.content import pack
from crystal.sync.mirror.listing import MirrorManifest, MirrorObject
from crystal.sync.mirror.upkeep import Upkeep, runs_to_mend, runs_to_merge

Random = Callable[[int], bytes]

HOUR_MS = 3_600_000
MISSED_ONCE = "mirror_missed"
"""Note that the relay lacked objects at the last check."""
GRACE_MS = 24 * HOUR_MS
"""Time for which an unlisted object is kept: devices may be fetching it by an older list."""

LOOK_EVERY_MS = 6 * HOUR_MS
"""Interval at which the relay is asked which objects it has."""

LOOK_AGAIN_MS = HOUR_MS // 2
"""The same interval while the relay loses objects."""

REFRESH_MS = HOUR_MS
"""Maximum age of the time in the manifest if nothing is new; then ``manifest`` returns a newer one."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """One run of publishing."""

    store: Store
    client: RelayClient
    now: int
    random: Random

    def upload_new(self) -> None:
        """Publish everything that is new."""
        while True:
            for step in mirror.decided(self.store):
                self._replace(Upkeep([step], step.level))
            if not decide(self.store, self.random, self.now):
                return

    def mend_and_merge(self) -> None:
        """Upload again what the relay has lost or what must be forgotten; merge small objects into large ones."""
        for choose in (runs_to_mend, runs_to_merge):
            for run in choose(mirror.listed(self.store)):
                self._replace(run)

    def _replace(self, run: Upkeep) -> None:
        """Seal the present rows of a run as one object, and store it in place of the run's objects."""
        payload = pack(export(self.store, run.objects))
        home, (key, link) = mirror.begin(self.store, self.random, self.now), mirror.newest_key(self.store)
        number = mirror.next_number(self.store)
        blob = seal(
            keys_of_link(link),
            payload,
            channel=Channel.MIRROR,
            kind=PayloadKind.RAW,
            stream=home.stream,
            seq=number,
            prev=ZERO_TAG,
            salt=self.random(32),
            created_at=self.now,
        )
        sha256, marks = hashlib.sha256(blob).digest(), b"".join(one.marks for one in run.objects)
        place = (run.objects[-1].last, run.objects[0].first, marks, number, sha256)
        made = mirror.Listed(*place, len(blob), len(payload), run.level, key, self.now, stale=0)
        mirror.put_in_trash(self.store, sha256, self.now)  # deleted later unless the list contains it
        self.client.put_object(sha256[:16], blob)
        mirror.replace(self.store, run.objects, made)

    def sweep(self) -> None:
        """Delete unlisted objects at the relay."""
        for ident in mirror.trash(self.store, GRACE_MS, self.now):
            self.client.delete_object(ident)
            mirror.forget_trash(self.store, ident)

    def look(self) -> None:
        """Ask the relay which objects it has. Upload missing ones again and delete unknown ones."""
        missing = mirror.note_look(self.store, {one.object_id for one in self.client.objects()}, self.now)
        if missing and read_note(self.store, MISSED_ONCE) is None:
            # A database restored from a backup lists objects that were merged since: not the relay's fault.
            write_note(self.store, MISSED_ONCE, str(missing))
            mirror.look_soon(self.store)  # to check that the new uploads stay there
            return
        note_losses(self.store, LOST_MIRROR, missing, ("part of the mirror", "parts of the mirror"), self.now)
        if not missing:
            drop_note(self.store, MISSED_ONCE)


def publish(
    store: Store,
    client: RelayClient,
    *,
    now: int,
    random: Random,
) -> dict[str, Any] | None:
    """Publish what is new in home's memory. May be called at any time, but not twice in parallel.

    Args:
        store: Home's store, open for writing, in no transaction.
        client: The relay, with home's token.
        now: The time, ms.
        random: Returns fresh random bytes.

    Returns:
        The body of the manifest for every device, or None if the list is unchanged. A caller that may be killed before
            sending it compares ``manifest`` with what it sent last; its time is renewed every hour.

    Raises:
        CrystalError: The relay or the store failed; finished work stays, and the next call continues.
    """
    mirror.begin(store, random, now)
    publisher = Publisher(store, client, now, random)
    publisher.upload_new()
    is_lossy = find_problem(store, LOST_MIRROR) is not None
    if mirror.is_due(store, LOOK_AGAIN_MS if is_lossy else LOOK_EVERY_MS, now):
        publisher.look()
    publisher.mend_and_merge()
    publisher.sweep()
    return manifest(store) if mirror.note_published(store, now, REFRESH_MS) else None


def manifest(store: Store) -> dict[str, Any] | None:
    """Return the body of the newest manifest, for a device that lacks it; None before the first."""
    home = mirror.home(store)
    entries = tuple(
        MirrorObject(one.last, one.marks[-mirror.MARK_BYTES :], one.number, one.sha256, one.size)
        for one in mirror.listed(store)
        if one.sha256 is not None
    )
    if home is None or not home.published_at:
        return None
    return MirrorManifest(
        published_at=home.published_at,
        stream=home.stream,
        links=tuple(mirror.keys_in_use(store)),
        entries=entries,
        serving=mirror.space_of(store, home.generation),
    ).as_json()


def roll_key(store: Store, random: Random, now: int) -> None:
    """Seal everything from now on with a new key, because a revoked device knows the old one."""
    mirror.begin(store, random, now)
    mirror.add_key(store, random(32), now)


def take_device_report(store: Store, told: Mapping[str, Any], *, now: int) -> None:
    """Process a device's report on its mirror: objects that it cannot get.

    A report causes at most one upload of each object: one made within the last hour is left unchanged.
    """
    try:
        bad = [bytes.fromhex(one) for one in list(told.get("bad") or ())[:64]]
    except (ValueError, TypeError, AttributeError):  # a device may report anything
        return
    if bad:
        mirror.mark_lost(store, bad, now - HOUR_MS, now)
        mirror.look_soon(store)
