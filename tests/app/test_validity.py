"""What became of the files that texts name: judged against real repositories, through every way to ask."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal import Crystal
from crystal.app import git_files, working_tree
from crystal.app.context import open_reader
from crystal.app.validity import Subject, judge
from crystal.mcp.handlers import ClientContext
from crystal.model.capture import Project
from crystal.model.recall import Validity
from crystal.store import Store
from crystal.store.capture.projects import project_row
from crystal.store.memories.learned import Evidence, add_evidence
from crystal.store.work.index import make_again
from crystal.transcript.project import find_project
from tests.support.command import crystal
from tests.support.examples import part_of
from tests.support.mcp_client import Tools
from tests.support.store_factory import add_turn
from tests.support.work_sessions import did

ONE, TWO = "11111111-aaaa-4000-8000-000000000001", "22222222-bbbb-4000-8000-000000000002"
START = 1_700_000_000_000
HOUR = 3_600_000
OLD = "def rate():\n    return load_rate('old')\n"
NEW = "def total(prices):\n    taxed = [price * RATE for price in prices]\n    return sum(taxed)\n"
Git = Callable[..., str]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let git answer on a machine with other work, too: what is late is silence."""
    monkeypatch.setattr(working_tree, "GIT_SECONDS", 10)


def git(folder: Path, *words: str, hour: float = 0) -> str:
    when = f"{START // 1000 + int(hour * 3600)} +0000"
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**os.environ, **names, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", "-C", str(folder), "-c", "core.autocrlf=false", *words]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, hour: float) -> str:
    """Commit everything; the files are as old as the commit."""
    for path in folder.rglob("*"):
        if ".git" not in path.parts and path.is_file():
            os.utime(path, (START // 1000 + hour * 3600,) * 2)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", f"hour {hour}", "--allow-empty", hour=hour)
    return git(folder, "rev-parse", "HEAD")


def edit(store: Store, folder: Path, hour: float, old: str = OLD, new: str = NEW, name: str = "cart.py",
         session: str = ONE) -> Subject:  # fmt: skip
    """Let a session edit a file; return the edit as it is judged."""
    at, path = START + int(hour * HOUR), folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.read_text().replace(old, new) if path.exists() else new)
    did(store, session, at, "Edit", {"file_path": str(path), "old_string": old, "new_string": new}, "ok", str(folder))
    make_again(store)
    chunk, text = store.row("SELECT id, text FROM chunks WHERE role = 'tool_call' ORDER BY id DESC LIMIT 1") or ()
    return Subject(chunk, text, "tool_call", at, session, f"{session}-{at}", str(folder), "main", "desk")


def said(folder: Path, text: str, hour: float, session: str = TWO, ident: int = 900) -> Subject:
    return Subject(ident, text, "assistant", START + int(hour * HOUR), session, "u", str(folder), "main", "desk")


def judged(*subjects: Subject, folder: Path | None = None) -> list[Validity | None]:
    with open_reader({"device": "desk"}) as machine:
        return judge(machine, subjects, None if folder is None else str(folder))


def state(subject: Subject, folder: Path | None = None) -> str | None:
    (found,) = judged(subject, folder=folder)
    return found and found.state


@pytest.fixture
def shop(tmp_path: Path, store: Store) -> Path:
    """A repository: ``cart.py`` with old lines, and another file."""
    folder = tmp_path / "shop"
    (folder / "docs").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "cart.py").write_text(OLD)
    (folder / "docs" / "notes.md").write_text("notes\n")
    (folder / "twice.py").write_text("1\n")
    (folder / "docs" / "twice.py").write_text("2\n")
    commit(folder, 0)
    with store.transaction():
        project_row(store, Project(str(folder), str(folder), None, "shop"))
    return folder


def test_an_edit_is_judged_by_its_lines(store: Store, shop: Path) -> None:
    cart, made = shop / "cart.py", edit(store, shop, 1)
    assert state(made) == "unchanged"
    (shop / "other.txt").write_text("x")
    commit(shop, 2)
    cart.write_text("import json\n\n" + NEW.replace("    ", "\t").replace("\n", "\r\n"))
    assert state(made) == "unchanged"  # a formatter, other ends of lines
    cart.write_text(NEW.replace("sum(taxed)", "round(sum(taxed))"))
    assert judged(made) == [Validity("cart.py", "changed")]
    by = commit(shop, 3)
    cart.write_text(cart.read_text() + "# more\n")
    commit(shop, 4)
    assert judged(made) == [Validity("cart.py", "changed", by, None, START + 3 * HOUR)]


def test_an_edit_that_was_taken_back_is_reverted(store: Store, shop: Path) -> None:
    made = edit(store, shop, 1)
    commit(shop, 2)
    git(shop, "revert", "--no-edit", "HEAD", hour=3)
    by = git(shop, "rev-parse", "HEAD")
    assert judged(made) == [Validity("cart.py", "reverted", by, None, START + 3 * HOUR)]


