""""""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.config.edit import set_value
from crystal.config.kinds import shown
from crystal.config.load import load_config, unknown_variables
from crystal.config.table import SETTINGS, setting_for
from crystal.errors import UnavailableError, UsageError
from tests.support.settings_cases import FROM_FILE, GOOD
from tests.support.table import each_row

# Values that each kind refuses, as text and as TOML.
BAD_TEXT = {
    "choice": ["sometimes", "open ai"],
    "whole number": ["ten", "1.5", "-1", "0", "1_0", "٣", "99999999999999999999", "0x10", "+"],
    "number": ["much", "nan", "inf", "-0.1", "1_0", "1e999", "."],
    "boolean": ["maybe", "2", "y", "t"],
    "address": ["ftp://x", "http://", "https://?", "http://a b", "http://x:port", "file:///etc/passwd", "http://x\n/y"],
    "agent id": ["../x", "a b", "a/b", "é", "A" * 65],
    "list of folder patterns": ["relative/x", "/a:b"],
    "text": ["a\nb", "a\x00b", "\x1b[31m"],
}
BAD_TOML = {
    "choice": ["1", "true", "[]", '""'],
    "whole number": ['"10"', "1.0", "true", "[1]", "100000000000000000000"],
    "number": ['"1"', "nan", "inf", "true", "-1"],
    "boolean": ['"true"', "1", "0", '"yes"'],
    "address": ['"localhost:11434"', '""', "1", "[]"],
    "agent id": ['""', "1", '"a/b"'],
    "list of patterns": ['"abc"', "[1]", '[""]', '["a", 1]', "[[]]"],
    "list of folder patterns": ['"/a"', '["a"]', '["./a"]', '[" "]'],
    "text": ['""', '"  "', "1", '["a"]', '"a\\nb"', "1979-05-27"],
}


def toml_of(key: str, value: str) -> str:
    table, _, name = key.rpartition(".")
    return (f"[{table}]\n" if table else "") + f"{name} = {value}\n"


# ------------------------------------------------------------------------------------------------- the table


def test_every_key_has_a_field_a_meaning_and_a_good_value() -> None:
    assert set(GOOD) == set(SETTINGS)
    assert all(setting.meaning.endswith(".") for setting in SETTINGS.values())


def test_no_variable_means_two_keys_at_once() -> None:
    seen: dict[tuple[str, object], str] = {}
    for key, setting in SETTINGS.items():
        for alias in setting.variables:
            assert seen.setdefault((alias.variable, alias.when), key) == key


def test_conditions_look_at_keys_that_stand_above() -> None:
    order = list(SETTINGS)
    for key, setting in SETTINGS.items():
        for alias in setting.aliases:
            assert alias.when is None or order.index(alias.when[0]) < order.index(key)


def test_importing_the_settings_brings_nothing_heavy() -> None:
    code = "import sys, crystal.config; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    heavy = {"platformdirs", "keyring", "typer", "rich", "httpx", "numpy", "apsw", "subprocess", "asyncio", "socket"}
    assert heavy.isdisjoint(loaded)


# ------------------------------------------------------------------------------------------------- the layers


def test_a_fresh_machine_has_the_defaults(home: Path) -> None:
    config = load_config({}, home)
    assert (config.agent_id, config.embedding_provider, config.summary_mode) == ("cc-mini", "embedded", "auto")
    assert (config.search_limit, config.redact_enabled, config.summary_consent) == (10, True, False)
    assert config.device
    assert {config.origin(key) for key in SETTINGS} == {"default"}
    assert list(home.iterdir()) == []


@each_row("key", SETTINGS)
def test_each_key_is_taken_from_its_variable(key: str, home: Path) -> None:
    text, _, expected = GOOD[key]
    for alias in SETTINGS[key].variables:
        env = {alias.variable: f" {text} "} | (
            {} if alias.when is None else {SETTINGS[alias.when[0]].variable: alias.when[1]}
        )
        config = load_config(env, home)
        assert config.value(key) == expected
        assert config.origin(key) == f"environment {alias.variable}"


