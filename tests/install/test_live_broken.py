"""Claims of install/live: a file that cannot be used is named and stays as it is, and keeps no other from its change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crystal.config.harnesses import CLAUDE_CODE
from crystal.install.live.changes import folder_of, is_live
from crystal.install.live.mechanisms import MECHANISMS
from tests.install.test_live import SHARED, install, remove
from tests.support.command import crystal
from tests.support.examples import part_of

BROKEN = ['{"hooks": [', '{"hooks": []}', '{"hooks": {"Stop": {}}}', "\xff"]
BROKEN_IN = [*(("codex", text) for text in BROKEN), *((name, BROKEN[0]) for name, _ in SHARED)]


@pytest.mark.parametrize(("name", "text"), [(CLAUDE_CODE, BROKEN[0]), *part_of(BROKEN_IN)])
def test_a_broken_file_is_named_and_left_alone(name: str, text: str, home: Path) -> None:
    folders = {one: folder_of(one, {}, home) for one in {"codex", "pi", name} if one in MECHANISMS}
    folders[CLAUDE_CODE] = home / ".claude"
    path = folders[name] / dict([*SHARED, (CLAUDE_CODE, "settings.json")])[name]
    for folder in (*folders.values(), path.parent):
        folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "latin-1")
    done = crystal("init", "--yes", "--no-import", "--all")
    assert (done.code != 0, str(path) in done.err, "hint:" in done.err) == (True, True, True), done.err
    assert path.read_text("latin-1") == text
    told = json.loads(crystal("agents", "--json").out)["agents"]
    assert {one["name"] for one in told if one["live"]} == folders.keys() - {name}, "no other agent is affected"


@pytest.mark.slow
def test_what_cannot_be_written_keeps_no_other_agent_from_its_setup_or_its_removal(home: Path) -> None:
    (home / ".codex").mkdir()
    path = home / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text("{}")
    path.chmod(0o444)
    done = crystal("init", "--yes", "--no-import", "--all")
    assert (done.code, f"{path} is write-protected" in done.err, f"installed in {path}" in done.out) == (
        2,
        True,
        False,
    ), done.err
    assert is_live("codex", {}, home)
    assert (alone := crystal("init", "--yes", "--no-import")).code == 2
    assert f"{path} is write-protected" in alone.err
    path.chmod(0o644)
    assert crystal("init", "--yes", "--no-import", "--all").code == 0
    path.write_text(path.read_text()[:-4])
    done = crystal("uninstall")
    assert (done.code, f"{path}: line " in done.err, is_live("codex", {}, home)) == (2, True, False), done.err


def test_uninstall_names_a_broken_file_only_if_it_may_hold_ours(home: Path) -> None:
    install("codex", home)
    install("openclaw", home)
    broken, others = home / ".codex" / "hooks.json", home / ".openclaw" / "openclaw.json"
    broken.write_text(broken.read_text()[:-4])
    others.write_text("{crystal: 'an agent of this name',}")
    before = broken.read_bytes(), others.read_bytes()
    [problem] = remove(home)
    assert problem.startswith(f"{broken}: line ")
    assert (broken.read_bytes(), others.read_bytes()) == before


def test_a_read_only_file_is_named_and_left_alone(home: Path) -> None:
    path = home / ".qwen" / "settings.json"
    path.parent.mkdir()
    path.write_text("{}")
    path.chmod(0o444)
    [problem] = install("qwen-code", home)
    assert problem == f"{path} is read-only and stays as it is"
    assert path.read_text() == "{}"
