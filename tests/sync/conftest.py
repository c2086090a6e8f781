"""Two machines and a relay in this process; the places of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import pytest

from crystal.app.sync import pair_device, pair_mailbox
from crystal.sync.keys.places import Choice, KeyPlaces
from tests.support.fake_keyring import FakeKeyring
from tests.support.pairing_boxes import Pairs, two_machines
from tests.support.relay_fate import faults
from tests.support.relay_world import Device, RelaySite, World, site
from tests.support.two_machines import Computer, RelayProcess, make_home

__all__ = ["site"]


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    """A relay in a process of its own."""
    process = RelayProcess(tmp_path_factory.mktemp("site") / "relay").start()
    yield process
    process.stop()


@pytest.fixture
def desk(tmp_path: Path, relay: RelayProcess) -> Computer:
    """A home machine. Each test has an account of its own: its root is its own."""
    computer = Computer(tmp_path / "desk")
    make_home(computer, relay, "desk")
    return computer


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A home and its devices, which are sound in the end and lack nothing."""
    world = World(tmp_path)
    yield world
    for machine in (world.home.machine, *(device.machine for device in world.devices if device.local_memory)):
        machine.assert_sound()
    assert faults(world) == []
    world.close()


@pytest.fixture
def device(world: World) -> Device:
    return world.device("laptop")


@pytest.fixture
def pairs(tmp_path: Path, site: RelaySite, monkeypatch: pytest.MonkeyPatch) -> Pairs:
    """A home that is ready to pair and a machine that keeps to itself, neither of which waits for long."""
    monkeypatch.setattr(pair_mailbox, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(pair_mailbox, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(pair_mailbox, "ASK_SECONDS", 5.0)
    monkeypatch.setattr(pair_device, "DONE_SECONDS", 5.0)
    return two_machines(tmp_path, site)


@pytest.fixture
def nothing_is_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file comes into being, anywhere below the home folder, whatever a relay answers."""
    monkeypatch.chdir(home)
    before = set(home.parent.rglob("*"))
    yield
    assert set(home.parent.rglob("*")) == before


@pytest.fixture
def ring() -> Iterator[FakeKeyring]:
    before = keyring.get_keyring()
    fake = FakeKeyring()
    keyring.set_keyring(fake)
    yield fake
    keyring.set_keyring(before)


@pytest.fixture
def data(home: Path) -> Path:
    return home / ".ldm/memory"


@pytest.fixture
def at(home: Path, data: Path) -> Callable[..., KeyPlaces]:
    def places(
        chosen: Choice | None = None, command: Callable[[str], str] | None = None, **env: str | Path
    ) -> KeyPlaces:
        return KeyPlaces(data, home, {name: str(value) for name, value in env.items()}, chosen, command)

    return places
