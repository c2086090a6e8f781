"""A machine's part changes while another of its processes captures: what that one keeps arrives all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from crystal.app.capture import run_capture
from crystal.app.import_past import import_sessions, plan_import
from crystal.app.sync import handover
from tests.support.capture_machine import line
from tests.support.two_machines import Computer, pair_by_hand
from tests.sync.test_roles_interrupted import ALL, FIRST, SECOND, cut_off, desk, lap

pytestmark = pytest.mark.slow  # two machines and a relay, each a process

__all__ = ["desk", "lap"]


def test_what_an_import_keeps_that_began_before_joining_goes_home_too(desk, tmp_path: Path):
    laptop = Computer(tmp_path / "laptop", {"CRYSTAL_DEVICE": "laptop"})
    laptop.say(SECOND, line("said before joining"))
    laptop.ok("init", "--yes", "--agent-id", "cc-laptop")
    with laptop.machine() as machine:
        plan = plan_import(machine, (), None)
        pair_by_hand(desk, laptop, "laptop")
        with laptop.lives():
            import_sessions(machine, plan, lambda _: None)
    laptop.deliver()
    desk.poll()
    assert "said before joining" in desk.texts()


@pytest.mark.parametrize("all_sent", [False, True])
def test_what_a_worker_keeps_that_began_before_joining_goes_home_too(desk, tmp_path: Path, all_sent):
    laptop = Computer(tmp_path / "laptop", {"CRYSTAL_DEVICE": "laptop"})
    laptop.say(SECOND, line("said before joining"))
    laptop.ok("init", "--yes", "--agent-id", "cc-laptop")
    laptop.ok("backfill")
    with laptop.machine() as machine:
        pair_by_hand(desk, laptop, "laptop")
        if all_sent:
            laptop.deliver()
        laptop.say(SECOND, line("said while joining"))
        with laptop.lives():
            run_capture(machine, lambda capture: capture.sweep())
    laptop.deliver()
    desk.poll()
    assert desk.texts() == ["said at the desk", "said before joining", "said while joining"]
    assert desk.crystal("verify").code == laptop.crystal("verify").code == 0


def test_what_is_said_between_two_attempts_to_hand_over_arrives(desk, lap):
    cut_off(desk, handover, "set_value", 1, "demote", "--to", "lap", "--yes", before=True)
    desk.say(FIRST, line("said at the desk between"))
    desk.ok("sync")
    desk.ok("demote", "--to", "lap", "--yes")
    lap.ok("promote", "--yes")
    for _ in range(2):
        desk.deliver()
        lap.poll()
    assert lap.texts() == sorted([*ALL, "said at the desk between"])