def test_an_insertion_that_was_taken_back_is_reverted(store: Store, shop: Path) -> None:
    guard = "    if not prices:\n        return load_rate('old')\n"  # its last line is elsewhere in the file, too
    made = edit(store, shop, 1, OLD, OLD + NEW.replace("    taxed", guard + "    taxed"))
    commit(shop, 2)
    git(shop, "revert", "--no-edit", "HEAD", hour=3)
    by = git(shop, "rev-parse", "HEAD")
    assert judged(made) == [Validity("cart.py", "reverted", by, None, START + 3 * HOUR)]
    again = edit(store, shop, 4, OLD, OLD + NEW)
    commit(shop, 5)
    (shop / "cart.py").write_text(OLD)  # it was moved, or is needed no more
    by = commit(shop, 6)
    assert judged(again) == [Validity("cart.py", "changed", by, None, START + 6 * HOUR)]


def test_an_edit_that_was_replaced_before_any_commit_names_the_later_session(store: Store, shop: Path) -> None:
    made = edit(store, shop, 1)._replace(branch="feature")
    cents = "    return round(sum(taxed))\n"
    edit(store, shop, 2, "    return sum(taxed)\n", cents, session=TWO)
    assert judged(made) == [Validity("cart.py", "changed", None, TWO, START + 2 * HOUR)]
    (shop / "cart.py").write_text(OLD)  # neither came here
    assert state(made) is None


def test_a_session_that_edited_other_lines_before_the_commit_is_not_named(store: Store, shop: Path) -> None:
    made, named = edit(store, shop, 1), said(shop, "see cart.py", 2.5, session="3")
    commit(shop, 2)
    edit(
        store, shop, 3, "def total(prices):", "def total(prices):\n    # all of them, one after the other", session=TWO
    )
    (shop / "cart.py").write_text((shop / "cart.py").read_text().replace("price * RATE", "by_hand(price)"))
    by = commit(shop, 4)
    assert judged(made, named) == [Validity("cart.py", "changed", by, one, START + 4 * HOUR) for one in (None, TWO)]


def test_settings_of_git_and_files_that_are_not_checked_out_tell_nothing_wrong(store: Store, shop: Path) -> None:
    lost = edit(store, shop, 1, "", NEW, "docs/caf\ufffd.py")  # its name has bytes that are no UTF-8
    (shop / "docs/caf\ufffd.py").unlink()
    made = edit(store, shop, 1.5, "", NEW, "lib/tax.py")
    commit(shop, 2)
    git(shop, "config", "log.follow", "true")
    git(shop, "mv", "lib/tax.py", "lib/taxes.py")
    commit(shop, 3)
    assert [state(made), state(lost)] == ["unchanged", None]
    git(shop, "sparse-checkout", "set", "docs")
    assert not (shop / "lib/taxes.py").exists()
    assert state(made) is None


def test_a_file_is_followed_to_its_new_name_and_known_to_be_gone(store: Store, shop: Path) -> None:
    made = edit(store, shop, 1, "", OLD + NEW + "\n# the end of it\n", "tax.py")
    commit(shop, 2)
    git(shop, "mv", "tax.py", "docs/taxes.py")
    by = commit(shop, 3)
    named = said(shop, "see `tax.py`", 2.5)
    assert judged(made, named) == [
        Validity("docs/taxes.py", "unchanged"), Validity("docs/taxes.py", "changed", by, None, START + 3 * HOUR)
    ]  # fmt: skip
    git(shop, "rm", "-q", "docs/taxes.py")
    by = commit(shop, 4)
    assert judged(made, named) == [Validity("docs/taxes.py", "gone", by, None, START + 4 * HOUR)] * 2


def test_a_text_that_names_a_file_hears_which_commit_and_session_changed_it(store: Store, shop: Path) -> None:
    assert state(said(shop, "The rate is in cart.py:1.", 1)) == "unchanged"  # the file is as old as its commit
    edit(store, shop, 2)
    assert judged(said(shop, "The rate is in cart.py:1.", 1)) == [Validity("cart.py", "changed", None, ONE)]
    by = commit(shop, 3)
    found = Validity("cart.py", "changed", by, ONE, START + 3 * HOUR)
    names = ("cart.py", "`cart.py`", "./cart.py", f"{shop}/cart.py:12", "(cart.py)", "cart.py, docs/notes.md")
    assert judged(*(said(shop, f"see {name}", 1, ident=at) for at, name in enumerate(names, 1))) == [found] * len(names)
    silent = ("twice.py", "card.py", "https://cart.py/cart.py", "xcart.py", "cart.pyc", "cart", "../shop/cart.py")
    assert {state(said(shop, f"see {name}", 1)) for name in silent} == {None}
    assert state(said(shop, "see cart.py", 1, session=ONE)) is None  # what its own session then did
    symbol = said(shop, "`load_rate()` in cart.py", 1)
    assert judged(symbol) == [Validity("load_rate in cart.py", "gone", by, None, START + 3 * HOUR)]
    (shop / "cart.py").write_text("none\n")
    assert judged(said(shop, "see cart.py", 3.5)) == [Validity("cart.py", "changed")]
    (shop / "cart.py").unlink()
    assert judged(said(shop, "see cart.py", 3.5)) == [Validity("cart.py", "gone")]


