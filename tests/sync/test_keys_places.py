"""Where key and token are kept: real files with wrong modes and owners, a real keyring back end, real commands."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import keyring.errors
import pytest
from keyring.backend import KeyringBackend

from crystal.credentials.api_keys import KeyCommand, run_key_command
from crystal.errors import CrystalError, NotConfigured, Unavailable, UsageProblem
from crystal.sync.keys import files
from crystal.sync.keys.files import is_managed, problem_of_given_file, problem_of_managed_file, problem_of_own_file
from crystal.sync.keys.forms import RelayKey, format_key
from crystal.sync.keys.places import (
    Choice,
    KeyMissing,
    KeyPlaces,
    RelayToken,
    place_of_key,
    place_of_token,
    read_key,
    read_token,
    write_key,
    write_token,
)

ONE = RelayKey("root", bytes(range(32)))
TWO = RelayKey("device", bytes(range(100, 132)), bytes(range(16)), 4)
THREE = RelayKey("root", bytes(range(200, 232)))
TOKEN = RelayToken("crt_0123_" + "a" * 43 + "_89ab")
OTHER = RelayToken("crt_4567_" + "b" * 43 + "_cdef")
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes and owners of this kind")
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")


class FakeKeyring(KeyringBackend):
    """A keyring in memory that can be made to fail."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.failure: Exception | None = None
        self.forgets = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.failure:
            raise self.failure
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.failure:
            raise self.failure
        if not self.forgets:
            self.entries[service, username] = password


@pytest.fixture
def ring() -> Iterator[FakeKeyring]:
    before = keyring.get_keyring()
    fake = FakeKeyring()
    keyring.set_keyring(fake)
    yield fake
    keyring.set_keyring(before)


@pytest.fixture
def data(home: Path) -> Path:
    return home / ".ldm/memory"


