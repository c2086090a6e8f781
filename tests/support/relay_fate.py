"""What befalls the machines of a ``World``, and the proof that nothing is lost or doubled by it."""

from __future__ import annotations

import shutil
from pathlib import Path

from crystal.capture.backfill import import_past, plan_past
from crystal.capture.engine import Tally
from crystal.capture.safe_open import Folders
from crystal.capture.tail import Cleaner
from crystal.config.harnesses import Root
from crystal.ingest import archive
from crystal.integrity.verify import Verification
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.health import checks
from crystal.store.sync import outbox, relay_peers
from tests.support.capture_machine import CaptureMachine
from tests.support.relay_world import Device, Home, World
from tests.support.said_rows import said

DAY = 86_400_000


def faults(world: World) -> list[str]:
    """What ``crystal verify`` finds wrong at home."""
    home = world.home.machine
    cleaner = Cleaner(lambda raw: (raw, {}), b"k" * 32)
    folders = Folders((Root(home.root),))
    proof = Verification(home.store, home.home, "home", folders, cleaner, lambda _: None).run()
    return [f"{fault.kind} {fault.what}: {fault.message}" for fault in proof.faults]


def everything(world: World) -> list[tuple[object, ...]]:
    """What all devices captured."""
    rows = {row for device in world.devices for row in said(device.store)}
    return sorted(rows)


def texts(store: Store) -> list[str]:
    return sorted(text for (text,) in store.rows("SELECT text FROM chunks"))


def waiting(device: Device) -> int:
    return outbox.backlog(device.store).blobs


def archived(machine: CaptureMachine, device: str) -> dict[tuple[str, int], bytes]:
    """The archive's text by transcript and generation, in the order of the file that it came from."""
    store, home = machine.store, machine.home
    found: dict[tuple[str, int], bytes] = {}
    for state in ledger.all_states(store, device):
        for row in checks.ledger_rows(store, state.id):
            if row.state == "captured":
                frame = archive.Frame(row.offset, row.length)
                key = (state.mark.transcript, row.generation)
                found[key] = found.get(key, b"") + archive.read_frame(home / str(state.archive), frame)
    return found


def assert_settled(world: World, *, after: int = 0, but: tuple[Device, ...] = ()) -> None:
    """Home has all, once, after so many rounds of good weather; nobody waits for anything."""
    world.settle(after)
    rows, captured = said(world.home.store), everything(world)
    assert rows == captured, (
        f"lost {[row for row in captured if row not in rows][:3]}, made up {[row for row in rows if row not in captured][:3]}"
    )
    assert len({(row[0], row[1], row[8]) for row in rows}) == len(rows), "doubled"
    left = {device.peer().name: waiting(device) for device in world.devices if device not in but and waiting(device)}
    assert left == {}, left
    assert world.home.missing() == {}, world.home.missing()


def restore(device_or_home: Device | Home, copy: Path) -> None:
    """Put a machine's database back from a copy; its other files stay."""
    machine = device_or_home.machine
    machine.store.close()
    for name in ("crystal.db", "crystal.db-wal", "crystal.db-shm"):
        (machine.store.path.parent / name).unlink(missing_ok=True)
    shutil.copy(copy, machine.store.path)
    machine.store = Store.open(machine.store.path)


def backup(device_or_home: Device | Home, copy: Path) -> Path:
    machine = device_or_home.machine
    copy.unlink(missing_ok=True)
    machine.store.execute("VACUUM INTO ?", (str(copy),))
    return copy


def clone(world: World, device: Device, name: str) -> Device:
    """Another machine with the same disk."""
    copy = backup(device, world.folder / f"{name}.db")
    home = world.folder / name
    shutil.copytree(device.machine.home, home, ignore=shutil.ignore_patterns("crystal.db*"))
    (home / "memory").mkdir(exist_ok=True)
    shutil.copy(copy, home / "memory" / "crystal.db")
    machine = CaptureMachine.at(home)
    machine.device, machine.now = device.machine.device, device.machine.now
    # The clone's files lie where the original's lay, as far as its database knows.
    machine.store.execute("UPDATE capture_state SET path = replace(path, ?, ?)", (str(device.machine.home), str(home)))
    machine.store.execute("INSERT INTO capture_roots (path, met_at) VALUES (?, 0)", (str(machine.root),))
    other = Device(machine, world.relay, device.token, dict(device.secrets), device.local_memory)
    world.devices.append(other)
    return other


def revoke(world: World, name: str) -> None:
    peer = relay_peers.find_peer(world.home.store, name)
    relay_peers.set_revoked(world.home.store, peer.id, world.home.machine.now)


def rotate(world: World, name: str) -> None:
    peer = relay_peers.find_peer(world.home.store, name)
    relay_peers.set_generation(world.home.store, peer.id, peer.generation + 1, peer.accepted_from)


def reopen(machine_of: Device | Home) -> None:
    machine = machine_of.machine
    machine.store.close()
    machine.store = Store.open(machine.store.path)


def backfill(device: Device) -> Tally:
    """Import what was there before crystal."""
    capture, tally = device.capture("past"), Tally()
    for past in plan_past(capture, [], None):
        import_past(capture, past, tally, lambda _: None)
    return tally
