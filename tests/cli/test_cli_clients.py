"""``crystal init --client``, its --print and --instructions, what ``uninstall`` takes out, and what ``doctor`` says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.command import crystal

FILES = {
    "claude-code": ".claude/.claude.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "cursor": ".cursor/mcp.json",
    "pi": ".pi/agent/mcp.json",
}


@pytest.fixture(autouse=True)
def _no_claude(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client on the PATH: its own command would be called."""
    monkeypatch.setenv("PATH", os.pathsep.join(("/usr/bin", "/bin")))


def files(home: Path) -> dict[str, bytes]:
    kept = (".ldm", ".config")
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and path.relative_to(home).parts[0] not in kept
    }


def every_client() -> list[str]:
    return [word for name in FILES for word in ("--client", name)]


@pytest.mark.slow
def test_init_gives_each_client_the_server_twice_is_once_and_uninstall_leaves_nothing(home: Path) -> None:
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text('model = "x" # mine')
    before = files(home)
    first = crystal("init", "--yes", *every_client())
    assert first.code == 0, first.err
    written = files(home)
    assert {*FILES.values(), ".claude/settings.json"} <= set(written)
    for name, file in FILES.items():
        assert f"server: added to {home / file}" in first.out
        assert name == "codex" or json.loads(written[file])["mcpServers"]["crystal"]["args"][-2] == "--agent"
    second = crystal("init", "--yes", *every_client())
    assert (second.code, files(home)) == (0, written)
    assert second.out.count("server: already in") == len(FILES)
    done = crystal("uninstall")
    assert (done.code, done.out.count("crystal's server removed")) == (0, len(FILES))
    assert files(home) == before
    assert not (home / ".ldm/clients.json").exists()
    assert not (home / ".cursor").exists()
    assert not (home / ".pi").exists()


def test_the_command_is_absolute_and_the_places_of_the_memory_go_with_it(home, monkeypatch):
    monkeypatch.setenv("LDM_HOME", "~/my memories")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    server = json.loads(crystal("init", "--print").out)["mcpServers"]["crystal"]
    assert Path(server["command"]).is_absolute()
    assert Path(server["command"]).parent == Path(sys.executable).parent
    assert server["env"] == {
        "LDM_HOME": str(home / "my memories"),
        "CRYSTAL_CONFIG": str(home / "xdg/crystal/config.toml"),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
    }


def test_a_dry_run_shows_the_entry_and_writes_nothing(home: Path) -> None:
    done = crystal("init", "--client", "codex", "--client", "cursor", "--dry-run")
    assert done.code == 0
    assert "+ [mcp_servers.crystal]" in done.out
    assert '+     "crystal": {' in done.out
    assert list(home.iterdir()) == []


@pytest.mark.slow
def test_a_client_without_claude_code_gets_no_hooks(home: Path) -> None:
    done = crystal("init", "--yes", "--client", "codex")
    assert done.code == 0
    assert "crystal init --instructions >> AGENTS.md" in done.out
    assert not (home / ".claude").exists()
    assert crystal("doctor").code == 0, "nothing is wrong with that"
    assert "Codex can use this memory" in crystal("doctor").out


def test_printing_writes_nothing_and_can_be_piped(home: Path) -> None:
    assert json.loads(crystal("init", "--client", "any").out) == json.loads(crystal("init", "--print").out)
    codex = crystal("init", "--client", "codex", "--print")
    assert codex.out.startswith("[mcp_servers.crystal]\ncommand = ")
    assert f"add it to {home / '.codex/config.toml'}" in codex.err
    assert "`crystal_search`" in crystal("init", "--instructions").out
    assert list(home.iterdir()) == []


def test_a_file_that_cannot_be_understood_stops_init_before_anything_is_made(home: Path) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text('{"mcpServers": {,}}')
    done = crystal("init", "--yes", "--client", "codex", "--client", "cursor")
    assert done.code == 2
    assert f"{home / '.cursor/mcp.json'}: line 1, column 17: " in done.err
    assert "crystal init --client cursor --print" in done.err
    assert files(home) == {".cursor/mcp.json": b'{"mcpServers": {,}}'}


@pytest.mark.slow
def test_a_broken_file_does_not_keep_uninstall_from_the_rest(home: Path) -> None:
    crystal("init", "--yes", "--client", "codex", "--client", "cursor")
    (home / ".cursor/mcp.json").write_text('{"mcpServers": {"crystal": }}')
    done = crystal("uninstall")
    assert done.code == 2
    assert "mcp.json: line 1" in done.err
    assert files(home) == {".cursor/mcp.json": b'{"mcpServers": {"crystal": }}'}


def test_a_broken_file_that_is_not_about_crystal_is_not_our_business(home: Path) -> None:
    crystal("init", "--yes")
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text('{"mcpServers": {"x": {"command": "/home/you/crystal/bin/x"},}}')
    assert crystal("uninstall").code == 0


@pytest.mark.parametrize("text", ['["crystal"]', '{"mcpServers": null, "crystal": 1}', '{"mcpServers": ["crystal"]}'])
def test_a_file_of_another_form_is_not_our_business(home: Path, text: str) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text(text)
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text("mcp_servers = 3 # crystal\n")
    assert crystal("uninstall").code == 0
    assert crystal("init", "--yes", "--client", "cursor").code == 2
    done = crystal("init", "--yes", "--client", "codex")
    assert (done.code, "config.toml: mcp_servers should be a table" in done.err) == (2, True)


def test_a_server_of_our_name_that_is_null_is_left_alone(home: Path) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text('{"mcpServers": {"crystal": null}}')
    done = crystal("init", "--yes", "--client", "cursor")
    assert done.code == 2
    assert "mcp.json: another server is named crystal" in done.err
    assert files(home) == {".cursor/mcp.json": b'{"mcpServers": {"crystal": null}}'}


@pytest.mark.slow
def test_the_doctor_says_which_agents_ask_and_what_is_gone(home: Path) -> None:
    crystal("init", "--yes", "--client", "gemini")
    (home / ".cursor").mkdir()
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text('{"enabledPlugins": {"crystal@crystal": true}}')
    checks = json.loads(crystal("doctor", "--json").out)["checks"]
    told = {(check["name"], check["verdict"], check["message"]) for check in checks}
    assert ("agents", "ok", "Claude Code (plugin), Gemini CLI can use this memory") in told
    assert ("agents", "note", "Cursor cannot search this memory itself yet") in told
    assert ("hooks", "ok", f"installed by the plugin, which is on in {home / '.claude/settings.json'}") in told
    file = home / ".gemini/settings.json"
    file.write_text(file.read_text().replace(str(Path(sys.executable).parent), "/nowhere"))
    (home / ".cursor/mcp.json").write_text("{")
    done = crystal("doctor")
    assert done.code == 1
    assert "FAIL  agents: Gemini CLI starts /nowhere/crystal, which is gone" in done.out
    assert "fix: crystal init --client gemini" in done.out
    assert f"warn  agents: {home / '.cursor/mcp.json'}: line 1" in done.out


def test_init_adds_no_second_hook_where_the_plugin_is_on(home: Path) -> None:
    settings = home / ".claude/settings.json"
    settings.parent.mkdir()
    for is_on in (True, False):
        settings.write_text(json.dumps({"enabledPlugins": {"crystal@crystal": is_on}}))
        done = crystal("init", "--yes")
        assert (done.code, "hooks: run by the plugin crystal@crystal" in done.out) == (0, is_on)
        assert "crystal captures every turn" in done.out
        assert ("hooks" in json.loads(settings.read_text())) == (not is_on)
        assert "twice" not in crystal("status").out
