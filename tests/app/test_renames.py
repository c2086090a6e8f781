"""A file that was renamed, by git or by a command: its history, what a session changed, and its old name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal import Crystal
from crystal.cli.render import Look
from crystal.errors import NotFoundError
from crystal.mcp.handlers import ClientContext
from crystal.model.capture import Project
from crystal.store import Store
from crystal.store.capture.projects import project_row
from crystal.store.work.index import make_again
from crystal.transcript.parts import call_text
from crystal.work.blame import WINDOW_MS
from crystal.work.moves import moves_of, trees_added
from tests.app.test_work import ONE, SECOND, THREE, TWO, YESTERDAY, commit, edit, git, repository
from tests.support.command import crystal
from tests.support.mcp_client import Tools
from tests.support.store_factory import add_turn
from tests.support.table import each_row
from tests.support.work_sessions import did

__all__ = ["repository"]
AT = YESTERDAY + 200 * SECOND


def edits(thing: str, folder: Path) -> list[tuple[str, str]]:
    """Return the edits in the history of a file: its name then, and the session."""
    with Crystal() as memory:
        found = memory.about(thing, project=str(folder)).events
    return [(one.text, one.session_id) for one in found if one.what == "edited"]


def test_the_history_of_a_file_goes_on_through_commits_that_rename_it(repository: Path, store: Store) -> None:
    git(repository, "commit", "-qam", "log", at=YESTERDAY + 130 * SECOND)
    for old, new in (("cart.py", "basket.py"), ("basket.py", "src/shop.py")):
        (repository / new).parent.mkdir(exist_ok=True)
        git(repository, "mv", old, new)
        git(repository, "commit", "-qm", "rename", at=AT)
    edit(store, repository, TWO, AT + 60 * SECOND, "Round", [], ["price = round(price)"], "src/shop.py")
    edit(store, repository, "other", AT + 70 * SECOND, "A cart", [], ["a new file = True"], "cart.py")
    make_again(store)
    old = [("cart.py", TWO), ("cart.py", ONE)]
    new = ("src/shop.py", TWO)
    assert edits("src/shop.py", repository) == edits("shop.py", repository) == [new, *old]
    assert edits("basket.py", repository) == [new, *old]
    assert edits("cart.py", repository) == [("cart.py", "other"), new, *old]
    with Crystal() as memory:
        told = [(one.what, one.uuid) for one in memory.about("shop.py", project=str(repository)).events]
        assert len(told) == len(set(told))


def test_it_goes_on_through_commands_that_move_it_without_git(repository: Path, store: Store) -> None:
    did(store, TWO, AT, "Bash", {"command": "mkdir -p src && git mv cart.py src/ && make"}, "done", str(repository))
    did(store, TWO, AT + 9, "Bash", {"command": "cd src && mv cart.py shop.py"}, "", str(repository))
    did(store, TWO, AT + 18, "Bash", {"command": "mv cart.py bad.py"}, "Exit code 1\nmv: no", str(repository))
    edit(store, repository, TWO, AT + 60 * SECOND, "Round", [], ["price = round(price)"], "src/shop.py")
    make_again(store)
    told = [("src/shop.py", TWO), ("cart.py", TWO), ("cart.py", ONE)]
    assert edits("shop.py", repository) == edits("cart.py", repository) == told
    assert edits("bad.py", repository) == []


@each_row(("said", "is_moved"), [("Exit code 1\nFailed to find the lines", False), ("Done!", True)])
def test_it_goes_on_through_a_patch_that_moves_it(repository: Path, store: Store, said: str, *, is_moved: bool) -> None:
    patch = "*** Begin Patch\n*** Update File: cart.py\n*** Move to: shop.py\n@@\n-tax\n+tax = RATE\n*** End Patch"
    did(store, THREE, AT + is_moved, "apply_patch", {"input": patch}, said, str(repository))
    make_again(store)
    assert edits("shop.py", repository) == [("shop.py", THREE), ("cart.py", TWO), ("cart.py", ONE)] * is_moved


def test_a_file_has_one_path_whatever_folder_of_its_project_a_session_began_in(repository: Path, store: Store) -> None:
    edits_of = {THREE: str(repository / "web/cart.py"), "four": "cart.py"}
    for number, (session, path) in enumerate(edits_of.items()):
        given = {"file_path": path, "old_string": "", "new_string": "a cart of the web = True"}
        place = {"session": session, "project": f"{repository}|web", "tool": "Edit"}
        at = AT + 9 * number
        add_turn(store, call_text("Edit", given), ts=at, role="tool_call", message_id=session, uuid=session, **place)
        add_turn(store, "updated", ts=at + 1, role="tool_result", **place)
    make_again(store)
    with Crystal() as memory:
        told = [(one.path, one.sessions) for one in memory.changed(since="2020-01-01")]
    assert told == [("web/cart.py", (THREE, "four")), ("cart.py", (ONE, TWO))]
    assert edits("web/cart.py", repository) == [("web/cart.py", "four"), ("web/cart.py", THREE)]


def test_a_file_has_one_path_in_all_working_trees_of_its_project(
    repository: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = repository.parent
    git(repository, "worktree", "add", "-q", str(repository / "trees" / "there"), "-b", "there")
    did(store, "made", AT, "Bash", {"command": "git worktree add -b x ../gone main && ls"}, "ok", str(repository))
    with store.transaction():
        for place in ("elsewhere", "shop/.worktrees/me/nested", "shop/.worktrees/me/nested/src"):
            project_row(store, Project(f"{beside}/{place}", str(repository), None, "shop"))
    tops = (".worktrees/a", ".worktrees/me/nested", ".claude/worktrees/b", "trees/there", "../gone", "../elsewhere")
    for number, top in enumerate(tops):
        name = os.path.normpath(repository / top / "cart.py")
        given = {"file_path": name, "old_string": "", "new_string": "a line of a tree = True"}
        did(store, THREE, AT + 9 * number + 9, "Edit", given, "updated", str(repository))
    make_again(store)
    with Crystal() as memory:
        told = [(one.path, one.edits, one.sessions) for one in memory.changed(since="2020-01-01")]
    assert told == [("cart.py", 8, (ONE, TWO, THREE))]
    assert edits("cart.py", repository) == [("cart.py", THREE), ("cart.py", TWO), ("cart.py", ONE)]
    (repository / "src").mkdir()
    monkeypatch.chdir(repository / "src")
    for name in ("../cart.py", f"{repository}/cart.py", f"{repository}/trees/there/cart.py", ".worktrees/a/cart.py"):
        assert crystal("about", name).out.startswith("cart.py (file): 3 events in 3 sessions\n"), name
        told = Tools(ClientContext(folder=str(repository / "src"))).data("crystal_about", thing=name)
        assert (told["kind"], told["sessions"]) == ("file", 3)


ADDED = [
    ("git worktree add ../x", ["/x"]),
    ("cd sub && git worktree add --detach -b y /t/y main; ls", ["/t/y"]),
    ("git -C /other worktree add .trees/z -f", ["/other/.trees/z"]),
    *((command, []) for command in ("git worktree add", "git worktree list", "git worktree add $X", "git -C", "")),
]


@each_row(("command", "made"), ADDED)
def test_a_command_tells_which_working_trees_it_made(command: str, made: list[str]) -> None:
    assert list(trees_added(command, "/r")) == made


def test_blame_of_an_old_name_tells_the_new_one(repository: Path) -> None:
    git(repository, "commit", "-qam", "log", at=YESTERDAY + 130 * SECOND)
    git(repository, "mv", "cart.py", "a basket.py")
    git(repository, "commit", "-qm", "rename", at=AT)
    with Crystal() as memory, pytest.raises(NotFoundError) as refused:
        memory.blame(repository / "cart.py:3-4")
    assert refused.value.hint == f"it has another name now: crystal blame '{repository}/a basket.py:3-4'"
    (repository / "a basket.py").unlink()
    with Crystal() as memory, pytest.raises(NotFoundError) as refused:
        memory.blame(repository / "cart.py:3-4")
    assert "FILE:LINE" in (refused.value.hint or "")


def test_what_a_session_changed_says_the_name_that_a_file_has_now(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert " cart.py  1 edit" in crystal("changed", "--session", ONE).out
    git(repository, "commit", "-qam", "log", at=YESTERDAY + 130 * SECOND)
    git(repository, "mv", "cart.py", "basket.py")
    git(repository, "commit", "-qm", "rename", at=AT)
    commit(repository, "other.py", ["nothing"], AT)
    assert "cart.py (now basket.py)  1 edit" in crystal("changed", "--session", ONE).out
    with monkeypatch.context() as patch:
        patch.setattr("crystal.cli.work.look_of", lambda _: Look(70, colour=False, is_terminal=True))
        path, facts = crystal("changed", "--session", ONE).out.splitlines()
    assert (path, facts.endswith("+3 -0        1 edit in 11111111")) == ("cart.py (now basket.py)", True)
    monkeypatch.setattr("crystal.app.work.MAX_RENAME_SECONDS", 0)  # many projects take longer
    assert "cart.py  1 edit" in crystal("changed", "--session", ONE).out


MOVES = [
    ("git mv a.py b.py", [("/r/a.py", "/r/b.py")]),
    ("cd x && mv -f a.py src/ && ls", [("/r/x/a.py", "/r/x/src/a.py")]),
    ("mv 'a b.py' ./c.py d; true", [("/r/a b.py", "/r/d/a b.py"), ("/r/c.py", "/r/d/c.py")]),
    ("git -C /s mv a.py b.py", [("/s/a.py", "/s/b.py")]),
    ("mv a/b.py ..", [("/r/a/b.py", "/b.py")]),
    ("mv Makefile GNUmakefile", [("/r/Makefile", "/r/GNUmakefile")]),
    *((command, []) for command in ("mv $OLD b.py", "mv *.py src", "mv a.py", "echo mv a b", "mv 'a b", "")),
    *((command, []) for command in ("mv a.py b.py & ls", "mv a.py b.py # now", "(cd x && mv a.py b.py)")),
    *((command, []) for command in ("mv -t src a.py b.py", "cd $X && mv a.py b.py", "cd - ; mv a.py b.py")),
    *((command, []) for command in ("cd ~/x && mv a.py b.py", "mv a.py ~/b.py")),
    ("mv '(a)/b#1.py' c.py", [("/r/(a)/b#1.py", "/r/c.py")]),
]


@each_row(("command", "moved"), MOVES)
def test_a_command_tells_what_it_moved(command: str, moved: list[tuple[str, str]]) -> None:
    assert list(moves_of(command, "/r")) == moved


@given(st.text(max_size=60))
def test_any_command_can_be_read(command: str) -> None:
    for old, new in moves_of(f"mv {command}", "/r"):
        assert "mv" not in (old, new)


def test_a_file_made_after_another_of_its_name_moved_away_is_not_that_one(repository: Path, store: Store) -> None:
    git(repository, "commit", "-qam", "log", at=YESTERDAY + 130 * SECOND)
    git(repository, "mv", "cart.py", "basket.py")
    git(repository, "commit", "-qm", "rename", at=AT)
    edit(store, repository, "other", AT + WINDOW_MS + SECOND, "A cart", [], ["a new file = True"], "cart.py")
    make_again(store)
    assert "(now" not in crystal("changed", "--session", "other").out
