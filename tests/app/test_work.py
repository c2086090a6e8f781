"""``changed`` and ``blame``: through the command, Python and the MCP tools, in a real repository."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal import Crystal
from crystal.app.context import default_paths
from crystal.app.mirror import MIRROR_FILE
from crystal.errors import NotFoundError, UsageError
from crystal.mcp.handlers import ClientContext
from crystal.mcp.items import ShortIds
from crystal.model.capture import Project
from crystal.store import Store
from crystal.store.capture.projects import project_row
from crystal.store.work.index import make_again
from crystal.transcript.parts import call_text
from tests.support.command import crystal
from tests.support.examples import part_of
from tests.support.mcp_client import Tools
from tests.support.store_factory import add_turn

ONE, TWO = "11111111-aaaa-4000-8000-000000000001", "22222222-bbbb-4000-8000-000000000002"
THREE = "33333333-cccc-4000-8000-000000000003"
SECOND = 1_000
YESTERDAY = 1_795_132_800_000
OLD = ["import json", "def load(path):", "    return json.load(open(path))", ""]
NEW = ["def total(prices):", "    taxed = [price * RATE for price in prices]", "    return sum(taxed)", ""]


def git(folder: Path, *words: str, at: int = YESTERDAY) -> None:
    when = f"{at // 1000} +0000"
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**os.environ, **names, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", "-C", str(folder), *words], env=env, check=True, capture_output=True)


def commit(folder: Path, name: str, lines: list[str], at: int) -> None:
    (folder / name).write_text("\n".join(lines))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", name, at=at)


@pytest.fixture
def repository(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """``cart.py``: lines of a person, then of a session, then of another one that is not committed."""
    folder, name = tmp_path / "shop", getattr(request, "param", "cart.py")
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, name, OLD, YESTERDAY)
    edit(store, folder, ONE, YESTERDAY + 60 * SECOND, "Add a total <b>with</b> tax", [], NEW, name)
    commit(folder, name, OLD + NEW, YESTERDAY + 90 * SECOND)
    edit(store, folder, TWO, YESTERDAY + 120 * SECOND, "Log it", [], ["log.info('total of %s', prices)"], name)
    (folder / name).write_text("\n".join([*OLD, *NEW, "log.info('total of %s', prices)", ""]))
    make_again(store)
    monkeypatch.chdir(folder)
    return folder


def edit(
    store: Store,
    folder: Path,
    session: str,
    at: int,
    request: str,
    old: list[str],
    new: list[str],
    name: str = "cart.py",
) -> None:
    arguments = {"file_path": f"{folder}/{name}", "old_string": "\n".join(old), "new_string": "\n".join(new)}
    with store.transaction():
        project_row(store, Project(str(folder), str(folder), None, "shop"))
    place = {"session": session, "project": str(folder)}
    add_turn(store, request, ts=at, **place)
    add_turn(store, "I add it at the end.", ts=at + 1, role="assistant", message_id=f"m{at}", **place)
    call = call_text("Edit", arguments)
    add_turn(store, call, ts=at + 2, role="tool_call", tool="Edit", message_id=f"m{at}", uuid=f"call{at}", **place)
    add_turn(store, "updated", ts=at + 3, role="tool_result", tool="Edit", **place)


@pytest.fixture
def mirror(repository: Path) -> Iterator[Store]:
    """The mirror of home's memory."""
    with Store.open(default_paths().data_dir / MIRROR_FILE) as mirror:
        yield mirror


def blamed(place: str) -> list[tuple[int, int, str | None]]:
    with Crystal() as memory:
        return [(one.first, one.last, one.call and one.call.session_id[:1]) for one in memory.blame(place).lines]


@pytest.mark.parametrize("repository", part_of(["cart.py", "café.py", 'a "b"\té.py']), indirect=True)
def test_each_line_is_of_the_session_that_wrote_it(repository: Path) -> None:
    (name,) = (path.name for path in repository.glob("*.py"))
    assert blamed(name) == [(1, 3, None), (4, 4, None), (5, 7, "1"), (8, 8, None), (9, 9, "2")]
    assert blamed(f"{name}:6") == [(6, 6, "1")]
    assert blamed(f"{name}:4-5") == [(4, 4, None), (5, 5, "1")]


def test_it_says_what_the_user_had_asked_for(repository: Path) -> None:
    with Crystal() as memory:
        (found,) = memory.blame(repository / "cart.py:6").lines
    assert found.call is not None
    assert (found.call.request, found.call.reason) == ("Add a total <b>with</b> tax", "I add it at the end.")


