import json
import os
import re
import sys
import time

import pytest

from crystal.app.context import Machine, default_paths
from crystal.cli import app
from crystal.cli.render import cells
from crystal.errors import NotConfiguredError
from tests.support.capture_machine import CaptureMachine, line
from tests.support.ranked_by import prepare, using
from tests.support.store_factory import DAY, HOUR, SESSION, Meaning, add_turn, chunk_id, embed_all
from tests.support.table import each_row

FORK = "22222222-bbbb-4000-8000-000000000002"
NOW = time.time_ns() // 1_000_000
REQUIRED = {"id", "score", "text", "role", "session_id", "uuid", "project", "branch", "agent", "device", "timestamp",
            "freshness", "source"}  # fmt: skip
ESCAPE = "\x1b"
KEYWORDS_ALONE = "crystal: note: searched by keywords alone: no embedding model is configured\n"


@pytest.fixture(params=["memory", pytest.param("index", marks=pytest.mark.slow)])
def ranked_by(request, monkeypatch):
    """Ask without an index and with one: the command chooses itself whether models take part."""
    with using(request.param, monkeypatch):
        yield request.param


searching = pytest.mark.usefixtures("ranked_by")


@pytest.fixture
def store(store, home, monkeypatch):
    """This machine's store, with keywords alone unless a test says otherwise."""
    monkeypatch.setattr(Machine, "embedder", lambda _: None)
    monkeypatch.chdir(home)
    return store


@pytest.fixture
def run(monkeypatch, capsys, request):
    store = request.getfixturevalue("store") if "store" in request.fixturenames else None

    def run(*arguments):
        prepare(store)
        monkeypatch.setattr(sys, "argv", ["crystal", *arguments])
        code = run_main()
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def run_main():
    try:
        app.main()
    except SystemExit as end:
        return end.code or 0
    return 0


def hits(printed):
    return json.loads(printed)["hits"]


# ------------------------------------------------------------------------------------------------------------ search


@searching
def test_json_is_one_object_with_the_documented_keys(store, run):
    uuid = add_turn(store, "the login token", ts=NOW - 4 * DAY, branch="fix/x")
    code, out, _ = run("search", "login", "tokens", "--json")
    printed = json.loads(out)
    assert code == 0
    assert (printed["schema"], printed["query"], printed["mode"]) == (1, "login tokens", "keywords")
    (hit,) = printed["hits"]
    assert hit.keys() >= REQUIRED
    assert hit["id"] == chunk_id(store, uuid)
    assert (hit["uuid"], hit["session_id"], hit["project"], hit["branch"]) == (uuid, SESSION, "shop", "fix/x")
    assert (hit["freshness"], hit["source"], hit["role"]) == ("recent", "conversation", "user")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", hit["timestamp"])
    assert "explain" not in hit
    assert hits(run("search", "login", "--json", "--explain")[1])[0]["explain"]["ranks"]["keywords"] == 1


@searching
def test_nothing_found_is_no_error_and_says_what_to_try(store, run):
    add_turn(store, "hello")
    assert hits(run("search", "zebra", "--json")[1]) == []
    code, out, err = run("search", "zebra", "--since", "7d", "--role", "user")
    assert (code, out) == (0, "")
    assert "nothing found for 'zebra'" in err
    assert "leave out --role or --since" in err
    err = run("search", "zebra")[2]
    assert "hint: use fewer or other words, or look through: crystal sessions\n" in err
    assert "backfill" not in err  # there is nothing to import


@each_row("arguments", [[], [""], ["  ", ""]])
def test_an_empty_question_is_a_usage_problem(store, run, arguments):
    code, out, err = run("search", *arguments)
    assert (code, out) == (2, "")
    assert "crystal: error: the question is empty" in err


@each_row(("options", "named"), [(["-n", "0"], "0"), (["-n", "-3"], "-3"), (["-n", "x"], "--limit is 'x'"), (["--since", "soon"], "--since is 'soon'"),
     (["--before", "2026-99-01"], "2026-99-01"), (["--role", "robot"], "robot"), (["--nope"], "nope"),
     (["--since", "1d", "--before", "2d"], "--since 1d")])  # fmt: skip
