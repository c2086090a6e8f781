"""Whoever is killed while forgetting leaves the rest to the next one, and the next one finds all of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal.app.background import enrich
from crystal.app.context import Machine
from crystal.app.forget import execute_plan, plan_forget
from crystal.app.forget_rest import finish_forgetting
from crystal.app.integrity import prove
from crystal.app.memories import remember
from crystal.forgetting.request import ForgetRequest
from tests.support.forgetting_machine import NOW, Desk, said
from tests.support.killed import Killed, killed_at

SECRET = "the quokka sleeps under the zanzibar bridge at seven"
S1, S2, S3 = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
KEPT = ["an unrelated thing that is said", "what stands before it stays", "what stands after it stays"]


def made(folder: Path) -> Desk:
    """A machine that has the secret in many places: turns, a fork, notes, summary, log, index, memory, backup."""
    desk = Desk(folder)
    desk.meet()
    ident = "8e8d3d0e-aaaa-4aaa-8aaa-000000000001"
    note = b'{"type":"last-prompt","lastPrompt":"the quokka sleeps under the zanzi","sessionId":"%s"}\n' % S1.encode()
    lines = [said(KEPT[1]), said(SECRET, ident=ident), note, said(KEPT[2], role="assistant")]
    desk.say(S1, *lines)
    desk.capture()
    desk.say(S2, *lines[:2], said(f"you said: {SECRET}, did you?", role="assistant"))
    desk.say(S3, said(KEPT[0], at=NOW + 1))
    desk.capture()
    with desk.open() as machine:
        remember(machine, SECRET)
    desk.capture()
    (desk.ldm / "memory" / "crystal.db.v4.backup").write_bytes(SECRET.encode())
    (desk.ldm / "memory" / "context").mkdir(exist_ok=True)
    (desk.ldm / "memory" / "context" / "x.md").write_text(SECRET, "utf-8")
    assert len(desk.holding("quokka")) > 7
    return desk


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    made(folder)
    return folder


def copy_of(template: Path, folder: Path) -> Desk:
    """The same machine in another place."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template / "desk" / ".ldm", folder / "desk" / ".ldm", symlinks=True)
    shutil.copytree(template / "desk" / ".claude", folder / "desk" / ".claude")
    kept = folder / "desk"
    desk = Desk.__new__(Desk)
    desk.home = kept
    desk.env = {
        "HOME": str(kept),
        "LDM_HOME": str(kept / ".ldm"),
        "CRYSTAL_CONFIG": str(kept / "config.toml"),
        "CLAUDE_CONFIG_DIR": str(kept / ".claude"),
    }
    shutil.copy(template / "desk" / "config.toml", kept / "config.toml")
    return desk


@contextlib.contextmanager
def killed_at_file(number: int) -> Iterator[list[int]]:
    """Raise at the so manieth change of a file."""
    count = [0]
    patch = pytest.MonkeyPatch()

    def guarded(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **more: object) -> object:
            if name != "open" or (len(arguments) > 1 and int(str(arguments[1])) & os.O_CREAT):
                count[0] += 1
                if count[0] >= number:
                    raise Killed
            return real(*arguments, **more)

        patch.setattr(os, name, call)

    for name in ("unlink", "replace", "fsync", "open"):
        guarded(name)
    try:
        yield count
    finally:
        patch.undo()


def finished(desk: Desk) -> None:
    """The next run finishes it, and all is as if nobody had been killed."""
    with desk.open() as machine:
        assert finish_forgetting(machine) == 0
    assert desk.holding("quokka", "zanzibar") == []
    with desk.open() as machine:
        enrich(machine, budget_seconds=60)
        assert [text for text in KEPT if text not in texts(machine)] == []
        proof = prove(machine, lambda _: None)
        assert not proof.damaged, proof.faults
    assert desk.holding("quokka", "zanzibar") == []


def texts(machine: Machine) -> list[str]:
    return [str(text) for (text,) in machine.store.rows("SELECT text FROM chunks")]


def statements(template: Path, folder: Path) -> int:
    desk = copy_of(template, folder)
    with desk.open() as machine:
        plan = plan_forget(machine, ForgetRequest(query="quokka"))
        with killed_at(machine.store) as run:
            assert execute_plan(machine, plan).is_done
    finished(desk)
    return run.statements


def run_killed_at_statement(template: Path, folder: Path, number: int) -> None:
    desk = copy_of(template, folder)
    with desk.open() as machine:
        plan = plan_forget(machine, ForgetRequest(query="quokka"))
        with killed_at(machine.store, number):
            execute_plan(machine, plan)
    with desk.open() as machine:
        begun = machine.store.value("SELECT count(*) FROM tombstones")
    if begun:
        finished(desk)
    else:
        assert desk.holding("quokka")


@pytest.mark.slow
def test_killed_at_a_statement_the_next_run_finishes_it(template: Path, tmp_path: Path) -> None:
    total = statements(template, tmp_path / "all")
    for number in range(3, total, max(1, total // 3)):
        run_killed_at_statement(template, tmp_path / "one", number)


@pytest.mark.slow
def test_killed_at_any_statement_the_next_run_finishes_it(template: Path, tmp_path: Path) -> None:
    total = statements(template, tmp_path / "all")
    for number in range(1, total, max(1, total // 10)):
        run_killed_at_statement(template, tmp_path / "one", number)


@pytest.mark.slow
def test_killed_at_a_change_of_a_file_the_next_run_finishes_it(template: Path, tmp_path: Path) -> None:
    number = 1
    while True:
        desk = copy_of(template, tmp_path / "one")
        with desk.open() as machine:
            plan = plan_forget(machine, ForgetRequest(query="quokka"))
            try:
                with killed_at_file(number) as count:
                    execute_plan(machine, plan)
            except Killed:
                pass
            else:
                assert count[0] < number
                return
        with desk.open() as machine:
            begun = machine.store.value("SELECT count(*) FROM tombstones")
        if begun:
            finished(desk)
        number += 1 if number < 4 else 4