def test_a_line_that_is_not_committed_is_in_git_like_its_file(repository: Path) -> None:
    told = crystal("blame", f"{repository}/cart.py:9")
    assert (f"session {TWO[:8]}" in told.out, "how old these lines are" in told.err) == (True, False)


def test_a_rename_and_other_spaces_change_nothing(repository: Path) -> None:
    git(repository, "commit", "-qam", "log", at=YESTERDAY + 130 * SECOND)
    git(repository, "mv", "cart.py", "basket.py")
    git(repository, "commit", "-qm", "rename", at=YESTERDAY + 140 * SECOND)
    spaced = [f"    {line}" for line in (repository / "basket.py").read_text().splitlines()]
    commit(repository, "basket.py", spaced, YESTERDAY + 150 * SECOND)
    assert blamed("basket.py") == [(1, 3, None), (4, 4, None), (5, 7, "1"), (8, 8, None), (9, 9, "2")]


def test_lines_that_move_to_another_file_stay_of_their_session(repository: Path) -> None:
    (repository / "cart.py").write_text("\n".join(OLD))
    commit(repository, "tax.py", NEW, YESTERDAY + 140 * SECOND)
    assert blamed("tax.py") == [(1, 3, "1")]


@pytest.mark.slow
def test_what_a_shallow_clone_has_is_of_no_known_age(repository: Path, store: Store, tmp_path: Path) -> None:
    edit(store, repository, ONE, YESTERDAY + 125 * SECOND, "Load it", [], OLD)  # a person wrote these lines before
    make_again(store)
    git(repository, "commit", "-qam", "log", at=YESTERDAY + 130 * SECOND)
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), str(shallow))
    new = ["cents = [round(price) for price in prices]", "log.info('%s cents', sum(cents))", ""]
    (shallow / "cart.py").write_text((shallow / "cart.py").read_text() + "\n".join(new))
    edit(store, repository, TWO, YESTERDAY + 140 * SECOND, "Count cents", [], new)
    make_again(store)
    place = ("blame", str(shallow / "cart.py"), "--project", "shop")
    told, note = crystal(*place), "crystal: note: this clone is shallow, and does not tell how old some lines are"
    assert told.out.startswith("lines 1-9: no session is known to have written these lines (commit ")
    assert "lines 10-11: session 22222222" in told.out
    assert note in told.err
    (said,) = json.loads(crystal(*place, "--json").out)["notes"]
    assert said.endswith("fetch the rest: git fetch --unshallow")
    tools = Tools(ClientContext(folder=str(shallow)))
    assert said in tools.data("crystal_blame", file="cart.py", project="shop")["notes"]
    git(shallow, "fetch", "-q", "--unshallow")
    assert ("lines 5-7: session 11111111" in crystal(*place).out, note in crystal(*place).err) == (True, False)


def test_without_git_lines_alone_tell(repository: Path, tmp_path: Path) -> None:
    (repository / ".git").rename(tmp_path / "away")
    with Crystal() as memory:
        found = memory.blame("cart.py:5-7")
    assert (found.has_git, [one.call and one.call.session_id for one in found.lines]) == (False, [ONE])
    assert "git does not tell how old these lines are" in crystal("blame", "cart.py:5-7").err


def test_revisions_that_git_is_told_to_ignore_and_cannot_find_hide_nothing(repository: Path) -> None:
    (Path.home() / ".gitconfig").write_text("[blame]\nignoreRevsFile = .git-blame-ignore-revs\n")
    with Crystal() as memory:
        assert memory.blame("cart.py:5-7").has_git
    git(repository, "config", "blame.ignoreRevsFile", "gone")
    assert "git does not tell how old these lines are" in crystal("blame", "cart.py:5-7").err


def test_what_cannot_be_blamed_is_said(repository: Path, tmp_path: Path) -> None:
    (repository / "a.bin").write_bytes(b"\0")
    with Crystal() as memory:
        with pytest.raises(NotFoundError, match="there is no file"):
            memory.blame("none.py:3")
        with pytest.raises(UsageError, match=f"{repository} is a folder"):
            memory.blame(repository)
        with pytest.raises(UsageError, match="9 lines, not line 99"):
            memory.blame("cart.py:99")
        with pytest.raises(UsageError, match="9 lines, not lines 5-2"):
            memory.blame("cart.py:5-2")
        with pytest.raises(UsageError, match="no text"):
            memory.blame("a.bin")
        (repository / "a.bin").write_bytes(b"")
        with pytest.raises(UsageError, match=r"a\.bin is empty"):
            memory.blame("a.bin")
        (tmp_path / "other.py").write_text("\n".join(NEW))
        assert memory.blame(tmp_path / "other.py").project is None


