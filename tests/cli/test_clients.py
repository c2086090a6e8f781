"""Clients' files: what crystal puts in comes out again, whatever else stands there, and nothing else is touched."""

from __future__ import annotations

import json
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crystal.config.file import parse_fragment
from crystal.config.paths import resolve_places
from crystal.errors import CrystalError, Damaged, Unavailable, UsageProblem
from crystal.install.clients import jsonfile, tomlfile
from crystal.install.clients.guidance import snippet
from crystal.install.clients.plan import apply, plan_add, plan_remove, read_facts
from crystal.install.clients.record import read_record
from crystal.install.clients.table import NAMES, Client, Entry, is_ours, known_clients

ENTRY = Entry("/venv/bin/crystal", ("mcp",), {"LDM_HOME": "/home/user/my memory"})
OLDER = Entry("/old venv/bin/crystal", ("mcp",), {"CRYSTAL_CONFIG": "/old.toml"})
FILES = ("claude-code", "claude-desktop", "codex", "gemini", "cursor")


def clients(home: Path, **env: str) -> dict[str, Client]:
    return known_clients(env, home, resolve_places(env, home))


def add(client: Client, ldm: Path, entry: Entry = ENTRY) -> bool:
    plan = plan_add(client, entry, read_record(ldm))
    apply(plan, ldm, {})
    return plan.changed


def remove(client: Client, ldm: Path) -> list[bool]:
    plans = plan_remove(client, read_record(ldm))
    for plan in plans:
        apply(plan, ldm, {})
    return [plan.changed for plan in plans]


@pytest.fixture
def ldm(home: Path) -> Path:
    return home / ".ldm"


# --- JSON of every kind


SPACES = st.text(" \t\n\r", max_size=2)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
SERVERS = st.dictionaries(
    st.text(max_size=4).filter(lambda name: name != "crystal"),
    st.fixed_dictionaries({"command": st.text(max_size=4)}, optional={"args": st.lists(st.text(max_size=3))}),
    max_size=3,
)
OTHERS = st.dictionaries(
    st.text(max_size=3).filter(lambda key: key != "mcpServers"), SCALARS | st.lists(SCALARS), max_size=3
)


@st.composite
def documents(draw: st.DrawFn, *, comments: bool = False) -> str:
    """A document in some consistent or wild formatting."""
    between: dict[str, Any] = {"mcpServers": draw(SERVERS)} if draw(st.booleans()) else {}
    value = {**draw(OTHERS), **between, **draw(OTHERS)}
    style = "wild" if comments else draw(st.sampled_from(["indent", "compact", "minified", "wild"]))
    if style == "wild":
        gaps = SPACES | st.sampled_from([" // a comment, {\n", '/* {\n"crystal": 1 } */']) if comments else SPACES
        return draw(gaps) + written_wildly(draw, value, gaps) + draw(gaps)
    indent = draw(st.sampled_from(["  ", "    ", "\t", "", " "])) if style == "indent" else None
    text = json.dumps(value, indent=indent, separators=(",", ":") if style == "minified" else None)
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))) + draw(st.sampled_from(["", "\n", "\r\n"]))


def written_wildly(draw: st.DrawFn, value: Any, gaps: st.SearchStrategy[str]) -> str:
    if isinstance(value, dict):
        parts = [
            f"{draw(gaps)}{json.dumps(key)}{draw(gaps)}:{draw(gaps)}{written_wildly(draw, item, gaps)}{draw(gaps)}"
            for key, item in value.items()
        ]
        return "{" + (",".join(parts) or draw(gaps)) + "}"
    if isinstance(value, list):
        parts = [f"{draw(gaps)}{written_wildly(draw, item, gaps)}{draw(gaps)}" for item in value]
        return "[" + (",".join(parts) or draw(gaps)) + "]"
    return json.dumps(value)


