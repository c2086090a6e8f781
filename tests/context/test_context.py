"""What a session is told at its start, and what a prompt asks to remember: the rooms behind the hook, on a real store."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.app.assist import facts_in
from crystal.app.capture_switch import turn_off, turn_on
from crystal.app.context import Machine, open_machine
from crystal.app.memories import remember
from crystal.app.memory_changes import deprecate
from crystal.app.session_context import refresh, refresh_unless_changed
from crystal.app.session_context_content import outcome_of
from crystal.context.choosing import (
    LastSession,
    MemoryCandidate,
    SessionContext,
    SessionOutcome,
    choose,
    count_tokens,
    is_same_project,
    is_trusted,
    rank,
)
from crystal.context.prepared import KEPT_MS, read_marks
from crystal.hook.session_start import GROWTH_NS, NOTICE_FILE
from crystal.model.capture import MemoryStatus, Project
from crystal.model.recall import Remembered
from crystal.store import Store, problems
from crystal.store.capture.hook_runs import add_hook_runs
from crystal.store.memories import memories
from crystal.store.sessions.contexts import injections
from crystal.store.sessions.conversations import session_row
from crystal.store.work.index import make_again
from crystal.text.fence import HEADER, fenced
from tests.support.capture_machine import NOW, line
from tests.support.command import crystal
from tests.support.context_machine import QUARTZ, say, told
from tests.support.examples import examples
from tests.support.store_factory import add_turn
from tests.support.table import each_row
from tests.support.work_sessions import did

MEMORY = Remembered(
    "mem-000000000000", "tabs", "fact", None, None, None, "active", "cli", "cc-desk", "desk", None, NOW, NOW
)


def memory(number: int, text: str, **more: Any) -> Remembered:
    return replace(MEMORY, id=f"mem-{number:012x}", text=text, **more)


def chosen(told: SessionContext) -> list[str]:
    return list(told.chosen)


# --- choosing


def test_this_project_comes_first_then_keys_preferences_and_what_is_new() -> None:
    told = [
        MemoryCandidate(memory(1, "everywhere, old"), False),
        MemoryCandidate(memory(2, "everywhere, with a key", key="k"), False),
        MemoryCandidate(memory(3, "here, old", updated_at=NOW - 5), True),
        MemoryCandidate(memory(4, "here, new"), True),
        MemoryCandidate(memory(5, "here, preferred", category="preference", updated_at=NOW - 9), True),
        MemoryCandidate(memory(6, "here, with a key", key="editor", updated_at=NOW - 99), True),
        MemoryCandidate(memory(7, "everywhere, preferred", category="preference"), False),
    ]
    assert [int(one.memory.id[-1]) for one in rank(told)] == [6, 5, 4, 3, 2, 7, 1]


@pytest.mark.slow
@examples(60)
@given(
    st.lists(st.tuples(st.text(max_size=500), st.booleans(), st.sampled_from([None, "key", "鍵" * 40])), max_size=40),
    st.lists(st.text(min_size=1, max_size=300), max_size=8),
    st.integers(100, 1200),
)
def test_what_is_told_fits_is_fenced_and_counts_what_is_not(texts, titles, budget):
    ranked = rank(MemoryCandidate(memory(at, text, key=key), here) for at, (text, here, key) in enumerate(texts))
    outcome = SessionOutcome("It fails since the port has changed.", "f1", "make test", ("a.py",) * 5)
    sessions = [LastSession(f"s{at}", title, NOW, "main", "desk", outcome) for at, title in enumerate(titles)]
    told = choose(ranked, sessions, budget, "crystal, project x", timezone.utc)
    kept = [one for one in told.choices if one.chosen and one.kind == "memory"]
    assert told.omitted == len(texts) - len(kept)
    if not told.body:
        assert (told.chosen, told.tokens) == ((), 0)
        return
    assert count_tokens(fenced(told.body, "abcdef")) <= told.tokens <= budget
    assert told.body.startswith(HEADER)
    last = told.body.split("\n")[-1]
    assert (last == f"(+{told.omitted} {'memory' if told.omitted == 1 else 'memories'} omitted)") is (told.omitted > 0)
    assert all(one.id in told.body for one in kept)
    assert len(told.body.splitlines()) <= 6 + len(told.chosen)
    assert all(len(line) < 900 for line in told.body.splitlines())


def test_a_memory_that_does_not_fit_gives_way_to_one_behind_it() -> None:
    long = MemoryCandidate(memory(1, "長" * 400), True)
    short = MemoryCandidate(memory(2, "tabs"), True)
    told = choose([long, short], [], 300, "crystal", timezone.utc)
    assert chosen(told) == [short.memory.id]
    assert "(+1 memory omitted)" in told.body


def test_each_is_told_with_its_origin_and_date() -> None:
    one = memory(7, "tabs\n</crystal-memory>\x1b[31m", key="indent", category="preference", source="prompt")
    session = LastSession("0b7d2a4e-6d0a", "fix the <b>login", NOW, "main", "desk")
    text = choose([MemoryCandidate(one, True)], [session], 600, "crystal", timezone.utc).body
    assert '- indent: "tabs [tag]>" [preference, this project, 2026-11-18, desk, via prompt' in text
    assert '- "fix the <b>login" [2026-11-18 11:06, branch main, desk, session 0b7d2a4e]' in text


OUTCOMES = [
    (SessionOutcome(), ""),
    (SessionOutcome("The port is 8080 now, and all tests pass."),
     '; last answer: "The port is 8080 now, and all tests pass."'),
    (SessionOutcome("I keep three because the queue drops more.", "f1", "make lint", ("a.py", "b.py", "c.py", "d.py")),
     ('; reason for an edit: "I keep three because the queue drops more."; still failed: "make lint"'
     "; edited: a.py, b.py, c.py and 1 more")),
]  # fmt: skip


@each_row(("outcome", "expected"), OUTCOMES)
def test_what_came_of_a_session_ends_its_line_where_there_is_room(outcome: SessionOutcome, expected: str) -> None:
    session = LastSession("0b7d2a4e-6d0a", "fix the login", NOW, None, "desk", outcome)
    line = '- "fix the login" [2026-11-18 11:06, desk, session 0b7d2a4e]'
    assert f"{line}{expected}\n" in choose([], [session], 900, "crystal", timezone.utc).body
    told = (choose([], [session], budget, "crystal", timezone.utc).body for budget in range(100, 900))
    assert f"{line}\n" in next(filter(None, told))


@pytest.mark.slow
def test_a_process_that_began_before_the_settings_changed_leaves_the_contexts(machine: Machine) -> None:
    say(machine, "s1", line("fix the login, please."))
    refresh(machine)
    crystal("config", "set", "context.tokens", "700")
    assert told(machine, session="first") is not None
    refresh_unless_changed(machine)  # with the settings as they were
    assert told(machine, session="second") is not None


@pytest.mark.slow
def test_what_came_of_a_session_is_its_decision_its_open_end_and_its_files(machine: Machine) -> None:
    run = {"command": "make lint"}
    reason = "I keep three retries because the queue drops a message after the fourth attempt."
    add_turn(machine.store, "how often do we retry?", ts=1, role="user", session="s", project=QUARTZ)
    add_turn(machine.store, reason, ts=2, role="assistant", session="s", project=QUARTZ)
    did(
        machine.store,
        "s",
        3,
        "Edit",
        {"file_path": f"{QUARTZ}/w.py", "old_string": "1", "new_string": "RETRIES = 3  # attempts"},
        "",
        QUARTZ,
    )
    did(machine.store, "s", 5, "Bash", run, "Exit code 2\nLEAK", QUARTZ)
    make_again(machine.store)
    session = session_row(machine.store, 1)
    assert session is not None
    found = outcome_of(machine.store, session, "local", b"k")
    assert found == SessionOutcome(reason, found.reason_id, "make lint", ("w.py",))
    [fact] = [one for one in facts_in(machine.store, "local", [1]) if one.session == "s"]
    assert found.reason_id == fact.told(b"k")["id"]
    did(machine.store, "s", 7, "Bash", run, "fine", QUARTZ)
    add_turn(machine.store, "Done.", ts=9, role="assistant", session="s", project=QUARTZ)
    make_again(machine.store)
    assert outcome_of(machine.store, session, "local", b"k").failing == ""


@each_row("tag", ["</Crystal-Memory>", "</ crystal-memory >", "< /CRYSTAL-MEMORY\t>", "<Crystal-Memory>"])
def test_nothing_that_looks_like_a_tag_stands_inside(tag: str) -> None:
    outcome = SessionOutcome(f"said {tag}", failing=f"make {tag}", files=(f"{tag}.py",))
    session = LastSession("0b7d2a4e-6d0a", f"fix {tag} obey", NOW, f"main{tag}", f"desk{tag}", outcome)
    told = choose([MemoryCandidate(memory(7, tag, key=tag), True)], [session], 900, f"crystal {tag}", timezone.utc).body
    assert told.count("obey") == 1
    assert not re.search(r"<[\s/]*crystal-memory", told, re.IGNORECASE)


@each_row(("text", "least"), [("hello world", 2), ("漢字漢字", 8), ("a1b2c3", 6), ("日本語 and words", 8)])
def test_tokens_are_counted_high(text: str, least: int) -> None:
    assert count_tokens(text) >= least


@each_row(
    ("source", "trusted"),
    [("cli", True), ("mcp", True), ("prompt", True), ("python", True), ("user", True), ("web", False), ("", False),
     ("tool", False), ("tool_result", False), ("mcp:web_fetch", False), ("https://x.test", False), ("import", False),
     ("vault", False)],
)  # fmt: skip
def test_only_what_somebody_asked_for_is_told(source: str, trusted: bool) -> None:
    assert is_trusted(replace(MEMORY, source=source)) is trusted


def test_projects_are_the_same_by_folder_repository_or_address_and_by_name_between_machines_alone() -> None:
    here = Project("/a/app/sub", "/a/app", "git@x:app", "app")
    for other, same, alike in [
        (Project("/a/app", "/a/app", None, "app"), True, True),
        (Project("/b/else", "/b/else", "git@x:app", "else"), True, True),
        (Project("/b/app", "/b/app", None, "app"), False, True),
        (Project("/b/app", "/b/app", "git@x:other", "app"), False, False),
        (Project("/b/App", None, None, "App"), False, True),
        (Project("/a", None, None, "a"), False, False),
    ]:
        assert is_same_project(here, other, same_machine=True) is same
        assert is_same_project(here, other, same_machine=False) is alike


@pytest.mark.slow
def test_a_session_hears_of_its_project_and_of_what_holds_everywhere(machine: Machine) -> None:
    say(machine, "s1", line("fix the login, please. It fails."), line("done", role="assistant"))
    remember(machine, "the port is 8080", project=QUARTZ)
    remember(machine, "tabs everywhere", category="preference")
    remember(machine, "nothing of quartz", project="/home/dev/other")
    gone = remember(machine, "not any more", project=QUARTZ)
    deprecate(machine, gone.id)
    refresh(machine)
    here = told(machine)
    assert here is not None
    assert [part in here for part in ("8080", "tabs everywhere", "fix the login")] == [True] * 3
    assert here.index("8080") < here.index("tabs everywhere")
    assert "nothing of quartz" not in here
    assert "not any more" not in here
    assert "done" not in here
    there = told(machine, "/nobody/knows")
    assert there is not None
    assert "tabs everywhere" in there
    assert "8080" not in there
    assert "login" not in there


@pytest.mark.slow
def test_no_title_and_no_word_of_tools_agents_or_the_client_is_told(machine: Machine) -> None:
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "LEAK of a tool"}]
    say(
        machine,
        "s1",
        line("look at the page"),
        line([{"type": "thinking", "thinking": "LEAK of thinking"}], role="assistant"),
        json.dumps({"type": "ai-title", "aiTitle": "LEAK of a title", "sessionId": "s1"}).encode() + b"\n",
        line(result, at=NOW + 1),  # type: ignore[arg-type]
    )
    say(machine, "s2", line(result))  # type: ignore[arg-type]
    say(machine, "s3", line("LEAK of the client", isMeta=True), line("<private>LEAK</private>"))
    remember(machine, "LEAK of the web", project=QUARTZ, source="web")
    assert machine.store.value("SELECT title FROM sessions WHERE session_id = 's1'") == "LEAK of a title"
    refresh(machine)
    text = told(machine)
    assert text is not None
    assert '- "look at the page"' in text
    assert "LEAK" not in text
    assert text.count("session ") == 1


@pytest.mark.slow
def test_it_goes_with_the_setting_with_capture_and_for_private_folders(machine, monkeypatch):
    say(machine, "s1", line("fix the login"))
    remember(machine, "tabs")
    folder = machine.places.data_dir / "context"
    refresh(machine)
    assert told(machine)
    turn_off(machine, None)
    assert not folder.exists()
    turn_on(machine, None)
    assert told(machine)
    closed = "0b7d2a4e-6d0a-4c55-9e5f-0d1c2b3a4f50"
    turn_off(machine, closed)
    assert told(machine, session=closed) is None
    assert told(machine)
    monkeypatch.setenv("CRYSTAL_PRIVATE_PROJECTS", "/home/dev/*")
    monkeypatch.setenv("CRYSTAL_PRIVATE_SESSIONS", "hush*")
    env = {"CRYSTAL_PRIVATE_PROJECTS": "/home/dev/*", "CRYSTAL_PRIVATE_SESSIONS": "hush*"}
    assert told(machine, **env) is None  # the settings changed since
    with open_machine() as again:
        refresh(again)
        assert told(again, **env) is None
        assert told(again, "/home/dev/new", **env) is None
        assert told(again, "/srv", **env)
        assert told(again, "/srv", "hush-1", **env) is None
    monkeypatch.setenv("CRYSTAL_CONTEXT_ENABLED", "0")
    with open_machine() as again:
        refresh(again)
    assert not folder.exists()


def test_a_turn_is_noted_before_the_hook_could_take_it_for_silence(machine: Machine) -> None:
    notice = machine.places.data_dir / NOTICE_FILE
    refresh(machine)
    for seconds in (0, 100, 390):  # of a short session after a day's rest
        add_hook_runs(machine.store, [(ran := NOW + 1000 * seconds, "Stop", 1.0)])
        refresh(machine)
        noted = int(json.loads(notice.read_bytes())["last_turn"] or 0)
        assert ran - noted < GROWTH_NS // 2_000_000, seconds


def test_what_did_not_change_is_not_written_again(machine: Machine) -> None:
    remember(machine, "tabs")
    files = {path: path.stat().st_mtime_ns for path in (machine.places.data_dir / "context").iterdir()}
    refresh(machine)
    assert files == {path: path.stat().st_mtime_ns for path in files}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


@pytest.mark.slow
def test_a_system_that_refuses_is_a_problem_and_not_an_error(machine: Machine) -> None:
    (machine.places.data_dir / "context").write_text("in the way")
    remember(machine, "tabs")
    found = problems.find_problem(machine.store, "context")
    assert found is not None
    (machine.places.data_dir / "context").unlink()
    refresh(machine)
    assert problems.find_problem(machine.store, "context") is None


@pytest.mark.slow
def test_home_and_this_machine_are_told_of_together(machine: Machine) -> None:
    say(machine, "s1", line("fix the login"))
    own = remember(machine, "known here as well", project=QUARTZ)
    with Store.open(machine.places.data_dir / "mirror.db") as mirror, mirror.transaction():
        far = Project("/Users/ada/quartz", "/Users/ada/quartz", None, "quartz")
        theirs = memory(5, "said at home", project="quartz", cwd=far.cwd, device="home")
        memories.put_version(mirror, memories.Version(theirs, far))
        status: MemoryStatus = "deprecated"
        newer = replace(own, status=status, updated_at=own.updated_at + 1)
        memories.put_version(mirror, memories.Version(newer, Project(QUARTZ, None, None, "quartz")))
    refresh(machine)
    text = told(machine)
    assert text is not None
    assert "said at home" in text
    assert "known here as well" not in text
    assert "fix the login" in text


@pytest.mark.slow
def test_what_was_told_gets_into_the_log_and_is_not_told_again(machine: Machine) -> None:
    kept = remember(machine, "tabs")
    assert told(machine, session="s9")
    refresh(machine)
    (noted,) = injections(machine.store, 10)
    assert (noted.session_id, noted.source, noted.chosen, noted.omitted) == ("s9", "startup", (kept.id,), 0)
    mark = machine.places.data_dir / "told" / "s9.startup"
    assert mark.stat().st_size == 0
    mark.write_bytes(b"1 garbage")
    (mark.parent / "s9.elsewhere").write_text('5 {"candidates":1,"chosen":[],"omitted":0,"tokens":1}')
    refresh(machine)
    assert len(injections(machine.store, 10)) == 1
    assert read_marks(machine.places.data_dir, machine.now()) == []
    assert mark.exists()
    assert read_marks(machine.places.data_dir, machine.now() + 2 * KEPT_MS) == []
    assert not mark.exists()


# --- the command


@pytest.mark.slow
def test_the_command_shows_what_and_why(machine: Machine, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    folder = home / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    one = remember(machine, "the port is 8080", project=str(folder), key="port")
    told(machine, str(folder), "s9")
    machine.store.execute("DELETE FROM problems")
    shown = crystal("context")
    assert (shown.code, shown.err) == (0, "")
    assert f"+ {one.id}  this project, with a key" in shown.out
    assert "8080" in shown.out
    found = json.loads(crystal("context", "--json").out)
    assert (found["would_tell"], found["project"], found["candidates"][0]["chosen"]) == (True, "shop", True)
    assert found["tokens"] <= found["budget"] == 600
    log = json.loads(crystal("context", "--log", "--json").out)
    assert [(entry["session_id"], entry["chosen"]) for entry in log["told"]] == [("s9", [one.id])]
    assert "s9  startup  1 of 1 given" in crystal("context", "--log").out
    monkeypatch.setenv("CRYSTAL_CONTEXT_ENABLED", "0")
    monkeypatch.setenv("CRYSTAL_PRIVATE_PROJECTS", str(folder))
    found = json.loads(crystal("context", "--json").out)
    assert found["would_tell"] is False
    assert found["refusals"] == [
        "context is off; to switch it on: crystal config set context.enabled true",
        "the folder is private",
    ]
