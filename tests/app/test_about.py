"""``about``: the history of a thing, through the command, Python and the MCP tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal import Crystal
from crystal.app.about import Event, about, most_telling
from crystal.app.context import default_paths, open_reader
from crystal.app.mirror import MIRROR_FILE
from crystal.mcp.handlers import ClientContext
from crystal.model.capture import Project
from crystal.store import Store
from crystal.store.capture.projects import project_row
from crystal.store.health.checks import drop_turns
from crystal.store.work.index import make_again
from crystal.work.mentions import joined, kind_of_name, mentions, sentences_with, shortened, words_of
from tests.app.test_work import git
from tests.support.command import crystal
from tests.support.mcp_client import Tools
from tests.support.store_factory import NOW, add_turn
from tests.support.work_sessions import ERROR, cured, did

SHOP = "/a/shop"


def say(store: Store, session: str, at: int, role: str, text: str, folder: str = SHOP) -> None:
    with store.transaction():
        project_row(store, Project(folder, folder, None, Path(folder).name))
    add_turn(store, text, ts=at, role=role, session=session, project=folder, uuid=f"{session}-{at}")


def whats(store: Store, thing: str, **more: object) -> list[tuple[str, str]]:
    with Crystal() as memory:
        return [(one.what, one.text) for one in memory.about(thing, **more).events]  # type: ignore[arg-type]


def test_it_says_if_only_the_newest_texts_were_searched(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, text in enumerate(("the zeppelin is amber", "rain", "wind", "snow")):
        say(store, "one", NOW + number, "user", text)
    assert json.loads(crystal("about", "zeppelin", "--json").out)["notes"] == []
    monkeypatch.setattr("crystal.search.candidates.FEW", 1)
    monkeypatch.setattr("crystal.search.candidates.MAX_READ", 2)
    note = "only the newest 2 texts were searched for words; make it now: crystal sync"
    told = crystal("about", "zeppelin")
    assert ("nothing is known of zeppelin" in told.err, note in told.err) == (True, True)
    assert note in json.loads(crystal("about", "zeppelin", "--json").out)["notes"][0]
    assert note in Tools(ClientContext()).text("crystal_about", thing="zeppelin")


def test_a_person_is_known_by_the_commits_in_the_folder_of_the_project(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    for author in ("Margot Lin <m@a.example>", "Lin Margotti <l@a.example>"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", f"by {author}", "--author", author)
    say(store, "one", NOW, "user", "hello", folder=str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for words in (["margot"], ["Margot Lin"], ["m@a.example"], ["Margot", "--all"]):
        said = json.loads(crystal("about", *words, "--json").out)
        assert [(one["what"], one["text"], one["why"]) for one in said["events"]] == [
            ("committed", "by Margot Lin <m@a.example>", "Margot Lin <m@a.example>")
        ]
    out = crystal("about", "Margot").out
    out = crystal("about", "Margot").out
    assert out.startswith("Margot: 1 event\ncommitted: by Margot")
    assert "git show " in out
    tools = Tools(ClientContext(folder=str(tmp_path)))
    [told] = tools.data("crystal_about", thing="Margot")["events"]
    assert (told["what"], told["line"]) == ("committed", None)
    assert "git show " in tools.text("crystal_about", thing="Margot")
    assert "nothing is known" in crystal("about", "nobody").err


def test_a_pull_request_and_a_commit_are_known_by_the_repository_and_by_what_git_printed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    for subject in ("Merge pull request #325 from a/b", "Merge pull request #3250", "325 lines (#12)"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", subject)
    printed = "[fix-resume 24a8866] Fix the resume\n 1 file changed"
    did(store, "one", NOW, "Bash", {"command": "git commit -qm x && git log -1"}, printed, str(tmp_path))
    did(store, "one", NOW + 9, "Bash", {"command": "git log"}, "24a8866 Fix the resume", str(tmp_path))
    make_again(store)
    monkeypatch.chdir(tmp_path)
    for words in (["PR", "325"], ["325"], ["#325"]):
        (found,) = json.loads(crystal("about", *words, "--json").out)["events"]
        assert (found["what"], found["text"]) == ("committed", "Merge pull request #325 from a/b")
        (again,) = json.loads(crystal("about", found["uuid"][:9], "--json").out)["events"]
        assert again == found
    assert whats(store, "24a8866") == [("ran", "[fix-resume 24a8866] Fix the resume")]
    assert "  command: git commit -qm x && git log -1" in crystal("about", "24a8866").out
    assert whats(store, "24a8867") == []


def test_the_history_of_a_file_is_what_was_done_and_said_about_it(store: Store) -> None:
    say(store, "one", NOW - 5, "user", "Hello.\nPlease make cart.py add strings, too.\nThanks")
    cured(store, "one", NOW)
    say(store, "one", NOW + 90, "assistant", "Done. I kept cart.py small because the tax code is loaded with it. Bye.")
    say(store, "one", NOW + 95, "assistant", "Nothing of mycart.py or cart.pyx is meant.")
    with Crystal() as memory:
        found = memory.about("cart.py")
        assert (found.kind, found.sessions, found.related) == ("file", 1, ())
        assert found == memory.about(" shop/cart.py ") or found.events
        told = [(one.what, one.text, one.why, one.uuid) for one in found.events]
    error = ERROR.format(NOW).splitlines()[1]
    assert told == [
        ("decided", "I kept cart.py small because the tax code is loaded with it.", None, f"one-{NOW + 90}"),
        ("fixed", "edited cart.py", error, f"one-{NOW + 20}"),
        ("edited", "cart.py", "Hello.\nPlease make cart.py add strings, too.\nThanks", f"one-{NOW + 10}"),
        ("failed", error, "make test", told[3][3]),
        ("asked", "Please make cart.py add strings, too.", None, f"one-{NOW - 5}"),
    ]


def test_symbols_errors_packages_numbers_and_branches_have_a_history(store: Store) -> None:
    cured(store, "one", NOW, new="    return add_up(a) + b")
    cured(store, "two", NOW + 1_000, "/a/other")
    say(store, "one", NOW + 90, "user", "See PR #12, not #121 or 12 apples, and feature/tax of Ada Lovelace")
    store.execute("UPDATE sessions SET branch = 'feature/tax' WHERE session_id = 'one'")
    line = "See PR #12, not #121 or 12 apples, and feature/tax of Ada Lovelace"
    assert whats(store, "add_up") == [("edited", "cart.py")]
    assert ("ran", "pip install pyyaml") in whats(store, "pyyaml")
    assert whats(store, "#12") == whats(store, "Ada  lovelace") == whats(store, "feature/tax") == [("asked", line)]
    assert whats(store, "#13") == whats(store, "add_u") == whats(store, "") == whats(store, "\0\ud800") == []
    with Crystal() as memory:
        kinds = {
            name: memory.about(name).kind for name in ("#12", "feature/tax", "pyyaml", ERROR.format(7), "deadbeef1")
        }
    assert [*kinds.values()] == ["pull request or issue", "branch", "name", "error", "commit"]
    assert [what for what, _ in whats(store, ERROR.format(7))].count("fixed") == 2
    assert [what for what, _ in whats(store, ERROR.format(7), project="other")].count("fixed") == 1


def test_the_project_comes_first_then_all_and_the_mirror_counts_once(store: Store) -> None:
    say(store, "one", NOW, "user", "the tax is odd")
    say(store, "two", NOW + 1, "user", "the tax is even", "/a/other")
    with Store.open(default_paths().data_dir / MIRROR_FILE) as mirror:
        say(mirror, "one", NOW, "user", "the tax is odd")
        say(mirror, "three", NOW + 2, "user", "the tax is prime", "/a/third")
    told = {place: [text.split()[-1] for _, text in whats(store, "tax", project=place)]
            for place in (None, "shop", "nowhere")}  # fmt: skip
    assert told == {None: ["prime", "even", "odd"], "shop": ["odd"], "nowhere": ["prime", "even", "odd"]}
    with open_reader() as machine:
        assert about(machine, "tax", project="nowhere", is_only=True).events == ()


def test_the_command_and_the_tool_tell_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cured(store, "one", NOW)
    lines = crystal("about", "cart.py").out.splitlines()
    assert lines[0] == "cart.py (file): 3 events in 1 session"
    assert [line.split()[0] for line in lines if not line.startswith(" ")][1:] == ["fixed:", "edited", "failed:"]
    assert f"crystal show one-{NOW + 20}" in lines[3]
    found = json.loads(crystal("about", "cart.py", "--json", "-n", "1").out)
    assert ([one["what"] for one in found["events"]], found["kind"]) == (["fixed", "edited", "failed"], "file")
    assert "2 more: add --limit 3" in crystal("about", "cart.py", "-n", "1").err
    nothing = crystal("about", "it's", "nothing")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err.splitlines()[0] == "crystal: nothing is known of it's nothing"
    assert nothing.err.splitlines()[1].endswith("""crystal search 'it'"'"'s nothing'""")
    assert {crystal("about", " ").code, crystal("about").code} == {2}
    long = crystal("about", "x" * 100_000)
    assert long.code == 2
    assert "the name has 100,000 characters, at most 500 are allowed" in long.err
    assert len(long.err) < 300
    tools = Tools(ClientContext(folder=SHOP))
    told = tools.data("crystal_about", thing="cart.py")
    assert [one["what"] for one in told["events"]] == ["fixed", "edited", "failed"]
    assert [one["what"] for one in tools.data("crystal_about", thing="cart.py", offset=2)["events"]] == ["failed"]
    assert tools.text("crystal_about", thing="cart.py").startswith("<crystal-memory-")
    monkeypatch.setenv("CLAUDECODE", "1")
    assert "<crystal-memory" in crystal("about", "cart.py").out


def test_the_files_of_sessions_come_by_how_many_edited_them_also_from_the_mirror(store: Store) -> None:
    with Store.open(default_paths().data_dir / MIRROR_FILE) as mirror:
        for side, sessions in ((store, "abc"), (mirror, "cd")):
            for at, name in enumerate(sessions):
                say(side, name, NOW, "user", f"the tax of {name}")
                for later, file in enumerate(("b.py", "a.py", "tax.py", "late.py")[at and 1 :], 1):
                    edit = {"file_path": f"{SHOP}/{file}", "old_string": "old = 1", "new_string": "new = 2"}
                    did(side, name, NOW + 5 * later, "Edit", edit, "updated", SHOP)
            make_again(side)
    with Crystal() as memory:
        assert memory.about("tax").related == (("a.py", 4), ("late.py", 4), ("b.py", 2))
        assert memory.about("tax", project="other").related == (("a.py", 4), ("late.py", 4), ("b.py", 2))


def test_what_is_forgotten_has_no_history(store: Store) -> None:
    cured(store, "one", NOW)
    say(store, "one", NOW + 90, "user", "cart.py is done")
    with store.transaction():
        drop_turns(store, [row for (row,) in store.rows("SELECT id FROM turns")])
    assert whats(store, "cart.py") == []


def test_what_tells_most_is_shown() -> None:
    events = [Event(what, str(at), None, at, "s", str(at), None, "d") for at, what in
              enumerate(["said", "edited", "ran", "decided"])]  # type: ignore[arg-type] # fmt: skip
    assert [one.text for one in most_telling(events, 2)] == ["1", "3"]
    assert [one.text for one in most_telling(events, 3)] == ["0", "1", "3"]


def test_a_sentence_that_goes_on_in_the_next_line_is_told_whole() -> None:
    rows = {
        "**`cart.py`**:\n\n- adds the tax\n- and more": "`cart.py`: adds the tax",
        "Now I change cart.py:\n```python\ntotal = 1": "Now I change cart.py:",
        "The basket of a shop is counted in cart.py and then\nsummed up here.": "The basket of a shop is counted in cart.py"
        " and then summed up here.",
        "cart.py\nshop.py": "cart.py",
    }
    for text, told in rows.items():
        assert sentences_with(mentions("cart.py"), joined(text)) == [told], text


@given(st.text(min_size=1, max_size=30), st.text(max_size=200))
def test_any_name_is_found_where_it_stands_alone_and_only_there(name: str, text: str) -> None:
    kind_of_name(name)
    words_of(name)
    plain = " ".join(name.split())
    pattern = mentions(plain)
    for line in sentences_with(pattern, text):
        assert pattern.search(line)
        assert len(shortened(pattern, line)) <= 302
    if plain and plain.isalnum():
        assert pattern.search(f"see {plain}, here")
        assert not pattern.search(f"see _{plain}_ here")


def test_a_cure_in_another_project_is_not_told_of_one_alone(store: Store) -> None:
    cured(store, "one", NOW)
    run = {"command": "make test"}
    did(store, "two", NOW + 1_000, "Bash", run, ERROR.format(8), "/a/other")
    make_again(store)
    assert [what for what, _ in whats(store, "cart.py", project="other")] == ["failed"]
    assert "fixed" in [what for what, _ in whats(store, "cart.py", project="shop")]