def test_what_is_not_sure_is_not_said(store: Store, shop: Path, tmp_path: Path) -> None:
    made, named = edit(store, shop, 1), said(shop, "see cart.py", 1)
    commit(shop, 2)
    (shop / "cart.py").write_text("other lines\n")
    assert [state(made), state(named)] == ["changed", "changed"]
    elsewhere = {"branch": "feature", "device": "laptop"}
    git(shop, "checkout", "-q", "--force", "-b", "before", "HEAD~1")  # the edit never came here
    assert state(made) is None
    assert [state(made._replace(**{key: value})) for key, value in elsewhere.items()] == [None, None]
    git(shop, "checkout", "-q", "--force", "main")
    for content in (b"\0binary", b"x" * (3 << 20)):
        (shop / "cart.py").write_bytes(content)
        assert state(made) is None
    (shop / "cart.py").unlink()
    (tmp_path / "secret.py").write_text(NEW)
    (shop / "cart.py").symlink_to(tmp_path / "secret.py")
    assert state(made) is None
    (shop / "cart.py").unlink()
    os.mkfifo(shop / "cart.py")
    assert state(made) is None
    (shop / "cart.py").unlink()
    moved = shop.rename(tmp_path / "elsewhere")
    assert [state(made), state(made, moved)] == [None, None]
    git(tmp_path, "init", "-q", "-b", "main", "shop")  # another repository of this name, without any commit
    (shop / "cart.py").write_text("x")
    git(shop, "remote", "add", "origin", "https://example.org/other.git")
    assert state(made) in (None, "changed")


def test_the_first_commit_of_a_shallow_clone_changed_nothing(store: Store, shop: Path, tmp_path: Path) -> None:
    git(shop, "remote", "add", "origin", shop.as_uri())
    with store.transaction():
        project_row(store, find_project(str(shop)))
    named, shallow = said(shop, "see docs/notes.md and cart.py", 1), tmp_path / "shallow"
    edit(store, shop, 2)
    commit(shop, 3)
    git(tmp_path, "clone", "-q", "--depth", "1", shop.as_uri(), str(shallow))
    assert [state(named), state(named, shallow)] == ["changed", None]


def test_linked_working_trees_bare_repositories_and_none(store: Store, shop: Path, tmp_path: Path) -> None:
    made = edit(store, shop, 1)
    commit(shop, 2)
    git(shop, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "linked")
    (tmp_path / "linked" / "cart.py").write_text("rewritten\n")
    assert [state(made), state(made, tmp_path / "linked")] == ["unchanged", "changed"]
    git(tmp_path, "clone", "-q", "--bare", str(shop), "bare.git")
    assert state(made, tmp_path / "bare.git") == "unchanged"  # it has no files: those of the project's folder count
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "cart.py").write_text(OLD)
    alone = edit(store, plain, 1)._replace(device="desk")
    assert state(alone) == "unchanged"
    (plain / "cart.py").write_text(OLD)
    assert state(alone) == "reverted"
    (plain / "cart.py").unlink()
    assert state(alone) == "gone"


def test_an_edit_in_a_linked_working_tree_is_one_of_the_projects_file(store: Store, shop: Path) -> None:
    made = edit(store, shop, 1, name=".worktrees/x/cart.py")
    shutil.rmtree(shop / ".worktrees")
    assert state(made) is None  # its branch may never come here
    (shop / "cart.py").write_text(NEW)
    assert state(made) == "unchanged"


def test_git_runs_nothing_that_a_repository_names(store: Store, shop: Path, tmp_path: Path) -> None:
    made = edit(store, shop, 1)
    commit(shop, 2)
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/caught\ncat\n")
    trap.chmod(0o700)
    for name in ("core.fsmonitor", "core.pager", "diff.external", "filter.x.clean", "filter.x.smudge", "filter.x.process",
                 "diff.x.textconv", "gpg.program", "core.sshCommand", "core.hooksPath"):  # fmt: skip
        git(shop, "config", name, str(trap))
    git(shop, "config", "log.showSignature", "true")
    (shop / ".gitattributes").write_text("*.py filter=x diff=x\n")
    (shop / "cart.py").write_text("rewritten\n")
    os.utime(shop / "cart.py")
    assert [state(made), state(said(shop, "`load_rate` of cart.py", 1.5))] == ["changed", "gone"]
    assert crystal("blame", str(shop / "cart.py")).code == 0
    assert not (tmp_path / "caught").exists()


