""""""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
import time
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.config.load import load_config
from crystal.credentials.api_keys import (
    KeyCommand,
    Secret,
    find_key,
    find_written_key,
    key_for,
    parse_env,
    read_env_file,
    variables_of,
)
from crystal.errors import NotConfiguredError, UsageError
from tests.support.key_places import KEY, program
from tests.support.table import each_row


def no_keyring(service: str, name: str) -> str | None:
    raise AssertionError("the keyring was asked")


def write_env(data: Path, text: str, mode: int = 0o600) -> Path:
    path = data / ".env"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


# ------------------------------------------------------------------------------------------------- the order


def test_the_places_are_asked_in_their_order(data: Path, home: Path) -> None:
    write_env(data, "OPENAI_API_KEY=from-dotenv\n")
    command = KeyCommand(program(home, "print('from-command')"))
    env = {"OPENAI_API_KEY": "from-environment"}
    calls: list[tuple[str, str]] = []

    def keyring(service: str, name: str) -> str:
        calls.append((service, name))
        return "from-keyring"

    def found(**more: object) -> tuple[str, str]:
        secret = find_key("openai", data_dir=data, command=command, **more)  # type: ignore[arg-type]
        assert secret is not None
        return secret.reveal(), secret.source

    path = data / ".env"
    assert found(env=env, keyring=no_keyring) == ("from-environment", "environment OPENAI_API_KEY")
    assert found(env={}, keyring=no_keyring) == ("from-dotenv", f"{path}: OPENAI_API_KEY")
    path.unlink()
    assert found(env={}, keyring=keyring) == ("from-keyring", "keyring crystal/openai")
    assert calls == [("crystal", "openai")]
    assert found(env={}, keyring=None) == ("from-command", f"command {sys.executable}")
    assert find_key("openai", env={}, data_dir=data, keyring=None) is None


@each_row("blank", ["", " ", "\n"])
def test_a_blank_place_is_passed_over(blank: str, data: Path) -> None:
    write_env(data, f"OPENAI_API_KEY='{blank}'\nVOYAGE_API_KEY=\n")
    env = {"OPENAI_API_KEY": blank}
    for provider in ("openai", "voyage"):
        assert find_key(provider, env=env, data_dir=data, keyring=lambda *_: blank) is None
    settings = {"CRYSTAL_KEY_COMMAND": blank, "CRYSTAL_DATA_DIR": str(data)}
    assert load_config(settings, data).credentials_key_command is None


@each_row(
    ("provider", "names"),
    [
        ("openai", ("CRYSTAL_OPENAI_API_KEY", "OPENAI_API_KEY")),
        ("google", ("CRYSTAL_GOOGLE_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")),
        ("voyage", ("CRYSTAL_VOYAGE_API_KEY", "VOYAGE_API_KEY")),
        ("my-own", ("CRYSTAL_MY_OWN_API_KEY", "MY_OWN_API_KEY")),
    ],
)
def test_crystals_own_variable_wins_over_the_shared_ones(provider: str, names: tuple[str, ...], data: Path) -> None:
    assert variables_of(provider) == names
    env = {name: f"key-of-{name}" for name in names}
    for name in names:
        secret = find_written_key(provider, env=env, data_dir=data)
        assert secret is not None
        assert (secret.reveal(), secret.source) == (f"key-of-{name}", f"environment {name}")
        write_env(data, f"{name}=dot\n")
        written = find_written_key(provider, env={}, data_dir=data)
        assert written is not None
        assert written.source == f"{data / '.env'}: {name}"
        del env[name]


@each_row("provider", ["", "a b", "../x", "OPENAI", "a" * 40, "x;y", "1x"])
def test_a_name_that_is_no_provider_is_refused(provider: str, data: Path) -> None:
    with pytest.raises(UsageError, match="no provider"):
        find_key(provider, env={}, data_dir=data)


def test_the_settings_name_the_places(data: Path, home: Path) -> None:
    file = home / ".config/crystal/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f"[credentials]\nkeyring = false\nkey_command = {json.dumps(program(home, 'print(42)'))}\n")
    secret = key_for(load_config({}, home), "openai", {})
    assert secret is not None
    assert secret.reveal() == "42"
    file.write_text('[credentials]\nkey_command = "/no/such/program"\n')
    with pytest.raises(NotConfiguredError, match=r"credentials\.key_command \(/no/such/program\): no such file"):
        key_for(load_config({}, home), "openai", {})
    env = {"CRYSTAL_KEY_COMMAND": "/none/such"}
    with pytest.raises(NotConfiguredError, match=r"CRYSTAL_KEY_COMMAND \(/none/such\)"):
        key_for(load_config(env, home), "openai", env)


# ------------------------------------------------------------------------------------------------- never shown


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret(KEY, "environment OPENAI_API_KEY")
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>60}", f"{[secret]} { ({'k': secret}) }"]
    assert all(KEY not in words and KEY[-8:] not in words for words in shown)
    assert "environment OPENAI_API_KEY" in repr(secret)
    assert secret.reveal() == KEY
    for leak in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError):
            leak(secret)
    with pytest.raises(TypeError):
        hash(secret)


