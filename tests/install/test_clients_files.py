"""Clients' files: each in its place, changed as a whole or not at all."""

from __future__ import annotations

import json
import shlex
import stat
import sys
from pathlib import Path

import pytest

from crystal.config.paths import resolve_places
from crystal.errors import CrystalError, DamagedError, UnavailableError, UsageError
from crystal.install.clients.changes import apply, plan_add, plan_remove, read_facts
from crystal.install.clients.entry_text import snippet
from crystal.install.clients.known import NAMES, Client, ServerCommand, is_ours, known_clients, updated
from crystal.install.undo import read_record
from tests.support.client_entries import ENTRY, OLDER
from tests.support.table import each_row

FILES = ("claude-code", "claude-desktop", "codex", "gemini", "cursor", "pi")


def clients(home: Path, **env: str) -> dict[str, Client]:
    return known_clients(env, home, resolve_places(env, home))


def add(client: Client, ldm: Path, entry: ServerCommand = ENTRY) -> bool:
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


# --- the files


def test_each_client_has_its_own_place_and_its_own_variable(home: Path) -> None:
    usual = {name: client.file for name, client in clients(home).items()}
    assert tuple(usual) == NAMES
    assert usual["claude-code"] == home / ".claude.json"
    assert usual["codex"] == home / ".codex/config.toml"
    assert usual["gemini"] == home / ".gemini/settings.json"
    assert usual["cursor"] == home / ".cursor/mcp.json"
    assert usual["pi"] == home / ".pi/agent/mcp.json"
    folders = {"CODEX_HOME": "~/x", "GEMINI_CLI_HOME": "/g", "PI_CODING_AGENT_DIR": "/p", "XDG_CONFIG_HOME": "/xdg"}
    moved = clients(home, CLAUDE_CONFIG_DIR="/c", **folders)
    assert moved["pi"].file == Path("/p/mcp.json")
    assert moved["claude-code"].file == Path("/c/.claude.json")
    assert moved["codex"].file == home / "x/config.toml"
    assert moved["gemini"].file == Path("/g/.gemini/settings.json")
    if sys.platform == "linux":
        assert usual["claude-desktop"] == home / ".config/Claude/claude_desktop_config.json"
        assert moved["claude-desktop"].file == Path("/xdg/Claude/claude_desktop_config.json")


def test_claude_desktop_is_elsewhere_on_other_systems(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal.install.clients.known.sys.platform", "darwin")
    assert clients(home)["claude-desktop"].folder == home / "Library/Application Support/Claude"
    monkeypatch.setattr("crystal.install.clients.known.sys.platform", "win32")
    assert clients(home)["claude-desktop"].folder == home / "AppData/Roaming/Claude"
    assert clients(home, APPDATA="/roaming")["claude-desktop"].folder == Path("/roaming/Claude")
    packaged = home / "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude"
    packaged.mkdir(parents=True)
    assert clients(home, APPDATA="/roaming")["claude-desktop"].folder == packaged


@each_row("name", FILES)
def test_without_a_file_one_is_made_for_the_user_alone_and_goes_with_its_folders(home, ldm, name):
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


@each_row("name", FILES)
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


@each_row("name", FILES)
def test_a_file_that_cannot_be_understood_is_refused_and_stays(home: Path, ldm: Path, name: str) -> None:
    client = clients(home)[name]
    client.file.parent.mkdir(parents=True, exist_ok=True)
    for text in BROKEN[client.format]:
        client.file.write_text(text)
        with pytest.raises((UsageError, DamagedError)) as caught:
            plan_add(client, ENTRY, {})
        assert caught.value.message.startswith(f"{client.file}")
        assert f"--client {name} --print" in str(caught.value.hint)
        assert client.file.read_text() == text
        try:
            assert not any(plan.changed for plan in plan_remove(client, {}))
        except CrystalError:
            assert "crystal" in text, "it may be ours, and nobody can say"
    client.file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(UsageError, match="not UTF-8"):
        plan_add(client, ENTRY, {})
    client.file.unlink()
    client.file.mkdir()
    with pytest.raises(UsageError):
        plan_add(client, ENTRY, {})
    assert read_facts(client).problem is not None


def test_a_file_that_was_changed_since_the_plan_is_left(home: Path, ldm: Path) -> None:
    client = clients(home)["cursor"]
    plan = plan_add(client, ENTRY, {})
    client.file.parent.mkdir()
    client.file.write_text('{"a": 1}')
    with pytest.raises(UnavailableError):
        apply(plan, ldm, {})
    assert client.file.read_text() == '{"a": 1}'


@pytest.mark.parametrize("name", ["codex", "cursor"])
def test_a_disk_that_is_full_in_the_middle_leaves_nothing_to_mend(home, ldm, name, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    client = clients(home)[name]
    with monkeypatch.context() as patch:
        patch.setattr("crystal.install.file_change.write_whole", full)
        with pytest.raises(UnavailableError):
            add(client, ldm)
    assert not client.file.exists()
    assert remove(client, ldm) == [False]
    assert read_record(ldm) == {}
    assert add(client, ldm)
    before = client.file.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("crystal.install.file_change.write_whole", full)
        with pytest.raises(UnavailableError):
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


@each_row(
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


@pytest.mark.slow
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


def test_the_command_says_which_agent_asks_once_and_keeps_the_users_arguments() -> None:
    for name, agent in (("codex", "codex"), ("gemini", "gemini-cli")):
        asked = Client(name, name, Path("x.json"), Path()).asking(ServerCommand("/x/crystal"))
        assert asked.args == ("mcp", "--agent", agent)
        for old in (["mcp"], ["mcp", "--agent", "other"], ["mcp", "--agent", agent, "--more"]):
            value = updated({"command": "/x/crystal", "args": old}, asked)
            assert value["args"] == ["mcp", "--agent", agent, *(["--more"] if "--more" in old else [])]
            assert updated(value, asked) == value
