"""Doctor and status answer whatever is broken beneath them, and what only needs reading goes on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crystal.app.integrity import open_to_prove
from crystal.store import Store, upgrade
from tests.support import broken_places
from tests.support.broken_places import keep_memory, leave_a_log, run
from tests.support.command import crystal

pytestmark = pytest.mark.slow
"""Each starts the program, often as another user or on another file system."""

NOBODY = 65534
is_root = pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs another user, or a mount")


@pytest.fixture
def kept(home: Path) -> Path:
    """A home folder with a memory in it."""
    return keep_memory(home)


def run_here(*words: str, **_: object) -> subprocess.CompletedProcess[str]:
    done = crystal(*words)
    return subprocess.CompletedProcess(words, done.code, done.out, done.err)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands in this process: of places that are links, no process of its own sees more."""
    monkeypatch.setattr(sys.modules[__name__], "run", run_here)
    monkeypatch.chdir("/")


def assert_doctor_fails(named: str, **how: Any) -> str:
    return broken_places.assert_doctor_fails(run, named, **how)


def assert_status_tells(problem: str, fix: str, *, code: int = 1, powerless: bool = False) -> None:
    done = run("status", powerless=powerless)
    assert done.returncode == code, done
    first = done.stdout.partition("\n")[0]
    assert first.startswith("NOT capturing: ")
    assert problem in first
    assert fix in first


def assert_reading_works(powerless: bool = False) -> None:
    for words in (
        ["search", "basalt"],
        ["show", "s"],
        ["sessions"],
        ["status"],
        ["verify"],
        ["search", "basalt", "--json"],
    ):
        done = run(*words, powerless=powerless)
        stopped = words == ["status"] and done.stdout.startswith("NOT capturing")
        assert done.returncode == int(stopped), (words, done)
    assert "basalt" in run("search", "basalt", powerless=powerless).stdout


# ------------------------------------------------------------------------------------------------------------- locks


