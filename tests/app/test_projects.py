"""A project keeps its memory when its folder is renamed or moved, and is called what its owner calls it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal.app.memory_checks import Check
from crystal.app.project_finder import project_finder
from crystal.app.projects import find_home
from crystal.cli.render import Look
from crystal.model.capture import Project
from crystal.model.granted import GrantedProject
from crystal.store import Store
from crystal.store.capture.projects import KnownProject, join, known_projects, project_row, split
from crystal.store.notes import ADDRESS_FORM, drop_note
from crystal.store.search.isolated import granted_folders, isolated_projects
from crystal.store.search.scope import home_of, project_ids
from crystal.transcript.project import MARKER_FILE, find_project, first_commit
from tests.support.command import crystal
from tests.support.table import each_row


def git(folder: Path, *words: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example", "-C", str(folder), *words]
    subprocess.run(command, check=True, capture_output=True)


def make_repository(folder: Path, message: str = "first") -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return folder


def said_in(home: Path, folder: Path, session: str, text: str) -> None:
    """Let Claude Code write a session in a folder, and capture it."""
    place = home / ".claude" / "projects" / "-x"
    place.mkdir(parents=True, exist_ok=True)
    line = {"type": "user", "uuid": f"u-{session}", "sessionId": session, "timestamp": "2026-11-20T10:00:01.000Z"}
    line |= {"cwd": str(folder), "message": {"role": "user", "content": text}}
    (place / f"{session}.jsonl").write_text(json.dumps(line) + "\n")
    assert crystal("sync").code == 0


@pytest.fixture
def ready(home: Path) -> Path:
    (home / ".claude").mkdir()
    assert crystal("init", "--yes").code == 0
    return home


def found(text: str, *words: str) -> list[str]:
    return [hit["text"] for hit in json.loads(crystal("search", text, "--json", *words).out)["hits"]]


@pytest.mark.slow
def test_a_repository_without_a_remote_keeps_its_project_when_it_moves(ready, tmp_path, monkeypatch):
    old = make_repository(tmp_path / "old" / "shop")
    said_in(ready, old, "s1", "the kiwi price is in cents")
    new = tmp_path / "elsewhere" / "store"
    new.parent.mkdir()
    shutil.move(old, new)
    monkeypatch.chdir(new)
    answer = json.loads(crystal("search", "kiwi", "--json").out)
    assert (answer["scope"], [hit["text"] for hit in answer["hits"]]) == ("shop", ["the kiwi price is in cents"])
    said_in(ready, new, "s2", "the kiwi price moved house")
    assert sorted(found("kiwi", "--project", str(new))) == sorted(found("kiwi", "--project", "store"))
    assert len(found("kiwi", "--project", "shop")) == 2
    listed = json.loads(crystal("projects", "--json").out)["projects"]
    assert [(one["sessions"], sorted(one["folders"])) for one in listed] == [(2, sorted([str(old), str(new)]))]


def test_a_marked_folder_keeps_its_project_without_git(ready, tmp_path, monkeypatch):
    old = tmp_path / "notes"
    (old / "deep").mkdir(parents=True)
    assert crystal("projects", "mark", str(old)).code == 0
    assert "already" in crystal("projects", "mark", str(old)).out
    said_in(ready, old / "deep", "s1", "the fig tree needs water")
    new = tmp_path / "garden"
    shutil.move(old, new)
    monkeypatch.chdir(new)
    assert json.loads(crystal("search", "fig", "--json").out)["scope"] == "notes"
    assert found("fig", "--project", str(new)) == ["the fig tree needs water"]
    said_in(ready, new, "s2", "the fig tree got water")
    assert len(found("fig", "--project", str(new))) == 2


def test_a_folder_that_is_marked_after_its_first_sessions_keeps_them_when_it_moves(ready, tmp_path):
    old, new = tmp_path / "notes", tmp_path / "garden"
    (old / "deep").mkdir(parents=True)
    said_in(ready, old / "deep", "s1", "the fig tree needs water")
    assert crystal("projects", "mark", str(old)).code == 0
    shutil.move(old, new)
    said_in(ready, new, "s2", "the fig tree got water")
    assert len(found("fig", "--project", str(new))) == 2


def test_marking_a_folder_that_a_person_joined_says_what_to_do_after_a_move(ready, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        said_in(ready, tmp_path / name, f"s{name}", "the fig tree needs water")
    assert crystal("projects", "mark", str(tmp_path / "b")).err == ""
    assert crystal("projects", "join", str(tmp_path / "a"), str(tmp_path / "b")).code == 0
    assert "crystal projects join FOLDER PROJECT" in crystal("projects", "mark", str(tmp_path / "a")).err


@pytest.mark.slow
def test_a_name_that_a_person_gave_holds_for_the_past_and_for_new_folders(ready, tmp_path):
    folder = make_repository(tmp_path / "proj1")
    (folder / "api").mkdir()
    said_in(ready, folder, "s1", "a plum")
    assert crystal("projects", "rename", "proj1", "Plum Shop").out == "project Plum Shop: 1 folder, 1 session\n"
    said_in(ready, folder / "api", "s2", "another plum")
    assert len(found("plum", "--project", "plum shop")) == 2
    assert crystal("projects", "rename", "proj1", "x").code == 1
    assert crystal("projects", "rename", "plum shop", "a/b").code == 2
    assert crystal("projects", "rename", "plum shop", " ").code == 2


def test_two_projects_become_one_and_two_again(ready, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    said_in(ready, one, "s1", "a quince")
    said_in(ready, two, "s2", "another quince")
    assert found("quince", "--project", "two") == ["another quince"]
    assert crystal("projects", "join", "one", "two").out == "project two: 2 folders, 2 sessions\n"
    assert len(found("quince", "--project", "two")) == len(found("quince", "--project", str(one))) == 2
    assert crystal("projects", "join", "one", "two").code in (1, 2)
    assert "two" in crystal("projects").out
    assert crystal("projects", "split", str(one)).out == "project one: 1 folder, 1 session\n"
    assert found("quince", "--project", "one") == ["a quince"]
    assert crystal("projects", "split", str(one)).code == 1


@pytest.mark.slow
def known(store: Store, find: Callable[[str], Project], *folders: Path) -> list[tuple[str, ...]]:
    with store.transaction():
        for folder in folders:
            project_row(store, find(str(folder)))
    return sorted(tuple(sorted(Path(folder).name for folder in one.folders)) for one in known_projects(store))


@pytest.mark.parametrize("has_commit", [True, False])
def test_what_was_joined_or_moved_stays_together_when_the_repository_gets_a_remote_or_another(
    tmp_path, store, has_commit
):
    notes, old = tmp_path / "notes", tmp_path / "old"
    notes.mkdir()
    old.mkdir() if not has_commit else make_repository(old)
    find = project_finder(store)
    assert known(store, find, notes, old) == [("notes",), ("old",)]
    with store.transaction():
        first, second = known_projects(store)
        first, second = (first, second) if first.name == "notes" else (second, first)
        join(store, first.rows, second.rows, "shop", second.identity or "joined:12345678")
    shop = old.rename(tmp_path / "shop") if has_commit else old
    whole = [("notes", "old", "shop")] if has_commit else [("notes", "old")]
    assert known(store, find, notes, shop) == whole
    if not has_commit:
        git(shop, "init", "-q")
    git(shop, "remote", "add", "origin", "https://git.example/shop.git")
    assert known(store, find, shop) == known(store, find, notes) == whole
    address = "https://git.example/shop.git"
    if not has_commit:
        address = "https://git.example/store.git"
        git(shop, "remote", "set-url", "origin", address)
    clone = tmp_path / "clone"
    git(tmp_path, "init", "-q", "clone")
    git(clone, "remote", "add", "origin", address)
    with_clone = [tuple(sorted(("clone", *whole[0])))]
    assert known(store, find, shop, clone) == known(store, find, notes, clone) == with_clone


def test_another_repository_in_the_same_place_gets_nothing_of_the_one_that_moved(tmp_path, store):
    place = make_repository(tmp_path / "shop")
    find = project_finder(store)
    known(store, find, place)
    moved = place.rename(tmp_path / "moved")
    git(make_repository(place, "another"), "remote", "add", "origin", "https://git.example/other.git")
    known(store, find, moved)
    known(store, find, place)
    with store.transaction():
        assert project_ids(store, str(place)) != project_ids(store, str(moved))


def test_what_was_stored_under_two_spellings_of_an_address_is_one_project_after_the_next_capture(store):
    old = "git@git.example:team/shop.git", "https://git.example/team/shop", "git@git.example:team/shop-two.git"
    places = [Project(f"/code/{number}", f"/code/{number}", None, "shop") for number in range(len(old))]
    with store.transaction():
        for place, address in zip(places, old, strict=True):
            store.execute("UPDATE projects SET remote = ? WHERE id = ?", (address, project_row(store, place)))
        notes = project_row(store, Project("/notes", "/notes", None, "notes"))
        drop_note(store, ADDRESS_FORM)
        join(store, [notes], project_ids(store, "/code/0"), "shop", old[0])
    granted = [GrantedProject("shop", ("/elsewhere",), old[0])]
    clone = Project("/code/clone", "/code/clone", "https://git.example/team/shop.git", "shop")
    assert home_of(store, clone) == ("/notes", "shop")  # found before anything is written
    assert set(isolated_projects([store], ["/code/0"]).folders) == {"/code/0", "/code/1", "/notes"}
    assert granted_folders(store, granted) == {"/code/0", "/code/1", "/notes"}
    with store.transaction():
        project_row(store, clone)
    one, other = sorted(known_projects(store), key=lambda one: -len(one.folders))
    assert sorted(one.folders) == ["/code/0", "/code/1", "/code/clone", "/notes"]
    assert (one.identity, other.folders) == (clone.remote, ("/code/2",))
    assert set(isolated_projects([store], ["/code/0"]).folders) == set(one.folders)
    assert granted_folders(store, granted) == set(one.folders)
    with store.transaction():
        split(store, [notes], [Project("/notes", "/notes", None, "notes")])
    assert project_ids(store, "/notes") == [notes]


def test_an_unknown_project_is_named_with_the_next_step(ready):
    done = crystal("projects", "rename", "nowhere", "x")
    assert (done.code, done.err) == (
        1,
        "crystal: error: there is no project 'nowhere'\ncrystal: hint: run: crystal projects\n",
    )


def test_two_projects_of_one_name_are_told_apart_by_their_folders(ready, tmp_path):
    for place in ("a", "b"):
        folder = tmp_path / place / "shop"
        folder.mkdir(parents=True)
        said_in(ready, folder, f"s-{place}", "a medlar")
    done = crystal("projects", "rename", "shop", "x")
    assert done.code == 2
    assert str(tmp_path / "a" / "shop") in done.err
    assert crystal("projects", "rename", str(tmp_path / "a" / "shop"), "market").code == 0


def test_repositories_with_different_first_commits_stay_apart(tmp_path):
    one, two = make_repository(tmp_path / "one"), make_repository(tmp_path / "two", "second")
    assert first_commit(str(one)) != first_commit(str(two))
    assert first_commit(str(one)).startswith("commit:")


@pytest.mark.parametrize("broken", ["no commit", "shallow", "gone"])
def test_a_first_commit_that_git_cannot_tell_is_none(tmp_path, monkeypatch, broken):
    folder = tmp_path / "repo"
    if broken == "shallow":
        make_repository(folder)
        (folder / ".git" / "shallow").write_text("")
    elif broken == "no commit":
        folder.mkdir()
        git(folder, "init", "-q")
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("git is not started for each turn"))
    assert first_commit(str(folder)) is None


def test_git_without_a_path_to_it_is_no_error(tmp_path, monkeypatch):
    folder = make_repository(tmp_path / "repo")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert first_commit(str(folder)) is None


def test_a_repository_cannot_make_git_run_something(tmp_path):
    folder, trace = make_repository(tmp_path / "repo"), tmp_path / "ran"
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "uploadpack.packObjectsHook", "diff.external"):
        git(folder, "config", key, f"touch {trace}")
    git(folder, "config", "remote.origin.promisor", "true")
    git(folder, "config", "remote.origin.url", f"ext::touch {trace}")
    git(folder, "config", "extensions.partialClone", "origin")
    objects = folder / ".git" / "objects"
    first_commit(str(folder))
    for path in [one for one in objects.rglob("*") if one.is_file()]:
        path.unlink()  # git would fetch what is missing
    assert first_commit(str(folder)) is None
    assert not trace.exists()


@each_row("content", [b"", b"short\n", b"../../etc/passwd\n", b"\xff\xfe" * 8, b"a" * 5000])
def test_a_marker_that_holds_no_id_says_nothing(tmp_path, content):
    (tmp_path / MARKER_FILE).write_bytes(content)
    assert find_project(str(tmp_path)).remote is None


def test_the_address_of_origin_comes_before_marker_and_commit(tmp_path):
    folder = make_repository(tmp_path / "repo")
    (folder / MARKER_FILE).write_text("0123456789abcdef\n")
    assert find_project(str(folder)).remote == "marker:0123456789abcdef"
    git(folder, "remote", "add", "origin", "https://example.org/shop.git")
    assert find_project(str(folder)).remote == "https://example.org/shop.git"


@pytest.mark.slow
def test_a_known_identity_is_taken_from_the_store_without_asking_git(tmp_path, store, monkeypatch):
    folder = make_repository(tmp_path / "repo")
    here = project_finder(store)(str(folder))
    with store.transaction():
        row = project_row(store, here)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert project_finder(store)(str(folder)) == here
    assert find_home([store], str(folder)) == (str(folder), "repo")
    assert known_projects(store)[0].rows == (row,)


@pytest.mark.slow
def test_an_identity_that_is_learned_later_holds_for_all_folders_of_the_repository(store):
    with store.transaction():
        first = project_row(store, Project("/code/shop", "/code/shop", None, "shop"))
        project_row(store, Project("/code/shop/api", "/code/shop", "commit:1", "shop"))
        moved = project_row(store, Project("/new/shop", "/new/shop", "commit:1", "shop"))
        assert {first, moved} <= set(project_ids(store, "/new/shop"))


@pytest.mark.parametrize("width", [40, 80])
def test_the_list_fits_a_terminal_and_leaves_out_empty_projects(ready, monkeypatch, width):
    used = KnownProject("long-name" * 5, ("/home/someone/" + "deep/" * 30, "/b"), None, (1,), 3, 0, 1, joined=False)
    empty = used._replace(name="nobody", sessions=0, last_at=None)
    monkeypatch.setattr("crystal.cli.projects.known_projects", lambda _: [used, empty])
    assert "deep/" * 30 in crystal("projects").out  # a pipe gets whole paths
    assert len(json.loads(crystal("projects", "--json").out)["projects"]) == 2
    monkeypatch.setattr("crystal.cli.projects.look_of", lambda _: Look(width, colour=False, is_terminal=True))
    line, place = crystal("projects").out.splitlines()
    assert "long-name" in line
    assert place.endswith("deep/deep/ and 1 more")
    assert max(len(line), len(place)) <= width


def test_a_command_after_fix_is_not_broken_at_a_narrow_terminal(home, monkeypatch):
    command = "crystal verify --repair --and-many --other-words --that-do-not-fit"
    check = Check("memory", "failure", "it is damaged", fix=f"run: {command}")
    monkeypatch.setattr("crystal.app.doctor.examine", lambda **_: [check])
    monkeypatch.setattr("crystal.cli.status.look_of", lambda _: Look(40, colour=False, is_terminal=True))
    assert f"      fix: {command}\n" in crystal("doctor").out
