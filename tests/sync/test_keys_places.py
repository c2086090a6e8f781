"""Where key and token are kept: variables, named files, a real keyring back end, real commands."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import stat
import sys
from pathlib import Path

import keyring
import keyring.errors
import pytest

from crystal.credentials.api_keys import KeyCommand, run_key_command
from crystal.errors import CrystalError, NotConfiguredError, UsageError
from crystal.sync.keys.forms import format_key
from crystal.sync.keys.places import KEY, KeyMissingError, KeyPlaces, RelayToken
from crystal.sync.keys.places import TOKEN as TOKEN_NAMES
from crystal.sync.keys.secret_files import Trust, is_managed, problem_of_file
from tests.support.fake_keyring import FakeKeyring
from tests.support.key_files import ONE, OTHER, THREE, TOKEN, TWO, posix, put
from tests.support.table import each_row


def test_variables_win_over_the_setting_and_the_setting_over_the_command(at) -> None:
    everything = {"CRYSTAL_RELAY_KEY": "x", "CRYSTAL_KEY_FILE": "/x", "CRYSTAL_KEY_COMMAND": "x"}
    assert at("keyring", **everything).place_of(KEY) == "variable"
    del everything["CRYSTAL_RELAY_KEY"]
    assert at("keyring", **everything).place_of(KEY) == "given file"
    del everything["CRYSTAL_KEY_FILE"]
    for choice in ("keyring", "file", "command"):
        assert at(choice, **everything).place_of(KEY) == choice
    assert at(**everything).place_of(KEY) == "command"
    assert at().place_of(KEY) == "file"
    assert at(CRYSTAL_RELAY_KEY=" ", CRYSTAL_KEY_FILE="", CRYSTAL_KEY_COMMAND="\n").place_of(KEY) == "file"


def test_the_variables_of_key_and_token_do_not_mix(at) -> None:
    of_key = at(CRYSTAL_RELAY_KEY="x", CRYSTAL_KEY_FILE="x")
    of_token = at(CRYSTAL_RELAY_TOKEN="x", CRYSTAL_RELAY_TOKEN_FILE="x")
    assert (of_key.place_of(KEY), of_key.place_of(TOKEN_NAMES)) == ("variable", "file")
    assert (of_token.place_of(KEY), of_token.place_of(TOKEN_NAMES)) == ("file", "variable")
    assert at(CRYSTAL_RELAY_TOKEN_FILE="x").place_of(TOKEN_NAMES) == "given file"


def test_no_place_falls_back_to_another(at, data: Path, ring: FakeKeyring, home: Path) -> None:
    """A good key lies in every other place, and each chosen place that fails is an error all the same."""
    at().write_key(ONE)
    at().write_token(TOKEN)
    good = put(home / "good", format_key(ONE))
    empty_ring = at("keyring")
    cases = {
        "environment CRYSTAL_RELAY_KEY": at(CRYSTAL_RELAY_KEY="nonsense", CRYSTAL_KEY_FILE=good),
        "absent": at(CRYSTAL_KEY_FILE=home / "absent"),
        "there is no relay key": empty_ring,
        "but none is set": at("command"),
        "should come from a command": at(CRYSTAL_KEY_COMMAND="x"),
    }
    for problem, places in cases.items():
        with pytest.raises(NotConfiguredError, match=problem) as caught:
            places.read_key()
        assert caught.value.hint
    ring.failure = RuntimeError("locked")
    for read in (KeyPlaces.read_key, KeyPlaces.read_token):
        with pytest.raises(NotConfiguredError, match="keyring failed"):
            read(empty_ring)


def test_nothing_set_up_is_told_apart_from_something_broken(at, data: Path, ring: FakeKeyring) -> None:
    for places in (at(), at("keyring")):
        for read in (KeyPlaces.read_key, KeyPlaces.read_token):
            with pytest.raises(KeyMissingError, match="there is no relay"):
                read(places)
    put(data / "relay.key", "")
    with pytest.raises(NotConfiguredError, match="is empty") as caught:
        at().read_key()
    assert not isinstance(caught.value, KeyMissingError)


def test_a_key_from_the_environment(at) -> None:
    found = at(CRYSTAL_RELAY_KEY=ONE.secret.hex().upper() + "\n").read_key()
    assert (found.key, found.source) == (ONE, "environment CRYSTAL_RELAY_KEY")
    assert at(CRYSTAL_RELAY_TOKEN=TOKEN.reveal() + "\n").read_token() == TOKEN


def test_when_both_variables_are_set_the_note_says_which_counts(at, home: Path) -> None:
    found = at(CRYSTAL_RELAY_KEY=ONE.secret.hex(), CRYSTAL_KEY_FILE=put(home / "k", format_key(TWO))).read_key()
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
    found = at(CRYSTAL_KEY_FILE=path).read_key()
    assert (found.key, found.source) == (ONE, f"CRYSTAL_KEY_FILE {path}")
    assert at(CRYSTAL_KEY_FILE="~/named key").read_key().key == ONE


def test_a_token_from_a_named_file(at, home: Path) -> None:
    path = put(home / "token", "\ufeff" + TOKEN.reveal() + "\r\n")
    assert at(CRYSTAL_RELAY_TOKEN_FILE=path).read_token() == TOKEN


@posix
def test_the_file_behind_a_link_is_what_is_checked(at, home: Path) -> None:
    real = put(home / "..data", format_key(ONE), 0o400)
    (home / "key").symlink_to(real.name)
    assert at(CRYSTAL_KEY_FILE=home / "key").read_key().key == ONE
    real.chmod(0o444)
    with pytest.raises(NotConfiguredError, match="used by others"):
        at(CRYSTAL_KEY_FILE=home / "key").read_key()


def info(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 0, 73, 0, 0, 0))


@each_row(
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
    trusts: tuple[Trust, ...] = ("own", "given", "managed")
    assert [problem_of_file(stats, 1000, trust) is None for trust in trusts] == [own, given, managed]


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
    with pytest.raises(NotConfiguredError, match="used by others"):
        at(CRYSTAL_KEY_FILE=path).read_key()
    given = at(CRYSTAL_KEY_FILE=path, CREDENTIALS_DIRECTORY=path.parent)
    assert given.read_key().key == ONE
    path.chmod(0o666)
    with pytest.raises(NotConfiguredError, match="written by everybody"):
        given.read_key()


def test_crystal_does_not_write_where_it_only_reads(at, home: Path) -> None:
    named = put(home / "named", format_key(ONE))
    for places, name in (
        (at(CRYSTAL_RELAY_KEY=format_key(ONE)), "CRYSTAL_RELAY_KEY"),
        (at(CRYSTAL_KEY_FILE=named), "CRYSTAL_KEY_FILE"),
        (at("command", lambda _: format_key(ONE)), "a command"),
    ):
        with pytest.raises(NotConfiguredError, match=f"read from {name}"):
            places.write_key(TWO, replace=True)
    assert named.read_text() == format_key(ONE)


def test_key_and_token_come_back_from_the_keyring(at, ring: FakeKeyring, data: Path) -> None:
    assert at("keyring").write_key(TWO).source == "keyring crystal/relay"
    at("keyring").write_token(TOKEN)
    assert (at("keyring").read_key().key, at("keyring").read_key().source) == (TWO, "keyring crystal/relay")
    assert at("keyring").read_token() == TOKEN
    assert set(ring.entries) == {("crystal", "relay"), ("crystal", "relay-token")}
    assert not data.exists()


def test_the_keyring_is_not_overwritten_silently_either(at, ring: FakeKeyring) -> None:
    at("keyring").write_key(ONE)
    with pytest.raises(UsageError, match="exists already"):
        at("keyring").write_key(TWO)
    assert at("keyring").write_key(ONE).backup is None
    assert at("keyring").write_key(TWO, replace=True).backup == "keyring crystal/relay.bak"
    assert at("keyring").write_key(THREE, replace=True).backup == "keyring crystal/relay.bak.2"
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
    at().write_key(ONE)
    ring.failure = failure
    for attempt in (lambda: at("keyring").read_key(), lambda: at("keyring").write_key(TWO)):
        with pytest.raises(NotConfiguredError, match=problem) as caught:
            attempt()
        assert caught.value.hint
        assert "secret text" not in caught.value.message


def test_a_keyring_that_keeps_nothing_is_found_out(at, ring: FakeKeyring) -> None:
    ring.forgets = True
    with pytest.raises(NotConfiguredError, match="does not store"):
        at("keyring").write_key(ONE)


def test_the_failing_back_end_of_a_headless_machine_is_an_error(at) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(keyring.backends.fail.Keyring())
    try:
        with pytest.raises(NotConfiguredError, match="this system has none"):
            at("keyring").write_key(ONE)
    finally:
        keyring.set_keyring(before)


def test_the_keyring_without_its_package_says_what_to_install(at, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(NotConfiguredError, match="not installed") as caught:
        at("keyring").read_key()
    assert "pip install keyring, or: crystal config set relay.key_place file" in (caught.value.hint or "")


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
    assert (places.read_key().key, places.read_key().source) == (TWO, "command for relay")
    assert places.read_token() == TOKEN
    # The setting takes key and token out of the reach of a command that is there for something else.
    at("file", command, CRYSTAL_KEY_COMMAND=line).write_key(ONE)
    assert at("file", command, CRYSTAL_KEY_COMMAND=line).read_key().key == ONE


@posix
@pytest.mark.parametrize("line", ["false", "/no/such/program", "echo sk-an-api-key-that-is-for-somebody-else", "true"])
def test_a_real_command_that_fails_is_an_error(line: str, at) -> None:
    at().write_key(ONE)
    env = {"PATH": os.environ["PATH"]}
    places = at("command", lambda name: run_key_command(KeyCommand(line), name, env))
    with pytest.raises(NotConfiguredError) as caught:
        places.read_key()
    assert "somebody" not in caught.value.message
    assert caught.value.hint


@each_row("text", ["", " ", "two words", "crt_\n", "ünsafe", "x" * 1025, "a\0b"])
def test_what_can_be_no_token_is_refused(text: str, at) -> None:
    with pytest.raises(UsageError):
        RelayToken(text)
    if text.strip() and "\0" not in text and text != "crt_\n":
        with pytest.raises(CrystalError):
            at(CRYSTAL_RELAY_TOKEN=text).read_token()


def test_a_token_and_its_places_are_not_shown(at) -> None:
    places = at(CRYSTAL_RELAY_KEY=ONE.secret.hex(), CRYSTAL_RELAY_TOKEN=TOKEN.reveal())
    shown = f"{places!r} {TOKEN!r} {TOKEN} {places.read_token()!r} {places.read_key()!r}"
    assert "aaaaaa" not in shown
    assert ONE.secret.hex()[:8] not in shown
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(TOKEN)
    assert TOKEN != OTHER
    assert TOKEN.reveal() != TOKEN