def test_a_bad_option_is_named_with_exit_code_2(store, run, options, named):
    add_turn(store, "hello")
    code, out, err = run("search", "hello", *options)
    assert (code, out) == (2, "")
    assert named in err


@pytest.mark.slow
@searching
def test_a_question_may_hold_anything(store, run):
    add_turn(store, "hello AND (world")
    for query in ("hello AND (", '"hello', "hello*", "col:hello", "hel\x00lo", "\udce4hello", "a" * 100_000):
        code, out, _ = run("search", "--json", "--", query)
        assert code == 0
        assert json.loads(out)["schema"] == 1


@pytest.mark.slow
@searching
def test_every_filter_reaches_the_search(store, run):
    uuid = add_turn(store, "needle", session="s1", role="assistant", ts=NOW - 2 * DAY, project="/code/shop", branch="b1",
                    agent="cc-a", device="laptop")  # fmt: skip
    add_turn(
        store, "needle", session="t2", role="user", ts=NOW - 9 * DAY, project="/code/site", branch="b2", agent="cc-b"
    )
    for options in (["--session", "s"], ["--role", "assistant"], ["--since", "7d"], ["--project", "shop"],
                    ["--project", "/code/shop"], ["--branch", "b1"], ["--agent", "cc-a"], ["--device", "laptop"]):  # fmt: skip
        assert [hit["uuid"] for hit in hits(run("search", "needle", "--json", *options)[1])] == [uuid], options
    assert [hit["uuid"] for hit in hits(run("search", "needle", "--json", "--before", "7d")[1])] != [uuid]
    assert len(hits(run("search", "needle", "--json", "-n", "1")[1])) == 1


@searching
def test_search_and_sessions_of_one_agent_program(store, run):
    add_turn(store, "needle", session="s1")
    uuid = add_turn(store, "a needle", session="s2", harness="codex")
    assert [hit["uuid"] for hit in hits(run("search", "needle", "--json", "--agent", "codex")[1])] == [uuid]
    listed = json.loads(run("sessions", "--json", "--agent", "codex")[1])["sessions"]
    assert [one["id"] for one in listed] == ["s2"]
    for words in (["search", "needle"], ["sessions"]):
        code, out, err = run(*words, "--agent", "codx")
        assert (code, out) == (0, "")
        assert "did you mean codex" in err


@searching
def test_a_failing_embedder_is_a_note(store, run, monkeypatch):
    def fail(_):
        raise NotConfiguredError("no API key for openai", hint="set it")

    add_turn(store, "hello")
    monkeypatch.setattr(Machine, "embedder", fail)
    code, out, err = run("search", "hello")
    assert code == 0
    assert "hello" in out
    assert "no API key for openai" in err


@searching
def test_hybrid_search_from_the_command_line(store, run, monkeypatch):
    add_turn(store, "a vehicle")
    embed_all(store, Meaning())
    monkeypatch.setattr(Machine, "embedder", lambda _: Meaning())
    printed = json.loads(run("search", "automobile", "--json")[1])
    assert (printed["mode"], len(printed["hits"])) == ("hybrid", 1)


# ----------------------------------------------------------------------------------------------------------- scope


@pytest.fixture
def shop(store, home, monkeypatch, ranked_by):
    """Two projects, and the current folder inside the first, which is a repository."""
    folder = home / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "src").mkdir()
    add_turn(store, "needle of the shop", project=str(folder), session="s1")
    add_turn(store, "needle of the other, and a thimble", project="/code/other", session="s2")
    monkeypatch.chdir(folder / "src")
    return folder


def test_inside_a_known_project_that_project_is_searched(shop, run):
    _, out, err = run("search", "needle", "--json")
    assert [hit["project"] for hit in hits(out)] == ["shop"]
    assert json.loads(out)["scope"] == "shop"
    assert "everywhere" not in err


def test_that_only_the_project_was_searched_is_said_to_people(shop, run):
    _, out, err = run("search", "needle")
    assert "of the other" not in out
    notes = [line for line in err.splitlines(keepends=True) if "NOT capturing" not in line]  # no hook is installed here
    assert "".join(notes) == "crystal: note: searched project shop alone; --all searches everything\n" + KEYWORDS_ALONE
    assert "alone; --all" not in run("search", "needle", "--all")[2]
    assert "alone; --all" not in run("search", "needle", "--project", "shop")[2]


