"""Whatever happens between home, relay and devices: in the end every mirror is home's memory, row for row."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from crystal.errors import CrystalError
from crystal.store import Store
from crystal.store.capture.privacy import add_private_lines
from crystal.store.health import checks
from crystal.store.search.vectors import ensure_generation, pending_chunks, promote, put_vectors, refuse_chunks
from crystal.store.sync import mirror_apply
from crystal.store.sync.mirror_export import decide
from crystal.sync.errors import RelayUnavailableError
from crystal.sync.mirror import fetching, publishing, upkeep
from crystal.sync.mirror.publishing import roll_key, take_device_report
from tests.support.embedding_store import Dice
from tests.support.mirror_world import FakeRelay, World, assert_equal
from tests.support.store_factory import NOW, add_turn, open_store

SESSIONS = ("s1", "s2", "s3", "s4")
WORDS = ("car", "kitten", "money", "storm", "login", "数据库", "a\u2028b", "naïve", "x" * 300)


@contextlib.contextmanager
def small_steps():
    """Objects of a few rows, merged three at a time: everything happens within a short run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "FAN", 3)
        patch.setattr(upkeep, "NEWEST", 2)
        patch.setattr(publishing, "decide", functools.partial(decide, raw_bytes=4000))
        yield


class Crash(BaseException):
    """The process is killed."""


def crash_at(store: Store, left: list[int]) -> None:
    def trace(_cursor, _sql, _bindings):
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        return True

    store.db.exec_trace = trace


