"""Store the peers over the relay: a home machine's devices, or a device's home."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Literal

from crystal.config.paths import AGENT_ID
from crystal.errors import NotFoundError, UsageError
from crystal.store.capture.ledger_rebuild import unknown_owner
from crystal.store.connection import Store
from crystal.store.json_columns import SENT, SERIALS_IN, STALE, TOLD, read_json
from crystal.store.sync import refusal_counts

Side = Literal["home", "device"]
HIGHEST_SERIAL = 1 << 62


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a link.

    Attributes:
        id: The row.
        device_id: The device's 16 bytes; the same on both ends of the link.
        side: What the other end is: ``home`` on a device, ``device`` on the home machine.
        name: The user's name for it.
        agent: The agent id that a device was paired with.
        generation: The generation of the device's keys in use.
        accepted_from: Blobs of older generations are refused.
        up_prefix, down_prefix: The first 8 bytes of the streams from and to the device.
        token_id: The device's token at the relay.
        paired_at, revoked_at, heard_at: Times by our clock, ms.
        serials_in: Serials of the newest documents received, by channel number.
        told: The content of its newest document.
        sent: Fingerprints of the newest documents sent to it, by channel number.
        stale: Serials that its next documents must exceed, by channel number, after it sent older ones.
        vouches: Whether it may send content of other devices.
        forked_at: When two copies of the device were last seen, or None.
    """

    id: int
    device_id: bytes
    side: Side
    name: str
    agent: str | None
    generation: int
    accepted_from: int
    up_prefix: bytes
    down_prefix: bytes
    token_id: str | None
    paired_at: int
    revoked_at: int | None
    heard_at: int | None
    serials_in: Mapping[str, int]
    told: Mapping[str, Any]
    sent: Mapping[str, str]
    stale: Mapping[str, int]
    vouches: bool
    forked_at: int | None

    @property
    def own_name(self) -> str:
        """Return the name that the other machine uses for itself, which may have changed since the pairing."""
        return str(self.told.get("home") or self.name)


_FIELDS = [one.name for one in fields(Peer)]
_COLUMNS = ", ".join(_FIELDS)


def _peer(*row: Any) -> Peer:
    values = dict(zip(_FIELDS, row, strict=True))
    for column in (SERIALS_IN, TOLD, SENT, STALE):
        values[column.name] = read_json(column, values[column.name]) or {}
    return Peer(**{**values, "vouches": bool(values["vouches"])})


def all_peers(store: Store, side: Side | None = None) -> list[Peer]:
    """Return every peer, in the order of pairing."""
    return store.all(_peer, f"SELECT {_COLUMNS} FROM relay_peers WHERE side = coalesce(?, side) ORDER BY id", (side,))


def devices_in_use(store: Store) -> list[Peer]:
    """Return the devices that are not revoked, in the order of pairing; none on a device."""
    return [peer for peer in all_peers(store, "device") if peer.revoked_at is None]


def peer_by_id(store: Store, ident: int) -> Peer:
    """Return one peer, by its row."""
    found = store.find(_peer, f"SELECT {_COLUMNS} FROM relay_peers WHERE id = ?", (ident,))
    if found is None:
        raise LookupError(f"there is no peer {ident}")
    return found


def home_peer(store: Store) -> Peer | None:
    """Return the home machine that this device sends to; None on a home or standalone machine."""
    where = "WHERE side = 'home' AND revoked_at IS NULL ORDER BY id DESC LIMIT 1"
    return store.find(_peer, f"SELECT {_COLUMNS} FROM relay_peers {where}")