def test_if_the_project_has_nothing_everything_is_searched_and_that_is_said(shop, run):
    _, out, err = run("search", "thimble")
    assert "thimble" in out
    assert "nothing in project shop" in err


def test_all_searches_everything(shop, run):
    assert len(hits(run("search", "needle", "--all", "--json")[1])) == 2


def test_a_named_project_or_session_overrides_the_folder(shop, run):
    assert [hit["project"] for hit in hits(run("search", "needle", "--project", "other", "--json")[1])] == ["other"]
    assert [hit["project"] for hit in hits(run("search", "needle", "--session", "s2", "--json")[1])] == ["other"]


def test_a_dot_is_the_current_folder(shop, run, monkeypatch):
    monkeypatch.chdir(shop)
    assert [hit["project"] for hit in hits(run("search", "needle", "--project", ".", "--json")[1])] == ["shop"]


def test_anywhere_else_everything_is_searched(shop, home, run, monkeypatch):
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    assert len(hits(run("search", "needle", "--json")[1])) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps a folder that somebody is in")
def test_a_folder_that_is_gone_is_nobodys_project(shop, home, run, monkeypatch):
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert len(hits(run("search", "needle", "--json")[1])) == 2
    assert [run(name, "needle")[0] for name in ("about", "how", "fix")] == [0, 0, 0]
    os.chdir(home)


# ----------------------------------------------------------------------------------------------------------- people


@searching
def test_people_see_who_when_where_and_how_to_open_it(store, run):
    uuid = add_turn(store, "the login token expires", ts=NOW - 4 * DAY, branch="fix/x")
    _, out, _ = run("search", "tokens")
    assert "you" in out
    assert "4 days ago" in out
    assert "shop" in out
    assert "fix/x" in out
    assert "recent" in out
    assert "the login token expires" in out
    assert f"crystal show h{chunk_id(store, uuid)}" in out
    assert ESCAPE not in out


@pytest.mark.slow
@searching
def test_stored_text_cannot_speak_to_the_terminal(store, run):
    evil = "needle \x1b[2J\x1b]0;title\x07 \x9b31m \u202eevil\u2066 \r overwritten \x08\x7f"
    uuid = add_turn(
        store, evil, tool="B\x1b[1mash", role="tool_result", branch="b\x1b[5m", project="/code/pro\x1b[7mject"
    )
    for arguments in (["search", "needle"], ["search", "needle", "--explain"], ["show", SESSION], ["sessions"],
                      ["show", str(chunk_id(store, uuid))], ["search", "needle\x1b[0m"], ["search", "nothing\x1b[0m"]):  # fmt: skip
        _, out, err = run(*arguments)
        for text in (out, err):
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text), arguments
    assert hits(run("search", "needle", "--json")[1])[0]["text"] == evil


def test_output_that_a_narrow_encoding_lacks_does_not_fail(store, monkeypatch, tmp_path):
    add_turn(store, "needle 数据库 …")
    path = tmp_path / "out"
    with path.open("w", encoding="ascii") as file:
        monkeypatch.setattr(sys, "stdout", file)
        monkeypatch.setattr(sys, "argv", ["crystal", "search", "needle"])
        assert run_main() == 0
    assert b"needle ???" in path.read_bytes()


# ------------------------------------------------------------------------------------------------- show and sessions


def test_show_reads_a_session_in_order(store, run):
    add_turn(store, "please fix the login", ts=NOW - HOUR)
    add_turn(store, "cat login.py", ts=NOW - HOUR + 1, role="tool_call", tool="Bash")
    add_turn(
        store, "\n".join(f"line {number}" for number in range(100)), ts=NOW - HOUR + 2, role="tool_result", tool="Bash"
    )
    add_turn(store, "fixed\n\n    indented code", ts=NOW - HOUR + 3, role="assistant")
    _, out, _ = run("show", SESSION[:6])
    assert out.index("please fix") < out.index("cat login.py") < out.index("line 3") < out.index("    indented code")
    assert "Bash result" in out
    assert "line 50" not in out
    assert "more characters: crystal show" in out
    assert "line 50" in run("show", SESSION[:6], "--full")[1]