@pytest.fixture
def at(home: Path, data: Path) -> Callable[..., KeyPlaces]:
    def places(
        chosen: Choice | None = None, command: Callable[[str], str] | None = None, **env: str | Path
    ) -> KeyPlaces:
        return KeyPlaces(data, home, {name: str(value) for name, value in env.items()}, chosen, command)

    return places


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def put(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


# ------------------------------------------------------------------------------------------------- which place counts


def test_variables_win_over_the_setting_and_the_setting_over_the_command(at) -> None:
    everything = {"CRYSTAL_RELAY_KEY": "x", "CRYSTAL_KEY_FILE": "/x", "CRYSTAL_KEY_COMMAND": "x"}
    assert place_of_key(at("keyring", **everything)) == "variable"
    del everything["CRYSTAL_RELAY_KEY"]
    assert place_of_key(at("keyring", **everything)) == "given file"
    del everything["CRYSTAL_KEY_FILE"]
    for choice in ("keyring", "file", "command"):
        assert place_of_key(at(choice, **everything)) == choice
    assert place_of_key(at(**everything)) == "command"
    assert place_of_key(at()) == "file"
    assert place_of_key(at(CRYSTAL_RELAY_KEY=" ", CRYSTAL_KEY_FILE="", CRYSTAL_KEY_COMMAND="\n")) == "file"


def test_the_variables_of_key_and_token_do_not_mix(at) -> None:
    of_key = at(CRYSTAL_RELAY_KEY="x", CRYSTAL_KEY_FILE="x")
    of_token = at(CRYSTAL_RELAY_TOKEN="x", CRYSTAL_RELAY_TOKEN_FILE="x")
    assert (place_of_key(of_key), place_of_token(of_key)) == ("variable", "file")
    assert (place_of_key(of_token), place_of_token(of_token)) == ("file", "variable")
    assert place_of_token(at(CRYSTAL_RELAY_TOKEN_FILE="x")) == "given file"


def test_no_place_falls_back_to_another(at, data: Path, ring: FakeKeyring, home: Path) -> None:
    """A good key lies in every other place, and each chosen place that fails is an error all the same."""
    write_key(at(), ONE)
    write_token(at(), TOKEN)
    good = put(home / "good", format_key(ONE))
    empty_ring = at("keyring")
    cases = {
        "environment CRYSTAL_RELAY_KEY": at(CRYSTAL_RELAY_KEY="nonsense", CRYSTAL_KEY_FILE=good),
        "absent": at(CRYSTAL_KEY_FILE=home / "absent"),
        "there is no relay key": empty_ring,
        "but there is none": at("command"),
        "to come from a command": at(CRYSTAL_KEY_COMMAND="x"),
    }
    for problem, places in cases.items():
        with pytest.raises(NotConfigured, match=problem) as caught:
            read_key(places)
        assert caught.value.hint
    ring.failure = RuntimeError("locked")
    for read in (read_key, read_token):
        with pytest.raises(NotConfigured, match="keyring failed"):
            read(empty_ring)


def test_nothing_set_up_is_told_apart_from_something_broken(at, data: Path, ring: FakeKeyring) -> None:
    for places in (at(), at("keyring")):
        for read in (read_key, read_token):
            with pytest.raises(KeyMissing, match="there is no relay"):
                read(places)
    put(data / "relay.key", "")
    with pytest.raises(NotConfigured, match="is empty") as caught:
        read_key(at())
    assert not isinstance(caught.value, KeyMissing)


# ------------------------------------------------------------------------------------------------------------ the file


@pytest.mark.parametrize("key", [ONE, TWO], ids=["root", "device"])
def test_a_key_comes_back_from_its_file(key: RelayKey, at, data: Path) -> None:
    written = write_key(at(), key)
    found = read_key(at())
    assert (found.key, found.source, found.note) == (key, str(data / "relay.key"), None)
    assert (written.source, written.backup) == (found.source, None)
    assert (data / "relay.key").read_text() == format_key(key) + "\n"


def test_a_token_comes_back_from_its_file(at, data: Path) -> None:
    write_token(at(), TOKEN)
    assert read_token(at()).token == TOKEN
    assert read_token(at()).source == str(data / "relay.token")


@posix
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_file_and_folder_are_for_their_owner_only_whatever_the_umask(umask: int, at, data: Path) -> None:
    if umask == 0o777:
        data.mkdir(parents=True, mode=0o700)
    before = os.umask(umask)
    try:
        write_key(at(), ONE)
        write_key(at(), TWO, replace=True)
    finally:
        os.umask(before)
    assert mode_of(data) == 0o700
    assert {path.name: mode_of(path) for path in data.iterdir()} == {"relay.key": 0o600, "relay.key.bak": 0o600}


def test_a_key_is_never_overwritten_silently(at, data: Path) -> None:
    write_key(at(), ONE)
    with pytest.raises(UsageProblem, match="is there already"):
        write_key(at(), TWO)
    assert read_key(at()).key == ONE
    assert write_key(at(), ONE).backup is None
    assert [path.name for path in data.iterdir()] == ["relay.key"]


def test_what_is_replaced_stays_beside_it(at, data: Path) -> None:
    write_key(at(), ONE)
    assert write_key(at(), TWO, replace=True).backup == str(data / "relay.key.bak")
    assert write_key(at(), THREE, replace=True).backup == str(data / "relay.key.bak.2")
    assert write_key(at(), THREE, replace=True).backup is None
    texts = {path.name: path.read_text().strip() for path in data.iterdir()}
    assert texts == {
        "relay.key": format_key(THREE),
        "relay.key.bak": format_key(ONE),
        "relay.key.bak.2": format_key(TWO),
    }


def test_even_rubbish_is_not_overwritten_silently(at, data: Path) -> None:
    put(data / "relay.key", "somebody's notes")
    with pytest.raises(UsageProblem, match="is there already"):
        write_key(at(), ONE)
    write_key(at(), ONE, replace=True)
    assert (data / "relay.key.bak").read_text() == "somebody's notes"


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o777, 0o610, 0o601])
def test_a_file_open_to_others_is_not_read(mode: int, at, data: Path) -> None:
    write_key(at(), ONE)
    (data / "relay.key").chmod(mode)
    with pytest.raises(NotConfigured, match=f"can be used by others \\(mode {mode:04o}\\)") as caught:
        read_key(at())
    assert "chmod 600" in (caught.value.hint or "")
    # Writing the same key again closes it.
    write_key(at(), ONE)
    assert read_key(at()).key == ONE