def find_peer(store: Store, name: str) -> Peer:
    """Return a device by its name, or by the beginning of its id in hexadecimal (at least 4 digits).

    Raises:
        NotFoundError: No device matches.
        UsageError: There is more than one.
    """
    peers = all_peers(store)
    found = [peer for peer in peers if peer.name == name]
    if not found and len(name) >= 4:
        found = [peer for peer in peers if peer.device_id.hex().startswith(name.lower())]
    if len(found) == 1:
        return found[0]
    names = ", ".join(peer.name for peer in peers)
    hint = f"the devices: {names}" if names else "there are no devices yet; add one: crystal relay pair"
    if not found:
        raise NotFoundError(f"no device is called {name!r}", hint=hint)
    raise UsageError(f"more than one device is called {name!r}", hint=hint)


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link to add: the fields are those of ``Peer``. ``accepted_from`` defaults to the generation."""

    device_id: bytes
    side: Side
    name: str
    agent: str | None
    generation: int
    up_prefix: bytes
    down_prefix: bytes
    token_id: str | None = None
    accepted_from: int | None = None
    revoked_at: int | None = None
    vouches: bool = False


def link_of(peer: Peer) -> NewLink:
    """Return a peer in the form in which another store can add it."""
    return NewLink(*(getattr(peer, one.name) for one in fields(NewLink)))


def add_peer(store: Store, link: NewLink, now: int) -> int:
    """Add a new link and return its row. Inside a transaction.

    Raises:
        UsageError: Another machine has that name.
    """
    if store.value("SELECT 1 FROM relay_peers WHERE name = ?", (link.name,)):
        raise UsageError(f"another device is called {link.name!r}", hint="choose another name")
    if link.accepted_from is None:
        link = replace(link, accepted_from=link.generation)
    columns = ", ".join(one.name for one in fields(NewLink))
    ident = store.insert("relay_peers", f"{columns}, paired_at", *astuple(link), now)
    if link.agent is not None and link.side == "device":
        own_agent(store, link.agent, ident, link.name)
    return ident


def remove_peer(store: Store, ident: int) -> None:
    """Delete a link and its streams, with everything that waits in them. Inside a transaction."""
    outs = "SELECT id FROM relay_out WHERE peer = ?"
    store.execute(f"DELETE FROM outbox WHERE stream IN ({outs})", (ident,))
    store.execute("DELETE FROM relay_out WHERE peer = ?", (ident,))
    ins = "SELECT id FROM relay_in WHERE peer = ?"
    store.execute(f"DELETE FROM relay_fragments WHERE stream IN ({ins})", (ident,))
    store.execute(f"DELETE FROM relay_claims WHERE source IN ({ins})", (ident,))
    refusal_counts.purge(store, ident)
    store.execute("DELETE FROM relay_in WHERE peer = ?", (ident,))
    store.execute("DELETE FROM relay_agents WHERE peer = ?", (ident,))
    store.execute("DELETE FROM relay_peers WHERE id = ?", (ident,))


def set_revoked(store: Store, ident: int, now: int) -> None:
    """Refuse everything further from a device, and delete what it sent and nobody read. Inside a transaction."""
    store.execute("UPDATE relay_peers SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?", (now, ident))
    refusal_counts.purge(store, ident)
    store.execute("DELETE FROM relay_fragments WHERE stream IN (SELECT id FROM relay_in WHERE peer = ?)", (ident,))


def set_generation(store: Store, ident: int, generation: int, accepted_from: int) -> None:
    """Record a device's keys in use, and the oldest generation whose blobs are accepted.

    When the keys in use change, documents count as not sent: the first message under new keys ends the old ones.
    """
    store.execute(
        "UPDATE relay_peers SET sent = iif(generation = ?1 AND accepted_from = ?2, sent, NULL), generation = ?1,"
        " accepted_from = ?2 WHERE id = ?3",
        (generation, accepted_from, ident),
    )


def set_fields(store: Store, ident: int, **values: str | int | None) -> Peer:
    """Write these fields of a peer's row; return the peer."""
    sets = ", ".join(f"{name} = ?" for name in values)
    store.execute(f"UPDATE relay_peers SET {sets} WHERE id = ?", (*values.values(), ident))
    return peer_by_id(store, ident)


def heard(store: Store, ident: int, now: int) -> None:
    """Record that an authentic message arrived from a peer."""
    store.execute("UPDATE relay_peers SET heard_at = max(coalesce(heard_at, ?1), ?1) WHERE id = ?2", (now, ident))


def take_document(
    store: Store, ident: int, channel: int, serial: int, now: int, *, keep: Mapping[str, Any] | None = None
) -> bool:
    """Store a peer's document; False if a newer one of the channel was stored already. Inside a transaction.

    ``keep`` is the part to store; names missing from it keep their earlier values. For an older document, the serial
    that the next one must exceed is stored, because its sender may have lost its own serial.
    """
    row = store.row("SELECT serials_in, told, stale FROM relay_peers WHERE id = ?", (ident,))
    if row is None:
        return False
    serials, before, stale = (
        read_json(column, text) or {} for column, text in zip((SERIALS_IN, TOLD, STALE), row, strict=True)
    )
    name = str(int(channel))
    newest = serials.get(name, 0)
    if serial <= newest:
        if serial < newest and stale.get(name) != newest:
            store.execute("UPDATE relay_peers SET stale = ? WHERE id = ?", (json.dumps({**stale, name: newest}), ident))
        return False
    serials[name] = serial
    stale.pop(name, None)
    store.execute(
        "UPDATE relay_peers SET serials_in = ?, told = ?, heard_at = ?, stale = ? WHERE id = ?",
        (json.dumps(serials), json.dumps({**before, **(keep or {})}), now, json.dumps(stale), ident),
    )
    return True


def exceed(store: Store, ident: int, stale: object) -> None:
    """Raise this machine's serials above those that the peer refuses as too old.

    This happens after this machine was restored from a backup, or its clock was set back. ``stale`` is the peer's
    report, of any type. Inside a transaction.
    """
    told = stale.values() if isinstance(stale, dict) else ()
    serial = max((one for one in told if type(one) is int and 0 < one < HIGHEST_SERIAL), default=0)
    store.execute(
        "UPDATE relay_peers SET serial_out = ?1, sent = NULL WHERE id = ?2 AND serial_out < ?1", (serial, ident)
    )


