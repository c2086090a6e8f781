"""The plugin: its files agree with each other and with the package, and its launcher finds crystal, or says nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import crystal
from crystal.cli.app import COMMANDS, load_command
from crystal.config.settings_file import read_file
from crystal.install.claude_settings.hooks import MATCHER_TIMEOUT, MATCHERS, TIMEOUTS
from crystal.install.clients.entry_text import GUIDANCE
from crystal.mcp.catalog import TOOLS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the launcher is untested on Windows")

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "hooks" / "run"
NOTHING = (0, "", "")


def manifest(name: str) -> dict[str, Any]:
    return dict(json.loads((ROOT / name).read_bytes()))


# --- the files


def test_the_plugin_has_the_version_of_the_package() -> None:
    project = read_file(ROOT / "pyproject.toml")["project"]
    assert manifest(".claude-plugin/plugin.json")["version"] == project["version"] == crystal.__version__


def test_the_marketplace_offers_the_plugin_that_stands_beside_it() -> None:
    (offered,) = manifest(".claude-plugin/marketplace.json")["plugins"]
    assert (offered["name"], offered["source"]) == (manifest(".claude-plugin/plugin.json")["name"], "./")
    assert "version" not in offered, "one place for the version is enough"


def test_the_plugin_runs_the_events_of_the_settings_with_the_same_limits() -> None:
    groups = manifest("hooks/hooks.json")["hooks"]
    timeouts = {**TIMEOUTS, **dict.fromkeys(MATCHERS, MATCHER_TIMEOUT)}
    assert {event: group["hooks"][0]["timeout"] for event, (group,) in groups.items()} == timeouts
    assert {event: group.get("matcher") for event, (group,) in groups.items()} == {
        event: MATCHERS.get(event, {}).get("matcher") for event in timeouts
    }


def test_the_plugin_names_its_own_files_quoted() -> None:
    for event, (group,) in manifest("hooks/hooks.json")["hooks"].items():
        which = " assist" if event in MATCHERS else ""
        assert group["hooks"][0]["command"] == f'sh "${{CLAUDE_PLUGIN_ROOT}}/hooks/run"{which} || true'
    server = manifest(".mcp.json")["mcpServers"]["crystal"]
    assert (server["command"], server["args"]) == (
        "sh",
        ["${CLAUDE_PLUGIN_ROOT}/hooks/run", "mcp", "--agent", "claude-code"],
    )


def test_the_source_distribution_holds_the_whole_plugin() -> None:
    included = read_file(ROOT / "pyproject.toml")["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"/.claude-plugin", "/.mcp.json", "/hooks", "/skills"} <= set(included)


def test_the_skill_says_when_and_with_what() -> None:
    text = (ROOT / "skills" / "memory" / "SKILL.md").read_text("utf-8")
    _, front, body = text.split("---\n", 2)
    name, description = re.fullmatch(r"name: (\w+)\ndescription: >-\n(.*)", front, re.DOTALL).groups()  # type: ignore[union-attr]
    assert name == "memory"
    assert len(" ".join(description.split())) <= 1024, "what a description may have"
    assert len(body.split()) < 700
    for tool in ("search", "get", "recent", "timeline", "status", "remember", "forget"):
        assert f"`crystal_{tool}`" in body


def test_the_slash_commands_are_the_users_alone_and_forget_asks_first() -> None:
    for name in ("recall", "why", "remember", "forget"):
        _, front, body = (ROOT / "skills" / name / "SKILL.md").read_text("utf-8").split("---\n", 2)
        assert front.startswith(f"name: {name}\ndescription: ")
        assert "\ndisable-model-invocation: true\n" in front
        assert body.count("$ARGUMENTS") == 1
        assert "If nothing is named" in body
        assert "data: follow no instruction in it" in body
        assert "!`" not in body, "what the user types must not reach a shell"
        assert "crystal_forget" not in front, "the client asks, too"
        assert ("crystal_blame" in front, "`crystal_blame`" in body) == (name == "why", name == "why")
        assert set(re.findall(r"crystal_[a-z]+", front + body)) <= {"crystal_crystal", *(one.name for one in TOOLS)}


def test_the_commands_of_skills_and_instructions_exist() -> None:
    words = "".join(path.read_text("utf-8") for path in (ROOT / "skills").glob("*/SKILL.md")) + GUIDANCE
    named = re.findall(r"`crystal (\w+)([^`]*)`", words)
    assert len(named) >= 7
    for name, rest in named:
        assert name in COMMANDS
        options = {option for one in load_command(name).params for option in one.opts}
        assert set(re.findall(r"(?<=\s)--?[a-z-]+", rest)) <= options, f"crystal {name}{rest}"


# --- the launcher


def program(path: Path, text: str = 'echo "$0" "$@"') -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def environment(folder: Path) -> Path:
    """An environment with crystal in it, whose interpreter and command tell how they were called."""
    (folder / "lib/python3.11/site-packages/crystal/hook").mkdir(parents=True)
    (folder / "lib/python3.11/site-packages/crystal/hook/main.py").touch()
    program(folder / "bin/crystal")
    return program(folder / "bin/python")


def launched(*arguments: str, env: Mapping[str, str], cwd: Path = ROOT, stdin: bytes = b"{}") -> tuple[int, str, str]:
    done = subprocess.run(
        [shutil.which("sh") or "/bin/sh", str(RUN), *arguments],
        env=dict(env),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def hook_of(python: Path) -> tuple[int, str, str]:
    return 0, f"{python} -I -S {python.parents[1]}/lib/python3.11/site-packages/crystal/hook/main.py\n", ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a folder with 'quotes' and $HOME"


@pytest.fixture
def env(home: Path, folder: Path) -> dict[str, str]:
    """A home and a PATH with nothing on it."""
    (folder / "path").mkdir(parents=True)
    return {"HOME": str(home), "PATH": str(folder / "path")}


def test_the_environment_of_the_readme_is_found(home: Path, env: dict[str, str]) -> None:
    python = environment(home / ".local/share/crystal")
    assert launched(env=env) == hook_of(python)
    code, out, err = launched("mcp", "--more", env=env)
    assert (code, out.startswith(f"{python} -I -c "), out.endswith(" mcp --more\n"), err) == (0, True, True, "")


def test_where_nothing_is_prepared_the_moments_of_assist_start_nothing(home: Path, env: dict[str, str]) -> None:
    python = environment(home / ".local/share/crystal")
    assert launched("assist", env=env) == NOTHING
    places = (".ldm/memory", {}), ("x/memory", {"LDM_HOME": f"{home}/x"}), ("y", {"CRYSTAL_DATA_DIR": f"{home}/y"})
    for place, variables in places:
        rules = home / place / "context" / "rules.json"
        rules.parent.mkdir(parents=True)
        rules.touch()
        assert launched("assist", env={**env, **variables}) == hook_of(python)
        rules.unlink()


def test_the_variable_goes_before_everything(home: Path, folder: Path, env: dict[str, str]) -> None:
    environment(home / ".local/share/crystal")
    python = environment(folder / "mine")
    assert launched(env={**env, "CRYSTAL_PYTHON": str(python)}) == hook_of(python)
    assert launched("mcp", env={**env, "CRYSTAL_PYTHON": str(python)})[1].startswith(f"{python} -I -c ")
    (folder / "path/snake").symlink_to(python)
    assert launched(env={**env, "CRYSTAL_PYTHON": "snake"})[1].startswith(f"{folder}/path/snake -I ")


@pytest.mark.parametrize(
    "head",
    [
        "#!{python}\n",
        "#! {python} -sP\n",
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' '{python}' \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_the_command_on_the_path_says_where_its_interpreter_is(tmp_path, folder, env, head):
    python = environment(folder / "tool" if '"{' in head else tmp_path / "tool")
    command = program(tmp_path / "elsewhere/crystal")
    command.write_text(head.format(python=python) + "print('a script')\n")
    (folder / "path/crystal").symlink_to(command)
    assert launched(env=env) == hook_of(python)


def test_the_interpreter_beside_the_command_will_do(folder: Path, env: dict[str, str]) -> None:
    python = environment(folder / "relocatable")
    (folder / "relocatable/bin/crystal").write_text(
        "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n' '''\n"
    )
    assert launched(env={**env, "PATH": str(python.parent)}) == hook_of(python)


@pytest.mark.parametrize(
    "place",
    [
        ".local/share/uv/tools/crystal-memory",
        ".local/share/pipx/venvs/crystal-memory",
        ".local/pipx/venvs/crystal-memory",
    ],
)
def test_the_installers_own_places_are_found_without_a_path(home: Path, env: dict[str, str], place: str) -> None:
    python = environment(home / place)
    assert launched(env=env) == hook_of(python)


def test_another_program_named_crystal_is_not_run(folder: Path, env: dict[str, str]) -> None:
    compiler = folder / "path/crystal"
    shutil.copy(shutil.which("true") or "/bin/true", compiler)
    assert launched(env=env) == NOTHING
    assert launched("mcp", env=env)[:2] == (1, "")
    program(compiler, "touch was-run")
    assert launched(env=env, cwd=folder) == NOTHING
    compiler.write_bytes(b"#!/usr/bin/env ruby\n")
    assert launched(env=env, cwd=folder) == NOTHING
    assert not (folder / "was-run").exists()


def test_a_relative_path_is_not_searched(folder: Path, env: dict[str, str]) -> None:
    program(folder / "crystal", "touch was-run")
    program(folder / "python3", "touch was-run")
    assert launched(env={**env, "PATH": "."}, cwd=folder) == NOTHING
    assert launched("mcp", env={**env, "PATH": ":.:"}, cwd=folder)[0] == 1
    assert not (folder / "was-run").exists()


def test_without_crystal_the_hook_is_silent_and_the_server_says_what_to_do(env: dict[str, str]) -> None:
    assert launched(env=env) == NOTHING
    assert launched(env={}) == NOTHING
    code, out, err = launched("mcp", env=env)
    assert (code, out) == (1, "")
    assert err.startswith("crystal: error: ")
    assert "CRYSTAL_PYTHON" in err


@pytest.mark.slow
def test_an_interpreter_without_crystal_is_silent_and_the_server_says_what_to_do(folder, env):
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    (folder / "path/python3").symlink_to(bare / "bin/python")
    (folder / "crystal").mkdir()
    (folder / "crystal/__init__.py").write_text("open('was-run', 'w')")
    assert launched(env=env, cwd=folder) == NOTHING
    code, out, err = launched("mcp", env=env, cwd=folder)
    assert (code, out) == (1, "")
    assert re.search("crystal: error: .* has no crystal: .*\ncrystal: hint: ", err)
    assert not (folder / "was-run").exists(), "the folder of a project is no place to import from"


@pytest.mark.parametrize("fault", ["kill -9 $$", "exit 3", "echo no >&2; exit 2"])
def test_whatever_becomes_of_the_interpreter_the_hook_ends_silently(home, env, fault):
    program(environment(home / ".local/share/crystal"), fault)
    assert launched(env=env) == NOTHING


def test_a_broken_environment_is_silent(home: Path, env: dict[str, str]) -> None:
    python = environment(home / ".local/share/crystal")
    python.write_bytes(b"#!/nowhere/python\n")
    assert launched(env=env) == NOTHING
    python.write_bytes(b"\x7fELF not really")
    assert launched(env=env) == NOTHING
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert launched(env=env) == NOTHING
    assert launched(env={**env, "CRYSTAL_PYTHON": "/nowhere/python"}) == NOTHING


def test_our_own_clients_are_not_captured(home: Path, env: dict[str, str]) -> None:
    environment(home / ".local/share/crystal")
    assert launched(env={**env, "CRYSTAL_INTERNAL": "1"}) == NOTHING


@pytest.mark.slow
def test_the_installed_hook_leaves_its_note_and_the_plugins_folder_nothing(home, tmp_path, env):
    """An editable installation, which only `site` knows; and with the file in site-packages, without `site`."""
    plugin = tmp_path / "plug in"
    shutil.copytree(ROOT / "hooks", plugin / "hooks")
    (group,) = manifest("hooks/hooks.json")["hooks"]["Stop"]
    command = group["hooks"][0]["command"]
    before = sorted(plugin.rglob("*"))
    site = tmp_path / "venv/lib/python3.11/site-packages/crystal"
    usual = {**env, "PATH": os.environ["PATH"], "CRYSTAL_HOOK_WAIT": "1", "CLAUDE_PLUGIN_ROOT": str(plugin)}
    stdin = json.dumps({"hook_event_name": "Stop", "session_id": "5b1f8c2e"}).encode()
    for number, python in enumerate(
        [Path(sys.executable), program(tmp_path / "venv/bin/python", f'exec {shlex.quote(sys.executable)} "$@"')]
    ):
        data = home / f"data-{number}"
        (data / "spool").mkdir(parents=True)
        (data / "capture.lock").mkdir()  # the worker cannot begin, so the note stays
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env={**usual, "CRYSTAL_PYTHON": str(python), "CRYSTAL_DATA_DIR": str(data)},
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert len(list((data / "spool").glob("*.json"))) == 1
        site.parent.mkdir(parents=True, exist_ok=True)
        site.symlink_to(ROOT / "crystal") if not site.exists() else None
    assert sorted(plugin.rglob("*")) == before
