"""Whole machines and a relay between them, which die when a test wants it."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crystal.app import relay_links
from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine
from crystal.app.sync.device import send_past
from crystal.app.sync.devices import device_scopes
from crystal.store import Store
from crystal.store.sync.relay_peers import NewLink, add_peer
from crystal.sync.client import RelayClient
from crystal.sync.keys.derive import device_secret
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.places import RelayToken
from tests.support.over_httpx import OverHttpx
from tests.support.pairing_boxes import ROOT, URL, Box
from tests.support.relay_weather import Storm, Weather
from tests.support.relay_world import RelaySite

_FSYNC = os.fsync


class Crash(BaseException):
    """The process is killed."""


@dataclass
class Death:
    """Ends a process at the so manieth statement, or the so manieth change of a file. Afterwards nothing works."""

    statements: int = -1
    files: int = -1
    is_dead: bool = False

    def trace(self, _cursor: object, sql: str, _bindings: object) -> bool:
        self.statements -= 1
        if self.statements == 0:
            self.is_dead = True
        if self.is_dead and not sql.startswith("ROLLBACK"):  # which the end of the process is to a transaction
            raise Crash
        return True

    def touch(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.files -= 1
        if self.files == 0:
            self.is_dead = True
        if self.is_dead:
            raise Crash


@dataclass
class Said:
    """A line that somebody said: its word, its id, where and when."""

    word: str
    uuid: str
    session: str
    cwd: str
    at: int
    machine: str
    echoes: bool = False


@dataclass
class Place:
    """One machine."""

    box: Box
    weather: Weather
    local_memory: bool = True
    is_home: bool = False

    def __post_init__(self) -> None:
        self.storm = Storm(self.weather)
        self.name = self.box.home.name

    @contextlib.contextmanager
    def open(self) -> Iterator[Machine]:
        with self.box.open() as machine:
            yield machine

    def client(self, machine: Machine) -> RelayClient:
        token = relay_links.key_places(machine).read_token().reveal()
        return RelayClient(URL, token, transport=OverHttpx(self.weather))

    @property
    def ldm(self) -> Path:
        return self.box.home / ".ldm"

    def transcript(self, session: str, cwd: str) -> Path:
        folder = self.box.home / ".claude" / "projects" / cwd.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{session}.jsonl"


@dataclass
class Machines:
    """Home and its devices, what was said on them, and what of it is to be forgotten."""

    folder: Path
    dice: random.Random
    devices: tuple[tuple[str, bool], ...] = (("laptop", True), ("phone", False))
    said: list[Said] = field(default_factory=list)
    memories: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    ahead: int = 0
    death: Death | None = None
    backup: tuple[Place, Path] | None = None
    unsure: set[str] = field(default_factory=set)
    copied: set[str] = field(default_factory=set)
    remembered_then: set[str] = field(default_factory=set)
    orders: list[tuple[set[str], set[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.site = RelaySite(self.folder / "relay")
        self.places: list[Place] = []
        self.stack = contextlib.ExitStack()
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        real = time.time_ns
        patch.setattr(time, "time_ns", lambda: real() + self.ahead * 1_000_000)
        self._make_mortal(patch)
        self._make_home()
        for name, local in self.devices:
            self.join(name, local_memory=local)

    def close(self) -> None:
        self.stack.close()
        self.site.stop()

    # -- machines ----------------------------------------------------------------------------------------------------

    def _make_mortal(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("fsync", "replace", "rename", "unlink"):
            patch.setattr(os, name, self._mortal(getattr(os, name)))
        opened = Store.open.__func__  # type: ignore[attr-defined]

        def mortal_open(kind: type[Store], path: Path) -> Store:
            store = opened(kind, path)
            store.db.execute("PRAGMA synchronous = OFF")
            if self.death is not None:
                store.db.exec_trace = self.death.trace
            return store  # type: ignore[no-any-return]

        patch.setattr(Store, "open", classmethod(mortal_open))

    def _mortal(self, call: Callable[..., object]) -> Callable[..., object]:
        def mortal(*args: object, **more: object) -> object:
            if self.death is not None:
                self.death.touch()
            return None if call is _FSYNC else call(*args, **more)

        return mortal

    def _make_home(self) -> None:
        box = Box(self.folder, "mini", "cc-mini")
        token = self.site.token("home", "home")
        for key, value in (("role", "home"), ("relay.url", URL), ("embedding.provider", "none")):
            box.set(key, value)
        place = Place(box, Weather(self.site.transport), is_home=True)
        with place.open() as machine:
            relay_links.key_places(machine).write_key(RelayKey("root", ROOT))
            relay_links.key_places(machine).write_token(RelayToken(token))
            make_capture(machine).meet()
        self.places.append(place)

    @property
    def home(self) -> Place:
        return next(place for place in self.places if place.is_home)

    def join(self, name: str, *, local_memory: bool = True) -> Place:
        """Pair another device, by hand."""
        device_id, up, down = os.urandom(16), os.urandom(8), os.urandom(8)
        token = self.site.token(up.hex(), *device_scopes(up, down))
        with self.home.open() as machine, machine.store.transaction():
            link = NewLink(device_id, "device", name, f"cc-{name}", 1, up, down, None)
            add_peer(machine.store, link, machine.now())
        box = Box(self.folder, name, f"cc-{name}")
        for key, value in (("role", "device"), ("relay.url", URL), ("embedding.provider", "none")):
            box.set(key, value)
        box.set("relay.local_memory", local_memory)
        place = Place(box, Weather(self.site.transport), local_memory)
        with place.open() as machine:
            relay_links.key_places(machine).write_key(
                RelayKey("device", device_secret(ROOT, device_id, 1), device_id, 1)
            )
            relay_links.key_places(machine).write_token(RelayToken(token))
            make_capture(machine).meet()
            with machine.store.transaction():
                add_peer(machine.store, NewLink(device_id, "home", "mini", None, 1, up, down), machine.now())
            send_past(machine)
        self.places.append(place)
        return place


def opened_outbox(machine: Machine) -> list[bytes]:
    """What every kept blob of the outbox says."""
    from crystal.store.sync import outbox, relay_peers
    from crystal.sync.envelope.blob import open_blob

    found = []
    keys = relay_links.relay_keys(machine)
    for peer in relay_peers.all_peers(machine.store):
        for stream in outbox.streams(machine.store, peer.id):
            direction = "up" if peer.side == "home" else "down"
            own = keys.link(peer.device_id, stream.generation, direction)  # type: ignore[arg-type]
            for blob in outbox.kept_from(machine.store, stream.id, 1):
                sealed = outbox.sealed_blob(machine.store, stream.id, blob.seq) or b""
                opened = open_blob(sealed, own, channel=stream.channel, stream=stream.stream, seq=blob.seq, prev=None)
                found.append(opened.payload)
    return found
