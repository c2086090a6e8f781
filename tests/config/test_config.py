from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.config.edit import set_value, unset_value, with_value, without_value
from crystal.config.file import parse, parse_fragment
from crystal.config.kinds import shown
from crystal.config.load import load_config
from crystal.config.table import SETTINGS, Config, setting_for, unknown_variables
from crystal.errors import Unavailable, UsageProblem

FILE = Path("config.toml")

# A good value for every key, none of them the default: (as text, as TOML, as Config holds it).
GOOD: dict[str, tuple[str, str, Any]] = {
    "agent_id": ("cc-laptop", '"cc-laptop"', "cc-laptop"),
    "device": ("my laptop", '"my laptop"', "my laptop"),
    "role": ("device", '"device"', "device"),
    "relay.url": ("https://relay.test/", '"https://relay.test/"', "https://relay.test"),
    "relay.ca_file": ("/etc/ca.pem", '"/etc/ca.pem"', "/etc/ca.pem"),
    "relay.insecure_http": ("1", "true", True),
    "relay.key_place": ("keyring", '"keyring"', "keyring"),
    "relay.local_memory": ("no", "false", False),
    "relay.keep_days": ("30", "30", 30),
    "relay.quarantine_mb": ("8", "8", 8),
    "relay.quarantine_blobs": ("80", "80", 80),
    "relay.quarantine_device_mb": ("4", "4", 4),
    "relay.quarantine_device_blobs": ("40", "40", 40),
    "embedding.provider": ("voyage", '"voyage"', "voyage"),
    "embedding.model": ("voyage-3.5-lite", '"voyage-3.5-lite"', "voyage-3.5-lite"),
    "embedding.dimension": ("512", "512", 512),
    "embedding.threads": ("4", "4", 4),
    "models.hub_url": ("https://x.test/hub/", '"https://x.test/hub/"', "https://x.test/hub"),
    "embedding.base_url": ("https://x.test/v1/", '"https://x.test/v1/"', "https://x.test/v1"),
    "summary.mode": ("llm", '"llm"', "llm"),
    "summary.provider": ("google", '"google"', "google"),
    "summary.model": ("gemini-flash", '"gemini-flash"', "gemini-flash"),
    "summary.base_url": ("http://[::1]:8080", '"http://[::1]:8080"', "http://[::1]:8080"),
    "summary.consent": ("yes", "true", True),
    "summary.daily_cap_usd": ("1.25", "1.25", 1.25),
    "summary.idle_minutes": ("5", "5", 5),
    "deep.provider": ("ollama", '"ollama"', "ollama"),
    "deep.model": ("qwen3", '"qwen3"', "qwen3"),
    "deep.base_url": ("http://localhost:8080/v1/", '"http://localhost:8080/v1/"', "http://localhost:8080/v1"),
    "deep.consent": ("yes", "true", True),
    "deep.daily_cap_usd": ("1.25", "1.25", 1.25),
    "private.now": ("1", "true", True),
    "private.projects": ("/a/*:/b", '["/a/*", "/b"]', ("/a/*", "/b")),
    "capture.transcript_folders": ("/a/*:/b", '["/a/*", "/b"]', ("/a/*", "/b")),
    "private.sessions": ("abc*:d", '["abc*", "d"]', ("abc*", "d")),
    "redact.enabled": ("off", "false", False),
    "retention.days": ("730", "730", 730),
    "search.limit": ("20", "20", 20),
    "search.recency": ("strong", '"strong"', "strong"),
    "search.fusion": ("rrf", '"rrf"', "rrf"),
    "mcp.aliases": ("on", "true", True),
    "mcp.max_characters": ("30000", "30000", 30_000),
    "context.enabled": ("yes", "true", True),
    "context.tokens": ("300", "300", 300),
    "hook.wait": ("true", "true", True),
    "hook.flush_seconds": ("2.5", "2.5", 2.5),
    "credentials.keyring": ("0", "false", False),
    "credentials.key_command": ("pass show {provider}", '"pass show {provider}"', "pass show {provider}"),
}

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
FROM_FILE = [key for key, setting in SETTINGS.items() if not setting.only_environment]