@pytest.mark.usefixtures("here")
def test_a_lock_that_is_a_link_is_not_followed(kept: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    for target in (theirs, tmp_path / "missing"):
        theirs.write_text("theirs")
        lock = kept / ".ldm" / "memory" / "capture.lock"
        lock.unlink(missing_ok=True)
        lock.symlink_to(target)
        done = run("sync")
        assert done.returncode == 2, done
        assert "is a link" in done.stderr
        assert f"rm {lock}" in done.stderr
        assert_doctor_fails("capture.lock is a link")
        assert_status_tells("capture.lock is a link", f"rm {lock}")
        assert_reading_works()
    assert theirs.read_text() == "theirs"
    assert not (tmp_path / "missing").exists()


@pytest.mark.usefixtures("here")
def test_a_folder_in_the_place_of_a_lock_and_a_file_in_that_of_the_notes_are_moved_away(kept: Path) -> None:
    lock, spool = (kept / ".ldm" / "memory" / name for name in ("capture.lock", "spool"))
    lock.unlink(missing_ok=True)
    lock.mkdir()
    shutil.rmtree(spool, ignore_errors=True)
    spool.write_text("x")
    for path, words in ((spool, "is not a folder"), (lock, "is a folder")):
        assert_doctor_fails(f"{path} {words}")
        fix = f"mv {path} {path}.old"
        assert_status_tells(f"{path} {words}", fix)
        assert_reading_works()
        subprocess.run(fix, shell=True, check=True)
    assert run("sync").returncode == 0
    assert run("status").stdout.startswith("capturing")
    (archive,) = kept.glob(".ldm/agents/*/memory/transcripts")
    shutil.rmtree(archive)
    archive.write_text("x")
    assert_status_tells(f"{archive} is not a folder", f"mv {archive} {archive}.old")
    assert f"{archive} is not a folder" in run("verify", "--repair").stderr


@pytest.mark.usefixtures("here")
def test_a_lock_of_what_follows_capture_keeps_nothing_from_being_stored(kept: Path) -> None:
    locks = [kept / ".ldm" / "memory" / name for name in ("enrich.lock", "import.lock")]
    for lock in locks:
        lock.unlink(missing_ok=True)
        lock.symlink_to("/nowhere/lock")
    stored = run("remember", "the basalt is grey")
    assert (stored.returncode, stored.stderr) == (0, "")
    swept = run("sync")
    assert swept.returncode == 0
    assert f"vectors and summaries wait: {locks[0]} is a link" in swept.stderr
    status = run("status")
    assert status.stdout.startswith("capturing; last capture")
    assert f"vectors and summaries wait: {locks[0]} is a link" in status.stdout.partition("\n")[0]
    assert f"fix: rm {locks[0]}" in status.stdout
    for lock in locks:  # each is named, not only the first
        assert_doctor_fails(f"{lock} is a link")


@is_root
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_lock_of_another_user_is_named_or_does_no_harm(kept: Path, mode: int) -> None:
    lock = kept / ".ldm" / "memory" / "capture.lock"
    lock.touch()
    os.chown(lock, NOBODY, NOBODY)
    lock.chmod(mode)
    done = run("sync", powerless=True)
    if mode == 0o644:
        assert done.returncode == 0, done
    else:
        assert done.returncode == 4, done
        assert "belongs to another user" in done.stderr
        assert f"rm {lock}" in done.stderr
        assert_doctor_fails("belongs to another user", powerless=True)
        assert_status_tells("belongs to another user", f"rm {lock}", powerless=True)
    assert_reading_works(powerless=True)


@is_root
@pytest.mark.parametrize("folder", [".claude", ".claude/projects", ".codex"])
def test_an_agents_folder_that_may_not_be_entered_is_named(kept: Path, folder: str) -> None:
    (kept / folder).mkdir(exist_ok=True)
    (kept / folder).chmod(0)
    status, doctor = run("status", powerless=True), run("doctor", powerless=True)
    assert "\nmemory " in status.stdout, status
    assert f"{kept / folder}" in status.stdout
    assert f"{kept / folder}" in doctor.stdout
    assert (status.returncode, doctor.returncode) == ((1, 1) if folder == ".claude" else (0, 0))


# ------------------------------------------------------------------------------------------------------------- links


@pytest.mark.usefixtures("here")
def test_a_data_folder_that_is_a_link_to_ones_own_goes_on_and_is_told(kept: Path, tmp_path: Path) -> None:
    moved = tmp_path / "disk" / "memory"
    moved.parent.mkdir()
    shutil.move(kept / ".ldm" / "memory", moved)
    (kept / ".ldm" / "memory").symlink_to(moved)
    assert run("sync").returncode == 0
    assert f"is a link to {moved}" in run("doctor").stdout
    assert_reading_works()


@is_root
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("place", [".ldm", ".ldm/memory", ".ldm/memory/crystal.db"])
def test_a_link_to_what_is_not_ones_own_is_not_written_through(kept: Path, tmp_path: Path, place: str) -> None:
    theirs = tmp_path / "theirs"
    shutil.move(kept / place, theirs)
    (kept / place).symlink_to(theirs)
    os.chown(theirs, NOBODY, NOBODY)
    before = snapshot(theirs)
    for words in (["sync"], ["remember", "x"], ["init", "--yes"], ["backfill"]):
        done = run(*words)
        assert done.returncode == 2, (words, done)
        assert "is a link" in done.stderr
        assert "does not belong to you" in done.stderr
    assert_doctor_fails("is a link")
    assert snapshot(theirs) == before


@pytest.mark.usefixtures("here")
def test_a_link_to_nothing_is_not_written_through(home: Path, tmp_path: Path) -> None:
    (home / ".ldm" / "memory").mkdir(parents=True)
    (home / ".ldm" / "memory" / "crystal.db").symlink_to(tmp_path / "new.db")
    assert run("sync").returncode == 2
    assert run("status").returncode in (2, 3)
    assert not (tmp_path / "new.db").exists()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("place", [".ldm", ".ldm/memory"])
def test_a_link_to_nothing_is_named_by_whatever_reads(home: Path, tmp_path: Path, place: str) -> None:
    link = home / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "unmounted")
    for words in (["status"], ["search", "basalt"], ["show", "1"], ["init", "--yes"]):
        done = run(*words)
        said = done.stdout + done.stderr
        assert (done.returncode, "crystal init" in said) == (2, False), done
        assert f"{link} is a link to {tmp_path}/unmounted, which is not there" in said
        assert f"rm {link}" in said
    assert "which is not there" in assert_doctor_fails("is a link")