def test_a_traceback_with_local_values_does_not_show_a_secret() -> None:
    def fail(secret: Secret) -> None:
        raise ValueError(f"failed with {secret}")

    with pytest.raises(ValueError, match="failed") as caught:
        fail(Secret(KEY, "x"))
    text = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "Secret(***" in text


def test_secrets_are_equal_by_value() -> None:
    assert Secret(KEY, "a") == Secret(KEY, "b")
    assert Secret(KEY, "a") != Secret("other", "a")
    assert Secret(KEY, "a") != KEY


def test_the_end_of_a_key_is_told_only_of_long_keys() -> None:
    assert Secret(KEY, "x").last4 == "WXYZ"
    assert Secret("short-key", "x").last4 is None


@each_row("key", ["two words", "a\nb", "clé", "a\x00b", "\ufeffabc", "“abc”", "x" * 5000])
def test_what_cannot_be_a_key_is_refused_unshown(key: str, data: Path) -> None:
    with pytest.raises(NotConfiguredError) as caught:
        find_key("openai", env={"OPENAI_API_KEY": key}, data_dir=data)
    assert "cannot be a key" in caught.value.message
    assert key not in caught.value.message


def test_a_key_loses_the_blanks_around_it(data: Path) -> None:
    secret = find_key("openai", env={"OPENAI_API_KEY": f" {KEY}\n"}, data_dir=data)
    assert secret == Secret(KEY, "")


# ------------------------------------------------------------------------------------------------- .env


@each_row(
    ("line", "value"),
    [
        ("K=v", "v"),
        ("export K=v", "v"),
        ("  export\tK = v  ", "v"),
        ("K='v'", "v"),
        ('K="v"', "v"),
        ("K=v # c", "v"),
        ("K=v#c", "v#c"),
        ("K=#c", "#c"),
        ("K= # c", ""),
        ("K=", ""),
        ("K='a # b' # c", "a # b"),
        ('K="a # b"# c', "a # b"),
        ('K="a\\"b\\n\\\\c"', 'a"b\n\\c'),
        ("K='a\\nb'", "a\\nb"),
        ('K="two\nlines"', "two\nlines"),
        ("K='K=x\nK=y'", "K=x\nK=y"),
        ("K='", "'"),
        ('K="open', '"open'),
        ("K=it's", "it's"),
        ("K=a=b==", "a=b=="),
        ("K=${HOME}", "${HOME}"),
        ("K=$(rm -rf /)", "$(rm -rf /)"),
        ("K=first\nK=last", "last"),
        ("K=v\r\nL=w\r\n", "v"),
        ("# K=comment\nK=v", "v"),
        ("words that say nothing\nK=v", "v"),
        ("K='a' b", "'a' b"),
        ("\n\n K=v", "v"),
    ],
)
def test_a_line_of_env_is_read_as_a_shell_would(line: str, value: str) -> None:
    assert parse_env(line)["K"] == value


@each_row("line", ["# K=v", "#K=v", "K", "K v", "1K=v", "K-A=v", "=v", "exportK=v", ""])
def test_what_assigns_nothing_to_k_gives_nothing(line: str) -> None:
    assert "K" not in parse_env(line)


@given(st.text(st.characters(blacklist_characters="'\r", blacklist_categories=["Cs"])))
def test_a_literal_value_comes_back_as_it_is(value: str) -> None:
    assert parse_env(f"A=1\nK='{value}'\nB=2") == {"A": "1", "K": value, "B": "2"}


@given(st.text())
def test_any_text_is_read_without_a_fault(text: str) -> None:
    parse_env(text)


def test_a_hostile_file_is_read_in_no_time() -> None:
    begin = time.process_time()
    for text in ("K=" + " " * 200_000 + "x", 'K="' + "\\" * 200_000, "K='" * 60_000, "export " * 50_000, " " * 500_000):
        parse_env(text)
    assert time.process_time() - begin < 5


def test_a_mark_and_bytes_that_are_no_text_do_no_harm(data: Path) -> None:
    (data / ".env").write_bytes(b"\xef\xbb\xbfOPENAI_API_KEY=k\n\xff\xfe=\xff\nVOYAGE_API_KEY=v")
    assert read_env_file(data / ".env") == {"OPENAI_API_KEY": "k", "VOYAGE_API_KEY": "v"}


def test_no_file_or_a_folder_of_that_name_is_no_key(data: Path) -> None:
    assert read_env_file(data / ".env") == {}
    assert read_env_file(data / "absent/.env") == {}
    (data / ".env").mkdir()
    assert read_env_file(data / ".env") == {}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read every file")
def test_a_file_that_may_not_be_read_is_an_error(data: Path) -> None:
    path = write_env(data, "OPENAI_API_KEY=k", 0o000)
    with pytest.raises(NotConfiguredError, match=rf"{path}: permission denied"):
        find_key("openai", env={}, data_dir=data)


def test_a_file_that_others_may_read_is_noted(data: Path) -> None:
    path = write_env(data, f"OPENAI_API_KEY={KEY}\n", 0o644)
    secret = find_key("openai", env={}, data_dir=data)
    assert secret is not None
    assert secret.note == f"{path} can be read by other users; run: chmod 600 {path}"
    path.chmod(0o600)
    secret = find_key("openai", env={}, data_dir=data)
    assert secret is not None
    assert secret.note is None