def check_json(text: str, *, comments: bool) -> None:
    old = jsonfile.document_of(text, comments=comments)
    after = jsonfile.with_server(text, "mcpServers", ENTRY, comments=comments)
    new = jsonfile.document_of(after, comments=comments)
    assert new == {**old, "mcpServers": {**old.get("mcpServers", {}), "crystal": ENTRY.as_document()}}
    assert list(new) == [*old, *(["mcpServers"] if "mcpServers" not in old else [])], "the order of keys"
    assert jsonfile.with_server(after, "mcpServers", ENTRY, comments=comments) == after
    group_too = "mcpServers" not in old
    assert jsonfile.without_server(after, "mcpServers", group_too=group_too, comments=comments) == text
    older = jsonfile.with_server(text, "mcpServers", OLDER, comments=comments)
    brought_up = jsonfile.with_server(older, "mcpServers", ENTRY, comments=comments)
    assert jsonfile.document_of(brought_up, comments=comments) == new
    assert jsonfile.without_server(brought_up, "mcpServers", group_too=group_too, comments=comments) == text


@settings(max_examples=60)
@given(documents())
@example("{}")
@example("{\n}")
@example('{"mcpServers":{}}')
@example('{\r\n  "mcpServers": {\r\n  }\r\n}')
def test_json_any_document_is_kept_twice_is_once_and_out_is_as_before(text: str) -> None:
    check_json(text, comments=False)


@settings(max_examples=40)
@given(documents(comments=True))
@example("{ // mine\n}")
@example('{"a": "// no comment", /* one */ "mcpServers": {"x": {"command": "y"} // last\n}}')
def test_json_comments_are_kept_too(text: str) -> None:
    check_json(text, comments=True)


@settings(max_examples=40)
@given(documents(), st.booleans())
def test_json_what_was_added_around_ours_stays(text: str, first: bool) -> None:
    document = jsonfile.document_of(jsonfile.with_server(text, "mcpServers", ENTRY))
    ours = document["mcpServers"].pop("crystal") | {"timeout": 5}
    other = {"another": {"command": "x"}}
    pairs = {**other, "crystal": ours} if first else {"crystal": ours, **other}
    document["mcpServers"] = {**document["mcpServers"], **pairs}
    left = jsonfile.without_server(json.dumps(document, indent=2), "mcpServers", group_too=True)
    del document["mcpServers"]["crystal"]
    assert json.loads(left) == document


def test_json_comments_beside_ours_stay_when_it_goes() -> None:
    text = '{\n  "mcpServers": {\n    "x": {}, // of x\n    "crystal": {"command": "/c/crystal", "args": ["mcp"]} // of ours\n  } // end\n}\n'
    left = jsonfile.without_server(text, "mcpServers", group_too=True, comments=True)
    assert jsonfile.document_of(left, comments=True) == {"mcpServers": {"x": {}}}
    assert [word in left for word in ("// of x", "// of ours", "// end")] == [True] * 3
    text = '{"mcpServers": {"crystal": {"command": "/c/crystal", "args": ["mcp"]}, // ours\n "x": {} /* x */ }}'
    left = jsonfile.without_server(text, "mcpServers", group_too=True, comments=True)
    assert jsonfile.document_of(left, comments=True) == {"mcpServers": {"x": {}}}
    assert "// ours\n" in left
    text = '{"mcpServers": { // first\n "crystal": {"command": "/c/crystal", "args": ["mcp"]} // last\n }}'
    left = jsonfile.without_server(text, "mcpServers", group_too=False, comments=True)
    assert jsonfile.document_of(left, comments=True) == {"mcpServers": {}}


# --- TOML of every kind


KEYS = st.sampled_from(["a", "b-c", '"quoted = # key"', "d.e", "'x'"])
VALUES = st.sampled_from(
    ['"text"', "1", "1.5", "true", "[1, 2]", "[\n  1, # one\n  2,\n]", '"""\n[mcp_servers.crystal]\n"""', "'''\n# x\n'''",
     "{ x = 1, y = { z = 2 } }", "2026-11-21T10:00:00Z", "10:00:00", "inf", '"a # b" # comment']
)  # fmt: skip
TABLES = st.sampled_from(
    ["[t]", "[[list]]", "[mcp_servers.docs]", "[ mcp_servers . other ] # c", "[mcp_servers]", "[p.q]"]
)