@each_row("key", FROM_FILE)
def test_each_key_is_taken_from_the_file(key: str, home: Path, file: Path) -> None:
    _, toml, expected = GOOD[key]
    file.write_text(toml_of(key, toml))
    config = load_config({}, home)
    assert config.value(key) == expected == getattr(config, SETTINGS[key].attribute)
    assert config.origin(key) == f"file {file}"


@each_row("key", SETTINGS)
def test_each_key_is_taken_from_a_flag_as_text_or_as_a_value(key: str, home: Path) -> None:
    text, _, expected = GOOD[key]
    for value in (text, expected):
        config = load_config({}, home, overrides={key: value})
        assert (config.value(key), config.origin(key)) == (expected, "flag")


def test_flag_wins_over_environment_over_file_over_default(home: Path, file: Path) -> None:
    file.write_text("[search]\nlimit = 2\n")
    env = {"CRYSTAL_SEARCH_LIMIT": "3"}
    assert load_config(env, home, overrides={"search.limit": 4}).search_limit == 4
    assert load_config(env, home, overrides={"search.limit": None}).search_limit == 3
    assert load_config({"CRYSTAL_SEARCH_LIMIT": ""}, home).search_limit == 2
    assert load_config({"CRYSTAL_SEARCH_LIMIT": " "}, home).search_limit == 2


def test_a_data_folder_given_as_a_flag_moves_the_store(home: Path) -> None:
    config = load_config({"CRYSTAL_DATA_DIR": "/env"}, home, overrides={"data_dir": Path("/given")})
    assert config.places.db == Path("/given/crystal.db")
    assert load_config({"CRYSTAL_DATA_DIR": "/env"}, home, overrides={"data_dir": None}).places.data_dir == Path("/env")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"CRYSTAL_OLLAMA_MODEL": "mxbai"}, {"embedding.model": None}),
        (
            {"CRYSTAL_EMBEDDING_PROVIDER": "OLLAMA", "CRYSTAL_OLLAMA_MODEL": "mxbai", "CRYSTAL_OLLAMA_HOST": "box:1"},
            {"embedding.provider": "ollama", "embedding.model": "mxbai", "embedding.base_url": "http://box:1"},
        ),
        (
            {"CRYSTAL_EMBEDDING_PROVIDER": "ollama", "CRYSTAL_OLLAMA_MODEL": "a", "CRYSTAL_EMBEDDING_MODEL": "b"},
            {"embedding.model": "b"},
        ),
        (
            {"CRYSTAL_EMBEDDING_PROVIDER": "openai", "CRYSTAL_OPENAI_MODEL": "text-embedding-3-large"},
            {"embedding.model": "text-embedding-3-large", "embedding.base_url": None},
        ),
        (
            {"CRYSTAL_EMBEDDING_PROVIDER": "google", "CRYSTAL_GOOGLE_MODEL": "g", "CRYSTAL_OLLAMA_HOST": "box"},
            {"embedding.model": "g", "embedding.base_url": None},
        ),
        (
            {"CRYSTAL_SUMMARY_PROVIDER": "ollama", "CRYSTAL_OLLAMA_HOST": "http://box:1"},
            {"summary.base_url": "http://box:1", "embedding.base_url": None},
        ),
        (
            {"CRYSTAL_EMBEDDING_PROVIDER": "openai", "OPENAI_BASE_URL": "https://proxy.test/v1"},
            {"embedding.base_url": "https://proxy.test/v1", "summary.base_url": "https://proxy.test/v1"},
        ),
    ],
)
def test_the_original_systems_variables_keep_their_meaning(env, expected, home):
    config = load_config(env, home)
    assert {key: config.value(key) for key in expected} == expected


def test_a_provider_from_the_file_switches_its_variables_on(home: Path, file: Path) -> None:
    file.write_text('[embedding]\nprovider = "ollama"\n')
    assert load_config({"CRYSTAL_OLLAMA_MODEL": "m"}, home).embedding_model == "m"