@pytest.fixture
def file(home: Path) -> Path:
    path = load_config({}, home).places.config_file
    path.parent.mkdir(parents=True)
    return path


def toml_of(key: str, value: str) -> str:
    table, _, name = key.rpartition(".")
    return (f"[{table}]\n" if table else "") + f"{name} = {value}\n"


# ------------------------------------------------------------------------------------------------- the table


def test_every_key_has_a_field_a_meaning_and_a_good_value() -> None:
    fields = {entry.name for entry in dataclasses.fields(Config)} - {"places", "sources"}
    assert fields == {setting.attribute for setting in SETTINGS.values()}
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


@pytest.mark.parametrize("key", SETTINGS)
def test_each_key_is_taken_from_its_variable(key: str, home: Path) -> None:
    text, _, expected = GOOD[key]
    for alias in SETTINGS[key].variables:
        env = {alias.variable: f" {text} "} | (
            {} if alias.when is None else {SETTINGS[alias.when[0]].variable: alias.when[1]}
        )
        config = load_config(env, home)
        assert config.value(key) == expected
        assert config.origin(key) == f"environment {alias.variable}"


@pytest.mark.parametrize("key", FROM_FILE)
def test_each_key_is_taken_from_the_file(key: str, home: Path, file: Path) -> None:
    _, toml, expected = GOOD[key]
    file.write_text(toml_of(key, toml))
    config = load_config({}, home)
    assert config.value(key) == expected == getattr(config, SETTINGS[key].attribute)
    assert config.origin(key) == f"file {file}"


@pytest.mark.parametrize("key", SETTINGS)
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


def test_the_agent_comes_from_flag_variable_file_or_is_cc_mini(home: Path, file: Path) -> None:
    assert load_config({}, home).agent_id == "cc-mini"
    file.write_text('agent_id = "cc-file"\n')
    assert load_config({}, home).agent_id == "cc-file"
    assert load_config({"CRYSTAL_AGENT_ID": "cc-env"}, home).agent_id == "cc-env"
    assert load_config({"CRYSTAL_AGENT_ID": "cc-env"}, home, overrides={"agent_id": "cc-flag"}).agent_id == "cc-flag"


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
def test_the_original_systems_variables_keep_their_meaning(
    env: dict[str, str], expected: dict[str, object], home: Path
) -> None:
    config = load_config(env, home)
    assert {key: config.value(key) for key in expected} == expected


def test_a_provider_from_the_file_switches_its_variables_on(home: Path, file: Path) -> None:
    file.write_text('[embedding]\nprovider = "ollama"\n')
    assert load_config({"CRYSTAL_OLLAMA_MODEL": "m"}, home).embedding_model == "m"


def test_a_tilde_in_a_private_folder_is_the_home(home: Path, file: Path) -> None:
    file.write_text('[private]\nprojects = ["~/secret/*", "~", "**/x~"]\n')
    assert load_config({}, home).private_projects == (f"{home}/secret/*", str(home), "**/x~")


