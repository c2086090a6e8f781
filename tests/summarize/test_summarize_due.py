"""When summaries are written, by whom, at what price, and that nothing that fails or is killed does harm."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crystal.errors import CrystalError, ModelUnavailable, NotConfigured, UsageProblem
from crystal.store import Store
from crystal.store.capture.turns import end_session
from crystal.store.costs import DAY_MS, spent_since, totals
from crystal.store.problems import find_problem
from crystal.store.sessions.sessions import Session, session_named
from crystal.summarize import is_due, summarize_again, summarize_due, summary_path_of
from crystal.summarize.due import FILE_ROOM, ROOM, SummaryReport
from crystal.summarize.llm import Completion, Prompt, SummaryModel
from crystal.summarize.models import MissingModel, OllamaChat, OpenAIChat
from tests.support.chat_server import CARD, Reply, chat_server, ollama_reply, openai_reply
from tests.support.summary_store import HOUR, MINUTE, SESSION, START, open_store, say

IDLE = 30 * MINUTE
LATER = START + 5 * HOUR
NAME = f"2026-11-21--{SESSION}.md"
CHAT = [
    ("user", "Please repair the spool."),
    ("assistant", "The spool is repaired."),
    ("tool_call", "Bash: make test", "Bash"),
]


def run(
    store: Store, folder: Path, model: SummaryModel | None = None, *, now: int = LATER, cap: float = 0.5, **more: Any
) -> SummaryReport:
    return summarize_due(
        store, agent_folder=lambda agent: folder / agent, model=model, daily_cap_usd=cap, now=now, idle_ms=IDLE, **more
    )


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in sorted((folder / "cc-test/sessions").glob("*"))}


def session(store: Store, name: str = SESSION) -> Session:
    found = session_named(store, name)
    assert found is not None
    return found


@dataclass
class Fake:
    """A model that answers what it is told to, or raises it."""

    answers: list[str | CrystalError | Callable[[], str]] = field(default_factory=lambda: [json.dumps(CARD)])
    provider: str = "openai"
    model: str = "gpt-4o-mini"
    most_output_tokens: int = 900
    asked: list[Prompt] = field(default_factory=list)

    def complete(self, prompt: Prompt) -> Completion:
        self.asked.append(prompt)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, CrystalError):
            raise answer
        return Completion(answer if isinstance(answer, str) else answer(), 1000, 100)


def test_a_session_is_due_when_it_has_rested_and_not_before(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        last = START + 2 * MINUTE
        assert not is_due(store, now=last + IDLE - 1, idle_ms=IDLE)
        assert run(store, tmp_path, now=last + IDLE - 1).written == 0
        assert is_due(store, now=last + IDLE, idle_ms=IDLE)
        assert run(store, tmp_path, now=last + IDLE).simple == 1
        assert run(store, tmp_path, now=last + 9 * IDLE).written == 0
        assert not is_due(store, now=last + 9 * IDLE, idle_ms=IDLE)


def test_a_session_is_due_at_once_when_it_has_ended(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        end_session(store, SESSION, START + 2 * MINUTE)
        assert run(store, tmp_path, now=START + 2 * MINUTE).simple == 1


def test_a_session_without_usable_times_rests_since_its_capture(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for name, at in (("timeless", None), ("future", LATER + 900 * DAY_MS)):
            say(store, CHAT, session=name, at=at)
            store.execute(
                "INSERT INTO capture_state (device, transcript, agent, session_id, path, updated_at)"
                " VALUES ('desk', ?1, 'cc-test', ?1, '/x', ?2)",
                (name, LATER),
            )
        assert run(store, tmp_path, now=LATER + IDLE - 1).written == 0
        assert run(store, tmp_path, now=LATER + IDLE).simple == 2
    assert "undated--timeless.md" in files(tmp_path)


def test_the_file_is_rewritten_in_place_even_when_title_and_start_change(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        run(store, tmp_path)
        say(store, [("user", "An earlier wish was found.")], at=START - 3 * DAY_MS, title="Given later")
        assert run(store, tmp_path).simple == 1
        assert summary_path_of(session(store)) == f"sessions/{NAME}"
        assert session(store).title == "Given later"
    assert list(files(tmp_path)) == [NAME]
    assert 'title: "Given later"' in files(tmp_path)[NAME]
    assert 'start: "2026-11-18T00:00:00.000Z"' in files(tmp_path)[NAME]


def test_the_summary_gives_a_session_its_title_until_one_is_given(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        run(store, tmp_path)
        assert session(store).title == "Please repair the spool"
        say(store, [("user", "more")], at=START + HOUR)
        run(store, tmp_path, Fake())
        assert session(store).title == CARD["title"]
        say(store, [("user", "named")], at=START + 2 * HOUR, title="By hand")
        run(store, tmp_path, Fake())
        say(store, [("user", "still")], at=START + 3 * HOUR)
        run(store, tmp_path, Fake())
        assert session(store).title == "By hand"
        assert "# By hand\n" in files(tmp_path)[NAME]


def test_what_the_file_counts_is_what_was_said(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, [*CHAT, ("thinking", "hm"), ("tool_result", "ok", "Bash"), ("user", "thanks")])
        say(store, [("subagent", "look"), ("tool_call", "Read: /home/ada/work/engine/a.py", "Read")], subagent="a1")
        run(store, tmp_path)
    text = files(tmp_path)[NAME]
    assert "  user: 2\n  assistant: 1\n  tool_calls: 2\n  subagents: 1\n" in text
    assert "- `a.py` (read)\n" in text
    assert "- `make test`\n" in text
    assert 'project: "engine"\n' in text
    assert 'branch: "main"\n' in text


def test_a_fork_is_summarized_with_what_was_copied_into_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        say(store, [("user", "Now the other way.")], session="fork", at=START + HOUR)
        store.execute(
            "INSERT INTO turn_copies SELECT s.id, t.id FROM sessions s, turns t WHERE s.session_id = 'fork' AND t.session <> s.id"
        )
        run(store, tmp_path)
    fork = next(text for name, text in files(tmp_path).items() if "fork" in name)
    assert 'title: "Please repair the spool"' in fork
    assert "  user: 2\n" in fork


@pytest.mark.skipif(sys.platform == "win32", reason="no permission bits there")
def test_only_the_owner_can_read_a_summary(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        run(store, tmp_path)
    assert stat.S_IMODE((tmp_path / "cc-test/sessions" / NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "cc-test/sessions").stat().st_mode) == 0o700


def test_a_model_writes_the_summary_and_its_price_is_a_row(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, chat_server() as server:
        say(store, CHAT)
        report = run(store, tmp_path, OpenAIChat("openai", "gpt-4o-mini", server.url, "sk-x"))
        assert (report.llm, report.problems) == (1, [])
        (total,) = totals(store)
        assert (total.purpose, total.model, total.calls, total.input_tokens, total.output_tokens) == (
            "summary",
            "gpt-4o-mini",
            1,
            1000,
            100,
        )
        assert total.usd == pytest.approx((1000 * 0.15 + 100 * 0.60) / 1e6)
        assert session(store).summary_mode == "llm"
    text = files(tmp_path)[NAME]
    assert 'mode: "llm"\nmodel: "gpt-4o-mini"\ninstead: null\n' in text
    assert "# Repair of the spool\n\n## Summary\n\nThe spool lost notes. It was repaired.\n" in text
    assert "- `make test`\n" in text


def test_ollama_costs_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, chat_server(Reply(ollama_reply(json.dumps(CARD)))) as server:
        say(store, CHAT)
        assert run(store, tmp_path, OllamaChat("llama3.2", server.url), cap=0).llm == 1
        (total,) = totals(store)
        assert (total.provider, total.input_tokens, total.usd) == ("ollama", 900, 0)


def test_our_own_calls_leave_no_turn_and_no_process(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    for name in ("subprocess.Popen", "os.system", "os.execv", "os.posix_spawn", "os.fork"):
        monkeypatch.setattr(name, forbidden)
    with open_store(tmp_path) as store, chat_server() as server:
        say(store, CHAT)
        before = [
            store.value(f"SELECT count(*) FROM {table}")
            for table in ("turns", "chunks", "sessions", "segments", "capture_state")
        ]
        for step in range(3):
            run(store, tmp_path, OpenAIChat("openai", "gpt-4o-mini", server.url, "sk-x"), now=LATER + step * HOUR)
        after = [
            store.value(f"SELECT count(*) FROM {table}")
            for table in ("turns", "chunks", "sessions", "segments", "capture_state")
        ]
        assert before == after
        assert len(server.requests) == 1
    assert list(home.rglob("*")) == []


@pytest.mark.parametrize(
    ("reply", "mode", "usd"),
    [
        (Reply({}, 429), "deferred", 0.0),
        (Reply({}, 500), "deferred", 0.0),
        (Reply({}, 401), "deferred", 0.0),
        (Reply(cut=True), "deferred", "the estimate"),
        (Reply(endless=True), "deferred", "the estimate"),
        (Reply(b"not json"), "deferred", "the estimate"),
        (Reply(openai_reply("Sure, here you are!")), "simple", (1000 * 0.15 + 100 * 0.60) / 1e6),
        (Reply(openai_reply('{"title": 5}')), "simple", (1000 * 0.15 + 100 * 0.60) / 1e6),
    ],
)
def test_whatever_the_model_does_there_is_a_simple_summary_and_the_books_are_right(
    tmp_path: Path, reply: Reply, mode: str, usd: float | str
) -> None:
    with open_store(tmp_path) as store, chat_server(reply) as server:
        say(store, CHAT)
        report = run(store, tmp_path, OpenAIChat("openai", "gpt-4o-mini", server.url, "sk-x", timeout_seconds=5))
        assert (report.written, report.failed, len(report.problems)) == (1, 0, 1)
        assert session(store).summary_mode == mode
        spent = spent_since(store, 0)
        assert 0.002 < spent < 0.003 if isinstance(usd, str) else spent == pytest.approx(usd)
        problem = find_problem(store, ROOM)
        assert problem is not None
        assert problem.message == report.problems[0]
    text = files(tmp_path)[NAME]
    assert "**Asked:** Please repair the spool.\n" in text
    assert ("instead: null" in text) == (mode == "simple")


def test_a_missing_key_leaves_simple_summaries_and_says_why(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        model = MissingModel(NotConfigured("there is no API key for openai"))
        assert run(store, tmp_path, model).deferred == 1
        assert totals(store) == []
    assert 'instead: "there is no API key for openai"' in files(tmp_path)[NAME]


def test_after_an_outage_the_model_is_left_alone_then_writes_what_was_deferred(tmp_path: Path) -> None:
    down = Fake([ModelUnavailable("example is down")])
    with open_store(tmp_path) as store:
        for index in range(5):
            say(store, CHAT, session=f"s{index}")
        assert run(store, tmp_path, down).deferred == 5
        assert len(down.asked) == 1
        assert run(store, tmp_path, down, now=LATER + MINUTE - 1).written == 0
        assert not is_due(store, now=LATER + MINUTE - 1, idle_ms=IDLE)
        assert is_due(store, now=LATER + MINUTE, idle_ms=IDLE)
        assert run(store, tmp_path, down, now=LATER + MINUTE).written <= 1
        assert len(down.asked) == 2
        assert run(store, tmp_path, Fake(), now=LATER + 2 * MINUTE).written == 0  # the wait has doubled
        up = Fake()
        assert run(store, tmp_path, up, now=LATER + 4 * MINUTE).llm == 5
        assert find_problem(store, ROOM) is None
        assert run(store, tmp_path, up, now=LATER + HOUR).written == 0
    assert all('mode: "llm"' in text for text in files(tmp_path).values())


def test_a_server_that_asks_for_a_longer_wait_gets_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        run(store, tmp_path, Fake([ModelUnavailable("slow down", seconds=7200)]))
        problem = find_problem(store, ROOM)
        assert problem is not None
        assert problem.retry_at == LATER + 2 * HOUR


def test_over_the_daily_cap_summaries_are_simple_until_the_next_day(tmp_path: Path) -> None:
    model = Fake()
    with open_store(tmp_path) as store:
        for index in range(4):
            say(store, CHAT, session=f"s{index}")
        report = run(store, tmp_path, model, cap=0.0009)
        assert (report.llm, report.deferred) == (2, 2)
        assert spent_since(store, 0) <= 0.0009
        assert run(store, tmp_path, model, now=START + DAY_MS - 1, cap=0.0009).written == 0
        assert run(store, tmp_path, model, now=START + DAY_MS, cap=0.0009).llm == 2
    assert len(model.asked) == 4


def test_a_model_that_thinks_before_it_answers_stays_under_the_cap_too(tmp_path: Path) -> None:
    long = Reply(openai_reply(json.dumps(CARD), completion_tokens=4000))
    with open_store(tmp_path) as store, chat_server(Reply({}, status=400), long) as server:
        say(store, CHAT)
        run(store, tmp_path, OpenAIChat("openai", "gpt-5", server.url, "sk-test"), cap=0.02)
        assert spent_since(store, 0) <= 0.02


def test_answers_that_cannot_be_used_are_not_asked_for_again_and_stop_the_spending(tmp_path: Path) -> None:
    model = Fake(["nonsense"])
    with open_store(tmp_path) as store:
        for index in range(6):
            say(store, CHAT, session=f"s{index}")
        report = run(store, tmp_path, model)
        assert (report.simple, report.deferred, len(model.asked)) == (3, 3, 3)
        run(store, tmp_path, Fake(), now=LATER + DAY_MS)
        modes = [mode for (mode,) in store.rows("SELECT summary_mode FROM sessions ORDER BY summary_mode")]
        assert modes == ["llm"] * 3 + ["simple"] * 3


def test_one_bad_answer_among_good_ones_stops_nobody(tmp_path: Path) -> None:
    good = json.dumps(CARD)
    with open_store(tmp_path) as store:
        for index in range(5):
            say(store, CHAT, session=f"s{index}")
        report = run(store, tmp_path, Fake([good, "bad", "bad", good, "bad"]))
        assert (report.llm, report.simple, report.deferred) == (2, 3, 0)


def test_a_model_that_comes_later_rewrites_only_what_was_deferred_or_asked_for(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        assert run(store, tmp_path).simple == 1
        assert run(store, tmp_path, Fake(), now=LATER + HOUR).written == 0
        report = summarize_again(
            store,
            agent_folder=lambda agent: tmp_path / agent,
            model=Fake(),
            daily_cap_usd=0.5,
            now=LATER,
        )
        assert report.llm == 1
        assert session(store).summary_mode == "llm"


def test_a_free_choice_of_simple_forgets_the_outage(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        run(store, tmp_path, Fake([ModelUnavailable("down")]))
        run(store, tmp_path, None)
        assert find_problem(store, ROOM) is None


def test_no_transaction_is_held_while_the_model_thinks(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, Store.open(tmp_path / "crystal.db") as other:
        say(store, CHAT)

        def think() -> str:
            assert not store.db.in_transaction
            say(other, [("user", "meanwhile")], at=START + 10 * MINUTE)
            return json.dumps(CARD)

        assert run(store, tmp_path, Fake([think])).llm == 1
        assert session(store).summarized_turn < session(store).last_turn
        assert run(store, tmp_path, Fake()).llm == 1
    assert "  user: 2\n" in files(tmp_path)[NAME]


def test_a_slower_run_does_not_overwrite_a_newer_summary(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, Store.open(tmp_path / "crystal.db") as other:
        say(store, CHAT)

        def overtaken() -> str:
            say(other, [("user", "meanwhile")], at=START + 10 * MINUTE)
            run(other, tmp_path, Fake([json.dumps({**CARD, "title": "The newer one"})]))
            return json.dumps(CARD)

        assert run(store, tmp_path, Fake([overtaken])).written == 0
        assert "# The newer one\n" in files(tmp_path)[NAME]
        assert session(store).title == "The newer one"


def test_a_session_forgotten_meanwhile_gets_no_file(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, Store.open(tmp_path / "crystal.db") as other:
        say(store, CHAT)

        def forgotten() -> str:
            for table in ("chunks", "turns"):
                other.execute(f"DELETE FROM {table}")
            other.execute("DELETE FROM sessions")
            return json.dumps(CARD)

        assert run(store, tmp_path, Fake([forgotten])).written == 0
    assert files(tmp_path) == {}


class _Killed(BaseException):
    pass


def test_killed_at_any_statement_another_run_gives_the_same_file(tmp_path: Path) -> None:
    with open_store(tmp_path / "whole") as store:
        say(store, CHAT)
        run(store, tmp_path / "whole")
    expected = files(tmp_path / "whole")
    for at in range(1, 60):
        folder = tmp_path / str(at)
        with open_store(tmp_path / f"db{at}") as store:
            say(store, CHAT)
            seen = 0

            def trace(*_: object, at: int = at) -> bool:
                nonlocal seen
                seen += 1
                if seen == at:
                    raise _Killed
                return True

            store.db.exec_trace = trace
            try:
                run(store, folder)
                finished = True
            except _Killed:
                finished = False
            store.db.exec_trace = None
            run(store, folder)
            assert files(folder) == expected, at
            assert session(store).summarized_turn == session(store).last_turn
            if finished:
                return
    raise AssertionError("the run never got to its end")


def test_killed_while_the_model_thinks_the_books_say_too_much_not_too_little(tmp_path: Path) -> None:
    def killed() -> str:
        raise _Killed

    with open_store(tmp_path) as store:
        say(store, CHAT)
        with pytest.raises(_Killed):
            run(store, tmp_path, Fake([killed]))
        assert spent_since(store, 0) > 0.0005
        assert run(store, tmp_path, Fake()).llm == 1


def test_several_processes_at_once_leave_one_file_a_session(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for index in range(20):
            say(store, CHAT, session=f"s{index:02}")
    code = (
        "import sys; from pathlib import Path; from crystal.store import Store; from crystal.summarize import summarize_due\n"
        "folder = Path(sys.argv[1])\n"
        "with Store.open(folder / 'crystal.db') as store:\n"
        "    report = summarize_due(store, agent_folder=lambda a: folder / a, model=None, daily_cap_usd=0, now=2**42, idle_ms=1)\n"
        "    assert not report.failed, report\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    assert sorted(files(tmp_path)) == [f"2026-11-21--s{index:02}.md" for index in range(20)]
    with Store.open(tmp_path / "crystal.db") as store:
        assert run(store, tmp_path).written == 0


def test_a_file_that_cannot_be_written_is_reported_and_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with open_store(tmp_path) as store:
        say(store, CHAT)
        say(store, CHAT, session="other")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            report = run(store, tmp_path)
        assert (report.written, report.failed) == (0, 1)
        problem = find_problem(store, FILE_ROOM)
        assert problem is not None
        assert "no space left" in problem.message
        assert run(store, tmp_path).simple == 2
        assert find_problem(store, FILE_ROOM) is None


def test_one_session_with_an_impossible_place_does_not_stop_the_others(tmp_path: Path) -> None:
    def folder(agent: str) -> Path:
        if agent == "bad agent":
            raise UsageProblem("agent id 'bad agent' cannot be used")
        return tmp_path / agent

    with open_store(tmp_path) as store:
        say(store, CHAT, agent="bad agent", at=START + HOUR)
        say(store, CHAT, session="good")
        report = summarize_due(store, agent_folder=folder, model=None, daily_cap_usd=0, now=LATER, idle_ms=IDLE)
        assert (report.simple, report.failed) == (1, 1)


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "/etc/x.md", "sessions/../x.md", "sessions/a/b.md", "other/x.md", ""]
)
def test_a_path_in_the_store_that_is_not_ours_is_never_followed(tmp_path: Path, path: str) -> None:
    with open_store(tmp_path) as store:
        say(store, CHAT)
        store.execute("UPDATE sessions SET summary_path = ?", (path,))
        assert summary_path_of(session(store)) is None
        run(store, tmp_path)
    assert list(files(tmp_path)) == [NAME]


def test_the_run_stops_when_asked_to_and_at_its_limit(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for index in range(6):
            say(store, CHAT, session=f"s{index}")
        assert run(store, tmp_path, limit=2).written == 2
        stops = iter([False, True])
        assert run(store, tmp_path, should_stop=lambda: next(stops)).written == 1
        assert run(store, tmp_path).written == 3


def test_an_endless_session_is_summarized_in_bounded_time_from_both_ends(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
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