def snapshot(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [each for each in sorted(path.rglob("*")) if each.is_file()]
    return {str(each): each.read_bytes() for each in files if not each.name.endswith(("-shm", "-wal"))}


# ------------------------------------------------------------------------------------------- nothing can be written


@is_root
@pytest.mark.parametrize("log", [False, True])
def test_a_folder_that_may_not_be_written_is_read(kept: Path, log: bool) -> None:
    data = kept / ".ldm" / "memory"
    if log:
        leave_a_log(data)
    data.chmod(0o500)
    assert_reading_works(powerless=True)
    assert "crystal show 1 does not open these hits" in run("search", "basalt", powerless=True).stderr
    assert_doctor_fails("cannot be written", powerless=True)
    done = run("remember", "x", powerless=True)
    assert done.returncode in (0, 4), done
    data.chmod(0o000)
    assert_status_tells("cannot be written", f"chmod u+rwx {data}", code=4, powerless=True)
    assert_doctor_fails("ermission", powerless=True)


@is_root
def test_an_older_database_that_may_not_be_written_is_read(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, older = kept / ".ldm" / "memory", upgrade.steps()[:-1]
    for path in data.glob("crystal.db*"):
        path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(upgrade, "steps", lambda: older)
        patch.setattr(upgrade, "newest", lambda: len(older))
        Store.open(data / "crystal.db").close()
    before = (data / "crystal.db").read_bytes()
    data.chmod(0o500)
    done = run("search", "x", powerless=True)
    assert "Nothing is remembered yet" in done.stdout + done.stderr, done
    assert (data / "crystal.db").read_bytes() == before


@is_root
def test_a_database_that_may_not_be_written_is_read_and_told(kept: Path) -> None:
    database = kept / ".ldm" / "memory" / "crystal.db"
    database.chmod(0o400)
    assert_reading_works(powerless=True)
    assert_doctor_fails("crystal.db cannot be written", powerless=True)
    assert_status_tells("crystal.db cannot be written", f"chmod u+rw {database}", powerless=True)


@pytest.mark.usefixtures("here")
def test_settings_that_cannot_be_read_are_told_first(kept: Path) -> None:
    settings = kept / ".config" / "crystal" / "config.toml"
    settings.write_text("retention = [")
    assert_status_tells(f"{settings} is not valid TOML", f"correct the file: {settings}", code=2)
    state = json.loads(run("status", "--json").stdout)
    assert (state["ok"], state["capture"]["state"]) == (False, "not capturing")


@pytest.mark.usefixtures("here")
def test_a_register_of_agents_that_cannot_be_read_stops_nothing_and_is_told(kept: Path) -> None:
    register = kept / ".ldm" / "config.json"
    register.unlink()
    register.mkdir()
    assert_reading_works()
    assert run("status").stdout.startswith("capturing")
    assert_doctor_fails(f"{register}: is a directory")
    assert run("uninstall", "--yes").returncode == 0


@pytest.mark.usefixtures("here")
def test_a_file_in_the_place_of_the_folder_is_named_by_whatever_reads(home: Path) -> None:
    (home / ".ldm").write_text("something else")
    for words in (["search", "deploy"], ["forget", "mem-1"], ["status"]):
        done = run(*words)
        assert (done.returncode, f"{home / '.ldm'} is not a folder" in done.stdout + done.stderr) == (2, True), done
    assert_doctor_fails(f"memory: {home / '.ldm'} is not a folder")


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A small file system of its own, or a folder mounted again."""
    if subprocess.run(["mount", *options, str(folder)], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@is_root
@pytest.mark.parametrize("log", [False, True])
def test_a_file_system_that_is_read_only_is_read(kept: Path, log: bool) -> None:
    ldm = kept / ".ldm"
    if log:
        leave_a_log(ldm / "memory")
    with mounted(ldm, "--bind", str(ldm)):
        if subprocess.run(["mount", "-o", "remount,bind,ro", str(ldm)], check=False).returncode:
            pytest.skip("mounting is not allowed here")
        assert_reading_works()
        assert_doctor_fails("cannot be written")
        assert run("sync").returncode == 4


@is_root
@pytest.mark.parametrize("log", [False, True])
def test_a_full_disk_is_read(kept: Path, tmp_path: Path, log: bool) -> None:
    ldm, saved = kept / ".ldm", tmp_path / "saved"
    if log:
        leave_a_log(ldm / "memory")
    shutil.copytree(ldm, saved)
    with mounted(ldm, "-t", "tmpfs", "-o", "size=4m", "tmpfs"):
        shutil.copytree(saved, ldm, dirs_exist_ok=True)
        with contextlib.suppress(OSError), (ldm / "filler").open("wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        assert_reading_works()
        done = run("remember", "the quarry opens at six")
        assert done.returncode == 4, done
        assert "space" in done.stderr
        assert_doctor_fails("space")


def test_a_memory_that_can_be_written_is_proved_under_its_write_lock(kept: Path) -> None:
    with open_to_prove() as machine, machine.store.transaction():
        assert machine.store.path.is_relative_to(kept)