def test_a_config_cannot_be_changed(home: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_config({}, home).search_limit = 3  # type: ignore[misc]


# ------------------------------------------------------------------------------------------------- bad input


def bad(table: dict[str, list[str]], keys: list[str]) -> list[tuple[str, str]]:
    return [(key, value) for key in keys for value in table.get(SETTINGS[key].kind.name, [])]


@pytest.mark.parametrize(("key", "text"), bad(BAD_TEXT, list(SETTINGS)))
def test_a_bad_variable_is_named_with_its_value_and_what_is_accepted(key: str, text: str, home: Path) -> None:
    if SETTINGS[key].kind.name == "number" and key == "hook.flush_seconds" and text == "-0.1":
        text = "61"
    variable = SETTINGS[key].variables[-1].variable if SETTINGS[key].only_environment else SETTINGS[key].variable
    with pytest.raises(UsageProblem) as caught:
        load_config({variable: text}, home)
    message = caught.value.message
    assert variable in message
    assert key in message
    assert shown(text) in message
    assert f"accepted: {SETTINGS[key].kind.accepts}" in message
    assert "\n" not in message
    assert variable in (caught.value.hint or "")


@pytest.mark.parametrize(("key", "toml"), bad(BAD_TOML, FROM_FILE))
def test_a_bad_value_in_the_file_is_named_with_file_key_and_what_is_accepted(
    key: str, toml: str, home: Path, file: Path
) -> None:
    file.write_text(toml_of(key, toml))
    for env in ({}, {SETTINGS[key].variable: GOOD[key][0]}):
        with pytest.raises(UsageProblem) as caught:
            load_config(env, home)
        assert str(file) in caught.value.message
        assert key in caught.value.message
        assert f"accepted: {SETTINGS[key].kind.accepts}" in caught.value.message


@pytest.mark.parametrize(
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
def test_a_key_that_is_none_is_named_with_what_may_be_meant(
    text: str, named: str, hint: str, home: Path, file: Path
) -> None:
    file.write_text(text)
    with pytest.raises(UsageProblem) as caught:
        load_config({}, home)
    assert str(file) in caught.value.message
    assert named in caught.value.message
    assert hint in (caught.value.hint or "")
    assert "sk-secret" not in f"{caught.value.message}{caught.value.hint}"


@pytest.mark.parametrize(
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
    ids=lambda value: repr(value[:20]),
)
def test_a_file_that_is_no_toml_is_named_with_its_line(raw: bytes, line: str, home: Path, file: Path) -> None:
    file.write_bytes(raw)
    with pytest.raises(UsageProblem) as caught:
        load_config({}, home)
    assert str(file) in caught.value.message
    assert line in caught.value.message
    with pytest.raises(UsageProblem):
        set_value(file, "search.limit", 3)
    assert file.read_bytes() == raw


@pytest.mark.parametrize("raw", [b"", b"\n\n", b"# only words", b"\xef\xbb\xbf", b"[search]\r\n", b"[unknown]\n"])
def test_a_file_that_says_nothing_changes_nothing(raw: bytes, home: Path, file: Path) -> None:
    file.write_bytes(raw)
    assert load_config({}, home).sources == load_config({"CRYSTAL_CONFIG": "/absent"}, home).sources


def test_windows_files_with_mark_and_line_ends_are_read(home: Path, file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbfagent_id = "a"\r\n[search]\r\nlimit = 7\r\n')
    config = load_config({}, home)
    assert (config.agent_id, config.search_limit) == ("a", 7)


def test_a_folder_in_the_place_of_the_file_is_named(home: Path, file: Path) -> None:
    file.mkdir()
    with pytest.raises(UsageProblem, match=str(file)):
        load_config({}, home)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read every file")
def test_a_file_that_may_not_be_read_is_named(home: Path, file: Path) -> None:
    file.touch(mode=0o000)
    with pytest.raises(Unavailable, match=str(file)):
        load_config({}, home)


def test_an_unknown_flag_is_refused(home: Path) -> None:
    with pytest.raises(UsageProblem, match=r"search\.limt"):
        load_config({}, home, overrides={"search.limt": 3})


def test_asking_for_an_unknown_key_is_refused(home: Path) -> None:
    config = load_config({}, home)
    for ask in (config.value, config.origin, setting_for):
        with pytest.raises(UsageProblem, match="no setting 'nope'"):
            ask("nope")


def test_passwords_in_addresses_are_never_shown(home: Path) -> None:
    assert shown("http://me:pass@x/y") == "http://***@x/y"
    assert shown("http://me:p@ss@x/y") == "http://***@x/y"
    assert "sk-abc" not in shown("getkey sk-abcdefghijklmnopqrst")
    with pytest.raises(UsageProblem) as caught:
        load_config({"CRYSTAL_SUMMARY_BASE_URL": "ftp://me:hunter2@x"}, home)
    assert "hunter2" not in caught.value.message


def test_long_values_are_cut_in_messages(home: Path) -> None:
    with pytest.raises(UsageProblem) as caught:
        load_config({"CRYSTAL_SEARCH_LIMIT": "9" * 5000}, home)
    assert len(caught.value.message) < 300


def test_misspelt_variables_are_noticed() -> None:
    env = {"CRYSTAL_EMBEDING_PROVIDER": "x", "CRYSTAL_SEARCH_LIMIT": "3", "CRYSTAL_RELAY_URL": "x", "PATH": "x"}
    assert list(unknown_variables(env)) == [("CRYSTAL_EMBEDING_PROVIDER", "CRYSTAL_EMBEDDING_PROVIDER")]


@given(st.dictionaries(st.sampled_from([s.variable for s in SETTINGS.values()]), st.text(max_size=20), max_size=4))
def test_whatever_the_variables_hold_there_is_a_config_or_a_clear_refusal(env: dict[str, str]) -> None:
    problem = None
    try:
        config = load_config(env, Path("/h"))
    except UsageProblem as caught:
        problem = caught.message
    if problem is None:
        assert {config.origin(key) for key in SETTINGS} <= {"default"} | {f"environment {name}" for name in env}
    else:
        assert "\n" not in problem
        assert any(name in problem for name in env)


# ------------------------------------------------------------------------------------------------- changing the file

LIVELY = """\
# My settings.
# They are mine.

agent_id = 'cc-old'   # the old name

[embedding]           # who
  provider = "openai"# no space
  "model" = 'text-embedding-3-small'

# About searching:
# a comment of the table below
[search]
limit=5

[private]
projects = [
    "/a",  # first
    "/b # no comment",
]   # the end
note = '''
[search]
limit = 99
'''
"""


def set_in(text: str, key: str, value: object) -> str:
    return with_value(text, key, value, FILE)


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("agent_id", "cc-new", "agent_id = 'cc-old'   # the", 'agent_id = "cc-new"   # the'),
        ("embedding.provider", "none", 'provider = "openai"# no', 'provider = "none"# no'),
        ("embedding.model", "m", "\"model\" = 'text-embedding-3-small'", '"model" = "m"'),
        ("search.limit", 6, "limit=5\n\n", "limit=6\n\n"),
        (
            "private.projects",
            ["/c"],
            '[\n    "/a",  # first\n    "/b # no comment",\n]   # the',
            '["/c"]   # the',
        ),
        ("embedding.dimension", 3, "3-small'\n", "3-small'\n  dimension = 3\n"),
        ("device", "d", "# the old name\n", '# the old name\ndevice = "d"\n'),
        ("private.sessions", ["s"], "99\n'''\n", "99\n'''\nsessions = [\"s\"]\n"),
        ("redact.enabled", False, "99\n'''\n", "99\n'''\n\n[redact]\nenabled = false\n"),
    ],
)
def test_changing_one_value_changes_nothing_around_it(key: str, value: object, old: str, new: str) -> None:
    assert LIVELY.count(old) == 1
    assert set_in(LIVELY, key, value) == LIVELY.replace(old, new)


@pytest.mark.parametrize(
    ("before", "key", "value", "after"),
    [
        ("", "agent_id", "a", 'agent_id = "a"\n'),
        ("", "search.limit", 3, "\n[search]\nlimit = 3\n"),
        ("# words\n", "agent_id", "a", '# words\nagent_id = "a"\n'),
        ("[search]", "search.limit", 3, "[search]\nlimit = 3\n"),
        ("[search]\n\n[hook]\n", "search.limit", 3, "[search]\nlimit = 3\n\n[hook]\n"),
        ("[search]\nlimit = 1", "search.limit", 3, "[search]\nlimit = 3"),
        ("[search]\nlimit = 1 # x", "search.limit", 3, "[search]\nlimit = 3 # x"),
        ("[search]\r\nlimit = 1 # x\r\n", "search.limit", 3, "[search]\r\nlimit = 3 # x\r\n"),
        ("[search]\r\n", "search.limit", 3, "[search]\r\nlimit = 3\r\n"),
        ("# top\n[search]\nlimit = 1\n", "agent_id", "a", '# top\nagent_id = "a"\n\n[search]\nlimit = 1\n'),
        ("# top\n\n# s\n[search]\n", "agent_id", "a", '# top\n\n# s\nagent_id = "a"\n\n[search]\n'),
        ("search.limit = 1 # x\n", "search.limit", 3, "search.limit = 3 # x\n"),
        (
            "embedding.model = 'm'\n",
            "embedding.provider",
            "none",
            "embedding.model = 'm'\nembedding.provider = \"none\"\n",
        ),
        ("embedding = { model = 'm' } # x\n", "embedding.model", "n", 'embedding = { model = "n" } # x\n'),
        ("embedding = {}\n", "embedding.model", "n", 'embedding = {model = "n"}\n'),
        ('"search" . "limit" = 1\n', "search.limit", 3, '"search" . "limit" = 3\n'),
        ('["search"]\nlimit = 1\n', "search.limit", 3, '["search"]\nlimit = 3\n'),
        ("device = 'a#b' # c\n", "device", "d#e", 'device = "d#e" # c\n'),
        ("device = 'a'\n", "device", 'say "hi" \\ ü', 'device = "say \\"hi\\" \\\\ ü"\n'),
        ("device = '''a\nb''' # c\n", "device", "d", 'device = "d" # c\n'),
        ("[ search ]  # x\nlimit = 1\n", "search.limit", 3, "[ search ]  # x\nlimit = 3\n"),
        ("unknown = 1\n", "search.limit", 3, "unknown = 1\n\n[search]\nlimit = 3\n"),
    ],
)
def test_each_way_of_writing_toml_is_edited_in_its_own_way(before: str, key: str, value: object, after: str) -> None:
    assert set_in(before, key, value) == after


@pytest.mark.parametrize("text", ["search = 1\n", "[[search]]\n", "search = [1]\n", "[search.limit]\nx = 1\n"])
def test_an_edit_that_would_need_a_rewrite_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match=r"config.toml: search.limit cannot be changed"):
        set_in(text, "search.limit", 3)


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ("[search]\nlimit = 1 # x\n# y\n", "search.limit", "[search]\n# y\n"),
        ("agent_id = 'a'\ndevice = 'b'\n", "agent_id", "device = 'b'\n"),
        (
            "embedding = { model = 'm', provider = 'none' }\n",
            "embedding.model",
            "embedding = {  provider = 'none' }\n",
        ),
        ("[embeding]\nprovider = 'x'\n", "embeding.provider", "[embeding]\n"),
        ("[private]\nprojects = [\n'/a', # x\n]\nsessions = []\n", "private.projects", "[private]\nsessions = []\n"),
        ("[search]\n", "search.limit", "[search]\n"),
        ("search = 'limit'\n", "search.limit", "search = 'limit'\n"),
    ],
)
def test_taking_a_key_out_leaves_the_rest(before: str, key: str, after: str) -> None:
    assert without_value(before, key, FILE) == after