def test_a_copy_of_the_repository_is_blamed_as_the_project_that_it_is_of(repository: Path, tmp_path: Path) -> None:
    git(repository, "commit", "-qam", "log", at=YESTERDAY + 130 * SECOND)
    clone = tmp_path / "fresh clone"
    (clone / "src").mkdir(parents=True)
    lines = (repository / "cart.py").read_text().splitlines()
    git(clone, "init", "-q")
    commit(clone, "src/cart.py", lines, YESTERDAY + 140 * SECOND)
    place = str(clone / "src" / "cart.py")
    for told, project in (
        (set(), ()),
        ({ONE[:8], TWO[:8]}, ("--project", "shop")),
        ({ONE[:8], TWO[:8]}, ("--project", str(repository))),
    ):
        done = crystal("blame", place, *project)
        assert {session for session in (ONE[:8], TWO[:8]) if f"session {session}" in done.out} == told
        assert ("knows no session" in done.err) == (not project)
    assert f"crystal blame '{place}' --project NAME" in crystal("blame", place).err
    assert "no project 'shoo'; did you mean shop?" in crystal("blame", place, "--project", "shoo").err


def test_the_commands_tell_it(repository: Path) -> None:
    told = crystal("blame", "cart.py:1-5")
    assert told.out.startswith("lines 1-4: no session is known to have written these lines\nline 5: ")  # two commits
    assert "no session is known to have written these lines (commit " in crystal("blame", "cart.py:1-3").out
    assert "line 5: session 11111111, " in told.out
    assert "  asked: Add a total <b>with</b> tax\n  agent: I add it at the end.\n" in told.out
    whole = json.loads(crystal("blame", "cart.py", "--json").out)
    assert [line["call"] and line["call"]["session_id"] for line in whole["lines"]] == [None, None, ONE, None, TWO]
    listed = crystal("changed", "--since", "2020-01-01")
    assert "+4 -0" in listed.out
    assert "cart.py  2 edits in 11111111 22222222" in listed.out
    assert json.loads(crystal("changed", "--session", "2222", "--json").out)["files"][0]["added"] == 1
    assert crystal("changed", "--before", "2020-01-01").err.startswith("crystal: no known edit\n")
    assert len({line.index("+") for line in listed.out.splitlines()}) == 1


def test_an_edit_that_the_mirror_has_too_counts_once(repository: Path, store: Store, mirror: Store) -> None:
    line = {"session": ONE, "project": str(repository), "uuid": "two calls", "ts": YESTERDAY + SECOND, "tool": "Edit"}
    add_turn(mirror, "Its rows have other ids.", session=ONE)
    for one in (store, mirror):
        edit(one, repository, ONE, YESTERDAY, "Add a total", [], NEW, "twice.py")
        for part in (1, 2):
            call = call_text("Edit", {"file_path": f"{repository}/line.py", "old_string": "", "new_string": NEW[part]})
            add_turn(one, call, role="tool_call", part=part, message_id="both", **line)
        for part in (3, 4):
            add_turn(one, "updated", role="tool_result", part=part, **line)
        make_again(one)
    with Crystal() as memory:
        assert {one.path: one.edits for one in memory.changed()} == {"cart.py": 2, "twice.py": 1, "line.py": 2}


def test_the_later_edit_of_all_stores_wrote_a_line(repository: Path, mirror: Store) -> None:
    edit(mirror, repository, THREE, YESTERDAY + 70 * SECOND, "Sum it", [], NEW[2:])  # its row has the id of that of ONE
    edit(mirror, repository, TWO, YESTERDAY + 50 * SECOND, "A total", [], NEW[:2])
    make_again(mirror)
    assert blamed("cart.py:5-9") == [(5, 6, "1"), (7, 7, "3"), (8, 8, None), (9, 9, "2")]