@st.composite
def toml_documents(draw: st.DrawFn) -> str:
    """A document of statements, comments and blank lines; only those that are TOML."""
    lines: list[str] = []

    def fill() -> None:
        for key in draw(st.lists(KEYS, max_size=2, unique=True)):
            lines.extend(draw(st.sampled_from([[], [""], ["# a comment"]])))
            lines.append(f"{key} = {draw(VALUES)}")

    fill()
    for header in draw(st.lists(TABLES, max_size=4)):
        lines.extend(draw(st.sampled_from([[], [""], ["", "# of the table"]])))
        lines.append(header)
        fill()
    text = "\n".join(lines).replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    return text + (draw(st.sampled_from(["", "\n", "\n\n", "\r\n", "\n# end"])) if text else "")


def said(tables: Any) -> str:
    return json.dumps({key: value for key, value in tables.items() if value or key != "mcp_servers"}, default=repr)


@settings(max_examples=80)
@given(toml_documents().filter(lambda text: parse_fragment(text) is not None))
@example("")
@example("\n")
@example("[mcp_servers]")
@example('mcp_servers.docs.command = "x"')
def test_toml_any_document_is_kept_twice_is_once_and_out_is_as_before(text: str) -> None:
    old = tomlfile.document_of(text)
    if isinstance(old.get("mcp_servers"), list):
        return
    after = tomlfile.with_server(text, "mcp_servers", ENTRY)
    new = tomlfile.document_of(after)
    assert new["mcp_servers"]["crystal"] == ENTRY.as_document()
    assert tomlfile.with_server(after, "mcp_servers", ENTRY) == after
    assert tomlfile.without_server(after, "mcp_servers") == text
    older = tomlfile.with_server(text, "mcp_servers", OLDER)
    brought_up = tomlfile.with_server(older, "mcp_servers", ENTRY)
    assert said(tomlfile.document_of(brought_up)) == said(new)
    assert tomlfile.without_server(brought_up, "mcp_servers") == text


CODEX_WROTE = """\
model = "gpt-5"  # mine

[mcp_servers.docs]
command = "docs"

[mcp_servers.crystal]
command = "/old/bin/crystal"
# a comment in it
args = ["mcp"]
startup_timeout_sec = 20

[mcp_servers.crystal.env]
LDM_HOME = "/old"
MINE = "1"

[mcp_servers.crystal.tools.crystal_search]
approval_mode = "approve"

# about the screen
[tui]
theme = "x"
"""


def test_toml_an_entry_that_codex_has_rewritten_is_brought_up_and_goes_with_its_tables() -> None:
    after = tomlfile.with_server(CODEX_WROTE, "mcp_servers", Entry("/new/crystal", ("mcp",), {"CRYSTAL_CONFIG": "/c"}))
    expected = CODEX_WROTE.replace("/old/bin", "/new").replace(
        'LDM_HOME = "/old"\nMINE = "1"\n', 'MINE = "1"\nCRYSTAL_CONFIG = "/c"\n'
    )
    assert after == expected
    left = tomlfile.without_server(after, "mcp_servers")
    assert (
        left
        == CODEX_WROTE[: CODEX_WROTE.index("\n[mcp_servers.crystal]")] + CODEX_WROTE[CODEX_WROTE.index("\n# about") :]
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('[mcp_servers]\ncrystal = { command = "/a/crystal", args = ["mcp"] }\nx = { command = "y" }\n', '[mcp_servers]\nx = { command = "y" }\n'),
        ('mcp_servers.crystal.command = "/a/crystal"\nmcp_servers.crystal.args = ["mcp"]\n', ""),
        ('mcp_servers = { crystal = { command = "/a/crystal", args = ["mcp"] } }\na = 1\n', "mcp_servers = {  }\na = 1\n"),
    ],
)  # fmt: skip
def test_toml_other_ways_to_write_the_entry_are_understood(text: str, left: str) -> None:
    entry = Entry("/new/crystal")
    after = tomlfile.with_server(text, "mcp_servers", entry)
    assert tomlfile.document_of(after)["mcp_servers"]["crystal"]["command"] == "/new/crystal"
    assert tomlfile.without_server(after, "mcp_servers") == left


