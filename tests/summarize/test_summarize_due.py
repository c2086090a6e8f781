"""When summaries are written, by whom, at what price, and that nothing that fails or is killed does harm."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from crystal.errors import ModelUnavailableError, NotConfiguredError, TextRefusedError
from crystal.llm.ask import PaidModel
from crystal.llm.chat import ChatModel
from crystal.llm.choose import MissingModel
from crystal.store import Store
from crystal.store.capture.turns import end_session
from crystal.store.costs import DAY_MS, spent_since
from crystal.store.problems import find_problem
from crystal.summarize.due import PART, SummaryRun, is_due
from tests.support.chat_server import CARD, Reply, chat_server, ollama_reply, openai_reply
from tests.support.costs import totals
from tests.support.summary_runs import CHAT, IDLE, LATER, NAME, Fake, files, run, session
from tests.support.summary_store import HOUR, MINUTE, SESSION, START, open_store, say


def test_a_session_is_due_when_it_has_rested_and_not_before(tmp_path: Path, store: Store) -> None:
    say(store, CHAT)
    last = START + 2 * MINUTE
    assert not is_due(store, now=last + IDLE - 1, idle_ms=IDLE)
    assert run(store, tmp_path, now=last + IDLE - 1).written == 0
    assert is_due(store, now=last + IDLE, idle_ms=IDLE)
    assert run(store, tmp_path, now=last + IDLE).simple == 1
    assert run(store, tmp_path, now=last + 9 * IDLE).written == 0
    assert not is_due(store, now=last + 9 * IDLE, idle_ms=IDLE)


def test_a_session_is_due_at_once_when_it_has_ended(tmp_path: Path, store: Store) -> None:
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


def test_the_file_is_rewritten_in_place_even_when_title_and_start_change(tmp_path: Path, store: Store) -> None:
    say(store, CHAT)
    run(store, tmp_path)
    say(store, [("user", "An earlier wish was found.")], at=START - 3 * DAY_MS, title="Given later")
    assert run(store, tmp_path).simple == 1
    assert session(store).summary_path == f"sessions/{NAME}"
    assert session(store).title == "Given later"
    assert list(files(tmp_path)) == [NAME]
    assert 'title: "Given later"' in files(tmp_path)[NAME]
    assert 'start: "2026-11-18T00:00:00.000Z"' in files(tmp_path)[NAME]


def test_the_summary_gives_a_session_its_title_until_one_is_given(tmp_path: Path, store: Store) -> None:
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


def test_what_the_file_counts_is_what_was_said(tmp_path: Path, store: Store) -> None:
    say(store, [*CHAT, ("thinking", "hm"), ("tool_result", "ok", "Bash"), ("user", "thanks")])
    say(store, [("subagent", "look"), ("tool_call", "Read: /home/ada/work/engine/a.py", "Read")], subagent="a1")
    run(store, tmp_path)
    text = files(tmp_path)[NAME]
    assert "  user: 2\n  assistant: 1\n  tool_calls: 2\n  subagents: 1\n" in text
    assert "- `a.py` (read)\n" in text
    assert "- `make test`\n" in text
    assert 'project: "engine"\n' in text
    assert 'branch: "main"\n' in text


def test_a_fork_is_summarized_with_what_was_copied_into_it(tmp_path: Path, store: Store) -> None:
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
def test_only_the_owner_can_read_a_summary(tmp_path: Path, store: Store) -> None:
    say(store, CHAT)
    run(store, tmp_path)
    assert stat.S_IMODE((tmp_path / "cc-test/sessions" / NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "cc-test/sessions").stat().st_mode) == 0o700


def test_a_model_writes_the_summary_and_its_price_is_a_row(tmp_path: Path, store: Store) -> None:
    with chat_server() as server:
        say(store, CHAT)
        report = run(store, tmp_path, ChatModel("openai", "gpt-4o-mini", server.url, "sk-x"))
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


def test_ollama_costs_nothing(tmp_path: Path, store: Store) -> None:
    with chat_server(Reply(ollama_reply(json.dumps(CARD)))) as server:
        say(store, CHAT)
        assert run(store, tmp_path, ChatModel("ollama", "llama3.2", server.url), cap=0).llm == 1
        (total,) = totals(store)
        assert (total.provider, total.input_tokens, total.usd) == ("ollama", 900, 0)


def test_our_own_calls_leave_no_turn_and_no_process(tmp_path, store, home, monkeypatch):
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    for name in ("subprocess.Popen", "os.system", "os.execv", "os.posix_spawn", "os.fork"):
        monkeypatch.setattr(name, forbidden)
    with chat_server() as server:
        say(store, CHAT)
        written = set(home.rglob("*"))
        before = [
            store.value(f"SELECT count(*) FROM {table}")
            for table in ("turns", "chunks", "sessions", "segments", "capture_state")
        ]
        for step in range(3):
            run(store, tmp_path, ChatModel("openai", "gpt-4o-mini", server.url, "sk-x"), now=LATER + step * HOUR)
        after = [
            store.value(f"SELECT count(*) FROM {table}")
            for table in ("turns", "chunks", "sessions", "segments", "capture_state")
        ]
        assert before == after
        assert len(server.requests) == 1
    assert set(home.rglob("*")) == written


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
def test_whatever_the_model_does_there_is_a_simple_summary_and_the_books_are_right(tmp_path, store, reply, mode, usd):
    with chat_server(reply) as server:
        say(store, CHAT)
        report = run(store, tmp_path, ChatModel("openai", "gpt-4o-mini", server.url, "sk-x", timeout_seconds=5))
        assert (report.written, report.failed, len(report.problems)) == (1, 0, 1)
        assert session(store).summary_mode == mode
        spent = spent_since(store, 0)
        assert 0.002 < spent < 0.003 if isinstance(usd, str) else spent == pytest.approx(usd)
        problem = find_problem(store, PART)
        assert problem is not None
        assert problem.message == report.problems[0]
    text = files(tmp_path)[NAME]
    assert "**Asked:** Please repair the spool.\n" in text
    assert ("instead: null" in text) == (mode == "simple")


def test_a_missing_key_leaves_simple_summaries_and_says_why(tmp_path: Path, store: Store) -> None:
    say(store, CHAT)
    model = MissingModel(NotConfiguredError("there is no API key for openai"))
    assert run(store, tmp_path, model).deferred == 1
    assert totals(store) == []
    assert 'instead: "there is no API key for openai"' in files(tmp_path)[NAME]


def test_after_an_outage_the_model_is_left_alone_then_writes_what_was_deferred(tmp_path: Path, store: Store) -> None:
    down = Fake([ModelUnavailableError("example is down")])
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
    assert find_problem(store, PART) is None
    assert run(store, tmp_path, up, now=LATER + HOUR).written == 0
    assert all('mode: "llm"' in text for text in files(tmp_path).values())


def test_a_server_that_asks_for_a_longer_wait_gets_it(tmp_path: Path, store: Store) -> None:
    say(store, CHAT)
    run(store, tmp_path, Fake([ModelUnavailableError("slow down", seconds=7200)]))
    problem = find_problem(store, PART)
    assert problem is not None
    assert problem.retry_at == LATER + 2 * HOUR


def test_over_the_daily_cap_summaries_are_simple_until_the_next_day(tmp_path: Path, store: Store) -> None:
    model = Fake()
    for index in range(4):
        say(store, CHAT, session=f"s{index}")
    report = run(store, tmp_path, model, cap=0.0009)
    assert (report.llm, report.deferred) == (2, 2)
    assert spent_since(store, 0) <= 0.0009
    assert run(store, tmp_path, model, now=START + DAY_MS - 1, cap=0.0009).written == 0
    assert run(store, tmp_path, model, now=START + DAY_MS, cap=0.0009).llm == 2
    assert len(model.asked) == 4


def test_a_model_that_thinks_before_it_answers_stays_under_the_cap_too(tmp_path: Path, store: Store) -> None:
    long = Reply(openai_reply(json.dumps(CARD), completion_tokens=4000))
    with chat_server(Reply({}, status=400), long) as server:
        say(store, CHAT)
        run(store, tmp_path, ChatModel("openai", "gpt-5", server.url, "sk-test"), cap=0.02)
        assert spent_since(store, 0) <= 0.02


def test_answers_that_cannot_be_used_are_not_asked_for_again_and_stop_the_spending(
    tmp_path: Path, store: Store
) -> None:
    model = Fake(["nonsense"])
    for index in range(6):
        say(store, CHAT, session=f"s{index}")
    report = run(store, tmp_path, model)
    assert (report.simple, report.deferred, len(model.asked)) == (3, 3, 3)
    run(store, tmp_path, Fake(), now=LATER + DAY_MS)
    modes = [mode for (mode,) in store.rows("SELECT summary_mode FROM sessions ORDER BY summary_mode")]
    assert modes == ["llm"] * 3 + ["simple"] * 3


def test_one_bad_answer_among_good_ones_stops_nobody(tmp_path: Path, store: Store) -> None:
    good = json.dumps(CARD)
    for index in range(5):
        say(store, CHAT, session=f"s{index}")
    report = run(store, tmp_path, Fake([good, "bad", TextRefusedError("too long"), good, "bad"]))
    assert (report.llm, report.simple, report.deferred) == (2, 3, 0)


def test_a_model_that_comes_later_rewrites_only_what_was_deferred_or_asked_for(tmp_path: Path, store: Store) -> None:
    say(store, CHAT)
    assert run(store, tmp_path).simple == 1
    assert run(store, tmp_path, Fake(), now=LATER + HOUR).written == 0
    paid = PaidModel(store, Fake(), "summary", 0.5)
    report = SummaryRun(store, lambda agent: tmp_path / agent, paid, LATER).write_again()
    assert report.llm == 1
    assert session(store).summary_mode == "llm"


def test_a_free_choice_of_simple_forgets_the_outage(tmp_path: Path, store: Store) -> None:
    say(store, CHAT)
    run(store, tmp_path, Fake([ModelUnavailableError("down")]))
    run(store, tmp_path, None)
    assert find_problem(store, PART) is None
