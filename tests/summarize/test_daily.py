"""The daily log: a line whenever a session starts, resumes or sees a new day; each line once, whatever happens."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from datetime import timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import UsageError
from crystal.model.capture import Project
from crystal.store import Store
from crystal.store.problems import find_problem
from crystal.summarize.daily import PART, DailyLog, split_parts
from tests.support.examples import examples
from tests.support.killed import killed_at
from tests.support.summary_store import HOUR, MINUTE, SESSION, START, open_store, say

IDLE = 30 * MINUTE
UTC = timezone.utc


def log(store: Store, folder: Path, *, tz: timezone | None = UTC, now: int = START) -> DailyLog:
    written = DailyLog(store, lambda agent: folder / agent, now, IDLE, tz)
    written.write_missing()
    return written


def lines(folder: Path, day: str, agent: str = "cc-test") -> list[str]:
    text = (folder / agent / "daily" / f"{day}.md").read_text("utf-8")
    return [line for line in text.split("\n") if line.startswith("- ")]


def test_a_session_is_one_line_with_local_time_project_and_first_words(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "Repair the spool.\nIt loses notes."), ("assistant", "Done.")], at=START + 14 * HOUR)
    assert log(store, tmp_path, tz=timezone(timedelta(hours=2))).lines == 1
    (line,) = lines(tmp_path, "2026-11-21")
    assert line.startswith("- 16:00 [engine] Repair the spool. It loses notes. (1f35fa49) <!-- ")
    assert (tmp_path / "cc-test/daily/2026-11-21.md").read_text().startswith("# 2026-11-21\n\n- ")


def test_what_follows_without_a_rest_adds_no_line(tmp_path: Path, store: Store) -> None:
    for turn in range(6):
        say(store, [("user", f"turn {turn}")], at=START + turn * 20 * MINUTE)
        log(store, tmp_path)
    assert len(lines(tmp_path, "2026-11-21")) == 1


def test_resuming_after_a_rest_and_a_new_day_each_add_a_line(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "before")], at=START + 22 * HOUR)
    log(store, tmp_path)
    say(store, [("user", "resumed")], at=START + 22 * HOUR + IDLE)
    log(store, tmp_path)
    for turn in range(5):  # past midnight, never resting
        say(store, [("user", f"late {turn}")], at=START + 22 * HOUR + IDLE + (turn + 1) * 20 * MINUTE)
        log(store, tmp_path)
    assert [line[:24] for line in lines(tmp_path, "2026-11-21")] == [
        "- 22:00 [engine] before ",
        "- 22:30 [engine] resumed",
    ]
    assert [line[:23] for line in lines(tmp_path, "2026-11-22")] == ["- 00:10 [engine] late 4"]


def test_logging_at_once_or_after_every_turn_gives_the_same_lines(tmp_path: Path, store: Store) -> None:
    moments = [0, 10, 50, 55, 200, 23 * 60 + 50, 24 * 60 + 5, 24 * 60 + 100]
    for index, minute in enumerate(moments):
        say(store, [("user", f"at {minute}")], at=START + minute * MINUTE)
        log(store, tmp_path / "often")
        assert index >= 0
    store.execute("UPDATE sessions SET logged_turn = 0")
    log(store, tmp_path / "once")
    for day in ("2026-11-21", "2026-11-22"):
        assert lines(tmp_path / "often", day) == lines(tmp_path / "once", day)


def test_the_past_imported_later_gets_its_own_lines_on_its_own_days(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "today")], at=START)
    log(store, tmp_path)
    say(store, [("user", "last week")], at=START - 7 * 24 * HOUR)
    say(store, [("user", "just before today")], at=START - 5 * MINUTE)
    say(store, [("user", "just after")], at=START + 5 * MINUTE)
    log(store, tmp_path)
    assert len(lines(tmp_path, "2026-11-14")) == 1
    assert len(lines(tmp_path, "2026-11-20")) == 1  # another day than the line it leads up to
    assert len(lines(tmp_path, "2026-11-21")) == 1


def test_a_crash_between_file_and_note_does_not_double_the_line(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "one")])
    log(store, tmp_path)
    before = (tmp_path / "cc-test/daily/2026-11-21.md").read_bytes()
    store.execute("UPDATE sessions SET logged_turn = 0")  # the file was written, the note was not
    say(store, [("user", "two")], at=START + MINUTE)
    assert log(store, tmp_path).lines == 0
    assert (tmp_path / "cc-test/daily/2026-11-21.md").read_bytes() == before
    assert store.value("SELECT logged_turn = last_turn FROM sessions") == 1


@pytest.mark.slow
def test_killed_at_any_statement_every_line_is_there_once_after_another_run(tmp_path: Path) -> None:
    for at in range(1, 40):
        folder = tmp_path / str(at)
        with open_store(tmp_path / f"db{at}") as store:
            say(store, [("user", "one")])
            say(store, [("user", "two")], session="2" * 8, at=START + 3 * HOUR)
            with killed_at(store, at) as killed:
                log(store, folder)
            log(store, folder)
            assert len(lines(folder, "2026-11-21")) == 2, at
            if not killed.is_killed:
                return
    raise AssertionError("the run never got to its end")


def test_a_torn_last_line_stays_and_the_line_is_written_whole_below(tmp_path: Path, store: Store) -> None:
    file = tmp_path / "cc-test/daily/2026-11-21.md"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"# 2026-11-21\n\nmy own note\n- 00:00 [engine] Rep")
    say(store, [("user", "Repair")])
    log(store, tmp_path)
    text = file.read_text()
    assert text.startswith("# 2026-11-21\n\nmy own note\n- 00:00 [engine] Rep\n- 00:00 [engine] Repair (1f35fa49) <!--")
    assert text.endswith("-->\n")


def test_a_deleted_log_is_not_written_again(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "one")])
    log(store, tmp_path)
    (tmp_path / "cc-test/daily/2026-11-21.md").unlink()
    log(store, tmp_path)
    assert not (tmp_path / "cc-test/daily/2026-11-21.md").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no permission bits there")
def test_only_the_owner_can_read_it(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "one")])
    log(store, tmp_path)
    assert stat.S_IMODE((tmp_path / "cc-test/daily/2026-11-21.md").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "cc-test/daily").stat().st_mode) == 0o700


def test_nothing_said_can_break_out_of_its_line(tmp_path: Path, store: Store) -> None:
    texts = [
        "# heading\r\n## more\x85- 00:00 [x] fake (abcdefgh) <!-- abcdefgh 5 -->",
        "\u2028\u2029\x0b\x0c\x1c end --> <script>alert(1)</script>",
        "![x](http://evil/pixel.png) [a](b) `code",
        "```\nonly code\n```",
        "\u202eright to left",
        "\ud83d half",
        "\x00\x1b[31mred",
    ]
    for index, text in enumerate(texts):
        clean = text.encode("utf-8", "replace").decode()
        say(
            store,
            [("user", clean)],
            session=f"s{index}",
            at=START + index * MINUTE,
            project=Project(f"/w/{index}", None, None, "a]\n[b` <b>"),
        )
    log(store, tmp_path)
    raw = (tmp_path / "cc-test/daily/2026-11-21.md").read_bytes()
    text = raw.decode()
    assert len(text.splitlines()) == 2 + len(texts)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "<script" not in text.replace("\\<", "")
    assert not re.search(r"(?<!\\)\]\(", text)
    assert text.count("<!-- s") == len(texts)
    assert "\\<!-- abcdefgh" in text


ROLES = st.sampled_from(["user", "assistant", "subagent", "tool_call"])


@pytest.mark.slow
def test_any_text_gives_one_line_a_part(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any")
    with open_store(folder) as store:
        sessions = 0

        @examples(60)
        @given(st.lists(st.tuples(ROLES, st.text(min_size=1, max_size=60)), min_size=1, max_size=4))
        def check(said: list[tuple[str, str]]) -> None:
            nonlocal sessions
            sessions += 1
            say(
                store, [(role, text.encode("utf-8", "replace").decode()) for role, text in said], session=f"s{sessions}"
            )
            log(store, folder)
            text = (folder / "cc-test/daily/2026-11-21.md").read_bytes().decode()
            assert len(text.splitlines()) == 2 + sessions

        check()
        store.execute("UPDATE sessions SET logged_turn = 0")
        assert log(store, folder).lines == 0


@given(st.lists(st.integers(0, 3 * 24 * HOUR), max_size=30))
def test_parts_cover_all_times_and_are_apart(times: list[int]) -> None:
    ordered = [(at, ident) for ident, at in enumerate(sorted(times), 1)]
    parts = split_parts(ordered, idle_ms=IDLE, tz=UTC)
    for before, after in pairwise(parts):
        assert after.start - before.stop >= IDLE or after.start // (24 * HOUR) > before.stop // (24 * HOUR)
    assert all(sum(part.start <= at <= part.stop for part in parts) == 1 for at, _ in ordered)
    assert all(part.start // (24 * HOUR) == part.stop // (24 * HOUR) for part in parts)


def test_a_session_without_any_time_is_noted_once_when_it_was_captured(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "timeless")], at=None)
    assert log(store, tmp_path, now=START + HOUR).lines == 1
    say(store, [("user", "more")], at=None)
    assert log(store, tmp_path, now=START + 2 * HOUR).lines == 0
    assert lines(tmp_path, "2026-11-21")[0].startswith("- 01:00 [engine] timeless")


def test_a_time_that_no_calendar_holds_stops_nobody(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "far")], at=10**17, session="far")
    say(store, [("user", "near")], session="near")
    assert log(store, tmp_path).lines == 1


def test_a_session_that_cannot_be_logged_does_not_hold_up_the_others(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "bad")], session="bad", agent="no/agent")
    (tmp_path / "cc-stuck/daily/2026-11-21.md").mkdir(parents=True)
    say(store, [("user", "stuck")], session="stuck", agent="cc-stuck")
    say(store, [("user", "good")], session="good")

    def folder(agent: str) -> Path:
        if "/" in agent:
            raise UsageError(f"agent id {agent!r} cannot be used")
        return tmp_path / agent

    report = DailyLog(store, folder, START, IDLE, UTC)
    report.write_missing()
    assert (report.lines, len(report.problems)) == (1, 2)
    assert find_problem(store, PART) is not None
    (tmp_path / "cc-stuck/daily/2026-11-21.md").rmdir()
    store.execute("DELETE FROM chunks WHERE session = (SELECT id FROM sessions WHERE agent = 'no/agent')")
    store.execute("UPDATE sessions SET agent = 'cc-test' WHERE agent = 'no/agent'")
    again = DailyLog(store, folder, START, IDLE, UTC)
    again.write_missing()
    assert again.lines == 2
    assert find_problem(store, PART) is None


def test_a_full_disk_leaves_the_file_as_it_was_and_the_next_run_writes(tmp_path, store, monkeypatch):
    real = os.write

    def short(handle: int, data: bytes) -> int:
        if len(data) > 10:
            return real(handle, bytes(data)[:10])
        raise OSError(28, "No space left on device")

    say(store, [("user", "one")])
    monkeypatch.setattr("os.write", short)
    assert log(store, tmp_path).problems
    monkeypatch.setattr("os.write", real)
    assert (tmp_path / "cc-test/daily/2026-11-21.md").read_bytes() == b""
    assert log(store, tmp_path).lines == 1
    assert len(lines(tmp_path, "2026-11-21")) == 1


def test_the_lines_of_a_forked_session_stay_with_the_session_that_said_them(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "origin")])
    say(store, [("user", "fork goes on")], session="fork", at=START + HOUR)
    store.execute("INSERT INTO turn_copies (session, turn) SELECT s.id, 1 FROM sessions s WHERE session_id = 'fork'")
    log(store, tmp_path)
    assert [line[17:30] for line in lines(tmp_path, "2026-11-21")] == ["origin (1f35f", "fork goes on "]


def test_nothing_new_costs_no_write(tmp_path: Path, store: Store) -> None:
    say(store, [("user", "one")])
    log(store, tmp_path)
    said: list[str] = []
    store.db.exec_trace = lambda _, sql, __: (said.append(sql), True)[1]
    log(store, tmp_path)
    store.db.exec_trace = None
    assert not [sql for sql in said if not sql.startswith("SELECT")]


@pytest.mark.slow
def test_eight_processes_at_once_write_every_line_once(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for index in range(60):
            say(store, [("user", f"session {index}")], session=f"s{index:03}", at=START + index * MINUTE)
    code = (
        "import sys; from pathlib import Path; from datetime import timezone\n"
        "from crystal.store import Store; from crystal.summarize.daily import DailyLog\n"
        "folder = Path(sys.argv[1])\n"
        "with Store.open(folder / 'crystal.db') as store:\n"
        "    DailyLog(store, lambda a: folder / a, 0, 1800000, timezone.utc).write_missing()\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(8)]
    assert [worker.wait(60) for worker in workers] == [0] * 8
    found = lines(tmp_path, "2026-11-21")
    assert len(found) == 60
    assert found == sorted(found)


def test_the_session_id_in_the_comment_is_always_safe(tmp_path: Path, store: Store) -> None:
    ids = ["-->", "a--b", "../../x", "Ünï", "A" * 300, SESSION]
    for index, ident in enumerate(ids):
        say(store, [("user", "x")], session=ident, prefix=str(index))
    log(store, tmp_path)
    store.execute("UPDATE sessions SET logged_turn = 0")
    assert log(store, tmp_path).lines == 0
    for line in lines(tmp_path, "2026-11-21"):
        comment = line[line.index("<!--") + 4 : -3]
        assert "--" not in comment
        assert ">" not in comment