def test_toml_servers_in_braces_are_not_rewritten() -> None:
    with pytest.raises(Damaged):
        tomlfile.with_server('mcp_servers = { x = { command = "y" } }\n', "mcp_servers", ENTRY)


# --- the files


def test_each_client_has_its_own_place_and_its_own_variable(home: Path) -> None:
    usual = {name: client.file for name, client in clients(home).items()}
    assert tuple(usual) == NAMES
    assert usual["claude-code"] == home / ".claude.json"
    assert usual["codex"] == home / ".codex/config.toml"
    assert usual["gemini"] == home / ".gemini/settings.json"
    assert usual["cursor"] == home / ".cursor/mcp.json"
    moved = clients(home, CLAUDE_CONFIG_DIR="/c", CODEX_HOME="~/x", GEMINI_CLI_HOME="/g", XDG_CONFIG_HOME="/xdg")
    assert moved["claude-code"].file == Path("/c/.claude.json")
    assert moved["codex"].file == home / "x/config.toml"
    assert moved["gemini"].file == Path("/g/.gemini/settings.json")
    if sys.platform == "linux":
        assert usual["claude-desktop"] == home / ".config/Claude/claude_desktop_config.json"
        assert moved["claude-desktop"].file == Path("/xdg/Claude/claude_desktop_config.json")


