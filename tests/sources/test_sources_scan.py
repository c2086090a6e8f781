"""Which files of a folder are indexed."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.errors import UnavailableError
from crystal.sources.file_content import MAX_BYTES, read_content, text_of
from crystal.sources.scan import scan
from tests.support.examples import examples

FILES = ("a.md", "b.log", "build/out.md", "src/a.md", "src/build/x.py", "src/b.log", "doc/deep/a.md", "doc/é.md")
PATTERNS = st.sampled_from(
    ["*.log", "!b.log", "build/", "/build", "!build/", "src/*", "!src/a.md", "**/deep", "a.md", "doc/**", "!doc/é.md",
     "# no", "", "\\!x", "*", "!*/", "src/build/**", "b.*", " ", "[ab].md", "!", "/", "trailing \\ "]
)  # fmt: skip


def found(root: Path, *barred: Path) -> set[str]:
    return set(scan(root, barred, time.time_ns()).files)


@examples(40)
@example(["src/build/**"], ["!*/"], "")  # a pattern for folders says nothing of the files in them
@example(["build/", "!*/"], [], "")  # a pattern that matches each folder of a path
@example([], ["build/", "!*/"], "src")
@example(["doc/**", "!doc/é.md"], [], "")  # what is in a folder is not the folder
@given(st.lists(PATTERNS, max_size=4), st.lists(PATTERNS, max_size=3), st.sampled_from(["", "src", "doc"]))
def test_ignore_files_mean_what_they_mean_to_git(top, nested, root) -> None:
    with tempfile.TemporaryDirectory() as name:
        repository = Path(name).resolve()
        for file in FILES:
            (repository / file).parent.mkdir(parents=True, exist_ok=True)
            (repository / file).write_text("x")
        (repository / ".gitignore").write_text("\n".join(top))
        (repository / "src" / ".gitignore").write_text("\n".join(nested))
        git = ["git", "-C", str(repository), "-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=off"]
        subprocess.run([*git, "init", "-q"], check=True)
        listed = subprocess.run(
            [*git, "ls-files", "-z", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
        ).stdout.split("\0")[:-1]
        # A folder that is ignored from above is still indexed when the user names it.
        wanted = {path for path in listed if path.startswith(f"{root}/" if root else "")}
        prefix = f"{root}/" if root else ""
        known = {f"{prefix}{path}" for path in found(repository / root)}
        if root and subprocess.run([*git, "check-ignore", "-q", root], check=False).returncode == 0:
            assert wanted <= known
        else:
            assert known == wanted


def test_the_mark_that_editors_put_before_a_text_is_no_part_of_the_first_pattern(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("secret.txt\n", encoding="utf-8-sig")
    (tmp_path / "secret.txt").touch()
    assert found(tmp_path) == {".gitignore"}


def test_links_are_not_followed_and_special_files_are_named(tmp_path: Path) -> None:
    root, outside = tmp_path / "notes", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
        (folder / "a.md").write_text("x")
    (root / "out").symlink_to(outside)
    (root / "out.md").symlink_to(outside / "a.md")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe")
    looked = scan(root, (), time.time_ns())
    assert set(looked.files) == {"a.md"}
    assert [tuple(one) for one in looked.skipped] == [("pipe", "no regular file")]


def test_a_file_that_becomes_a_link_is_not_read(tmp_path: Path) -> None:
    root = tmp_path / "notes"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b.md").write_text("secret")
    (root / "a.md").symlink_to(tmp_path / "secret")
    (root / "sub").symlink_to(tmp_path / "folder")
    os.mkfifo(root / "pipe")
    for path in ("a.md", "sub/b.md", "pipe", "gone.md"):
        assert read_content(root, path, 0) is None


def test_what_is_no_text_or_too_large_says_so(tmp_path: Path) -> None:
    for name, data, why in (
        ("text", "ü\r\nx".encode(), None),
        ("marked", b"\xef\xbb\xbfx", None),
        ("utf16", "x".encode("utf-16"), None),
        ("image", b"\x89PNG\0\xff", "binary"),
        ("nul", b"a\0b", "binary"),
        ("latin", "ü".encode("latin-1"), "not UTF-8"),
        ("huge", b"x" * (MAX_BYTES + 1), "larger than 2 MB"),
    ):
        (tmp_path / name).write_bytes(data)
        content = read_content(tmp_path.resolve(), name, 0)
        assert content is not None
        assert text_of(content)[1] == why
        assert (text_of(content)[0] == "") == (why is not None)


def test_folders_of_tools_and_barred_folders_are_left_out(tmp_path: Path) -> None:
    for folder in (".git", "node_modules", ".obsidian", ".ldm", "sub/.ldm"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.md").write_text("x")
    assert found(tmp_path, tmp_path / ".ldm") == {"sub/.ldm/a.md"}


def test_a_folder_that_cannot_be_listed_is_unknown_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "a.md").write_text("x")
    list_folder = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", refuse)
    looked = scan(tmp_path, (), time.time_ns())
    assert looked.is_unknown("shut/b.md")
    assert not looked.is_unknown("a.md")


def test_what_icloud_holds_elsewhere_is_unknown_not_gone(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("b.md\n")
    for name in (".Note 1.md.icloud", ".b.md.icloud", "c.md"):
        (tmp_path / name).touch()
    looked = scan(tmp_path, (), time.time_ns())
    assert set(looked.files) == {".gitignore", "c.md"}
    assert looked.unread == {"Note 1.md": "in iCloud, not downloaded"}
    assert looked.is_unknown("Note 1.md")
    assert not looked.is_unknown("Note 1.md.old")


def test_a_linked_worktree_has_the_excludes_of_its_repository(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.test", "-C", str(tmp_path / "main")]
    (tmp_path / "main").mkdir()
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"], ["worktree", "add", "-q", "../linked"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "main" / ".git" / "info" / "exclude").write_text("secret.md\n")
    for name in ("secret.md", "a.md"):
        (tmp_path / "linked" / name).touch()
    assert found(tmp_path / "linked") == {"a.md"}


def test_a_missing_folder_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="is not there"):
        scan(tmp_path / "away", (), 0)


@pytest.mark.slow
def test_ten_thousand_files_are_looked_at_quickly(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"d{number}").mkdir()
        for name in range(100):
            (tmp_path / f"d{number}" / f"{name}.md").touch()
    seconds = []
    for patterns in (1, 200):
        (tmp_path / ".gitignore").write_text("".join(f"*.log{number}\nbuild{number}/\n" for number in range(patterns)))
        start = time.process_time()
        assert len(found(tmp_path)) == 10_000 + 1
        seconds.append(time.process_time() - start)
    assert seconds[1] < 3 * seconds[0] + 1
