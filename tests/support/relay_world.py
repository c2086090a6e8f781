"""A home machine, its devices and a real relay in one process: real stores, real crypto, real HTTP messages.

Between each machine and the relay stands ``Weather``, which a test makes bad: it drops, delays, damages and replays.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from crystal.capture.engine import Capture
from crystal.ingest.ingest import Claim, IngestReport, ingest
from crystal.model.capture import Project, Segment
from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone, add_tombstones
from crystal.store.sync import inbox, past, relay_forgotten, relay_peers
from crystal.store.sync.relay_peers import NewLink, Peer
from crystal.sync.arrival import Arrivals
from crystal.sync.cleaning import SealedOutbox
from crystal.sync.client import RelayClient
from crystal.sync.delivery import Delivery, DeliveryReport
from crystal.sync.documents import Document, put_document
from crystal.sync.envelope.blob import Channel
from crystal.sync.envelope.link import LinkKeys, link_keys
from crystal.sync.forgotten import forgotten_for, put_again, put_forgotten, read_tombstone_batch, take_from_home
from crystal.sync.keys.derive import device_secret
from crystal.sync.opening import PollReport, Sender
from crystal.sync.past import send_some_past
from crystal.sync.poller import Poller
from crystal.sync.receipts import mend_streams, receipts_for
from crystal.sync.sending import Link
from crystal.sync.sink import DeviceSink
from crystal.sync.taking import MessageHandler
from relay_worker.app import RelayApp
from relay_worker.model import Token
from relay_worker.services import Services
from relay_worker.settings import Settings
from relay_worker.store import accounts, choice
from relay_worker.store.sqlite import SqliteStore
from relay_worker.tokens import new_token
from tests.support.capture_machine import NOW, CaptureMachine
from tests.support.over_httpx import OverHttpx
from tests.support.relay_weather import Weather
from tests.support.served_app import ServedApp

ROOT = bytes(range(32))


@dataclass
class RelaySite:
    """The relay and its disk. It can be wiped, restarted, and put back from a copy."""

    folder: Path
    now: int = NOW
    settings: Settings = field(default_factory=lambda: Settings(rate=0.0, refused_rate=0.0, pair_rate=0.0))

    def __post_init__(self) -> None:
        self.tokens: dict[str, Token] = {}
        self.start()

    def start(self) -> None:
        self.store = SqliteStore(self.folder, self.settings, now=self.now)
        self.served = ServedApp(RelayApp(Services(self.settings, self.store, now=lambda: self.now))).start()

    def stop(self) -> None:
        self.served.stop()
        self.store.close()

    def transport(self) -> httpx.BaseTransport:
        return self.served.transport

    def wipe(self) -> None:
        """Lose everything but the operator's tokens."""
        self.stop()
        shutil.rmtree(self.folder)
        self.start()
        for token in self.tokens.values():
            self.add(token)

    def keep(self, copy: Path) -> None:
        """Copy the disk."""
        self.stop()
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder, copy)
        self.start()

    def go_back(self, copy: Path) -> None:
        """Put the disk back from a copy."""
        self.stop()
        shutil.rmtree(self.folder)
        shutil.copytree(copy, self.folder)
        self.start()
        for token in self.tokens.values():
            with contextlib.suppress(Exception):
                self.add(token)

    def expire(self) -> None:
        """Delete what has waited too long."""
        self.served.call(self.store.sweep(self.now))

    def rot(self) -> None:
        """Let the disk forget a bit of every body."""
        self.stop()
        for file in sorted(self.folder.rglob("*.db")):
            with contextlib.closing(sqlite3.connect(file)) as db, db:
                for rowid, body in db.execute("SELECT rowid, body FROM blobs WHERE body IS NOT NULL").fetchall():
                    rotten = bytes(body[:200]) + bytes([body[200] ^ 1]) + bytes(body[201:])
                    db.execute("UPDATE blobs SET body = ? WHERE rowid = ?", (rotten, rowid))
        self.start()

    def add(self, token: Token) -> None:
        with choice.transaction(Settings(data_dir=self.folder), create=True) as rows:
            accounts.add(rows, token)

    def token(self, label: str, *scopes: str) -> str:
        token, text = new_token("default", label, scopes, self.now, os.urandom)
        self.add(token)
        self.tokens[label] = token
        return text


