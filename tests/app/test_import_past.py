"""What is still to be imported is noted until it is done, whoever imports it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crystal.app import import_past
from crystal.app.context import Machine, open_machine
from crystal.app.progress import PENDING_IMPORT_FILE
from crystal.capture.backfill import PastFile
from crystal.capture.lock import BACKFILL_LOCK, try_lock
from crystal.cli import capture
from tests.support import agent_samples as samples
from tests.support.capture_machine import line
from tests.support.command import crystal


@pytest.fixture
def two_past(home: Path) -> Path:
    """A memory that is set up after two sessions."""
    folder = home / ".claude" / "projects" / "-p"
    folder.mkdir(parents=True)
    for name in "ab":
        ident = f"{name * 8}-1111-4111-8111-111111111111"
        (folder / f"{ident}.jsonl").write_bytes(line(f"{name} was said", sessionId=ident))
    crystal("init", "--yes", "--no-import")
    return home


def test_what_is_asked_for_while_the_background_imports_is_not_lost(
    two_past: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_machine() as machine:
        first, second = import_past.plan_import(machine, [], None)
        import_past.note_pending(machine, [first])
        finish = import_past._import_sessions

        def asked_meanwhile(machine: Machine, plan: Sequence[PastFile], *more: Any) -> Any:
            tally = finish(machine, plan, *more)
            import_past.note_pending(machine, [second])
            return tally

        monkeypatch.setattr(import_past, "_import_sessions", asked_meanwhile)
        import_past.continue_import(machine, lambda *_: None, lambda: False)
        assert machine.store.value("SELECT count(*) FROM turns") == 1
        assert (machine.places.data_dir / PENDING_IMPORT_FILE).exists()
        monkeypatch.undo()
        import_past.continue_import(machine, lambda *_: None, lambda: False)
        assert machine.store.value("SELECT count(*) FROM turns") == 2
        assert not (machine.places.data_dir / PENDING_IMPORT_FILE).exists()


def test_status_says_that_an_interrupted_import_goes_on(two_past: Path) -> None:
    assert "from before crystal (run: crystal backfill)" in crystal("status").out
    with open_machine() as machine:
        import_past.note_pending(machine, import_past.plan_import(machine, [], None))
        with try_lock(machine.places.data_dir / BACKFILL_LOCK):
            assert "from before crystal (being imported)" in crystal("status").out
    assert "(the import goes on at the next turn; to go on now, run: crystal sync)" in crystal("status").out
    assert "are not imported\n      fix: crystal sync" in crystal("doctor").out
    assert json.loads(crystal("status", "--json").out)["transcripts"]["to_import"] == 2


def test_an_interrupted_import_can_be_called_off(two_past: Path) -> None:
    with open_machine() as machine:
        import_past.note_pending(machine, import_past.plan_import(machine, [], None))
    assert "2 transcripts called off" in crystal("backfill", "--cancel").out
    assert crystal("sync").code == 0
    with open_machine() as machine:
        assert machine.store.value("SELECT count(*) FROM turns") == 0
    assert "2 turns" in crystal("backfill").out


def test_an_import_under_way_stops_when_it_is_called_off(two_past: Path) -> None:
    with open_machine() as machine:
        import_past.note_pending(machine, import_past.plan_import(machine, [], None))

        def call_off(_done: int, _total: int) -> None:
            import_past.cancel_pending(machine)

        import_past.continue_import(machine, call_off, lambda: False)
        assert machine.store.value("SELECT count(*) FROM turns") == 1


@pytest.mark.parametrize(("command", "lock"), [("backfill", "backfill.lock"), ("sync", "capture.lock")])
def test_a_command_that_waits_for_another_process_says_so(
    two_past: Path, monkeypatch: pytest.MonkeyPatch, command: str, lock: str
) -> None:
    monkeypatch.setattr("crystal.capture.lock.TELL_SECONDS", 0.0)
    say = capture._say_waiting
    with contextlib.ExitStack() as held, open_machine() as machine:
        held.enter_context(try_lock(machine.places.data_dir / lock))

        def say_and_release() -> None:
            say()
            held.close()

        monkeypatch.setattr(capture, "_say_waiting", say_and_release)
        assert "another crystal process is at work" in crystal(command).err


def test_an_import_reads_what_lies_in_the_projects_that_it_makes_known(home: Path) -> None:
    shop, ident = home / "shop", "cccccccc-1111-4111-8111-111111111111"
    samples.lay_out("aider", shop)
    session = home / ".claude" / "projects" / "-shop" / f"{ident}.jsonl"
    session.parent.mkdir(parents=True)
    session.write_bytes(line("said in the shop", sessionId=ident, cwd=str(shop)))
    assert crystal("backfill").code == 0
    assert {one["session"] for one in samples.captured()[0]} > {ident}
    assert crystal("backfill").out.startswith("nothing new")


def test_doctor_names_what_an_import_could_not_read(home: Path) -> None:
    folder = home / ".gemini" / "tmp" / "p" / "chats"
    folder.mkdir(parents=True)
    (folder / "session-2026-11-01T10-00-aabbccdd.json").write_text('{"sessionId":"s"')
    assert crystal("backfill").code == 0
    assert "aabbccdd.json" in crystal("doctor").out
    assert crystal("backfill", str(folder)).code == 0
    assert "aabbccdd.json" in crystal("doctor").out
    (folder / "session-2026-11-01T10-00-aabbccdd.json").unlink()
    assert crystal("backfill").code == 0
    assert "aabbccdd.json" not in crystal("doctor").out