def fail_after(relay: FakeRelay, requests: int) -> None:
    left = [requests]

    def fail(_what: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise RelayUnavailableError("no answer")

    relay.fail = fail


class Mirrors(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.patches = contextlib.ExitStack()
        self.patches.enter_context(small_steps())
        self.folder = Path(tempfile.mkdtemp())
        self.dice = random.Random(seed)
        self.world = World.make(self.folder, seed)
        self.devices = [self.world.device("one"), self.world.device("two")]
        self.model = Dice("first", 4)
        self.backup: Path | None = None

    # ------------------------------------------------------------------------------------------------------ home

    @rule(count=st.integers(1, 6), session=st.sampled_from(SESSIONS), device=st.sampled_from(["desk", "laptop"]))
    def say(self, count: int, session: str, device: str) -> None:
        for _ in range(count):
            text = " ".join(self.dice.choices(WORDS, k=self.dice.randint(1, 30)))
            project = self.dice.choice([None, "/code/shop", "/code/engine"])
            uuid = f"{self.dice.getrandbits(64):x}"
            add_turn(self.world.store, text, session=session, device=device, project=project, uuid=uuid)

    @rule(session=st.sampled_from(SESSIONS))
    def fork(self, session: str) -> None:
        known = [uuid for (uuid,) in self.world.store.rows("SELECT uuid FROM turns ORDER BY id")]
        if known:
            add_turn(self.world.store, "the same", session=session, uuid=self.dice.choice(known))

    @rule(count=st.integers(0, 10))
    def embed_some(self, count: int) -> None:
        store, model = self.world.store, self.model
        generation = ensure_generation(store, model.provider, model.model, model.dimension, NOW)
        waiting = pending_chunks(store, generation, 10_000)[:count]
        refused = [ident for ident, _, _ in waiting if ident % 7 == 0]
        refuse_chunks(store, generation, refused)
        put_vectors(store, generation, [(i, model.embed_query(t)) for i, _, t in waiting if i not in refused])
        promote(store, generation)

    @rule(name=st.sampled_from(["first", "second", "third"]), dimension=st.sampled_from([4, 600]))
    def choose_model(self, name: str, dimension: int) -> None:
        self.model = Dice(name, dimension)

    @rule()
    def forget_a_turn(self) -> None:
        store = self.world.store
        known = [ident for (ident,) in store.rows("SELECT id FROM turns ORDER BY id")]
        turns = self.dice.sample(known, min(2, len(known)))
        with store.transaction():
            checks.drop_turns(store, turns)

    @rule(session=st.sampled_from(SESSIONS))
    def forget_a_session(self, session: str) -> None:
        store = self.world.store
        row = store.value("SELECT id FROM sessions WHERE session_id = ?", (session,))
        if row is not None:
            with store.transaction():
                checks.drop_turns(store, [i for (i,) in store.rows("SELECT id FROM turns WHERE session = ?", (row,))])
                store.execute("DELETE FROM turn_copies WHERE session = ?", (row,))
                store.execute("DELETE FROM sessions WHERE id = ?", (row,))

    @rule(old=st.sampled_from(["desk", "laptop", "phone"]), new=st.sampled_from(["desk", "laptop", "phone"]))
    def rename_a_device(self, old: str, new: str) -> None:
        with self.world.store.transaction():
            for table in ("chunks", "sessions"):
                self.world.store.execute(f"UPDATE {table} SET device = ? WHERE device = ?", (new, old))

    @rule(ident=st.integers(1, 4), key=st.sampled_from([None, "name", "shell"]), act=st.sampled_from(["put", "delete"]))
    def remember(self, ident: int, key: str | None, act: str) -> None:
        store = self.world.store
        if act == "delete":
            store.execute("DELETE FROM memories WHERE id = ?", (ident,))
        else:
            with store.transaction():
                store.execute("UPDATE memories SET key = NULL WHERE key = ?", (key,))
                store.execute(
                    "INSERT INTO memories VALUES (?, ?, ?, 'fact', ?, NULL, 'active', 'cli', 'cc', 'desk', NULL, 1, 2)"
                    " ON CONFLICT (id) DO UPDATE SET text = excluded.text, key = excluded.key",
                    (ident, f"mem-{ident:012x}", f"fact {self.dice.random()}", key),
                )

    @rule(number=st.integers(0, 3), act=st.sampled_from(["put", "delete"]))
    def learn(self, number: int, act: str) -> None:
        store, line = self.world.store, f"{number}e1"
        with store.transaction():
            store.execute("DELETE FROM learned_from WHERE line = ?", (line,))
            if act == "put":
                store.insert("learned_from", "memory, line, session, kind, confidence, at", "mem-1", line, "s1", "fact",
                             self.dice.random(), NOW)  # fmt: skip

    @rule(number=st.integers(0, 5))
    def keep_private(self, number: int) -> None:
        with self.world.store.transaction():
            add_private_lines(self.world.store, [f"{number}e1", f"private-{self.dice.random()}"])

    # --------------------------------------------------------------------------------------------------- publish

    @rule()
    def publish(self) -> None:
        self.world.publish()

    @rule(requests=st.integers(0, 8))
    def publish_while_the_relay_fails(self, requests: int) -> None:
        fail_after(self.world.relay, requests)
        with contextlib.suppress(CrystalError):
            self.world.publish()
        self.world.relay.fail = lambda _what: None

    @rule(statements=st.integers(0, 150))
    def publish_and_be_killed(self, statements: int) -> None:
        crash_at(self.world.store, [statements])
        with contextlib.suppress(Crash):
            self.world.publish()
        self.world.store.db.exec_trace = None
        self.world.store.close()
        self.world.store = open_store(self.folder)

    @rule()
    def roll(self) -> None:
        roll_key(self.world.store, self.world.dice.randbytes, self.world.now)

    @rule(hours=st.integers(1, 40))
    def wait(self, hours: int) -> None:
        self.world.now += hours * 3_600_000

    # --------------------------------------------------------------------------------------------------- trouble

    @rule()
    def back_up_home(self) -> None:
        target = self.folder / "backup"
        target.unlink(missing_ok=True)
        self.world.store.execute("VACUUM INTO ?", (str(target),))
        self.backup = target

    @rule()
    def restore_home(self) -> None:
        if self.backup is not None:
            self.world.store.close()
            for path in self.folder.glob("crystal.db*"):
                path.unlink()
            shutil.copy(self.backup, self.folder / "crystal.db")
            self.world.store = open_store(self.folder)

    @rule(share=st.sampled_from([0.3, 1.0]))
    def relay_loses(self, share: float) -> None:
        for ident in [one for one in self.world.relay.kept if self.dice.random() < share]:
            del self.world.relay.kept[ident]

    @rule(which=st.integers(0, 1))
    def device_loses_its_mirror(self, which: int) -> None:
        for path in self.devices[which].path.parent.iterdir():
            path.unlink()

    # --------------------------------------------------------------------------------------------------- devices

    @rule(which=st.integers(0, 1))
    def sync(self, which: int) -> None:
        self.sync_and_tell(which)

    @rule(which=st.integers(0, 1), requests=st.integers(0, 6))
    def sync_while_the_relay_fails(self, which: int, requests: int) -> None:
        fail_after(self.world.relay, requests)
        with contextlib.suppress(CrystalError):
            self.world.sync(self.devices[which])
        self.world.relay.fail = lambda _what: None

    @rule(which=st.integers(0, 1), stops=st.integers(0, 3))
    def sync_and_stop(self, which: int, stops: int) -> None:
        left = iter(range(stops))
        if self.world.manifest is not None:
            with contextlib.suppress(CrystalError):
                self.devices[which].take(self.world.manifest, self.world.serial)
            self.devices[which].fetch(self.world.relay, should_stop=lambda: next(left, None) is None)

    @rule(which=st.integers(0, 1), statements=st.integers(0, 120))
    def sync_and_be_killed(self, which: int, statements: int) -> None:
        opened: list[Store] = []
        left = [statements]

        def opening(path: Path) -> Store:
            store = mirror_apply.open_mirror(path)
            crash_at(store, left)
            opened.append(store)
            return store

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fetching, "open_mirror", opening)
            with contextlib.suppress(CrystalError, Crash):
                self.world.sync(self.devices[which])
        for store in opened:
            store.close()

    @rule(which=st.integers(0, 1))
    def sync_and_be_killed_while_the_copy_is_put_in_place(self, which: int) -> None:
        def killed(*_: object) -> bool:
            raise Crash

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mirror_apply, "empty_log", killed)
            with contextlib.suppress(CrystalError, Crash):
                self.world.sync(self.devices[which])

    @rule(which=st.integers(0, 1), bit=st.integers(0, 8000))
    def sync_while_the_relay_lies(self, which: int, bit: int) -> None:
        def flipped(_ident: bytes, data: bytes) -> bytes:
            at = bit % (8 * len(data))
            return data[: at // 8] + bytes([data[at // 8] ^ 1 << at % 8]) + data[at // 8 + 1 :]

        self.world.relay.spoil = flipped
        self.sync_and_tell(which)
        self.world.relay.spoil = lambda _ident, data: data

    def sync_and_tell(self, which: int):
        report = None
        with contextlib.suppress(CrystalError):
            report = self.world.sync(self.devices[which])
        told = json.loads(json.dumps(self.devices[which].told()))
        take_device_report(self.world.store, told, now=self.world.now)
        return report

    @invariant()
    def a_mirror_is_always_whole_in_itself(self) -> None:
        for mirror in getattr(self, "devices", ()):
            if mirror.path.exists():
                with Store.open_existing(mirror.path) as store:
                    assert store.value("PRAGMA quick_check") == "ok"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.devices.append(self.world.device("three"))
            for _ in range(8):
                self.world.now += 2 * 3_600_000
                self.world.publish()
                reports = [self.sync_and_tell(which) for which in range(3)]
                if all(report and report.is_whole for report in reports):
                    break
            self.world.now += 48 * 3_600_000
            self.world.publish()
            if self.world.manifest is not None:
                for which in range(3):
                    report = self.sync_and_tell(which)
                    assert report is not None
                    assert report.is_whole, report
                    assert_equal(self.world, self.devices[which])
                    assert self.devices[which].status().problem is None
        finally:
            self.world.store.close()
            self.patches.close()
            shutil.rmtree(self.folder)


class TestMirrors(Mirrors.TestCase):
    settings = settings(max_examples=2, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
class TestMirrorsAtLength(Mirrors.TestCase):
    settings = settings(max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