def test_claude_desktop_is_elsewhere_on_other_systems(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal.install.clients.table.sys.platform", "darwin")
    assert clients(home)["claude-desktop"].folder == home / "Library/Application Support/Claude"
    monkeypatch.setattr("crystal.install.clients.table.sys.platform", "win32")
    assert clients(home)["claude-desktop"].folder == home / "AppData/Roaming/Claude"
    assert clients(home, APPDATA="/roaming")["claude-desktop"].folder == Path("/roaming/Claude")
    packaged = home / "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude"
    packaged.mkdir(parents=True)
    assert clients(home, APPDATA="/roaming")["claude-desktop"].folder == packaged


@pytest.mark.parametrize("name", FILES)
def test_without_a_file_one_is_made_for_the_user_alone_and_goes_with_its_folders(
    home: Path, ldm: Path, name: str
) -> None:
    client = clients(home)[name]
    before = sorted(home.rglob("*"))
    assert read_facts(client).entry is None
    assert add(client, ldm)
    assert stat.S_IMODE(client.file.stat().st_mode) == 0o600
    assert read_facts(client).entry == ENTRY.as_document(typed=client.typed)
    assert client.file.read_text() == snippet(client, ENTRY)
    assert not add(client, ldm), "twice is once"
    assert remove(client, ldm) == [True]
    assert remove(client, ldm) == [False]
    ldm.rmdir()
    assert sorted(home.rglob("*")) == before


ORIGINALS = {
    "json": [b"{}", b"", b" \n", b"\xef\xbb\xbf{}", b'{"mcpServers": {}}', b'{\r\n\t"a": [1.50, 12345678901234567890]\r\n}'],
    "jsonc": [b"// mine\n{\n  // nothing yet\n}\n", b"{}"],
    "toml": [b"", b"\n", b"a = 1", b"a = 1\r\n[t]\r\nb = 2", b"# only words\n", b"\xef\xbb\xbfa = 1\n", b"[mcp_servers]\n"],
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_there_is_the_same_afterwards(home: Path, ldm: Path, name: str) -> None:
    client = clients(home)[name]
    client.file.parent.mkdir(parents=True, exist_ok=True)
    for original in ORIGINALS[client.format]:
        client.file.write_bytes(original)
        client.file.chmod(0o644)
        assert add(client, ldm)
        assert not add(client, ldm)
        assert add(client, ldm, OLDER)
        assert remove(client, ldm) == [True]
        assert client.file.read_bytes() == original
        assert stat.S_IMODE(client.file.stat().st_mode) == 0o644
    assert list(ldm.iterdir()) == []


BROKEN = {
    "json": ['{"a": 1,}', "[]", '{"mcpServers": []}', '{"mcpServers": {"crystal": 1}}', "{// no\n}", "nonsense"],
    "jsonc": ['{"a": 1,}', "[]", '{"mcpServers": []}', '{"mcpServers": {"crystal": {"command": "ls"}}}', "{/*"],
    "toml": ["a = ", "mcp_servers = 1", "[mcp_servers.crystal]\nurl = 'x'", "mcp_servers = {x = 1}", "[[mcp_servers]]"],
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_understood_is_refused_and_stays(home: Path, ldm: Path, name: str) -> None:
    client = clients(home)[name]
    client.file.parent.mkdir(parents=True, exist_ok=True)
    for text in BROKEN[client.format]:
        client.file.write_text(text)
        with pytest.raises((UsageProblem, Damaged)) as caught:
            plan_add(client, ENTRY, {})
        assert caught.value.message.startswith(f"{client.file}")
        assert f"--client {name} --print" in str(caught.value.hint)
        assert client.file.read_text() == text
        try:
            assert not any(plan.changed for plan in plan_remove(client, {}))
        except CrystalError:
            assert "crystal" in text, "it may be ours, and nobody can say"
    client.file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(UsageProblem, match="not UTF-8"):
        plan_add(client, ENTRY, {})
    client.file.unlink()
    client.file.mkdir()
    with pytest.raises(UsageProblem):
        plan_add(client, ENTRY, {})
    assert read_facts(client).problem is not None


def test_a_file_that_was_changed_since_the_plan_is_left(home: Path, ldm: Path) -> None:
    client = clients(home)["cursor"]
    plan = plan_add(client, ENTRY, {})
    client.file.parent.mkdir()
    client.file.write_text('{"a": 1}')
    with pytest.raises(Unavailable):
        apply(plan, ldm, {})
    assert client.file.read_text() == '{"a": 1}'


@pytest.mark.parametrize("name", ["codex", "cursor"])
def test_a_disk_that_is_full_in_the_middle_leaves_nothing_to_mend(
    home: Path, ldm: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    client = clients(home)[name]
    with monkeypatch.context() as patch:
        patch.setattr("crystal.install.files.write_whole", full)
        with pytest.raises(Unavailable):
            add(client, ldm)
    assert not client.file.exists()
    assert remove(client, ldm) == [False]
    assert read_record(ldm) == {}
    assert add(client, ldm)
    before = client.file.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("crystal.install.files.write_whole", full)
        with pytest.raises(Unavailable):
            add(client, ldm, OLDER)
    assert client.file.read_bytes() == before
    assert remove(client, ldm) == [True]
    assert not client.file.exists()


def test_a_link_stays_a_link(home: Path, ldm: Path) -> None:
    client = clients(home)["codex"]
    client.file.parent.mkdir()
    real = home / "dotfiles.toml"
    real.write_text("a = 1\n")
    client.file.symlink_to(real)
    add(client, ldm)
    assert client.file.is_symlink()
    assert "crystal" in real.read_text()
    remove(client, ldm)
    assert (client.file.is_symlink(), real.read_text()) == (True, "a = 1\n")


def test_a_file_that_others_went_on_using_stays(home: Path, ldm: Path) -> None:
    client = clients(home)["cursor"]
    add(client, ldm)
    document = json.loads(client.file.read_text())
    document["mcpServers"]["other"] = {"command": "x"}
    client.file.write_text(json.dumps(document))
    remove(client, ldm)
    assert json.loads(client.file.read_text()) == {"mcpServers": {"other": {"command": "x"}}}


def test_a_folder_that_has_moved_is_cleaned_in_its_old_place(home: Path, ldm: Path) -> None:
    old, new = clients(home)["codex"], clients(home, CODEX_HOME=str(home / "elsewhere"))["codex"]
    add(old, ldm)
    assert remove(new, ldm) == [False, True]
    assert not old.folder.exists()
    assert read_record(ldm) == {}


def test_without_a_record_the_entry_goes_all_the_same(home: Path, ldm: Path) -> None:
    for name in ("cursor", "codex"):
        client = clients(home)[name]
        add(client, ldm)
        for broken in (b"", b"[]", b'{"clients": {"cursor": 1}}'):
            (ldm / "clients.json").write_bytes(broken)
            assert read_record(ldm) == {}
        remove(client, ldm)
        assert client.file.read_text().strip() in ("", "{}")


@pytest.mark.parametrize(
    ("value", "ours"),
    [
        ({"command": "/x/crystal", "args": ["mcp"]}, True),
        ({"command": r"C:\x\Scripts\crystal.EXE", "args": ["mcp", "--more"]}, True),
        ({"command": "/usr/bin/python3", "args": ["-I", "-m", "crystal", "mcp"]}, True),
        ({"command": "crystal", "args": ["tool", "mcp"]}, False),
        ({"command": "/x/memory-crystal", "args": ["mcp"]}, False),
        ({"command": ["crystal", "mcp"]}, False),
        ({"url": "http://x/mcp"}, False),
        ("crystal mcp", False),
    ],
)
def test_what_is_ours_is_known_by_what_it_runs(value: object, ours: bool) -> None:
    assert is_ours(value) is ours


# --- Claude Code's own command


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    """A stand-in for the client's command that edits its file as the real one does."""
    path = tmp_path / "claude"
    path.write_text(
        # A kernel does not take a path with a space from the first line; a shell does.
        f"""#!/bin/sh
'''exec' {shlex.quote(sys.executable)} "$0" "$@"
'''
import json, os, pathlib, sys
file = pathlib.Path(os.environ["HOME"], ".claude.json")
document = json.loads(file.read_text()) if file.exists() else {{}}
servers = document.setdefault("mcpServers", {{}})
_, verb, _, _, name, *rest = sys.argv[1:]
if (verb == "remove") is not (name in servers):
    sys.exit(1)
if verb == "remove":
    del servers[name]
else:
    servers[name] = json.loads(rest[0])
document["touched"] = True
file.write_text(json.dumps(document))
"""
    )
    path.chmod(0o755)
    return path


def test_claude_code_changes_its_own_file_where_its_command_is_there(home: Path, ldm: Path, claude: Path) -> None:
    client, env = clients(home)["claude-code"], {"HOME": str(home)}
    for entry in (OLDER, ENTRY):
        plan = plan_add(client, entry, read_record(ldm), str(claude))
        assert f"would run {claude} mcp add-json --scope user crystal " in plan.diff()
        apply(plan, ldm, env)
        assert read_facts(client).entry == entry.as_document(typed=True)
    assert json.loads(client.file.read_text())["touched"]
    assert not plan_add(client, ENTRY, read_record(ldm), str(claude)).changed
    (plan,) = plan_remove(client, read_record(ldm), str(claude))
    apply(plan, ldm, env)
    assert json.loads(client.file.read_text())["mcpServers"] == {}


def test_where_its_command_fails_the_file_is_changed(home: Path, ldm: Path, claude: Path) -> None:
    client = clients(home)["claude-code"]
    claude.write_text("#!/bin/sh\nexit 1\n")
    apply(plan_add(client, ENTRY, {}, str(claude)), ldm, {})
    assert read_facts(client).entry == ENTRY.as_document(typed=True)
    (plan,) = plan_remove(client, read_record(ldm), "/nowhere/claude")
    apply(plan, ldm, {})
    assert not client.file.exists()