def tell_again(store: Store, ident: int) -> None:
    """Send the next documents even if unchanged, because the peer seems to lack them."""
    store.execute("UPDATE relay_peers SET sent = NULL WHERE id = ? AND sent IS NOT NULL", (ident,))


def next_serial(store: Store, ident: int, now: int) -> int:
    """Return a serial for the next document, greater than all before, even those lost by restoring a backup."""
    serial = max(now, 1 + int(store.value("SELECT serial_out FROM relay_peers WHERE id = ?", (ident,)) or 0))
    store.execute("UPDATE relay_peers SET serial_out = ? WHERE id = ?", (serial, ident))
    return serial


def digest_of(body: Mapping[str, Any]) -> str:
    """Return a fingerprint of a document, to detect changes. The document may contain keys, so it is not stored."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def note_sent(store: Store, ident: int, channel: int, body: Mapping[str, Any], now: int) -> None:
    """Record the document sent on a channel, so that it is not sent again while unchanged."""
    before = read_json(SENT, store.value("SELECT sent FROM relay_peers WHERE id = ?", (ident,))) or {}
    sent = json.dumps({**before, str(int(channel)): digest_of(body), f"{int(channel)} at": str(now)})
    store.execute("UPDATE relay_peers SET sent = ? WHERE id = ?", (sent, ident))


def was_sent(peer: Peer, channel: int, body: Mapping[str, Any]) -> bool:
    """Return True if the newest document sent on a channel has exactly this content."""
    return peer.sent.get(str(int(channel))) == digest_of(body)


def was_sent_since(peer: Peer, channel: int, earliest: int, now: int) -> bool:
    """Return True if a document was sent on a channel in this period, ms; False if the clock was set back since."""
    return earliest <= int(peer.sent.get(f"{int(channel)} at", -1)) <= now


def owner_of_agent(store: Store, agent: str) -> int | None:
    """Return the device that an agent id belongs to, or None.

    An agent is a folder. Some systems ignore the case of folder names, so it is ignored here.
    """
    return store.find(int, "SELECT peer FROM relay_agents WHERE agent = ? COLLATE NOCASE", (agent,))


def own_agent(store: Store, agent: str, peer: int, name: str) -> bool:
    """Assign an agent id to a device, with its archive after a rebuild; False if it belongs to another one."""
    owner = owner_of_agent(store, agent)
    if owner is None:
        store.insert("relay_agents", "agent, peer", agent, peer)
        if _has_unclaimed(store, agent):
            rename_rows(store, unknown_owner(agent), name)
    return owner in (None, peer)


def _has_unclaimed(store: Store, agent: str) -> bool:
    """Return True if a rebuild knew this agent's archive, but not whose it is."""
    return store.has("SELECT 1 FROM capture_state WHERE device = ? LIMIT 1", (unknown_owner(agent),))


def take_agent(store: Store, peer: Peer, wanted: str, own: str) -> str:
    """Return the agent id for a device's content: the one it requests, or else one that no other machine has.

    It belongs to the device from then on. ``own`` is this machine's. Inside a transaction.
    """
    names = (wanted, f"{wanted}-{peer.name}")
    for agent in sorted(names, key=lambda name: name != names[1] or not _has_unclaimed(store, name)):
        if AGENT_ID.fullmatch(agent) and _may_use(store, peer, agent, own):
            return agent
    return f"device-{peer.device_id.hex()}"


def _may_use(store: Store, peer: Peer, agent: str, own: str) -> bool:
    owner = owner_of_agent(store, agent)
    if owner is not None:
        return owner == peer.id
    sql = "SELECT 1 FROM capture_state WHERE agent = ? COLLATE NOCASE AND device NOT IN (?, ?) LIMIT 1"
    is_anothers = agent.lower() == own.lower() or store.has(sql, (agent, peer.name, unknown_owner(agent)))
    return not is_anothers and own_agent(store, agent, peer.id, peer.name)


def rename_peer(store: Store, peer: Peer, name: str) -> None:
    """Rename a device, also in all rows that name it. Inside a transaction.

    Raises:
        UsageError: The name is taken.
    """
    taken = store.value("SELECT 1 FROM relay_peers WHERE name = ? AND id <> ?", (name, peer.id))
    if taken or store.value("SELECT 1 FROM capture_state WHERE device = ?", (name,)):
        raise UsageError(f"another device is called {name!r}", hint="choose another name")
    store.execute("UPDATE relay_peers SET name = ? WHERE id = ?", (name, peer.id))
    rename_rows(store, peer.name, name)


def rename_rows(store: Store, old: str, name: str) -> None:
    """Write a device's new name into all its rows. Inside a transaction."""
    if old == name:
        return
    for table in ("capture_state", "sessions", "chunks", "relay_files"):
        store.execute(f"UPDATE OR IGNORE {table} SET device = ? WHERE device = ?", (name, old))
    from crystal.store.memories.memories import rename_device  # noqa: PLC0415 - every turn loads this module

    rename_device(store, old, name)