SPACE = st.sampled_from(["", " ", "\t", "  "])
COMMENTS = st.sampled_from(["", "# c = 1", "#", "# [search]", "# ü \u2028 '''"])
VALUES = st.one_of(
    st.integers(-9, 9).map(str),
    st.booleans().map(lambda flag: str(flag).lower()),
    st.text(st.characters(blacklist_categories=["Cc", "Cs"]), max_size=8).map(
        lambda text: json.dumps(text, ensure_ascii=False)
    ),
    st.sampled_from(
        [
            "'a # b'",
            "[1, 2]",
            "['#',\n  '=', # c\n]",
            "'''\na = 1\n[x]\n'''",
            '"""\n# "" x\n"""',
            "{ a = 1, 'b=c' = '#' }",
        ]
    ),
)
NAMES = st.sampled_from(["limit", "provider", "other", '"quoted = #"', "'x'"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines: list[str] = []
    tables = draw(st.lists(st.sampled_from(["search", "embedding", "'odd table'", "deep.er"]), unique=True, max_size=4))
    for table in ["", *tables]:
        lines += [draw(COMMENTS)] * draw(st.integers(0, 2))
        if table:
            lines.append(f"{draw(SPACE)}[{draw(SPACE)}{table}{draw(SPACE)}]{draw(SPACE)}{draw(COMMENTS)}")
        for name in draw(st.lists(NAMES, unique=True, max_size=3)):
            value = draw(VALUES).replace("\n", end)
            lines.append(f"{draw(SPACE)}{name}{draw(SPACE)}={draw(SPACE)}{value} {draw(COMMENTS)}")
            lines += [draw(COMMENTS)] * draw(st.integers(0, 1))
    return end.join(lines) + draw(st.sampled_from(["", end]))


@given(documents(), st.sampled_from([("search.limit", 7), ("embedding.provider", "none"), ("agent_id", "a#b=c")]))
def test_any_file_is_edited_into_itself_with_one_key_changed(text: str, change: tuple[str, Any]) -> None:
    before = parse(text, FILE)
    key, value = change
    after = set_in(text, key, value)
    expected = parse(text, FILE)
    table, _, name = key.rpartition(".")
    (expected.setdefault(table, {}) if table else expected)[name] = value
    assert parse(after, FILE) == expected
    assert set_in(after, key, value) == after
    gone = without_value(after, key, FILE)
    (expected[table] if table else expected).pop(name)
    assert {k: v for k, v in parse(gone, FILE).items() if v != {}} == {k: v for k, v in expected.items() if v != {}}
    was_there = name in (before.get(table, {}) if table else before)
    kept = [line.strip() for line in text.split("\n") if line.strip().startswith("#")]
    left = [line.strip() for line in after.split("\n")]
    assert was_there or all(line in left for line in kept)


@given(st.text(max_size=60))
def test_any_text_is_edited_or_refused_as_no_toml(text: str) -> None:
    if parse_fragment(text) is None:
        with pytest.raises(UsageProblem, match="not valid TOML"):
            set_in(text, "search.limit", 3)
    else:
        assert parse(set_in(text, "search.limit", 3), FILE)["search"] == {"limit": 3}


def test_setting_a_value_makes_a_private_file(home: Path) -> None:
    file = home / "new/config.toml"
    assert set_value(file, "search.limit", "20") == 20
    assert file.read_text().startswith("# ")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert load_config({"CRYSTAL_CONFIG": str(file)}, home).search_limit == 20


@pytest.mark.parametrize("key", FROM_FILE)
def test_every_key_can_be_set_and_taken_out_again(key: str, home: Path, file: Path) -> None:
    text, _, expected = GOOD[key]
    for value in (text, expected):
        set_value(file, key, value)
        assert load_config({}, home).value(key) == expected
    before = file.read_bytes()
    set_value(file, key, text)
    assert file.read_bytes() == before
    assert unset_value(file, key) is True
    assert unset_value(file, key) is False
    assert load_config({}, home).origin(key) == "default"


@pytest.mark.parametrize(
    ("key", "value"),
    [("search.limit", "many"), ("search.limt", "3"), ("hook.wait", "1"), ("private.projects", ["x"]), ("agent_id", "")],
)
def test_a_value_that_would_not_load_is_never_written(key: str, value: object, file: Path) -> None:
    file.write_text("# mine\n")
    with pytest.raises(UsageProblem):
        set_value(file, key, value)
    assert file.read_text() == "# mine\n"


def test_a_tilde_is_written_as_a_tilde(home: Path, file: Path) -> None:
    set_value(file, "private.projects", "~/a")
    assert 'projects = ["~/a"]' in file.read_text()
    assert load_config({}, home).private_projects == (f"{home}/a",)


def test_a_misspelt_key_can_be_taken_out(file: Path) -> None:
    file.write_text("[serch]\nlimit = 3\n")
    assert unset_value(file, "serch.limit") is True
    with pytest.raises(UsageProblem):
        unset_value(file, "serch.limit")


def test_settings_written_at_once_are_all_kept(home: Path) -> None:
    code = "import sys; from pathlib import Path; from crystal.config.edit import set_value; set_value(Path(sys.argv[1]), *sys.argv[2:])"
    pairs = [("search.limit", "7"), ("agent_id", "a"), ("redact.enabled", "off"), ("summary.mode", "llm")]
    file = home / "config.toml"
    workers = [subprocess.Popen([sys.executable, "-c", code, str(file), *pair]) for pair in pairs]
    assert [worker.wait() for worker in workers] == [0] * 4
    config = load_config({"CRYSTAL_CONFIG": str(file)}, home)
    assert (config.search_limit, config.agent_id, config.redact_enabled, config.summary_mode) == (7, "a", False, "llm")