@dataclass
class Home:
    """The home machine."""

    machine: CaptureMachine
    relay: RelaySite
    at_once: int = 1

    def __post_init__(self) -> None:
        self.weather = Weather(self.relay.transport)
        self.client = RelayClient(
            "http://127.0.0.1:8600", self.relay.token("home", "home"), transport=OverHttpx(self.weather)
        )

    @property
    def store(self) -> Store:
        return self.machine.store

    def peers(self) -> list[Peer]:
        """The devices."""
        return relay_peers.all_peers(self.store, "device")

    def senders(self) -> dict[bytes, Sender]:
        found = {}
        for peer in relay_peers.all_peers(self.store, "device"):
            for generation in range(max(1, peer.accepted_from - 3), peer.generation + 4):
                keys = link_keys(device_secret(ROOT, peer.device_id, generation), "up")
                refused = "revoked" if peer.revoked_at else "old-key" if generation < peer.accepted_from else None
                found[keys.key_id] = Sender(peer, generation, keys, refused)
        return found

    def poller(self) -> Poller:
        arrivals = Arrivals(
            self.store, self.machine.home, lambda agent: self.machine.home / "agents" / agent / "memory"
        )
        return Poller(
            self.store,
            self.client,
            MessageHandler(arrivals, "cc-home"),
            self.senders,
            lambda: self.machine.now,
            at_once=self.at_once,
        )

    def poll(self) -> PollReport:
        """Take what has come, and tell every device."""
        report = self.poller().poll()
        self.tell()
        return report

    def tell(self) -> None:
        for peer in relay_peers.all_peers(self.store, "device"):
            if peer.revoked_at is None:
                body: dict[str, object] = {"home": "home", **receipts_for(self.store, peer)}
                if (forgotten := forgotten_for(self.store, peer)) is not None:
                    body["forgotten"] = forgotten
                if peer.generation > peer.accepted_from:
                    secret = device_secret(ROOT, peer.device_id, peer.accepted_from + 1)
                    body["rotate"] = {"generation": peer.accepted_from + 1, "secret": secret.hex()}
                now = self.machine.now
                is_late = not relay_peers.was_sent_since(peer, Channel.RECEIPTS, now - 6 * 3_600_000, now)
                if is_late or not relay_peers.was_sent(peer, Channel.RECEIPTS, body):
                    put_document(self.store, self.client, self.link(peer), Channel.RECEIPTS, body, self.machine.now)

    def link(self, peer: Peer) -> Link:
        def keys_of(generation: int) -> LinkKeys:
            return link_keys(device_secret(ROOT, peer.device_id, generation), "down")

        return Link(replace(peer, generation=peer.accepted_from), keys_of, peer.down_prefix, os.urandom)

    def missing(self) -> dict[bytes, list[int]]:
        """What home reports as sealed by a device and not committed here, by stream."""
        return {stream: list(seqs) for stream, seqs in inbox.missing(self.store).items()}