def test_show_json_has_the_session_and_its_turns(store, run):
    uuid = add_turn(store, "hello", ts=NOW)
    printed = json.loads(run("show", SESSION, "--json")[1])
    assert printed["schema"] == 1
    assert (printed["session"]["id"], printed["session"]["title"], printed["session"]["turns"]) == (SESSION, "hello", 1)
    (turn,) = printed["turns"]
    assert (turn["uuid"], turn["role"], turn["text"], turn["focus"]) == (uuid, "user", "hello", False)


def test_show_a_hit_with_context(store, run):
    uuids = [add_turn(store, f"turn {number}", ts=NOW + number) for number in range(9)]
    hit = str(chunk_id(store, uuids[4]))
    printed = json.loads(run("show", hit, "--context", "1", "--json")[1])
    assert [turn["text"] for turn in printed["turns"]] == ["turn 3", "turn 4", "turn 5"]
    assert [turn["focus"] for turn in printed["turns"]] == [False, True, False]
    assert "▶" in run("show", hit)[1]


def test_what_cannot_be_shown_is_named(store, run):
    store.execute("INSERT INTO sessions (session_id, agent, device) VALUES ('1111ffff', 'a', 'd')")
    store.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('chunks', 1)")
    add_turn(store, "hello")
    for arguments, named in (
        (["show", "1"], "several sessions: 1111"),
        (["show", SESSION, "--context", "2"], "--context"),
        (["show", "2", "--context", "-1"], "-1"),
        (["show", SESSION, "--raw", "--json"], "--raw"),
        (["sessions", "-n", "0"], "0"),
        (["sessions", "--since", "x"], "--since"),
        (["show"], "ID"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), arguments
        assert named in err, arguments


def test_what_is_not_there_is_named_with_the_next_step(store, run):
    add_turn(store, "hello")
    expected = "crystal: error: there is no session or hit 'nope'\ncrystal: hint: run: crystal sessions\n"
    assert run("show", "nope") == (1, "", expected)


def test_raw_prints_the_archived_lines_as_they_are(home, run, monkeypatch):
    machine = CaptureMachine.at(default_paths().ldm_home)
    machine.transcript(SESSION).parent.mkdir(exist_ok=True)
    machine.capture().sweep()
    lines = [line("say naïve things", ident="3f0c9a52-1111-4000-8000-00000000beef"), line("no", role="assistant")]
    machine.transcript(SESSION).write_bytes(b"".join(lines))
    machine.capture().sweep()
    machine.store.close()
    monkeypatch.setattr(Machine, "embedder", lambda _: None)
    assert run("show", SESSION, "--raw")[1].encode() == b"".join(lines)
    assert run("show", "3f0c9a52-1111-4000-8000-00000000beef", "--raw")[1].encode() == lines[0]


def test_raw_without_an_archive_says_so(store, run):
    add_turn(store, "hello")
    code, out, err = run("show", SESSION, "--raw")
    assert (code, out) == (3, "")
    assert "no archived lines" in err


def test_sessions_lists_what_was_talked_about(store, run, monkeypatch):
    add_turn(store, "fix the login", session=SESSION, ts=NOW - DAY)
    add_turn(store, "数据库" * 100, session=FORK, ts=NOW, branch="fix/x")
    monkeypatch.setenv("COLUMNS", "80")
    assert all(cells(line) <= 80 and "fix/x" not in line for line in run("sessions")[1].splitlines())
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = run("sessions")
    first, second = out.splitlines()
    assert first.startswith("22222222")
    assert "fix/x" in first
    assert "fix the login" in second
    printed = json.loads(run("sessions", "-n", "1", "--json")[1])
    assert printed["schema"] == 1
    assert [one["id"] for one in printed["sessions"]] == [FORK]
    assert printed["sessions"][0].keys() >= {"id", "title", "project", "branch", "last_at", "turns"}


def test_sessions_that_begin_alike_are_shown_with_longer_ids(store, run):
    for end in ("a", "b"):
        add_turn(store, "hello", session=f"12345678-0000-{end}")
    assert [line.split()[0] for line in run("sessions")[1].splitlines()] == ["12345678-0000-b", "12345678-0000-a"]


def test_no_sessions_at_all_says_what_to_do(store, run):
    code, out, err = run("sessions")
    assert (code, out) == (0, "")
    assert "crystal backfill" in err
