"""Keys in files: real files with wrong modes and owners, crashes, many writers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from crystal.config import temporary_files
from crystal.errors import NotConfiguredError, UnavailableError, UsageError
from crystal.sync.keys import secret_files
from crystal.sync.keys.forms import RelayKey, format_key
from crystal.sync.keys.places import KeyMissingError
from tests.support.key_files import ONE, THREE, TOKEN, TWO, as_root, mode_of, posix, put
from tests.support.threads import at_once


@pytest.mark.parametrize("key", [ONE, TWO], ids=["root", "device"])
def test_a_key_comes_back_from_its_file(key: RelayKey, at, data: Path) -> None:
    written = at().write_key(key)
    found = at().read_key()
    assert (found.key, found.source, found.note) == (key, str(data / "relay.key"), None)
    assert (written.source, written.backup) == (found.source, None)
    assert (data / "relay.key").read_text() == format_key(key) + "\n"


def test_a_token_comes_back_from_its_file(at, data: Path) -> None:
    at().write_token(TOKEN)
    assert at().read_token() == TOKEN
    assert at().read_token().source == str(data / "relay.token")


@posix
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_file_and_folder_are_for_their_owner_only_whatever_the_umask(umask: int, at, data: Path) -> None:
    if umask == 0o777:
        data.mkdir(parents=True, mode=0o700)
    before = os.umask(umask)
    try:
        at().write_key(ONE)
        at().write_key(TWO, replace=True)
    finally:
        os.umask(before)
    assert mode_of(data) == 0o700
    assert {path.name: mode_of(path) for path in data.iterdir()} == {"relay.key": 0o600, "relay.key.bak": 0o600}


def test_a_key_is_never_overwritten_silently(at, data: Path) -> None:
    at().write_key(ONE)
    with pytest.raises(UsageError, match="exists already"):
        at().write_key(TWO)
    assert at().read_key().key == ONE
    assert at().write_key(ONE).backup is None
    assert [path.name for path in data.iterdir()] == ["relay.key"]


def test_what_is_replaced_stays_beside_it(at, data: Path) -> None:
    at().write_key(ONE)
    assert at().write_key(TWO, replace=True).backup == str(data / "relay.key.bak")
    assert at().write_key(THREE, replace=True).backup == str(data / "relay.key.bak.2")
    assert at().write_key(THREE, replace=True).backup is None
    texts = {path.name: path.read_text().strip() for path in data.iterdir()}
    assert texts == {
        "relay.key": format_key(THREE),
        "relay.key.bak": format_key(ONE),
        "relay.key.bak.2": format_key(TWO),
    }


def test_even_rubbish_is_not_overwritten_silently(at, data: Path) -> None:
    put(data / "relay.key", "somebody's notes")
    with pytest.raises(UsageError, match="exists already"):
        at().write_key(ONE)
    at().write_key(ONE, replace=True)
    assert (data / "relay.key.bak").read_text() == "somebody's notes"


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o777, 0o610, 0o601])
def test_a_file_open_to_others_is_not_read(mode: int, at, data: Path) -> None:
    at().write_key(ONE)
    (data / "relay.key").chmod(mode)
    with pytest.raises(NotConfiguredError, match=f"can be used by others \\(mode {mode:04o}\\)") as caught:
        at().read_key()
    assert "chmod 600" in (caught.value.hint or "")
    # Writing the same key again closes it.
    at().write_key(ONE)
    assert at().read_key().key == ONE


@posix
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_closed_to_others_is_read(mode: int, at, data: Path) -> None:
    at().write_key(ONE)
    (data / "relay.key").chmod(mode)
    assert at().read_key().key == ONE


@as_root
def test_a_file_of_another_user_is_not_read(at, data: Path) -> None:
    at().write_key(ONE)
    os.chown(data / "relay.key", 12345, -1)
    with pytest.raises(NotConfiguredError, match="belongs to user 12345") as caught:
        at().read_key()
    assert "chown" in (caught.value.hint or "")


@posix
def test_a_folder_open_to_others_is_told(at, data: Path) -> None:
    data.mkdir(parents=True, mode=0o700)
    data.chmod(0o755)
    at().write_key(ONE)
    assert "chmod 700" in (at().read_key().note or "")
    data.chmod(0o700)
    assert at().read_key().note is None


@posix
def test_a_link_in_place_of_the_file_is_neither_followed_nor_replaced(at, data: Path, home: Path) -> None:
    elsewhere = put(home / "elsewhere", format_key(ONE))
    data.mkdir(parents=True)
    (data / "relay.key").symlink_to(elsewhere)
    with pytest.raises(NotConfiguredError, match="symbolic link") as caught:
        at().read_key()
    assert "CRYSTAL_KEY_FILE" in (caught.value.hint or "")
    for replace in (False, True):
        with pytest.raises(UsageError, match="not an ordinary file"):
            at().write_key(TWO, replace=replace)
    assert elsewhere.read_text() == format_key(ONE)
    # The way that the hint names works.
    assert at(CRYSTAL_KEY_FILE=data / "relay.key").read_key().key == ONE


@posix
@pytest.mark.parametrize("kind", ["folder", "pipe", "dangling"])
def test_what_is_no_file_is_refused_and_waits_for_nobody(kind: str, at, data: Path) -> None:
    data.mkdir(parents=True)
    path = data / "relay.key"
    {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "dangling": lambda: path.symlink_to("nowhere")}[kind]()
    for places in (at(), at(CRYSTAL_KEY_FILE=path)):
        with pytest.raises(NotConfiguredError):
            places.read_key()
    with pytest.raises(UsageError, match="not an ordinary file"):
        at().write_key(ONE, replace=True)


def test_a_file_that_is_too_large_is_not_read_to_its_end(at, data: Path) -> None:
    put(data / "relay.key", format_key(ONE) + "\n" * 5000)
    with pytest.raises(NotConfiguredError, match="larger than 4096"):
        at().read_key()


def test_a_damaged_file_names_itself_and_shows_nothing(at, data: Path) -> None:
    text = format_key(ONE)
    put(data / "relay.key", text[:30] + ("a" if text[30] != "a" else "b") + text[31:])
    with pytest.raises(NotConfiguredError, match=r"relay\.key.*typing error") as caught:
        at().read_key()
    assert text[13:25] not in caught.value.message


@posix
@pytest.mark.parametrize("had_one", [False, True], ids=["first", "replacing"])
@pytest.mark.parametrize("nth", range(1, 9))
def test_a_crash_at_any_call_leaves_the_old_key_or_the_new(nth, had_one, at, data, monkeypatch):
    """Power goes at the nth call into the system: nothing after it happens, not even the cleaning up."""

    class PowerCut(BaseException):
        pass

    if had_one:
        at().write_key(ONE)
    calls = 0
    dead = False

    def mortal(real: Callable) -> Callable:
        def call(*args, **more):
            nonlocal calls, dead
            calls += 1
            dead = dead or calls == nth
            if dead:
                raise PowerCut
            return real(*args, **more)

        return call

    for owner, name in ((os, "fsync"), (Path, "chmod"), (Path, "replace"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, mortal(getattr(owner, name)))
    try:
        at().write_key(TWO, replace=had_one)
        survived = True
    except PowerCut:
        survived = False
    monkeypatch.undo()
    if survived:
        assert at().read_key().key == TWO
        return
    try:
        found = at().read_key().key
    except KeyMissingError:
        found = None
    assert found in ((ONE, TWO) if had_one else (None, TWO))
    # And the next try succeeds, loses nothing and leaves no rest.
    at().write_key(TWO, replace=had_one)
    assert at().read_key().key == TWO
    names = {path.name for path in data.iterdir()}
    assert not [name for name in names if name.endswith(".tmp")]
    if had_one:
        backups = [path.read_text().strip() for path in data.glob("relay.key.bak*")]
        assert format_key(ONE) in backups


@posix
def test_the_bytes_are_on_the_disk_before_their_name(at, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(Path, "replace", lambda *a: (order.append("name"), replace(*a))[1])
    at().write_key(ONE)
    assert order == ["fsync", "name", "fsync"]


@posix
def test_of_many_writers_at_once_one_wins_and_the_others_are_told(at, data: Path) -> None:
    keys = [RelayKey("root", os.urandom(32)) for _ in range(8)]
    outcomes: list[RelayKey | None] = []

    def write(key: RelayKey) -> None:
        try:
            at().write_key(key)
            outcomes.append(key)
        except UsageError:
            outcomes.append(None)

    at_once(*(partial(write, key) for key in keys))
    (winner,) = [key for key in outcomes if key is not None]
    assert len(outcomes) == 8
    assert at().read_key().key == winner
    assert [path.name for path in data.iterdir()] == ["relay.key"]


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_an_error_in_words(at, data: Path) -> None:
    data.mkdir(parents=True)
    data.chmod(0o500)
    with pytest.raises(UnavailableError):
        at().write_key(ONE)


def test_a_full_disk_changes_nothing(at, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at().write_key(ONE)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(secret_files.os, "fsync", full)
    with pytest.raises(UnavailableError, match="no space left"):
        at().write_key(TWO, replace=True)
    monkeypatch.undo()
    assert at().read_key().key == ONE
    assert not list(data.glob(".*.tmp"))


@posix
def test_what_another_process_is_writing_beside_a_key_stays_and_what_a_killed_one_left_goes(at, data: Path) -> None:
    data.mkdir(parents=True, mode=0o700)
    left = data / f".crystal-{os.getppid()}-{'b' * 12}.tmp"  # another process may have the number by now
    left.write_bytes(b"half")
    code = "import sys, time; from crystal.config import paths; from pathlib import Path; paths.replace_file("
    hang = f"Path({str(data / 'other')!r}), b'half', lambda *_: (print(flush=True), time.sleep(60)))"
    with subprocess.Popen([sys.executable, "-c", code + hang], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        [held] = {*data.glob(".crystal-*.tmp")} - {left}
        os.utime(held, (1, 1))  # however long it takes
        at().write_key(ONE)
        assert {path.name for path in data.iterdir()} == {"relay.key", held.name}
        other.kill()
    at().write_key(TWO, replace=True)
    assert held not in data.iterdir()


@posix
def test_a_file_that_is_swept_before_its_lock_is_made_again(at, data: Path, monkeypatch) -> None:
    data.mkdir(parents=True, mode=0o700)
    real, swept = temporary_files.fcntl.flock, list[Path]()

    def flock(handle: int, how: int) -> None:
        made = [*data.glob(temporary_files.TEMPORARY_FILES)]
        if made and how == temporary_files.fcntl.LOCK_EX and not swept:  # another process looks just before
            swept.extend(made)
            assert temporary_files.delete_left_behind(*made)
        real(handle, how)

    monkeypatch.setattr(temporary_files.fcntl, "flock", flock)
    at().write_key(ONE)
    assert len(swept) == 1
    assert at().read_key().key == ONE
    assert [path.name for path in data.iterdir()] == ["relay.key"]


def test_a_weak_key_is_not_kept(at) -> None:
    with pytest.raises(UsageError, match="weak"):
        at().write_key(RelayKey("root", bytes(32)))
