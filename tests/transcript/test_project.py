"""Projects: what git says of a folder, read without git, whatever stands on the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crystal.model.capture import Project
from crystal.transcript.project import find_project
from tests.support.table import each_row

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="pipes and modes of POSIX")


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def make_repository(root: Path, url: str = "https://example.org/team/app.git") -> Path:
    """Lay out what find_project reads of a repository."""
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git" / "config").write_text(f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n')
    return root


def test_a_folder_below_a_repository_belongs_to_its_root(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "app")
    folder = root / "src" / "deep"
    folder.mkdir(parents=True)
    expected = Project(str(folder), str(root), "https://example.org/team/app.git", "app")
    assert find_project(str(folder)) == expected
    assert find_project(f"{folder}{os.sep}") == expected._replace(cwd=f"{folder}{os.sep}")


@needs_git
def test_what_git_makes_is_read_as_git_reads_it(tmp_path: Path) -> None:
    root = tmp_path / "app"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "one")
    git(root, "remote", "add", "other", "https://example.org/other.git")
    git(root, "remote", "add", "origin", "https://me:secret@example.org/team/app.git")
    git(root, "worktree", "add", "-q", str(tmp_path / "feature"))
    remote = "https://example.org/team/app.git"
    assert find_project(str(root)) == Project(str(root), str(root), remote, "app")
    inside = tmp_path / "feature" / "src"
    inside.mkdir()
    assert find_project(str(inside)) == Project(str(inside), str(root), remote, "app")


@needs_git
def test_a_submodule_is_a_project_of_its_own(tmp_path: Path) -> None:
    library, root = tmp_path / "library", tmp_path / "app"
    for folder in (library, root):
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
        git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    git(root, "submodule", "add", "-q", str(library), "vendor/library")
    folder = root / "vendor" / "library"
    assert find_project(str(folder)) == Project(str(folder), str(folder), str(library), "library")


@needs_git
@pytest.mark.parametrize(("bare", "root", "name"), [(".bare", "", "app"), ("app.git", "app.git", "app")])
def test_a_worktree_of_a_bare_repository_leads_to_it(tmp_path: Path, bare: str, root: str, name: str) -> None:
    base = tmp_path / "app"
    base.mkdir()
    git(base, "init", "-q", "-b", "main", "seed")
    git(base / "seed", "commit", "-q", "--allow-empty", "-m", "one")
    git(base, "clone", "-q", "--bare", "seed", bare)
    git(base / bare, "worktree", "add", "-q", str(base / "work"), "main")
    project = find_project(str(base / "work"))
    assert (project.git_root, project.name) == (str(base / root) if root else str(base), name)


def test_no_repository_gives_the_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    assert find_project(str(folder)) == Project(str(folder), name="notes")


@each_row(
    ("cwd", "name"),
    [
        ("/gone/for/good", "good"),
        ("/gone/for/good/", "good"),
        ("relative/folder", "folder"),
        ("C:\\Users\\me\\app", "app"),
        ("\\\\server\\share", "share"),
        ("", ""),
        ("/nul\0byte", "nul\0byte"),
        ("/" + "x" * 5000, "x" * 5000),
        ("~", "~"),
    ],
)
def test_a_folder_that_is_not_there_is_named_after_its_last_part(cwd: str, name: str) -> None:
    assert find_project(cwd) == Project(cwd, name=name)


def test_a_folder_gone_from_a_repository_is_alone_but_a_deleted_worktree_leads_home(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "app")
    gone = str(root / "src")
    assert find_project(gone) == Project(gone, name="src")
    for place in (".claude/worktrees/feat-x/src", ".worktrees/2"):
        worktree = str(root / place)
        assert find_project(worktree) == Project(worktree, str(root), "https://example.org/team/app.git", "app")
        elsewhere = f"/Users/alex/work/cli/{place}"
        assert find_project(elsewhere) == Project(elsewhere, "/Users/alex/work/cli", None, "cli")
        of_nobody = f"/Users/alex/{place}"
        assert find_project(of_nobody) == Project(of_nobody, name=place.rpartition("/")[2])


@pytest.mark.parametrize(
    "pointer",
    [b"", b"gitdir:", b"gitdir: ../nowhere", b"gitdir: \0", b"gitdir: .git", b"\xff\xfe", b"x" * 100_000, b"gitdir: /"],
)
def test_a_git_file_that_leads_nowhere_is_passed_over(tmp_path: Path, pointer: bytes) -> None:
    root = make_repository(tmp_path / "app")
    folder = root / "odd"
    folder.mkdir()
    (folder / ".git").write_bytes(pointer)
    assert find_project(str(folder)).git_root == str(root)


def test_an_empty_git_folder_is_no_repository(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "app")
    (root / "odd" / ".git").mkdir(parents=True)
    assert find_project(str(root / "odd")).git_root == str(root)


@needs_posix
def test_pipes_loops_and_closed_doors_neither_block_nor_raise(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "app")
    for name in ("pipe", "loop", "closed"):
        (root / name).mkdir()
    os.mkfifo(root / "pipe" / ".git")
    (root / "loop" / ".git").symlink_to(root / "loop" / ".git")
    (root / "closed" / ".git").write_text("gitdir: /x")
    (root / "closed" / ".git").chmod(0)
    for name in ("pipe", "loop", "closed"):
        assert find_project(str(root / name)).git_root == str(root)
    (root / ".git" / "config").unlink()
    os.mkfifo(root / ".git" / "config")
    assert find_project(str(root)) == Project(str(root), str(root), None, "app")


@pytest.mark.parametrize(
    ("config", "remote"),
    [
        ('[remote "origin"]\n\turl = https://h/a.git\n', "https://h/a.git"),
        ('[remote "origin"]\nURL=https://h/a.git', "https://h/a.git"),
        ('[REMOTE "origin"] url = https://h/a.git\n', "https://h/a.git"),
        ('[remote "origin"]\r\n\turl = https://h/a.git\r\n', "https://h/a.git"),
        ('[remote "origin"]\n\turl = "https://h/a b.git" ; a comment\n', "https://h/a b.git"),
        ('[remote "origin"]\n\turl = https://h/\\\na.git # x\n', "https://h/a.git"),
        ('[remote "origin"]\n\tfetch = +refs\n\turl = https://h/a\n\turl = https://h/b\n', "https://h/a.git"),
        ('[remote "origin"]\n\tpushurl = https://h/a\n', None),
        ('[remote "upstream"]\n\turl = https://h/a\n[branch "main"]\n\tremote = origin\n', None),
        ('# [remote "origin"]\n; url = https://h/a\n', None),
        ('[remote "origin"]\n\turl = \n', None),
        ('[remote "origin"]\n\turl\n', None),
        ('[remote "origin"\n\turl = https://h/a\n', None),
        ("\0\0[[[", None),
    ],
)
def test_the_remote_is_read_from_gits_config(tmp_path: Path, config: str, remote: str | None) -> None:
    root = make_repository(tmp_path / "app")
    (root / ".git" / "config").write_bytes(config.encode())
    assert find_project(str(root)).remote == remote


@pytest.mark.parametrize(
    ("address", "remote"),
    [
        ("gh:team/app", "https://github.com/team/app.git"),
        ("gh:own/app", "https://git.example/app.git"),  # the longest rule
        ("git@work:team/app.git", "https://github.com/team/app.git"),
        ("here:team/app", "https://here.example/team/app.git"),
        ("https://github.com/team/app", "https://github.com/team/app.git"),  # a mirror is of this machine alone
        ("other:team/app", "https://other/team/app.git"),
        ("C:/gh/app", "C:/gh/app"),
    ],
)
def test_a_short_name_is_written_out_as_git_does(home: Path, tmp_path: Path, address: str, remote: str) -> None:
    (home / ".gitconfig").write_text(
        '[url "https://github.com/"]\n\tinsteadOf = gh:\n\tinsteadof = git@work:\n\tinsteadOf = C:\n'
        '[url "https://git.example/"]\n\tinsteadOf = gh:own/\n'
        '[url "https://mirror.example/"]\n\tinsteadOf = https://github.com/\n[url "https://x/"]\n\tinsteadOf =\n'
    )
    root = make_repository(tmp_path / "app", address)
    with (root / ".git" / "config").open("a") as config:
        config.write('[url "https://here.example/"]\n\tinsteadOf = "here:"\n')
    assert find_project(str(root)).remote == remote


@pytest.mark.slow
@given(config=st.binary(max_size=80).map(lambda tail: b'[remote "origin"]\nurl = ' + tail))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_config_gives_a_storable_remote_or_none(tmp_path: Path, config: bytes) -> None:
    root = tmp_path / "app"
    if not root.exists():
        make_repository(root)
    (root / ".git" / "config").write_bytes(config)
    remote = find_project(str(root)).remote
    assert remote is None or "\0" not in remote.encode().decode()
