"""The central property: whatever befalls devices, relay, home and the ways between them, nothing is lost or doubled.

Source: the threat table of docs/explanation/threats.md; each rule is one row of it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from crystal.errors import CrystalError
from crystal.store.sync import inbox, outbox, relay_peers
from tests.support.capture_machine import line
from tests.support.killed import killed_at
from tests.support.relay_fate import backup, clone, faults, reopen, restore, revoke, rotate
from tests.support.relay_weather import FAULTS, Storm
from tests.support.relay_world import Device, Home, World
from tests.support.said_rows import said

DAY = 86_400_000
WHO = st.integers(0, 3)
SESSIONS = ("a", "b")


class Relays(RuleBasedStateMachine):
    """Two devices, a relay and a home in whatever order of events."""

    @initialize(has_private=st.booleans())
    def begin(self, has_private: bool) -> None:
        # Of private lines only their ids are known: where a copy of the device says a line without id in their
        # place, nothing tells that it is another one, and it stays out with them.
        self.has_private = has_private
        self.folder = Path(tempfile.mkdtemp(prefix="relay-machine-"))
        self.world = World(self.folder)
        self.devices = [self.world.device("laptop"), self.world.device("tower")]
        self.storms = [Storm(self.world.home.weather), *(Storm(device.weather) for device in self.devices)]
        self.captured: set[tuple[object, ...]] = set()
        self.count = 0
        self.revoked: set[bytes] = set()
        self.cloned: set[bytes] = set()
        self.is_lossy = False
        self.copies: dict[str, Path] = {}

    def device(self, who: int) -> Device:
        return self.world.devices[who % len(self.world.devices)]

    # -- what machines do ---------------------------------------------------------------------------------------------

    @rule(who=WHO, session=st.sampled_from(SESSIONS), size=st.sampled_from([1, 1, 3, 60]), kind=st.integers(0, 5))
    def say(self, who: int, session: str, size: int, kind: int) -> None:
        device = self.device(who)
        kind = 0 if kind == (1 if self.has_private else 4) else kind
        self.count += 1
        words = [f"{self.count} of {who}: " + "w" * (size * 40 + 3 * self.count)]  # no two lines are of one length
        fields = {"uuid": None} if kind == 1 else {"isSidechain": True} if kind == 2 else {}
        path = device.machine.transcript(session)
        if kind == 3:
            path = device.machine.root / "p" / session / "subagents" / f"agent-{session}{self.count % 2}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
        if kind == 4:
            device.machine.private_projects = ("/hush",)
            fields = {"cwd": "/hush"}
        if kind == 5:
            path.write_bytes(line(f"replaced {self.count}"))
        with path.open("ab") as file:
            file.writelines(line(text, **fields) for text in words)
        device.sweep()
        self.captured |= set(said(device.store))

    @rule(who=WHO)
    def deliver(self, who: int) -> None:
        device = self.device(who)
        try:
            device.deliver()
        except CrystalError as error:
            assert error.exit_code in (4, 5), error  # noqa: PT017

    @rule()
    def poll(self) -> None:
        self.storms[0].heads.clear()
        try:
            report = self.world.home.poll()
        except CrystalError:
            return
        assert report is not None
        missing = self.world.home.missing()
        for one in inbox.all_streams(self.world.home.store):
            if one.state != "left" and one.channel == 1 and not one.forked:
                shown = self.storms[0].heads.get(one.stream.hex(), 0)
                assert missing.get(one.stream, []) == list(range(one.last_seq + 1, max(one.head, one.last_seq) + 1))
                assert shown <= max(one.head, one.last_seq)

    @rule(who=st.integers(-1, 3), statement=st.integers(1, 60))
    def crash(self, who: int, statement: int) -> None:
        machine: Home | Device = self.world.home if who < 0 else self.device(who)
        with killed_at(machine.machine.store, statement), contextlib.suppress(CrystalError):
            if isinstance(machine, Home):
                machine.poll()
            else:
                machine.deliver()
        reopen(machine)

    # -- what befalls them --------------------------------------------------------------------------------------------

    @rule(who=st.integers(0, 3), coming=st.lists(st.sampled_from(("", *FAULTS)), min_size=1, max_size=6))
    def storm(self, who: int, coming: list[str]) -> None:
        self.storms[who % len(self.storms)].expect(*coming)

    @rule(who=st.integers(0, 3))
    def arrive_late(self, who: int) -> None:
        self.storms[who % len(self.storms)].arrive_late()

    @rule(which=st.integers(0, 3), years=st.sampled_from([-10, -1, 1, 10]))
    def clock(self, which: int, years: int) -> None:
        machines = [self.world.home.machine, *(device.machine for device in self.world.devices)]
        machine = machines[which % len(machines)]
        machine.now = max(1_000_000_000_000, machine.now + years * 365 * DAY)

    @rule()
    def time_passes(self) -> None:
        self.world.pass_time(2 * 3_600_000)

    @rule()
    def wipe_relay(self) -> None:
        self.world.relay.wipe()

    @rule()
    def restart_relay(self) -> None:
        self.world.relay.stop()
        self.world.relay.start()

    @rule()
    def copy_relay(self) -> None:
        self.copies["relay"] = self.folder / "relay-copy"
        self.world.relay.keep(self.copies["relay"])

    @precondition(lambda self: "relay" in self.copies)
    @rule()
    def relay_goes_back(self) -> None:
        self.world.relay.go_back(self.copies["relay"])

    @rule(who=st.integers(-1, 3))
    def back_up(self, who: int) -> None:
        machine: Home | Device = self.world.home if who < 0 else self.device(who)
        name = "home" if who < 0 else f"device{who % len(self.world.devices)}"
        self.copies[name] = backup(machine, self.folder / f"{name}.db")

    @rule(who=st.integers(-1, 3))
    def go_back(self, who: int) -> None:
        machine: Home | Device = self.world.home if who < 0 else self.device(who)
        name = "home" if who < 0 else f"device{who % len(self.world.devices)}"
        if name in self.copies:
            self.is_lossy = self.is_lossy or who >= 0
            restore(machine, self.copies[name])

    @precondition(lambda self: len(self.world.devices) < 4)
    @rule(who=st.integers(0, 1))
    def copy_machine(self, who: int) -> None:
        device = self.device(who)
        ident = device.peer().device_id
        home = next(one for one in relay_peers.all_peers(self.world.home.store) if one.device_id == ident)
        if home.generation == home.accepted_from == device.peer().generation and ident not in self.cloned:
            self.cloned.add(ident)
            other = clone(self.world, device, f"copy{len(self.world.devices)}")
            self.storms.append(Storm(other.weather))

    @rule(who=st.integers(0, 1))
    def rotate(self, who: int) -> None:
        ident = self.device(who).peer().device_id
        peer = next(one for one in relay_peers.all_peers(self.world.home.store) if one.device_id == ident)
        if ident not in self.cloned and peer.generation == peer.accepted_from:
            self.cloned.add(ident)  # a copy made later is none of a state before the rotation
            rotate(self.world, peer.name)

    @precondition(lambda self: not self.revoked)
    @rule(who=st.just(1))
    def revoke(self, who: int) -> None:
        if self.count > 12:
            peer = self.device(who).peer()
            self.revoked.add(peer.device_id)
            revoke(self.world, self.device(who).machine.device)

    # -- the end ------------------------------------------------------------------------------------------------------

    def check_now(self) -> None:
        home = self.world.home
        home.machine.assert_sound()
        rows = said(home.store)
        assert len({(row[0], row[1], row[8]) for row in rows}) == len(rows), "a row is doubled"
        invented = [row for row in rows if row not in self.captured]
        assert invented == [], f"nobody said {invented[:3]}"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.check_now()
            self.calm_down()
        finally:
            with contextlib.suppress(Exception):
                self.world.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def calm_down(self) -> None:
        for storm in self.storms:
            storm.clear()
        for device in self.world.devices:
            device.sweep()
            self.captured |= set(said(device.store))
        self.world.settle(10)
        self.check_now()
        home = self.world.home
        revoked = {peer.device_id for peer in relay_peers.all_peers(home.store) if peer.revoked_at}
        living = [device for device in self.world.devices if device.peer().device_id not in revoked]
        rows = set(said(home.store))
        lost = [row for device in living for row in said(device.store) if row not in rows]
        assert lost == [], f"lost {lost[:3]}"
        if not self.is_lossy and not self.revoked:
            assert rows == self.captured
        assert [outbox.backlog(device.store).blobs for device in living] == [0] * len(living)
        prefixes = {device.peer().up_prefix for device in living}
        missing = {stream: seqs for stream, seqs in home.missing().items() if stream[:8] in prefixes}
        assert missing == {}
        if not self.revoked:
            stuck = [one for one in inbox.all_streams(home.store) if one.state not in ("ok", "left")]
            assert [(one.state, one.code, one.detail) for one in stuck] == []
            assert faults(self.world) == []


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal.sync.envelope.blob.PART_BYTES", 900)


@pytest.mark.slow
def test_home_is_the_union_of_its_devices_whatever_happens() -> None:
    chosen = settings(
        max_examples=15,
        stateful_step_count=45,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(Relays, settings=chosen)
