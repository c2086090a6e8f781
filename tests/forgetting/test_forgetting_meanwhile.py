"""Forgetting while others capture, read and forget; and on a disk that is full."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path

import pytest

from crystal.app.forget_rest import finish_forgetting
from crystal.app.integrity import prove
from crystal.errors import CrystalError, StoreFullError
from crystal.ingest import archive
from tests.support.forgetting_machine import Desk, reading, said
from tests.support.threads import at_once

SECRET = "the quokka sleeps under the zanzibar bridge at seven"
S1, S2 = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.meet()
    desk.say(S1, said("what is said before it"), said(SECRET), said("what is said after it"))
    desk.capture()
    return desk


@pytest.mark.slow
def test_a_reader_holds_the_log_and_the_next_run_cuts_it(desk: Desk) -> None:
    with reading(desk.ldm / "memory" / "crystal.db"):
        done = desk.forget(query="quokka")
        assert not done.is_done
        assert any("is reading it" in why for why in done.pending)
    with desk.open() as machine:
        assert machine.store.value("SELECT count(*) FROM tombstones WHERE done_at IS NULL") == 1
        assert finish_forgetting(machine) == 0
    assert desk.holding("quokka") == []


@pytest.mark.slow
def test_a_full_disk_leaves_the_rest_to_the_next_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFullError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(archive, "write_anew", full)
        done = desk.forget(query="quokka")
    assert not done.is_done
    assert done.pending == ("no space left",)
    assert SECRET not in desk.texts()
    with desk.open() as machine:
        assert finish_forgetting(machine) == 0
        assert not prove(machine, lambda _: None).faults
    assert desk.holding("quokka") == []


@pytest.mark.slow
def test_capture_goes_on_while_two_forget(desk: Desk) -> None:
    for number in range(6):
        desk.say(S2, said(f"the numbat{number} hides in the tundra tonight"), said(f"plain words {number} stay here"))
    desk.capture()
    problems: list[CrystalError] = []

    def forget(names: list[str]) -> None:
        try:
            for name in names:
                desk.forget(query=name)
        except CrystalError as error:
            problems.append(error)

    def capture() -> None:
        try:
            for number in range(6, 12):
                desk.say(S2, said(f"plain words {number} stay here"))
                desk.capture()
        except CrystalError as error:
            problems.append(error)

    names = (["quokka", "numbat0", "numbat1"], ["numbat2", "numbat3", "numbat4"])
    at_once(*(partial(forget, some) for some in names), capture)
    assert problems == []
    with desk.open() as machine:
        assert finish_forgetting(machine) == 0
        assert not prove(machine, lambda _: None).damaged
    desk.capture()
    assert desk.holding("quokka", *(f"numbat{number}" for number in range(5))) == []
    texts = desk.texts()
    assert [
        f"plain words {number} stay here" for number in range(12) if f"plain words {number} stay here" in texts
    ] == [f"plain words {number} stay here" for number in range(12)]
    assert "the numbat5 hides in the tundra tonight" in texts