@pytest.mark.slow
def test_git_may_be_stopped_within_a_word(store: Store, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(store, shop, 1)
    commit(shop, 2)
    ask, end = git_files.run_git, 0
    monkeypatch.setattr(git_files, "run_git", lambda *words: (ask(*words)[0][:end], False))
    tracked, changes = {}, list[git_files.LoggedChange]()
    while not (tracked and changes):
        tracked = git_files.tracked_files(str(shop), ["cart.py"], 5)
        changes, is_whole = git_files.changes_since(str(shop), ["cart.py"], START + HOUR, 5, renames=True)
        assert not is_whole
        end += 1
    assert changes[0].at == START + 2 * HOUR


@pytest.mark.parametrize("name", part_of(['a "b"\té.py', "-rf.py", "[x]*?.py", "a\\b.py", ":(top)x.py", "näme.py"], 2))
def test_any_name_of_a_file(store: Store, shop: Path, name: str) -> None:
    made = edit(store, shop, 1, "", NEW, name)
    commit(shop, 2)
    (shop / name).write_text("rewritten\n")
    by = commit(shop, 3)
    found = judged(made)
    if name != "a\\b.py":  # it may be a path of Windows
        assert found == [Validity(name, "changed", by, None, START + 3 * HOUR)]
    (shop / name).unlink()
    assert state(made) in (None, "gone")


def test_a_private_folder_is_not_read(store: Store, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = edit(store, shop, 1)
    assert state(made) == "unchanged"
    monkeypatch.setenv("CRYSTAL_PRIVATE_PROJECTS", str(shop))
    assert state(made) is None


def test_it_is_said_in_every_answer(store: Store, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"project": str(shop), "ts": START + HOUR, "session": TWO}
    add_turn(store, "The zebra rate is in cart.py <b>", uuid="line-1", **place)
    edit(store, shop, 2)
    by = commit(shop, 3)
    monkeypatch.chdir(shop)
    words = f"cart.py: changed since (15 Nov 2023, {by[:8]}, session {ONE[:8]})"
    data = {"what": "cart.py", "state": "changed", "commit": by, "session": ONE, "at": "2023-11-15T01:13:20.000Z"}
    assert words in crystal("search", "zebra").out
    assert words in crystal("show", "line-1", "--no-pager").out
    (hit,) = json.loads(crystal("search", "zebra", "--json").out)["hits"]
    assert hit["validity"] == data
    turns = json.loads(crystal("show", "line-1", "--json").out)["turns"]
    assert [turn["validity"] for turn in turns if turn["uuid"] == "line-1"] == [data]
    with Crystal() as memory:
        assert memory.search("zebra").hits[0].validity == Validity("cart.py", "changed", by, ONE, START + 3 * HOUR)
    tools = Tools(ClientContext(folder=str(shop)))
    found = tools.call("crystal_search", query="zebra")
    assert f"; cart.py changed since in {by[:8]}" in str(found)
    assert f"; cart.py changed since in {by[:8]}" in str(tools.call("crystal_get", id="line-1"))
    stranger = Tools(ClientContext(is_reader=False))
    assert "since" not in str(stranger.call("crystal_search", query="zebra"))
    (shop / "cart.py").write_text("x")
    ident = remembered("The zebra rate is in cart.py", "--project", str(shop))
    os.utime(shop / "cart.py")
    assert json.loads(crystal("show", ident, "--json").out)["validity"]["state"] == "changed"
    assert "cart.py: changed since" in crystal("show", ident).out
    assert "; cart.py changed since" in str(tools.call("crystal_get", id=ident))


def remembered(text: str, *options: str) -> str:
    found = re.search("mem-[0-9a-f]{12}", crystal("remember", text, *options).out)
    assert found is not None
    return found[0]


def test_a_decision_names_the_later_one(store: Store, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    at = START + HOUR
    add_turn(store, "the default branch is called master", uuid="line-2", project=str(shop), ts=at, session=TWO)
    names = [remembered(f"the default branch is called {name}") for name in ("master", "trunk")]
    crystal("memories", "deprecate", names[0])
    with store.transaction():
        add_evidence(store, Evidence(names[0], "line-2", TWO, "fact", 0.9, at))
    assert f"superseded by {names[1]}" in crystal("search", "default branch master").out
    found = json.loads(crystal("memories", "show", names[0], "--json").out)["validity"]
    assert (found["state"], found["what"]) == ("superseded", names[1])