def test_a_tilde_in_a_private_folder_is_the_home(home: Path, file: Path) -> None:
    file.write_text('[private]\nprojects = ["~/secret/*", "~", "**/x~"]\n')
    assert load_config({}, home).private_projects == (f"{home}/secret/*", str(home), "**/x~")


def test_a_config_cannot_be_changed(home: Path) -> None:
    with pytest.raises(AttributeError):
        load_config({}, home).search_limit = 3


# ------------------------------------------------------------------------------------------------- bad input


def bad(table: dict[str, list[str]], keys: list[str]) -> list[tuple[str, str]]:
    return [(key, value) for key in keys for value in table.get(SETTINGS[key].kind.name, [])]


@each_row(("key", "text"), bad(BAD_TEXT, list(SETTINGS)))
def test_a_bad_variable_is_named_with_its_value_and_what_is_accepted(key: str, text: str, home: Path) -> None:
    if SETTINGS[key].kind.name == "number" and key == "hook.flush_seconds" and text == "-0.1":
        text = "61"
    variable = SETTINGS[key].variables[-1].variable if SETTINGS[key].only_environment else SETTINGS[key].variable
    with pytest.raises(UsageError) as caught:
        load_config({variable: text}, home)
    message = caught.value.message
    assert variable in message
    assert key in message
    assert shown(text) in message
    assert f"accepted: {SETTINGS[key].kind.accepts}" in message
    assert "\n" not in message
    assert variable in (caught.value.hint or "")


@each_row(("key", "toml"), bad(BAD_TOML, FROM_FILE))
def test_a_bad_value_in_the_file_is_named_with_file_key_and_what_is_accepted(key, toml, home, file):
    file.write_text(toml_of(key, toml))
    for env in ({}, {SETTINGS[key].variable: GOOD[key][0]}):
        with pytest.raises(UsageError) as caught:
            load_config(env, home)
        assert str(file) in caught.value.message
        assert key in caught.value.message
        assert f"accepted: {SETTINGS[key].kind.accepts}" in caught.value.message


@each_row(
    ("text", "named", "hint"),
    [
        ("[embedding]\nprovidr = 1", "'embedding.providr'", "did you mean embedding.provider?"),
        ('[embeding]\nprovider = "none"', "'embeding.provider'", "did you mean embedding.provider?"),
        ('agent = "x"', "'agent'", "did you mean agent_id?"),
        ('agent-id = "x"', "'agent-id'", "did you mean agent_id?"),
        ("limit = 3", "'limit'", "did you mean search.limit?"),
        ("[search]\nLIMIT = 3", "'search.LIMIT'", "did you mean search.limit?"),
        ('[openai]\napi_key = "sk-secret-secret"', "'openai.api_key'", "secrets do not belong in this file"),
        ('OPENAI_API_KEY = "sk-secret-secret"', "'OPENAI_API_KEY'", "secrets do not belong in this file"),
        ('data_dir = "/x"', "'data_dir'", "CRYSTAL_DATA_DIR"),
        ('[paths]\nldm_home = "/x"', "'paths.ldm_home'", "LDM_HOME"),
        ("zzz = 1", "'zzz'", "crystal config"),
        ("[a.b]\nc = 1", "'a.b'", "crystal config"),
        ('embedding = "openai"', "embedding is a table", "[embedding]"),
        ("[[embedding]]", "embedding is a table", "[embedding]"),
        ("[hook]\nwait = true", "hook.wait cannot be set in a file", "CRYSTAL_HOOK_WAIT"),
        ("[private]\nnow = true", "private.now cannot be set in a file", "CRYSTAL_PRIVATE"),
        ("[agent_id]\nx = 1", "'agent_id.x'", "agent_id"),
    ],
)
def test_a_key_that_is_none_is_named_with_what_may_be_meant(text, named, hint, home, file):
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_config({}, home)
    assert str(file) in caught.value.message
    assert named in caught.value.message
    assert hint in (caught.value.hint or "")
    assert "sk-secret" not in f"{caught.value.message}{caught.value.hint}"