def test_what_is_forgotten_meanwhile_is_left_out(
    repository: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(store, repository, ONE, "make ship", "Ship it")
    monkeypatch.setattr("crystal.store.work.queries.calls", lambda *_: {})
    assert {who for *_, who in blamed("cart.py")} == {None}
    with Crystal() as memory:
        assert memory.how("ship") == []


def ran(
    store: Store, folder: Path, session: str, command: str, about: str, *, printed: str = "shipped", seconds: float = 0
) -> None:
    text, end = call_text("Bash", {"command": command, "description": about}), YESTERDAY + round(seconds * SECOND)
    add_turn(store, text, role="tool_call", tool="Bash", session=session, project=str(folder), ts=YESTERDAY)
    add_turn(store, printed, role="tool_result", tool="Bash", session=session, project=str(folder), ts=end)
    make_again(store)


def test_the_best_command_of_all_stores_is_first(repository: Path, store: Store, mirror: Store) -> None:
    for one in (store, mirror):
        ran(one, repository, ONE, "make ship", "Deploy it")
    ran(mirror, repository, TWO, "fly deploy", "Deploy it")
    with Crystal() as memory:
        assert [one.command for one in memory.how("deploy")] == ["fly deploy", "make ship"]


@pytest.mark.parametrize(
    ("printed", "seconds", "told"),
    [
        ("==== 1204 passed in 41.70s ====", 42.2, "  took 42 s, 1,204 tests passed\n"),
        ("shipped", 0.5, "  took 0.5 s\n"),
        ("shipped", 3_720, "  took 62 min\n"),
        ("==== 1 passed in 0.01s ====", -5, "  1 test passed\n"),  # the clock was set back
        ("shipped", 0, ""),
    ],
)
def test_how_long_a_command_took_and_its_tests_are_told(
    store: Store, repository: Path, printed: str, seconds: float, told: str
) -> None:
    ran(store, repository, ONE, "make test", "Run all tests", printed=printed, seconds=seconds)
    shown = crystal("how", "run", "all", "tests").out
    assert f"{told}  Run all tests\n" in shown
    assert ("took" in shown) == ("took" in told)
    known = json.loads(crystal("how", "run", "all", "tests", "--json").out)["commands"][0]
    assert known["seconds"] == (None if seconds < 0 else seconds)
    assert f"{known['passed']:,} test" in told if known["passed"] else "passed" not in told
    text = Tools(ClientContext(folder=str(repository))).text("crystal_how", question="run all tests")
    assert (f"{seconds:.1f} s" in text, " passed" in text) == ("took" in told, "passed" in told)


def test_how_something_is_done_is_told(store: Store, repository: Path) -> None:
    for session in (ONE, TWO):
        ran(store, repository, session, "make ship 2>&1", "Deploy <i>it</i>")
    told = crystal("how", "deploy", "it")
    assert "make ship 2>&1\n  succeeded 2 times in 2 sessions, in this form last " in told.out
    assert json.loads(crystal("how", "deploy", "--json").out)["commands"][0]["runs"] == 2
    assert crystal("how", "release").err == (
        "crystal: no known command did this here\ncrystal: hint: try: crystal how --all release\n"
    )
    assert "crystal: error: there is nothing to look for" in crystal("how", " ").err
    with Crystal() as memory:
        assert [one.command for one in memory.how("deploy", project="shop")] == ["make ship 2>&1"]
        assert memory.how("deploy", project="nowhere") == []
    tools = Tools(ClientContext(folder=str(repository)))
    assert tools.data("crystal_how", question="deploy")["commands"][0]["command"] == "make ship 2>&1"


def test_the_tools_tell_it_in_a_fence(repository: Path) -> None:
    tools = Tools(ClientContext(folder=str(repository)))
    data = tools.data("crystal_blame", file="cart.py", first=5)
    assert [(one["ranges"], one["reason"]) for one in data["lines"]] == [([(5, 5)], "I add it at the end.")]
    assert "<b>" in tools.text("crystal_blame", file="cart.py", first=5)
    assert tools.data("crystal_blame", file="cart.py")["unknown_lines"] == 5
    assert tools.data("crystal_changed", since="2020-01-01")["files"][0]["file"] == "cart.py"
    for path in ("../other.py", "/etc/passwd", "a\0b"):
        assert "inside your working folder" in tools.text("crystal_blame", file=path)


def test_what_is_not_shown_is_not_looked_up(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[str]()

    def session(_: ShortIds, ident: str) -> str:
        looked.append(ident)
        return ident

    monkeypatch.setattr(ShortIds, "session", session)
    tools = Tools(ClientContext(folder=str(repository)))
    assert tools.data("crystal_changed", since="2020-01-01", offset=1)["files"] == []
    assert looked == []
