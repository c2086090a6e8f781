"""On a device secrets go before anything is sealed; where they cannot, nothing is sealed, and that is said."""

from __future__ import annotations

import pytest

from crystal.capture.refused_files import SWEEP
from crystal.capture.tail import Cleaner
from crystal.store import problems
from crystal.store.capture import ledger
from crystal.store.sync import outbox
from tests.support.capture_machine import line
from tests.support.relay_fate import assert_settled, texts
from tests.support.relay_world import Device, World


def broken(_: bytes) -> tuple[bytes, dict[str, int]]:
    raise RuntimeError("the redactor of canarywords")


@pytest.mark.slow
def test_what_the_redactor_fails_on_is_not_sealed_not_stored_and_named(world: World, device: Device) -> None:
    device.say("a", line("before"))
    path = device.machine.transcript("a")
    with path.open("ab") as file:
        file.write(line("canarywords and ghp_" + "a1B2" * 10))
    other = device.machine.transcript("b")
    other.write_bytes(line("canarywords too"))
    mark = ledger.all_states(device.store)[0].mark
    capture = device.capture()._replace(cleaner=Cleaner(broken, b"k" * 32))
    for _ in range(2):
        tally = capture.sweep()
        assert set(tally.problems or {}) == {str(path), str(other)}
    assert ledger.all_states(device.store)[0].mark == mark
    assert len(outbox.kept_from(device.store, 1, 1)) == 1
    problem = problems.find_problem(device.store, SWEEP)
    assert problem is not None
    assert "secrets could not be removed (RuntimeError)" in problem.message
    assert "canarywords" not in problem.message
    assert texts(device.store) == ["before"]
    device.deliver()
    world.home.poll()
    assert texts(world.home.store) == ["before"]
    device.sweep()
    assert problems.find_problem(device.store, SWEEP) is None
    assert_settled(world, after=2)
    assert len(texts(world.home.store)) == 3
    assert not any("ghp_a1B2" in text for text in texts(world.home.store))


@pytest.mark.slow
def test_a_redactor_that_fails_in_the_middle_seals_nothing_of_the_stretch(world: World, device: Device) -> None:
    whole = device.capture().cleaner
    seen = 0

    def fails_at_third(raw: bytes) -> object:
        nonlocal seen
        seen += 1
        if seen == 3:
            raise ValueError("no")
        return whole.clean_line(raw)

    device.machine.transcript("a").write_bytes(b"".join(line(f"n {number}") for number in range(5)))
    capture = device.capture()._replace(cleaner=Cleaner(fails_at_third, b"k" * 32))  # type: ignore[arg-type]
    assert capture.sweep().problems
    assert outbox.streams(device.store) == []
    assert ledger.all_states(device.store) == []
    device.sweep()
    assert_settled(world, after=2)


@pytest.mark.slow
def test_a_device_without_a_memory_waits_in_the_same_way(world: World) -> None:
    device = world.device("laptop", local_memory=False)
    device.machine.transcript("a").write_bytes(line("words"))
    assert device.capture()._replace(cleaner=Cleaner(broken, b"k" * 32)).sweep().problems
    assert outbox.streams(device.store) == []
    device.sweep()
    world.settle(2)
    assert texts(world.home.store) == ["words"]