@each_row(
    ("raw", "line"),
    [
        (b"a =", "line 1"),
        (b"# fine\n[search\nlimit = 1", "line 2"),
        (b"[search]\nlimit = 1\nlimit = 2\n", "line 3"),
        (b'agent_id = "a"\n\n\ndevice = x y\n', "line 4"),
        (b'# fine\nagent_id = "\xff"\n', "line 2"),
        (b"x = " + b"[" * 50_000, "config.toml"),
        (b"x = " + b"9" * 10_000, "config.toml"),
    ],
)
def test_a_file_that_is_no_toml_is_named_with_its_line(raw: bytes, line: str, home: Path, file: Path) -> None:
    file.write_bytes(raw)
    with pytest.raises(UsageError) as caught:
        load_config({}, home)
    assert str(file) in caught.value.message
    assert line in caught.value.message
    with pytest.raises(UsageError):
        set_value(file, "search.limit", 3)
    assert file.read_bytes() == raw


@each_row("raw", [b"", b"\n\n", b"# only words", b"\xef\xbb\xbf", b"[search]\r\n", b"[unknown]\n"])
def test_a_file_that_says_nothing_changes_nothing(raw: bytes, home: Path, file: Path) -> None:
    file.write_bytes(raw)
    assert load_config({}, home).sources == load_config({"CRYSTAL_CONFIG": "/absent"}, home).sources


def test_windows_files_with_mark_and_line_ends_are_read(home: Path, file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbfagent_id = "a"\r\n[search]\r\nlimit = 7\r\n')
    config = load_config({}, home)
    assert (config.agent_id, config.search_limit) == ("a", 7)


def test_a_folder_in_the_place_of_the_file_is_named(home: Path, file: Path) -> None:
    file.mkdir()
    with pytest.raises(UsageError, match=str(file)):
        load_config({}, home)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read every file")
def test_a_file_that_may_not_be_read_is_named(home: Path, file: Path) -> None:
    file.touch(mode=0o000)
    with pytest.raises(UnavailableError, match=str(file)):
        load_config({}, home)


def test_an_unknown_flag_is_refused(home: Path) -> None:
    with pytest.raises(UsageError, match=r"search\.limt"):
        load_config({}, home, overrides={"search.limt": 3})


def test_asking_for_an_unknown_key_is_refused(home: Path) -> None:
    config = load_config({}, home)
    for ask in (config.value, config.origin, setting_for):
        with pytest.raises(UsageError, match="no setting 'nope'"):
            ask("nope")


def test_passwords_in_addresses_are_never_shown(home: Path) -> None:
    assert shown("http://me:pass@x/y") == "http://***@x/y"
    assert shown("http://me:p@ss@x/y") == "http://***@x/y"
    assert "sk-abc" not in shown("getkey sk-abcdefghijklmnopqrst")
    with pytest.raises(UsageError) as caught:
        load_config({"CRYSTAL_SUMMARY_BASE_URL": "ftp://me:hunter2@x"}, home)
    assert "hunter2" not in caught.value.message


def test_long_values_are_cut_in_messages(home: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_config({"CRYSTAL_SEARCH_LIMIT": "9" * 5000}, home)
    assert len(caught.value.message) < 300


def test_misspelt_variables_are_noticed() -> None:
    env = {"CRYSTAL_EMBEDING_PROVIDER": "x", "CRYSTAL_SEARCH_LIMIT": "3", "CRYSTAL_RELAY_URL": "x", "PATH": "x"}
    assert list(unknown_variables(env)) == [("CRYSTAL_EMBEDING_PROVIDER", "CRYSTAL_EMBEDDING_PROVIDER")]


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([s.variable for s in SETTINGS.values()]), st.text(max_size=20), max_size=4))
def test_whatever_the_variables_hold_there_is_a_config_or_a_clear_refusal(env: dict[str, str]) -> None:
    problem = None
    try:
        config = load_config(env, Path("/h"))
    except UsageError as caught:
        problem = caught.message
    if problem is None:
        assert {config.origin(key) for key in SETTINGS} <= {"default"} | {f"environment {name}" for name in env}
    else:
        assert "\n" not in problem
        assert any(name in problem for name in env)