@dataclass
class Device:
    """A device of the home machine."""

    machine: CaptureMachine
    relay: RelaySite
    token: str
    secrets: dict[int, bytes]
    local_memory: bool = True

    def __post_init__(self) -> None:
        self.weather = Weather(self.relay.transport)
        self.client = RelayClient("http://127.0.0.1:8600", self.token, transport=OverHttpx(self.weather))

    @property
    def store(self) -> Store:
        return self.machine.store

    def peer(self) -> Peer:
        peer = relay_peers.home_peer(self.store)
        assert peer is not None
        return peer

    def link(self) -> Link:
        def keys_of(generation: int) -> LinkKeys | None:
            secret = self.secrets.get(generation)
            return None if secret is None else link_keys(secret, "up")

        peer = self.peer()
        return Link(peer, keys_of, peer.up_prefix, os.urandom)

    def sink(self, lane: str = "live") -> DeviceSink:
        def find_project(cwd: str) -> Project:
            return Project(cwd, None, None, Path(cwd).name)

        def store_here(segment: Segment, claim: Claim) -> IngestReport:
            return ingest(
                self.store,
                segment,
                ldm_home=self.machine.home,
                archive_folder=self.machine.home / f"agents/{self.agent}/memory/transcripts",
                find_project=find_project,
                now=self.machine.now,
                claim=claim,
            )

        return DeviceSink(
            self.store,
            self.link,
            lane,  # type: ignore[arg-type]
            find_project,
            lambda: self.machine.now,
            store_here if self.local_memory else None,
        )

    @property
    def agent(self) -> str:
        return f"cc-{self.machine.device}"

    def capture(self, lane: str = "live") -> Capture:
        return self.machine.capture()._replace(sink=self.sink(lane), agent=self.agent)

    def sweep(self, lane: str = "live") -> None:
        """Capture what is in the transcripts."""
        capture = self.capture(lane)
        tally = capture.sweep()
        assert not tally.problems, tally.problems

    def say(self, session: str, *lines: bytes) -> None:
        """Write lines into a transcript, and capture them."""
        with self.machine.transcript(session).open("ab") as file:
            file.writelines(lines)
        self.sweep()

    def deliver(self, *, skip_delay: bool = True) -> DeliveryReport:
        """Send, and read what home tells."""
        with self.store.transaction():
            put_again(self.store, self.link(), self.machine.now)
            put_forgotten(self.store, self.link(), self.machine.now)
        send_some_past(self.store, self.link(), ldm_home=self.machine.home, now=self.machine.now)
        down = {keys.key_id: keys for keys in (link_keys(secret, "down") for secret in self.secrets.values())}
        return Delivery(
            self.store,
            self.client,
            self.link(),
            down_keys=down.get,
            clock=lambda: self.machine.now,
            send_all=self.send_all,
            on_state=self.on_state,
            about=self.about,
        ).deliver(skip_delay=skip_delay)

    def about(self) -> dict[str, object]:
        return {"forgotten": relay_forgotten.confirmed_tombstones(self.store)}

    def forget(self, *tombstones: Tombstone) -> None:
        """Note that something is forgotten, and seal that for home in the same transaction."""
        with self.store.transaction():
            add_tombstones(self.store, tombstones, self.machine.now)
            put_forgotten(self.store, self.link(), self.machine.now)

    def clean(self) -> None:
        """Let the outbox forget what was forgotten."""
        self.outbox().clean()

    def outbox(self) -> SealedOutbox:
        """What waits here, to be cleaned."""
        links = {self.peer().id: self.link()}
        return SealedOutbox(self.store, lambda: links, lambda: self.machine.now, self.machine.device)

    def send_all(self) -> None:
        with self.store.transaction():
            relay_forgotten.send_all_again(self.store)
        if past.read_place(self.store) is None:
            with self.store.transaction():
                past.begin(self.store)

    def on_state(self, link: Link, document: Document) -> Link:
        told = read_tombstone_batch(document.body.get("forgotten"))
        if told is not None:
            with self.store.transaction():
                take_from_home(self.store, self.peer(), told, now=self.machine.now, as_of=document.as_of)
        rotate = document.body.get("rotate")
        if not rotate or rotate["generation"] != link.peer.generation + 1:
            return link
        self.secrets[rotate["generation"]] = bytes.fromhex(rotate["secret"])
        with self.store.transaction():
            relay_peers.set_generation(self.store, link.peer.id, rotate["generation"], rotate["generation"])
        renewed = self.link()
        mend_streams(self.store, renewed, self.machine.now)
        return renewed


@dataclass
class World:
    """Everything, in a folder."""

    folder: Path

    def __post_init__(self) -> None:
        self.relay = RelaySite(self.folder / "relay")
        home = CaptureMachine.at(self.folder / "home")
        home.device = "home"
        self.home = Home(home, self.relay)
        self.devices: list[Device] = []

    def device(self, name: str, *, local_memory: bool = True) -> Device:
        """Pair another device, offline."""
        device_id, up, down = os.urandom(16), os.urandom(8), os.urandom(8)
        token = self.relay.token(
            up.hex(), f"write:{up.hex()}", f"read:{down.hex()}", f"ack:{down.hex()}", "objects:read"
        )
        with self.home.store.transaction():
            relay_peers.add_peer(
                self.home.store, NewLink(device_id, "device", name, None, 1, up, down, None), self.home.machine.now
            )
        machine = CaptureMachine.at(self.folder / name)
        machine.device = name
        machine.capture().meet()
        with machine.store.transaction():
            relay_peers.add_peer(machine.store, NewLink(device_id, "home", "home", None, 1, up, down), machine.now)
        device = Device(machine, self.relay, token, {1: device_secret(ROOT, device_id, 1)}, local_memory)
        self.devices.append(device)
        return device

    def pass_time(self, ms: int) -> None:
        self.relay.now += ms
        for machine in (self.home.machine, *(device.machine for device in self.devices)):
            machine.now += ms

    def settle(self, rounds: int = 12) -> None:
        """Let good weather come and everybody do what there is to do."""
        for _ in range(rounds):
            self.pass_time(3_700_000)
            for device in self.devices:
                device.deliver()
            self.home.poll()

    def close(self) -> None:
        self.relay.stop()
        for machine in (self.home.machine, *(device.machine for device in self.devices)):
            machine.store.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RelaySite]:
    site = RelaySite(tmp_path / "relay")
    yield site
    site.stop()