@posix
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_closed_to_others_is_read(mode: int, at, data: Path) -> None:
    write_key(at(), ONE)
    (data / "relay.key").chmod(mode)
    assert read_key(at()).key == ONE


@as_root
def test_a_file_of_another_user_is_not_read(at, data: Path) -> None:
    write_key(at(), ONE)
    os.chown(data / "relay.key", 12345, -1)
    with pytest.raises(NotConfigured, match="belongs to user 12345") as caught:
        read_key(at())
    assert "chown" in (caught.value.hint or "")


@posix
def test_a_folder_open_to_others_is_told(at, data: Path) -> None:
    data.mkdir(parents=True, mode=0o700)
    data.chmod(0o755)
    write_key(at(), ONE)
    assert "chmod 700" in (read_key(at()).note or "")
    data.chmod(0o700)
    assert read_key(at()).note is None


@posix
def test_a_link_in_place_of_the_file_is_neither_followed_nor_replaced(at, data: Path, home: Path) -> None:
    elsewhere = put(home / "elsewhere", format_key(ONE))
    data.mkdir(parents=True)
    (data / "relay.key").symlink_to(elsewhere)
    with pytest.raises(NotConfigured, match="symbolic link") as caught:
        read_key(at())
    assert "CRYSTAL_KEY_FILE" in (caught.value.hint or "")
    for replace in (False, True):
        with pytest.raises(UsageProblem, match="not an ordinary file"):
            write_key(at(), TWO, replace=replace)
    assert elsewhere.read_text() == format_key(ONE)
    # The way that the hint names works.
    assert read_key(at(CRYSTAL_KEY_FILE=data / "relay.key")).key == ONE


@posix
@pytest.mark.parametrize("kind", ["folder", "pipe", "dangling"])
def test_what_is_no_file_is_refused_and_waits_for_nobody(kind: str, at, data: Path) -> None:
    data.mkdir(parents=True)
    path = data / "relay.key"
    {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "dangling": lambda: path.symlink_to("nowhere")}[kind]()
    for places in (at(), at(CRYSTAL_KEY_FILE=path)):
        with pytest.raises(NotConfigured):
            read_key(places)
    with pytest.raises(UsageProblem, match="not an ordinary file"):
        write_key(at(), ONE, replace=True)


def test_a_file_that_is_too_large_is_not_read_to_its_end(at, data: Path) -> None:
    put(data / "relay.key", format_key(ONE) + "\n" * 5000)
    with pytest.raises(NotConfigured, match="larger than 4096"):
        read_key(at())


def test_a_damaged_file_names_itself_and_shows_nothing(at, data: Path) -> None:
    text = format_key(ONE)
    put(data / "relay.key", text[:30] + ("a" if text[30] != "a" else "b") + text[31:])
    with pytest.raises(NotConfigured, match=r"relay\.key.*typing error") as caught:
        read_key(at())
    assert text[13:25] not in caught.value.message


