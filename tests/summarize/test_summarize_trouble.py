"""Summaries when processes are killed, run at once, or meet what they cannot write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crystal.errors import UsageError
from crystal.store import Store
from crystal.store.costs import spent_since
from crystal.store.problems import find_problem
from crystal.summarize.due import FILE_PART, SummaryRun
from tests.support.chat_server import CARD
from tests.support.killed import Killed, killed_at
from tests.support.summary_runs import CHAT, IDLE, LATER, NAME, Fake, files, run, session
from tests.support.summary_store import HOUR, MINUTE, START, open_store, say


def test_no_transaction_is_held_while_the_model_thinks(tmp_path: Path, store: Store) -> None:
    with Store.open(store.path) as other:
        say(store, CHAT)

        def think() -> str:
            assert not store.db.in_transaction
            say(other, [("user", "meanwhile")], at=START + 10 * MINUTE)
            return json.dumps(CARD)

        assert run(store, tmp_path, Fake([think])).llm == 1
        assert session(store).summarized_turn < session(store).last_turn
        assert run(store, tmp_path, Fake()).llm == 1
    assert "  user: 2\n" in files(tmp_path)[NAME]


def test_a_slower_run_does_not_overwrite_a_newer_summary(tmp_path: Path, store: Store) -> None:
    with Store.open(store.path) as other:
        say(store, CHAT)

        def overtaken() -> str:
            say(other, [("user", "meanwhile")], at=START + 10 * MINUTE)
            run(other, tmp_path, Fake([json.dumps({**CARD, "title": "The newer one"})]))
            return json.dumps(CARD)

        assert run(store, tmp_path, Fake([overtaken])).written == 0
        assert "# The newer one\n" in files(tmp_path)[NAME]
        assert session(store).title == "The newer one"


def test_a_session_forgotten_meanwhile_gets_no_file(tmp_path: Path, store: Store) -> None:
    with Store.open(store.path) as other:
        say(store, CHAT)

        def forgotten() -> str:
            for table in ("chunks", "turns"):
                other.execute(f"DELETE FROM {table}")
            other.execute("DELETE FROM sessions")
            return json.dumps(CARD)

        assert run(store, tmp_path, Fake([forgotten])).written == 0
    assert files(tmp_path) == {}


@pytest.mark.slow
def test_killed_at_any_statement_another_run_gives_the_same_file(tmp_path: Path) -> None:
    with open_store(tmp_path / "whole") as store:
        say(store, CHAT)
        run(store, tmp_path / "whole")
    expected = files(tmp_path / "whole")
    for at in range(1, 60):
        folder = tmp_path / str(at)
        with open_store(tmp_path / f"db{at}") as store:
            say(store, CHAT)
            with killed_at(store, at) as killed:
                run(store, folder)
            run(store, folder)
            assert files(folder) == expected, at
            assert session(store).summarized_turn == session(store).last_turn
            if not killed.is_killed:
                return
    raise AssertionError("the run never got to its end")


def test_killed_while_the_model_thinks_the_books_say_too_much_not_too_little(tmp_path: Path, store: Store) -> None:
    def killed() -> str:
        raise Killed

    say(store, CHAT)
    with pytest.raises(Killed):
        run(store, tmp_path, Fake([killed]))
    assert spent_since(store, 0) > 0.0005
    assert run(store, tmp_path, Fake()).llm == 1


@pytest.mark.slow
def test_several_processes_at_once_leave_one_file_a_session(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for index in range(20):
            say(store, CHAT, session=f"s{index:02}")
    code = (
        "import sys; from pathlib import Path; from crystal.store import Store; from crystal.summarize.due import SummaryRun\n"
        "folder = Path(sys.argv[1])\n"
        "with Store.open(folder / 'crystal.db') as store:\n"
        "    report = SummaryRun(store, lambda a: folder / a, None, 2**42).write_due(1)\n"
        "    assert not report.failed, report\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    assert sorted(files(tmp_path)) == [f"2026-11-21--s{index:02}.md" for index in range(20)]
    with Store.open(tmp_path / "crystal.db") as store:
        assert run(store, tmp_path).written == 0


def test_a_file_that_cannot_be_written_is_reported_and_written_later(tmp_path, store, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    say(store, CHAT)
    say(store, CHAT, session="other")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        report = run(store, tmp_path)
    assert (report.written, report.failed) == (0, 1)
    problem = find_problem(store, FILE_PART)
    assert problem is not None
    assert "no space left" in problem.message
    assert run(store, tmp_path).simple == 2
    assert find_problem(store, FILE_PART) is None


def test_one_session_with_an_impossible_place_does_not_stop_the_others(tmp_path: Path, store: Store) -> None:
    def folder(agent: str) -> Path:
        if agent == "bad agent":
            raise UsageError("agent id 'bad agent' cannot be used")
        return tmp_path / agent

    say(store, CHAT, agent="bad agent", at=START + HOUR)
    say(store, CHAT, session="good")
    report = SummaryRun(store, folder, None, LATER).write_due(IDLE)
    assert (report.simple, report.failed) == (1, 1)


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "/etc/x.md", "sessions/../x.md", "sessions/a/b.md", "other/x.md", ""]
)
def test_a_path_in_the_store_that_is_not_ours_is_never_followed(tmp_path: Path, store: Store, path: str) -> None:
    say(store, CHAT)
    store.execute("UPDATE sessions SET summary_path = ?", (path,))
    run(store, tmp_path)
    assert list(files(tmp_path)) == [NAME]


def test_the_run_stops_when_asked_to(tmp_path: Path, store: Store) -> None:
    for index in range(6):
        say(store, CHAT, session=f"s{index}")
    for sessions in (2, 1):
        stops = iter([*[False] * sessions, True])
        assert run(store, tmp_path, should_stop=stops.__next__).written == sessions
    assert run(store, tmp_path).written == 3


@pytest.mark.slow
def test_an_endless_session_is_summarized_in_bounded_time_from_both_ends(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "The first wish of all.")])
    for part in range(20):
        say(
            store,
            [("assistant", f"Step {part}-{n} of the work went well enough. " * 60) for n in range(60)],
            at=START + part * HOUR,
            step=1,
        )
    say(
        store,
        [("assistant", "In the end everything was repaired and every test passes again, which is good.")],
        at=START + 30 * HOUR,
    )
    assert run(store, tmp_path, now=START + 90 * HOUR).simple == 1
    text = files(tmp_path)[NAME]
    assert "**Asked:** The first wish of all.\n" in text
    assert "**Ended with:** In the end everything was repaired" in text
    assert "  assistant: 1201\n" in text
