"""What is said on several machines where something is elsewhere, waits, or goes for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.capture_machine import line
from tests.support.two_machines import Computer, pair_by_hand
from tests.sync.test_roles_interrupted import SECOND, desk, lap

pytestmark = pytest.mark.slow  # two machines and a relay, each a process

__all__ = ["desk", "lap"]


def test_restoring_what_only_home_has_says_where_it_is(desk, tmp_path: Path):
    laptop = Computer(tmp_path / "laptop", {"CRYSTAL_DEVICE": "laptop"})
    pair_by_hand(desk, laptop, "laptop", "--no-local-memory")
    laptop.say(SECOND, line("said on the laptop"))
    laptop.ok("sync")
    desk.poll()
    laptop.deliver()
    done = laptop.crystal("restore", SECOND[:8])
    assert done.code == 3
    assert "the archive of session 21111111 is on desk" in done.err
    assert f"crystal restore {SECOND}" in done.err
    assert laptop.crystal("restore", "ffffffff").code == 1


def test_deleting_the_memory_says_what_nobody_else_has(desk, tmp_path: Path):
    laptop = Computer(tmp_path / "laptop", {"CRYSTAL_DEVICE": "laptop"})
    pair_by_hand(desk, laptop, "laptop", "--no-local-memory")
    laptop.say(SECOND, line("said on the laptop"))
    laptop.ok("sync")
    memory = laptop.home / ".ldm" / "memory"
    (memory / "relay-ca.pem").write_text("of the relay")
    done = laptop.crystal("uninstall", "--purge")
    assert done.code == 2
    assert "home has not confirmed 1 sealed blob" in done.err
    assert "this machine is the home of laptop" in desk.crystal("uninstall", "--purge").err
    laptop.ok("uninstall", "--purge", "--yes")
    assert not memory.exists()


def test_tries_are_counted_in_words(desk, tmp_path: Path):
    laptop = Computer(tmp_path / "laptop", {"CRYSTAL_DEVICE": "laptop"})
    pair_by_hand(desk, laptop, "laptop")
    (laptop.home / ".ldm" / "memory" / "relay.key").unlink()
    laptop.say(SECOND, line("said without a key"))
    laptop.crystal("sync")  # neither capture nor delivery can have it
    assert "2 tries)" in laptop.crystal("relay", "status").out


def test_revoking_a_machine_that_was_home_says_that_it_may_have_the_root(desk, lap):
    refused = desk.crystal("demote", "--to", "lap")
    assert (refused.code, "lap becomes home, this machine its device" in refused.err) == (2, True)
    desk.ok("demote", "--to", "lap", "--yes")
    assert "run it again with --yes" in lap.crystal("promote").err
    lap.ok("promote", "--yes")
    done = lap.crystal("devices", "revoke", "desk", "--yes")
    assert done.code == 0
    assert "desk was home before and may still have the root" in done.err
