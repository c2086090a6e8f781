"""``fix``: what cured an error here before, through the command, Python and the MCP tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crystal import Crystal
from crystal.app.context import default_paths
from crystal.app.fixes import MAX_FIXES
from crystal.app.mirror import MIRROR_FILE
from crystal.mcp.handlers import ClientContext
from crystal.redact import Redactor
from crystal.store import Store
from crystal.store.health.checks import drop_turns
from crystal.store.work.index import make_again
from tests.support.command import crystal
from tests.support.mcp_client import Tools
from tests.support.store_factory import NOW, add_turn
from tests.support.work_sessions import ASKED, ERROR, MISSING, cured, did


def test_a_memory_in_which_nothing_was_captured_yet_knows_nothing(store: Store) -> None:
    store.execute("DELETE FROM meta WHERE key = 'hash_key'")
    done = crystal("fix", "error: no such file")
    assert (done.code, "no known cure of this error" in done.err) == (0, True), done.err


def test_what_an_agent_reads_of_a_cure_in_its_shell_is_fenced(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cured(store, "one", NOW)
    monkeypatch.setenv("CLAUDECODE", "1")
    for words in (["fix", MISSING], ["fix", MISSING, "--json"]):
        shown = crystal(*words).out
        assert "pip install pyyaml" in shown
        assert "pyyaml" not in Redactor(b"k").clean_text(f"before {shown} after")[0]


def test_what_cured_it_is_told_with_its_evidence(store: Store) -> None:
    cured(store, "one", NOW)
    with Crystal() as memory:
        (found,) = memory.fix(ASKED)
        assert (found.error, found.command) == (ERROR.format(NOW).splitlines()[1], "make test 2>&1 | tail")
        assert [(one.file, one.added, one.removed) for one in found.steps] == [
            ("cart.py", ("    return int(a) + b",), ("    return a + b",))
        ]
        calls = [found.failed.uuid, found.steps[0].call.uuid, found.succeeded.uuid]
        assert calls == [f"one-{NOW}", f"one-{NOW + 10}", f"one-{NOW + 20}"]
        (found,) = memory.fix("Traceback ...\nModuleNotFoundError: No module named 'yaml'\n")
        assert [one.command for one in found.steps] == ["pip install pyyaml"]
        for error in ("ModuleNotFoundError: No module named 'toml'", "", "Error", "all is well", "\0\ud800 error"):
            assert memory.fix(error) == [], error


def test_a_compilers_error_is_known_without_its_place(store: Store) -> None:
    build, edit = (
        {"command": "go build"},
        {"file_path": "/a/shop/cart.go", "old_string": "", "new_string": "total := 0"},
    )
    failed = "Exit code 1\n./cart.go:3:1: undefined: total"
    for at, step in enumerate([("Bash", build, failed), ("Edit", edit, "updated"), ("Bash", build, "")]):
        did(store, "one", NOW + 10 * at, *step, "/a/shop")
    add_turn(store, "It builds.", role="assistant", session="one", ts=NOW + 30, message_id="end", project="/a/shop")
    make_again(store)
    with Crystal() as memory:
        for asked in (
            "undefined: total",
            "lib/x.go:90:12: undefined: total\n",
            "I get lib/x.go:90:12: undefined: total",
        ):
            assert [one.steps[0].added for one in memory.fix(asked)] == [("total := 0",)]
        assert memory.fix("undefined: sum") == []


def test_the_project_comes_first_then_the_latest_of_all_stores(store: Store) -> None:
    cured(store, "one", NOW, new="    return number(a) + b")
    cured(store, "two", NOW + 1_000, "/a/other", new="    return float(a) + b")
    with Store.open(default_paths().data_dir / MIRROR_FILE) as mirror:
        cured(mirror, "one", NOW, new="    return number(a) + b")
        cured(mirror, "three", NOW + 2_000, "/a/third", new="    return Decimal(a) + b")
    with Crystal() as memory:
        told = {place: [one.steps[0].added[0].split()[1] for one in memory.fix(ASKED, project=place)]
                for place in (None, "shop", "other", "nowhere")}  # fmt: skip
    everywhere = ["Decimal(a)", "float(a)", "number(a)"]
    assert told == {None: everywhere, "shop": ["number(a)"], "other": ["float(a)"], "nowhere": everywhere}


def test_a_session_that_cured_it_twice_has_the_place_of_its_latest_cure(store: Store) -> None:
    for session, at in (("one", NOW), ("two", NOW + 1_000), ("one", NOW + 2_000)):
        cured(store, session, at)
    with Crystal() as memory:
        assert [found.succeeded.uuid for found in memory.fix(MISSING)] == [f"one-{NOW + 2_050}", f"two-{NOW + 1_050}"]


def test_the_command_reads_it_from_anywhere(store: Store) -> None:
    cured(store, "one", NOW)
    told = crystal("fix", ASKED)
    assert told.out == crystal("fix", typed=f"$ make test\n{ASKED}\n").out == crystal("fix", "-", typed=ASKED).out
    assert told.out == crystal("fix", *ASKED.split()).out
    for line in ("  failed: make test 2>&1 | tail", "  then: edited cart.py", "    - return a + b",
                 "    + return int(a) + b", "  then it succeeded", f"    crystal show one-{NOW + 20}"):  # fmt: skip
        assert line in told.out.splitlines()
    (found,) = json.loads(crystal("fix", ASKED, "--json").out)["fixes"]
    assert (found["failures"], found["steps"][0]["added"]) == (1, ["    return int(a) + b"])
    nothing = crystal("fix", "error: it's something else here")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err.splitlines()[1].endswith("crystal search 'error: it'\"'\"'s something else here'")
    assert nothing.err.splitlines()[0] == "crystal: no known cure of this error"
    assert {crystal("fix", terminal=True).code, crystal("fix", typed="\n").code, crystal("fix", " ").code} == {2}
    did(store, "two", NOW, "Bash", {"command": "ls"}, "cart.py", "/a/other")
    named = [crystal("fix", ASKED, "--project", name).out for name in ("shop", "other")]
    assert named == [told.out, ""]
    tools = Tools(ClientContext())
    assert [len(tools.data("crystal_fix", error=ASKED, project=one)["fixes"]) for one in ("shop", "other")] == [1, 0]


def test_the_tool_tells_it_in_a_fence(store: Store) -> None:
    cured(store, "one", NOW)
    tools = Tools(ClientContext(folder="/a/shop"))
    (found,) = tools.data("crystal_fix", error=ASKED)["fixes"]
    assert found["steps"] == ["then: edited cart.py\n-     return a + b\n+     return int(a) + b"]
    assert tools.text("crystal_fix", error=ASKED).startswith("<crystal-memory-")
    assert tools.data("crystal_fix", error="error: something else is wrong here")["fixes"] == []
    assert tools.data("crystal_fix", error="error: something else is wrong here")["notes"] == []


def test_an_answer_says_that_calls_are_not_indexed_yet(store: Store, tmp_path: Path) -> None:
    (tmp_path / "cart.py").write_text("total = 1\n")
    did(store, "two", NOW, "Bash", {"command": "make"}, "made", "/a/shop")
    tools = Tools(ClientContext(folder=str(tmp_path)))
    for name, words, option in (
        ("fix", {"error": "error: something else is wrong"}, []),
        ("how", {"question": "zebra"}, []),
        ("about", {"thing": "zebra"}, []),
        ("changed", {"since": "2020-01-01"}, ["--since"]),
        ("blame", {"file": "cart.py"}, []),
    ):
        place = str(tmp_path / "cart.py") if name == "blame" else next(iter(words.values()))
        (told,) = json.loads(crystal(name, *option, place, "--json").out)["notes"]
        assert "2 calls and results are not indexed yet" in told
        assert told.partition(";")[0] in tools.data(f"crystal_{name}", **words)["notes"]


def test_what_is_forgotten_is_told_no_more(store: Store) -> None:
    for turn in (2, 1, 4, 6):  # the result that has the error, the failure, the edit's result, the success
        cured(store, f"s{turn}", NOW)
        with Crystal() as memory:
            assert len(memory.fix(ASKED)) == 1
        rows = [row for (row,) in store.rows("SELECT id FROM turns ORDER BY id")]
        with store.transaction():
            drop_turns(store, [rows[turn - 1]] if turn != 4 else rows[2:4])
        with Crystal() as memory:
            assert memory.fix(ASKED) == [], turn
        with store.transaction():
            drop_turns(store, [row for (row,) in store.rows("SELECT id FROM turns")])


def test_many_cures_are_few_answers(store: Store) -> None:
    for number in range(MAX_FIXES + 2):
        cured(store, f"s{number}", NOW + 1_000 * number)
    with Crystal() as memory:
        found = memory.fix(ASKED)
        assert [one.failed.session_id for one in found] == [f"s{number}" for number in range(MAX_FIXES + 1, 1, -1)]
        assert found[0].failures == MAX_FIXES + 2
