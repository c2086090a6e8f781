"""Changing one value of the settings file: nothing else in it changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.config import settings_file
from crystal.config.edit import set_value, unset_value, with_value
from crystal.config.load import load_config
from crystal.config.settings_file import parse, parse_fragment
from crystal.errors import UsageError
from tests.support.settings_cases import FROM_FILE, GOOD
from tests.support.table import each_row

FILE = Path("config.toml")


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


@each_row(
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


@each_row(
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
        ("# top\n[search]\nlimit = 1\n", "agent_id", "a", 'agent_id = "a"\n\n# top\n[search]\nlimit = 1\n'),
        ("# top\n\n# s\n[search]\n", "agent_id", "a", '# top\n\nagent_id = "a"\n\n# s\n[search]\n'),
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


@each_row("text", ["search = 1\n", "[[search]]\n", "search = [1]\n", "[search.limit]\nx = 1\n"])
def test_an_edit_that_would_need_a_rewrite_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"config.toml: search.limit cannot be changed"):
        set_in(text, "search.limit", 3)


@each_row(
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
    assert with_value(before, key, None, FILE) == after


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


@pytest.mark.slow
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
    gone = with_value(after, key, None, FILE)
    (expected[table] if table else expected).pop(name)
    assert {k: v for k, v in parse(gone, FILE).items() if v != {}} == {k: v for k, v in expected.items() if v != {}}
    was_there = name in (before.get(table, {}) if table else before)
    kept = [line.strip() for line in text.split("\n") if line.strip().startswith("#")]
    left = [line.strip() for line in after.split("\n")]
    assert was_there or all(line in left for line in kept)


@pytest.mark.slow
@given(st.text(max_size=60))
def test_any_text_is_edited_or_refused_as_no_toml(text: str) -> None:
    if parse_fragment(text) is None:
        with pytest.raises(UsageError, match="not valid TOML"):
            set_in(text, "search.limit", 3)
    else:
        assert parse(set_in(text, "search.limit", 3), FILE)["search"] == {"limit": 3}


def test_setting_a_value_makes_a_private_file(home: Path) -> None:
    file = home / "new/config.toml"
    assert set_value(file, "search.limit", "20") == 20
    assert file.read_text().startswith("# ")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert load_config({"CRYSTAL_CONFIG": str(file)}, home).search_limit == 20


@pytest.mark.slow
@each_row("key", FROM_FILE)
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


@each_row(
    ("key", "value"),
    [("search.limit", "many"), ("search.limt", "3"), ("hook.wait", "1"), ("private.projects", ["x"]), ("agent_id", "")],
)
def test_a_value_that_would_not_load_is_never_written(key: str, value: object, file: Path) -> None:
    file.write_text("# mine\n")
    with pytest.raises(UsageError):
        set_value(file, key, value)
    assert file.read_text() == "# mine\n"


def test_a_tilde_is_written_as_a_tilde(home: Path, file: Path) -> None:
    set_value(file, "private.projects", "~/a")
    assert 'projects = ["~/a"]' in file.read_text()
    assert load_config({}, home).private_projects == (f"{home}/a",)


def test_a_private_folder_stays_private_where_the_home_folder_is_moved(home: Path, file: Path) -> None:
    shown = set_value(file, "private.projects", [f"{home}/secret", f"{home}work/*", "/srv/x"], home)
    assert shown == ["~/secret", f"{home}work/*", "/srv/x"]
    moved = home.rename(home.with_name("moved"))
    config = load_config({"CRYSTAL_CONFIG": str(moved / file.relative_to(home))}, moved)
    assert config.private_projects == (f"{moved}/secret", f"{home}work/*", "/srv/x")


def test_a_misspelt_key_can_be_taken_out(file: Path) -> None:
    file.write_text("[serch]\nlimit = 3\n")
    assert unset_value(file, "serch.limit") is True
    with pytest.raises(UsageError):
        unset_value(file, "serch.limit")


@pytest.mark.slow
def test_settings_written_at_once_are_all_kept(home: Path) -> None:
    code = "import sys; from pathlib import Path; from crystal.config.edit import set_value; set_value(Path(sys.argv[1]), *sys.argv[2:])"
    pairs = [("search.limit", "7"), ("agent_id", "a"), ("redact.enabled", "off"), ("summary.mode", "llm")]
    file = home / "config.toml"
    workers = [subprocess.Popen([sys.executable, "-c", code, str(file), *pair]) for pair in pairs]
    assert [worker.wait() for worker in workers] == [0] * 4
    config = load_config({"CRYSTAL_CONFIG": str(file)}, home)
    assert (config.search_limit, config.agent_id, config.redact_enabled, config.summary_mode) == (7, "a", False, "llm")


# -------------------------------------------------------------------------------------------- reading without a parser

LINES = st.sampled_from([
    "", "# a comment", "[search]", "[private]", "limit = 5", 'a = "b # c"', "b = true", "c = 0", "limit = 007", "d = -1",
    'e = ""', 'a = "x\\n"', "[a]", "[a.b]", 'f = """', "g = 1 # one", "h = 1_0", 'a  = "b"', "[search] # s", "i = 1.5",
])  # fmt: skip


@given(st.lists(LINES | st.text("[]\"=# \\ab01.'\t\r\u00e9\x7f", max_size=12), max_size=6).map("\n".join))
def test_what_is_read_without_a_parser_is_what_a_parser_reads(text: str) -> None:
    plain = settings_file._plain(text)
    assert plain is None or plain == settings_file._by_parser(text)


def test_the_file_that_crystal_writes_needs_no_parser() -> None:
    text = with_value("# Settings.\n", "agent_id", "cc-vm", FILE)
    for key, value in (("search.limit", 7), ("redact.enabled", False), ("embedding.provider", "none")):
        text = set_in(text, key, value)
    assert settings_file._plain(text) == parse(text, FILE) == {
        "agent_id": "cc-vm",
        "search": {"limit": 7},
        "redact": {"enabled": False},
        "embedding": {"provider": "none"},
    }  # fmt: skip
