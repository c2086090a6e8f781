"""Memories on several machines: what a device remembers goes home, comes back to all, and merges wherever it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from crystal.app import memories as remembering
from crystal.app import memory_changes, memory_queries, relay_links
from crystal.app.context import Machine
from crystal.app.mirror import open_mirror
from crystal.app.search import prepare_search
from crystal.app.sync import devices, pair_device, pair_home
from crystal.app.sync.device import deliver_relay, send_past
from crystal.app.sync.handover import take_mirror
from crystal.app.sync.home import poll_relay
from crystal.config.edit import set_value
from crystal.config.harnesses import reader_versions
from crystal.memories.reconcile import find_faults, reconcile
from crystal.memories.record import read_record
from crystal.memories.serialize import InvalidMemoryError, memory_from_dict, memory_to_dict
from crystal.model.recall import Remembered
from crystal.search.engine import search
from crystal.store.memories import memories
from crystal.store.memories.learned import Evidence, add_evidence, evidence_for
from crystal.store.notes import READERS, write_note
from crystal.store.sync import outbox
from crystal.sync.client import RelayClient
from crystal.sync.taking import Remember, read_words
from tests.memories.test_memories import SHOP, forget, state, version
from tests.support.over_httpx import OverHttpx
from tests.support.pairing_boxes import URL, Box, Pairs, two_machines
from tests.support.relay_world import RelaySite, site
from tests.support.table import each_row

__all__ = ["site"]

Value = TypeVar("Value")


@dataclass
class Homestead:
    """A home and its devices, each a folder; all over one relay in this process."""

    pairs: Pairs
    devices: dict[str, Box] = field(default_factory=dict)

    def join(self, box: Box) -> None:
        name = box.home.name
        with self.pairs.home.open() as machine, self.pairs.client() as client:
            bundle = pair_device.read_invitation(str(pair_home.pair_offline(machine, client, name=name).secret)).bundle
        assert bundle is not None
        with box.open() as machine:
            pair_device.join_offline(machine, bundle)
        self.devices[name] = box

    def deliver(self, name: str) -> None:
        with self.devices[name].open() as machine:
            token = relay_links.key_places(machine).read_token().reveal()
            with RelayClient(URL, token, transport=OverHttpx(self.pairs.site.transport())) as client:
                assert deliver_relay(machine, client, skip_delay=True).problem is None

    def poll(self) -> None:
        with self.pairs.home.open() as machine, self.pairs.client() as client:
            outcome = poll_relay(machine, client)
            assert outcome.report.stuck == 0
            assert outcome.problems == ()

    def settle(self) -> None:
        """Let everybody hear everything."""
        for _ in range(2):
            for name in self.devices:
                self.deliver(name)
            self.poll()
        for name in self.devices:
            self.deliver(name)

    def on(self, name: str, act: Callable[[Machine], Value]) -> Value:
        box = self.devices.get(name, self.pairs.home)
        with box.open() as machine:
            return act(machine)

    def remember(self, name: str, text: str, **named: Any) -> Remembered:
        return self.on(name, lambda machine: remembering.remember(machine, text, **named))

    def listed(self, name: str) -> list[tuple[str, str, str | None, str]]:
        """What a machine has, this machine's and the mirror's as one."""

        def look(machine: Machine) -> list[tuple[str, str, str | None, str]]:
            found = memory_queries.list_memories(machine, status=None)
            return sorted((one.id, one.text, one.key, one.status) for one in found)

        return self.on(name, look)

    def value(self, name: str, key: str) -> str | None:
        def look(machine: Machine) -> str | None:
            found = memory_queries.by_key(machine, key)
            return None if found is None else found.text

        return self.on(name, look)


@pytest.fixture
def stead(tmp_path: Path, site: RelaySite) -> Homestead:
    stead = Homestead(two_machines(tmp_path, site))
    stead.join(stead.pairs.device)
    stead.join(Box(tmp_path, "phone", "cc-phone"))
    return stead


def everybody(stead: Homestead) -> list[str]:
    return ["mini", *stead.devices]


@pytest.mark.slow
def test_what_a_device_remembers_is_on_every_machine_and_is_changed_from_any(stead: Homestead) -> None:
    one = stead.remember("laptop", "we deploy on Fridays", key="deploy", project="shop")
    stead.settle()
    assert [stead.listed(name) for name in everybody(stead)] == [[(one.id, one.text, "deploy", "active")]] * 3
    kept = stead.on("mini", lambda machine: memories.memory_of(machine.store, one.id))
    assert kept == one
    assert stead.on("mini", lambda machine: machine.store.value("SELECT vector_generation FROM chunks")) > 0
    for name in ("mini", "laptop"):
        recorded = stead.on(name, lambda machine: read_record(machine.memory_record()))
        assert [entry.version.memory for entry in recorded.entries.values()] == [one]

    changed = stead.remember("phone", "we deploy on Mondays", key="deploy")
    assert (changed.id, changed.device, changed.project) == (one.id, "laptop", "shop")
    stead.settle()
    assert [stead.value(name, "deploy") for name in everybody(stead)] == ["we deploy on Mondays"] * 3
    (was,) = stead.on("mini", lambda machine: memory_queries.history(machine, one.id))
    assert was.text == "we deploy on Fridays"
    local = stead.on("laptop", lambda machine: memories.memory_of(machine.store, one.id))
    assert local is not None
    assert local.text == "we deploy on Mondays"

    stead.on("mini", lambda machine: memory_changes.deprecate(machine, one.id))
    stead.settle()
    assert [stead.value(name, "deploy") for name in everybody(stead)] == [None] * 3
    stead.on("laptop", lambda machine: memory_changes.revive(machine, one.id))
    stead.settle()
    assert [stead.value(name, "deploy") for name in everybody(stead)] == ["we deploy on Mondays"] * 3


@pytest.mark.slow
def test_two_devices_that_stored_one_key_while_apart_end_with_the_later_value(stead: Homestead) -> None:
    stead.remember("laptop", "Alice", key="user_name")
    stead.remember("phone", "Bob", key="user_name")
    assert [stead.value(name, "user_name") for name in everybody(stead)] == [None, "Alice", "Bob"]
    stead.deliver("phone")
    stead.settle()
    assert [stead.value(name, "user_name") for name in everybody(stead)] == ["Bob"] * 3
    assert len({tuple(stead.listed(name)) for name in everybody(stead)}) == 1
    assert sorted((text, status) for _, text, _, status in stead.listed("mini")) == [
        ("Alice", "deprecated"), ("Bob", "active"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_device_finds_what_another_one_remembered_once(stead: Homestead) -> None:
    stead.remember("laptop", "the xyzzyplugh is blue")
    stead.settle()

    def look(machine: Machine) -> list[tuple[str, str]]:
        from crystal.model.recall import Filters

        with open_mirror(machine.places, machine.config.role) as mirrored:
            asked = prepare_search(machine.with_mirror(mirrored), "xyzzyplugh", 10, Filters(source="memory"))
            return [(hit.text, hit.memory) for hit in search(*asked).hits]

    assert stead.on("laptop", look) == [("the xyzzyplugh is blue", "local")]
    assert stead.on("phone", look) == [("the xyzzyplugh is blue", "mirror")]


@pytest.mark.slow
def test_what_was_forgotten_at_home_is_taken_no_more(stead: Homestead) -> None:
    one = stead.remember("laptop", "Alice", key="user_name")
    stead.settle()
    stead.on("mini", lambda machine: forget(machine.store, one.id))
    stead.on("laptop", lambda machine: memory_changes.edit(machine, one.id, text="Alicia"))
    stead.deliver("laptop")
    stead.poll()
    assert stead.on("mini", lambda machine: state(machine.store)) == []
    assert stead.listed("phone") == [(one.id, "Alice", "user_name", "active")]
    stead.deliver("phone")
    assert stead.listed("phone") == []


@pytest.mark.slow
def test_a_machine_that_joins_brings_its_memories(tmp_path: Path, site: RelaySite) -> None:
    stead = Homestead(two_machines(tmp_path, site))
    with stead.pairs.device.open() as machine:
        kept = remembering.remember(machine, "Alice", key="user_name")
        hidden = memory_changes.deprecate(machine, remembering.remember(machine, "old").id)
    stead.join(stead.pairs.device)
    stead.settle()
    expected = sorted([(kept.id, "Alice", "user_name", "active"), (hidden.id, "old", None, "deprecated")])
    assert stead.listed("mini") == expected
    stead.on("laptop", send_past)
    stead.settle()
    assert stead.listed("mini") == expected
    assert stead.on("mini", lambda machine: machine.store.value("SELECT count(*) FROM memory_history")) == 0


@pytest.mark.slow
def test_without_its_key_a_device_remembers_and_sends_it_later(stead: Homestead) -> None:
    with stead.devices["laptop"].open() as machine:
        file = machine.places.data_dir / "relay.key"
        key = file.read_bytes()
        file.unlink()
        one = remembering.remember(machine, "Alice", key="user_name")
        assert outbox.backlog(machine.store).blobs == 0
        file.write_bytes(key)
        file.chmod(0o600)
    stead.settle()
    assert stead.listed("mini") == [(one.id, "Alice", "user_name", "active")]


@pytest.mark.slow
def test_a_device_that_keeps_no_conversations_keeps_what_it_is_asked_to_remember(stead: Homestead) -> None:
    stead.devices["laptop"].set("relay.local_memory", False)
    one = stead.remember("laptop", "Alice", key="user_name")
    assert stead.value("laptop", "user_name") == "Alice"
    stead.settle()
    assert stead.listed("phone") == [(one.id, "Alice", "user_name", "active")]


@pytest.mark.slow
def test_who_becomes_home_has_the_memories_of_the_mirror(stead: Homestead) -> None:
    one = stead.remember("laptop", "Alice", key="user_name")
    with stead.pairs.home.open() as machine, machine.store.transaction():
        add_evidence(machine.store, Evidence(one.id, "line", "s1", "fact", 0.5, 7))
        write_note(machine.store, READERS, json.dumps(reader_versions()))  # else read again: evidence of no turn goes
    stead.settle()
    with stead.devices["phone"].open() as machine:
        assert memories.count_memories(machine.store) == 0
        take_mirror(machine)
        assert memories.memory_of(machine.store, one.id) == one
        assert [each.line for each in evidence_for(machine.store, [one.id])[one.id]] == ["line"]


# -------------------------------------------------------------------------------------------------- the message


def words_of(**changes: Any) -> dict[str, Any]:
    return {**memory_to_dict(version(1, "Alice", 1, key="name", place=SHOP)), **changes}


def test_a_memory_is_the_same_after_the_message() -> None:
    one = version(1, "Alice \u2028 数据库", 1, key="名", place=SHOP)
    payload = json.dumps({"v": 1, "kind": "memory", "memory": memory_to_dict(one)}).encode()
    message = read_words(payload)
    assert isinstance(message, Remember)
    assert memory_from_dict(message.memory) == one


@each_row(
    "change",
    [
        {"id": "mem-00000000000G"}, {"id": "mem-0"}, {"id": None}, {"id": "mem-000000000001\n"},
        {"text": ""}, {"text": " \n"}, {"text": "x" * 8001}, {"text": "a\0b"}, {"text": "\ud800"}, {"text": 1},
        {"category": "other"}, {"category": None}, {"category": ["fact"]}, {"category": {}},
        {"key": ""}, {"key": "k" * 201}, {"key": "a\nb"}, {"key": " a"}, {"key": "e\u0301"}, {"key": 1},
        {"project": "shop"}, {"project": []}, {"project": ["", None, None, "x"]}, {"project": ["/a", 1, None, "x"]},
        {"status": "gone"}, {"status": None}, {"status": []},
        {"source": ""}, {"source": 1}, {"agent": "../x"}, {"agent": ""}, {"device": ""}, {"session": 1},
        {"created_at": -1}, {"created_at": "1"}, {"updated_at": 1 << 53}, {"updated_at": True}, {"updated_at": 1.5},
    ],

)  # fmt: skip
def test_a_field_that_is_something_else_refuses_the_message(change: dict[str, Any]) -> None:
    memory_from_dict(words_of())
    with pytest.raises(InvalidMemoryError):
        memory_from_dict(words_of(**change))
    for name in change:
        if name not in ("key", "project", "session"):
            with pytest.raises(InvalidMemoryError):
                memory_from_dict({key: value for key, value in words_of().items() if key != name})


@each_row("words", [None, [], "x", 1, {}])
def test_a_message_without_a_memory_is_refused(words: Any) -> None:
    with pytest.raises(InvalidMemoryError):
        memory_from_dict(words)


@pytest.mark.slow
def test_no_device_says_that_another_one_remembered(stead: Homestead) -> None:
    with stead.devices["laptop"].open() as machine:
        set_value(machine.places.config_file, "device", "phone")
    one = stead.remember("laptop", "Alice")
    assert one.device == "phone"
    stead.deliver("laptop")
    stead.poll()
    kept = stead.on("mini", lambda machine: memories.memory_of(machine.store, one.id))
    assert kept is not None
    assert kept.device == "laptop"


def test_a_renamed_device_is_renamed_in_the_record_of_memories(stead: Homestead) -> None:
    stead.remember("laptop", "we deploy on Fridays")
    stead.settle()

    def rename_and_compare(machine: Machine) -> tuple[list[str], str | None]:
        devices.rename(machine, "laptop", "desk")
        record, agents = machine.memory_record(), machine.places.ldm_home / "agents"
        reconcile(machine.store, record)
        faults = [one.message for one in find_faults(machine.store, agents, record)]
        return faults, machine.store.value("SELECT device FROM memories")

    assert stead.on("home", rename_and_compare) == ([], "desk")