@posix
@pytest.mark.parametrize("had_one", [False, True], ids=["first", "replacing"])
@pytest.mark.parametrize("nth", range(1, 9))
def test_a_crash_at_any_call_leaves_the_old_key_or_the_new(
    nth: int, had_one: bool, at, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power goes at the nth call into the system: nothing after it happens, not even the cleaning up."""

    class PowerCut(BaseException):
        pass

    if had_one:
        write_key(at(), ONE)
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
        write_key(at(), TWO, replace=had_one)
        survived = True
    except PowerCut:
        survived = False
    monkeypatch.undo()
    if survived:
        assert read_key(at()).key == TWO
        return
    try:
        found = read_key(at()).key
    except KeyMissing:
        found = None
    assert found in ((ONE, TWO) if had_one else (None, TWO))
    # And the next try succeeds, loses nothing and leaves no rest.
    write_key(at(), TWO, replace=had_one)
    assert read_key(at()).key == TWO
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
    write_key(at(), ONE)
    assert order == ["fsync", "name", "fsync"]


@posix
def test_of_many_writers_at_once_one_wins_and_the_others_are_told(at, data: Path) -> None:
    keys = [RelayKey("root", os.urandom(32)) for _ in range(8)]
    outcomes: list[RelayKey | None] = []

    def write(key: RelayKey) -> None:
        try:
            write_key(at(), key)
            outcomes.append(key)
        except UsageProblem:
            outcomes.append(None)

    threads = [threading.Thread(target=write, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [key for key in outcomes if key is not None]
    assert len(outcomes) == 8
    assert read_key(at()).key == winner
    assert [path.name for path in data.iterdir()] == ["relay.key"]


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_an_error_in_words(at, data: Path) -> None:
    data.mkdir(parents=True)
    data.chmod(0o500)
    with pytest.raises(Unavailable):
        write_key(at(), ONE)


def test_a_full_disk_changes_nothing(at, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_key(at(), ONE)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(Unavailable, match="no space left"):
        write_key(at(), TWO, replace=True)
    monkeypatch.undo()
    assert read_key(at()).key == ONE
    assert not list(data.glob(".*.tmp"))


def test_a_weak_key_is_not_kept(at) -> None:
    with pytest.raises(UsageProblem, match="weak"):
        write_key(at(), RelayKey("root", bytes(32)))


# -------------------------------------------------------------------------------------------------- variables and files


def test_a_key_from_the_environment(at) -> None:
    found = read_key(at(CRYSTAL_RELAY_KEY=ONE.secret.hex().upper() + "\n"))
    assert (found.key, found.source) == (ONE, "environment CRYSTAL_RELAY_KEY")
    assert read_token(at(CRYSTAL_RELAY_TOKEN=TOKEN.reveal() + "\n")).token == TOKEN


def test_when_both_variables_are_set_the_note_says_which_counts(at, home: Path) -> None:
    found = read_key(at(CRYSTAL_RELAY_KEY=ONE.secret.hex(), CRYSTAL_KEY_FILE=put(home / "k", format_key(TWO))))
    assert found.key == ONE
    assert "only CRYSTAL_RELAY_KEY counts" in (found.note or "")


@pytest.mark.parametrize(
    "content",
    [
        ONE.secret,
        ONE.secret.hex().encode(),
        ONE.secret.hex().encode() + b"\n",
        base64.b64encode(ONE.secret) + b"\r\n",
        format_key(ONE).encode(),
    ],
)
def test_a_named_file_may_hold_every_form(content: bytes, at, home: Path) -> None:
    path = home / "named key"
    path.write_bytes(content)
    path.chmod(0o400)
    found = read_key(at(CRYSTAL_KEY_FILE=path))
    assert (found.key, found.source) == (ONE, f"CRYSTAL_KEY_FILE {path}")
    assert read_key(at(CRYSTAL_KEY_FILE="~/named key")).key == ONE


def test_a_token_from_a_named_file(at, home: Path) -> None:
    path = put(home / "token", "\ufeff" + TOKEN.reveal() + "\r\n")
    assert read_token(at(CRYSTAL_RELAY_TOKEN_FILE=path)).token == TOKEN


@posix
def test_the_file_behind_a_link_is_what_is_checked(at, home: Path) -> None:
    real = put(home / "..data", format_key(ONE), 0o400)
    (home / "key").symlink_to(real.name)
    assert read_key(at(CRYSTAL_KEY_FILE=home / "key")).key == ONE
    real.chmod(0o444)
    with pytest.raises(NotConfigured, match="used by others"):
        read_key(at(CRYSTAL_KEY_FILE=home / "key"))


def info(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 0, 73, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "owner", "own", "given", "managed"),
    [
        (0o600, 1000, True, True, True),
        (0o400, 1000, True, True, True),
        (0o640, 1000, False, False, True),
        (0o644, 1000, False, False, True),
        # LoadCredential of a system unit: root's, 0440 with an entry for the service's user.
        (0o400, 0, False, True, True),
        (0o440, 0, False, True, True),
        (0o640, 0, False, True, True),
        (0o660, 0, False, False, True),
        # Docker's secrets are 0444 and root's, Compose's belong to whoever has them on the host.
        (0o444, 0, False, False, True),
        (0o600, 501, False, False, True),
        (0o644, 501, False, False, True),
        (0o666, 0, False, False, False),
        (0o602, 1000, False, False, False),
        (0o610, 1000, False, False, True),
    ],
)
def test_who_may_own_and_read_which_file(mode: int, owner: int, own: bool, given: bool, managed: bool) -> None:
    stats = info(mode, owner)
    assert (problem_of_own_file(stats, 1000) is None) is own
    assert (problem_of_given_file(stats, 1000) is None) is given
    assert (problem_of_managed_file(stats, 1000) is None) is managed


@pytest.mark.parametrize(
    ("path", "folder", "managed"),
    [
        ("/run/secrets/key", "", True),
        ("/var/run/secrets/deep/key", "", True),
        ("/run/credentials/crystal.service/key", "", True),
        ("/run/secrets-of-mine/key", "", False),
        ("/run/secrets/../key", "", False),
        ("/home/me/key", "", False),
        ("/srv/creds/key", "/srv/creds", True),
        ("/srv/creds/key", "/srv/creds/", True),
        ("/srv/creds/key", "srv/creds", False),
        ("/srv/key", "/", False),
        ("/srv/key", "//", False),
        ("/srv/key", "/srv/..", False),
    ],
)
@posix
def test_where_others_put_secrets_for_us(path: str, folder: str, managed: bool) -> None:
    assert is_managed(Path(path), {"CREDENTIALS_DIRECTORY": folder}) is managed


@posix
def test_a_credential_of_systemd_is_read_as_it_is_given(at, home: Path) -> None:
    path = put(home / "credentials/relay.key", format_key(ONE), 0o444)
    with pytest.raises(NotConfigured, match="used by others"):
        read_key(at(CRYSTAL_KEY_FILE=path))
    given = at(CRYSTAL_KEY_FILE=path, CREDENTIALS_DIRECTORY=path.parent)
    assert read_key(given).key == ONE
    path.chmod(0o666)
    with pytest.raises(NotConfigured, match="written by everybody"):
        read_key(given)


def test_crystal_does_not_write_where_it_only_reads(at, home: Path) -> None:
    named = put(home / "named", format_key(ONE))
    for places, name in (
        (at(CRYSTAL_RELAY_KEY=format_key(ONE)), "CRYSTAL_RELAY_KEY"),
        (at(CRYSTAL_KEY_FILE=named), "CRYSTAL_KEY_FILE"),
        (at("command", lambda _: format_key(ONE)), "a command"),
    ):
        with pytest.raises(NotConfigured, match=f"read from {name}"):
            write_key(places, TWO, replace=True)
    assert named.read_text() == format_key(ONE)


# ------------------------------------------------------------------------------------------------------------- keyring


def test_key_and_token_come_back_from_the_keyring(at, ring: FakeKeyring, data: Path) -> None:
    assert write_key(at("keyring"), TWO).source == "keyring crystal/relay"
    write_token(at("keyring"), TOKEN)
    assert (read_key(at("keyring")).key, read_key(at("keyring")).source) == (TWO, "keyring crystal/relay")
    assert read_token(at("keyring")).token == TOKEN
    assert set(ring.entries) == {("crystal", "relay"), ("crystal", "relay-token")}
    assert not data.exists()


def test_the_keyring_is_not_overwritten_silently_either(at, ring: FakeKeyring) -> None:
    write_key(at("keyring"), ONE)
    with pytest.raises(UsageProblem, match="is there already"):
        write_key(at("keyring"), TWO)
    assert write_key(at("keyring"), ONE).backup is None
    assert write_key(at("keyring"), TWO, replace=True).backup == "keyring crystal/relay.bak"
    assert write_key(at("keyring"), THREE, replace=True).backup == "keyring crystal/relay.bak.2"
    assert ring.entries == {
        ("crystal", "relay"): format_key(THREE),
        ("crystal", "relay.bak"): format_key(ONE),
        ("crystal", "relay.bak.2"): format_key(TWO),
    }


@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        (keyring.errors.KeyringLocked("secret text"), "KeyringLocked"),
        (keyring.errors.NoKeyringError("secret text"), "this system has none"),
        (RuntimeError("secret text"), "RuntimeError"),
        (OSError("secret text"), "OSError"),
    ],
)
def test_a_keyring_that_fails_is_an_error_with_a_hint(failure: Exception, problem: str, at, ring: FakeKeyring) -> None:
    write_key(at(), ONE)
    ring.failure = failure
    for attempt in (lambda: read_key(at("keyring")), lambda: write_key(at("keyring"), TWO)):
        with pytest.raises(NotConfigured, match=problem) as caught:
            attempt()
        assert caught.value.hint
        assert "secret text" not in caught.value.message


def test_a_keyring_that_keeps_nothing_is_found_out(at, ring: FakeKeyring) -> None:
    ring.forgets = True
    with pytest.raises(NotConfigured, match="does not keep"):
        write_key(at("keyring"), ONE)


def test_the_failing_back_end_of_a_headless_machine_is_an_error(at) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(keyring.backends.fail.Keyring())
    try:
        with pytest.raises(NotConfigured, match="this system has none"):
            write_key(at("keyring"), ONE)
    finally:
        keyring.set_keyring(before)


def test_the_keyring_without_its_package_says_what_to_install(at, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(NotConfigured, match="not installed") as caught:
        read_key(at("keyring"))
    assert "pip install keyring, or: crystal config set relay.key_place file" in (caught.value.hint or "")


# ------------------------------------------------------------------------------------------------------------- command


@posix
def test_a_real_command_gives_key_and_token(at, home: Path) -> None:
    script = put(
        home / "secrets.sh",
        f"#!/bin/sh\ncase $1 in relay) echo {format_key(TWO)};; relay-token) echo {TOKEN.reveal()};; *) exit 3;; esac\n",
        0o700,
    )
    line = f"'{script}' {{provider}}"
    env = {"PATH": os.environ["PATH"], "CRYSTAL_KEY_COMMAND": line}

    def command(name: str) -> str:
        return run_key_command(KeyCommand(line), name, env)

    places = at(None, command, CRYSTAL_KEY_COMMAND=line)
    assert (read_key(places).key, read_key(places).source) == (TWO, "command for relay")
    assert read_token(places).token == TOKEN
    # The setting takes key and token out of the reach of a command that is there for something else.
    write_key(at("file", command, CRYSTAL_KEY_COMMAND=line), ONE)
    assert read_key(at("file", command, CRYSTAL_KEY_COMMAND=line)).key == ONE


@posix
@pytest.mark.parametrize("line", ["false", "/no/such/program", "echo sk-an-api-key-that-is-for-somebody-else", "true"])
def test_a_real_command_that_fails_is_an_error(line: str, at) -> None:
    write_key(at(), ONE)
    env = {"PATH": os.environ["PATH"]}
    places = at("command", lambda name: run_key_command(KeyCommand(line), name, env))
    with pytest.raises(NotConfigured) as caught:
        read_key(places)
    assert "somebody" not in caught.value.message
    assert caught.value.hint


# ------------------------------------------------------------------------------------------------------- staying unseen


@pytest.mark.parametrize("text", ["", " ", "two words", "crt_\n", "ünsafe", "x" * 1025, "a\0b"])
def test_what_can_be_no_token_is_refused(text: str, at) -> None:
    with pytest.raises(UsageProblem):
        RelayToken(text)
    if text.strip() and "\0" not in text and text != "crt_\n":
        with pytest.raises(CrystalError):
            read_token(at(CRYSTAL_RELAY_TOKEN=text))


def test_a_token_and_its_places_are_not_shown(at) -> None:
    places = at(CRYSTAL_RELAY_KEY=ONE.secret.hex(), CRYSTAL_RELAY_TOKEN=TOKEN.reveal())
    shown = f"{places!r} {TOKEN!r} {TOKEN} {read_token(places)!r} {read_key(places)!r}"
    assert "aaaaaa" not in shown
    assert ONE.secret.hex()[:8] not in shown
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(TOKEN)
    assert TOKEN != OTHER
    assert TOKEN.reveal() != TOKEN
