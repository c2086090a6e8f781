"""Claims of ``crystal handoff``: it writes beside what is there, nothing is stored twice, and errors name the next step."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.handoff.target import TARGETS
from crystal.mcp.handlers import ClientContext
from crystal.sessions.origin import read_whole
from crystal.store import Store
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import part_of
from tests.support.exports import SESSION, remember
from tests.support.mcp_client import Tools
from tests.support.table import each_row

PLAYED = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import json, sqlite3, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.opencode_database import import_document
if sys.argv[1] == "import":
    path = Path.home() / ".local/share/opencode/opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as database:
        print("Imported session:", import_document(database, Path(sys.argv[2]).read_bytes()))
else:
    print('{{"model": "mock/mock-model"}}')
"""
"""What the real program does with a document, see ``tests/e2e/test_handoff.py``."""


@pytest.fixture
def project(home: Path) -> Path:
    folder = home / "new"
    folder.mkdir()
    return folder


@pytest.fixture
def _opencode(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home / "bin" / "opencode"
    program.parent.mkdir()
    program.write_text(PLAYED.format(python=sys.executable, root=str(Path(__file__).parents[2])), "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def stored(home: Path) -> list[tuple[Any, ...]]:
    with Store.open_existing(home / ".ldm" / "memory" / "crystal.db") as store:
        return list(store.rows("SELECT uuid, part, role, session FROM turns ORDER BY id"))


def handed(session: str, to: str, *words: str) -> dict[str, Any]:
    done = crystal("handoff", session, "--to", to, "--json", *words)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def said_in(session: str) -> list[tuple[str, str, str, int]]:
    turns = json.loads(crystal("show", session, "--json").out)["turns"]
    return [
        (turn["role"], turn["text"], turn["uuid"], turn["part"])
        for turn in turns
        if turn["role"] in ("user", "assistant") and not turn["subagent"]
    ]


@pytest.mark.parametrize(
    "harness", [pytest.param(name, marks=[] if name == "pi" else pytest.mark.slow) for name in samples.sampled()]
)
@pytest.mark.usefixtures("_opencode")
def test_what_is_handed_over_is_not_stored_again(harness: str, home: Path, project: Path) -> None:
    samples.lay_out(harness, home)
    assert crystal("init", "--yes", "--no-import").code == 0
    assert crystal(*samples.import_command(harness, home)).code == 0
    before = stored(home)
    sessions = json.loads(crystal("sessions", "--json", "-n", "1000").out)["sessions"]
    targets = sorted(TARGETS.keys() - {harness})
    pairs = part_of([(one["id"], to) for to in targets for one in sessions], 9)
    assert {to for _, to in pairs} == set(targets)
    new = {handed(session, to, "--project", str(project))["new_session"]: session for session, to in pairs}
    assert crystal("sync").code == 0
    assert stored(home) == before
    said = {one["id"]: said_in(one["id"]) for one in sessions}
    for name, old in new.items():
        assert not said[old] or said_in(name) == said[old]
    proof = json.loads(crystal("verify", "--json").out)
    assert (proof["ok"], proof["percent"]) == (True, 100.0)


def test_it_names_what_it_wrote_the_command_and_how_to_undo_it(home: Path, project: Path) -> None:
    remember(home, ["Which port?", "4711."], cwd=str(project))
    done = crystal("handoff", SESSION[:6], "--to", "codex")
    assert done.code == 0, done.err
    wrote, resume, undo = done.out.splitlines()
    path = Path(undo.removeprefix("undo with: rm "))
    assert wrote.startswith(f"wrote {path} (")
    assert resume == f"go on with: cd {project} && codex resume {path.stem[-36:]}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"4711." in path.read_bytes()


@pytest.mark.usefixtures("_opencode")
@pytest.mark.parametrize("to", part_of(sorted(TARGETS.keys() - {CLAUDE_CODE}), 2))
def test_afterwards_nothing_is_behind_and_undo_leaves_nothing(to: str, home: Path, project: Path) -> None:
    remember(home, ["Which port?", "4711."], cwd=str(project))
    folder = home / f".{HARNESSES[to].name.split('-')[0]}"
    before = {path for path in folder.rglob("*") if path.is_file()}
    done = handed(SESSION, to)
    proof = crystal("verify", "--json")
    assert (proof.code, json.loads(proof.out)["faults"]) == (0, [])
    if to != "opencode":
        subprocess.run(shlex.split(done["undo"]), check=True)
        assert {path for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("_opencode")
@pytest.mark.parametrize("to", part_of(sorted(TARGETS.keys() - {CLAUDE_CODE}), 2))
def test_no_word_of_an_isolated_session_is_seen_in_the_new_one(to: str, home: Path, project: Path) -> None:
    remember(home, ["Which quokka port?", "4711."], cwd=str(project), title="the numbat plan")
    assert crystal("config", "set", "agents.claude-code.isolated", "true").code == 0
    new = handed(SESSION, to)["new_session"]
    tools = Tools(ClientContext(agent="goose", folder=str(project)))
    assert "numbat" not in json.dumps(tools.methods["resources/list"]({}))
    for name, arguments in (("crystal_recent", {"what": "sessions", "all": True}), ("crystal_get", {"id": new}),
                            ("crystal_search", {"query": "numbat quokka"}), ("crystal_recent", {"agent": to}), ("crystal_timeline", {})):  # fmt: skip
        told = tools.text(name, **arguments).replace("numbat quokka", "")
        assert not [word for word in ("numbat", "quokka", "4711") if word in told], told


@pytest.mark.usefixtures("_opencode")
def test_the_title_of_an_isolated_project_does_not_go_along_into_another_folder(home, project, tmp_path):
    remember(home, ["Which quokka port?", "4711."], cwd=str(project), title="the numbat plan")
    assert crystal("config", "set", "isolated.projects", str(project)).code == 0
    (other := tmp_path / "other").mkdir()
    for folder, goes in ((other, False), (project, True)):
        handed(SESSION, "opencode", "--project", str(folder))
        files = [one for one in (home / ".local" / "share").rglob("*") if one.is_file()]
        assert any(b"numbat" in one.read_bytes() for one in files) is goes
    told = Tools(ClientContext(folder=str(other))).text("crystal_recent", what="sessions", all=True)
    assert "numbat" not in told


@pytest.mark.usefixtures("_opencode")
def test_the_next_agents_too_know_what_tools_did_and_what_was_said_first(home, project, monkeypatch):
    monkeypatch.setattr("crystal.handoff.talk.MAX_CHARACTERS", 100)
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ss --numbat"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "quokka.service listens"}
    last = {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "kill --wombat"}}
    begin, look = "Why does the dingo clash? ", {"type": "text", "text": "I look. " * 12}
    remember(home, [begin, [look, call], [result], [{"type": "text", "text": "4711 twice."}, last]], cwd=str(project))
    done = handed(SESSION, "pi")
    call = {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "emu"}}
    own = {"role": "assistant", "content": [{"type": "text", "text": "An emu, too."}, call]}
    line = {"type": "message", "id": "0a0b0c0d", "timestamp": "2026-11-21T10:00:00.000Z", "message": own}
    with Path(done["file"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    for to in ("opencode", "codex", "gemini-cli", "claude-code", "pi"):
        assert crystal("sync").code == 0
        done = handed(done["new_session"], to)
    assert crystal("sync").code == 0
    briefs = [crystal("handoff", one, "--brief").out for one in (SESSION, done["new_session"])]
    first, last = (brief.partition("Task:")[2].partition("</crystal")[0].splitlines() for brief in briefs)
    assert [line for line in last if "emu" not in line] == first
    assert sum("emu" in line for line in last) == 2


def test_a_machine_that_has_the_first_session_only_from_home_knows_what_tools_did(home: Path, project: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ss --numbat"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "quokka.service listens"}
    remember(home, ["Which?", [{"type": "text", "text": "I look."}, call], [result], "4711."], cwd=str(project))
    shutil.copytree(home / ".ldm", home / "desktop")
    done = handed(SESSION, "pi")
    shutil.rmtree(home / ".ldm")
    shutil.rmtree(home / ".claude" / "projects")
    assert crystal("init", "--yes", "--import").code == 0
    stores = [Store.open_existing(home / name / "memory" / "crystal.db") for name in (".ldm", "desktop")]
    roles = [turn.role for turn in read_whole(stores, done["new_session"]).turns]
    assert roles == ["user", "assistant", "tool_call", "tool_result", "assistant"]
    assert [turn.role for turn in read_whole(stores, SESSION).turns] == roles
    for store in stores:
        store.close()


@pytest.mark.slow
def test_a_session_is_read_where_home_had_the_later_one_first(home: Path, project: Path) -> None:
    remember(home, ["Which port?", "4711."], cwd=str(project))
    done = handed(SESSION, "codex")
    first = home / ".claude" / "projects"
    first.rename(home / "kept")
    assert crystal("sync").code == 0
    (home / ".ldm").rename(home / "desktop")
    assert crystal("init", "--yes", "--import").code == 0  # the later session alone, as a rebuilt store may begin
    (home / "kept").rename(first)
    assert crystal("sync").code == 0
    stores = [Store.open_existing(home / name / "memory" / "crystal.db") for name in (".ldm", "desktop")]
    for session in (SESSION, done["new_session"]):
        for both in (stores, stores[::-1]):
            assert [turn.role for turn in read_whole(both, session).turns] == ["user", "assistant"]
    for store in stores:
        store.close()


def test_a_dry_run_writes_nothing(home: Path, project: Path) -> None:
    remember(home, ["Which port?", "4711."], cwd=str(project))
    for to in TARGETS.keys() - {"opencode", CLAUDE_CODE}:
        done = crystal("handoff", SESSION, "--to", to, "--dry-run")
        assert done.code == 0, done.err
        assert done.out.startswith("would write ")
    assert not [path for name in (".codex", ".pi", ".gemini") for path in (home / name).rglob("*") if path.is_file()]


def test_a_hit_means_its_session(home: Path, project: Path) -> None:
    remember(home, ["Which port?", "4711."], cwd=str(project))
    assert crystal("search", "port").code == 0
    for word in ("1", "@1", "h1"):
        assert handed(word, "pi", "--dry-run")["session"] == SESSION


def test_what_is_forgotten_is_forgotten_in_the_copies_too(home: Path, project: Path) -> None:
    remember(home, ["The port is sechsundvierzig.", "Noted."], cwd=str(project))
    done = handed(SESSION, "codex")
    assert crystal("sync").code == 0
    forgot = crystal("forget", "--session", SESSION, "--yes")
    assert forgot.code == 0, forgot.out + forgot.err
    assert "there is no session" in crystal("show", done["new_session"]).err
    with Path(done["file"]).open("a", encoding="utf-8") as file:
        file.write('{"timestamp": "2026-11-26T10:00:00.000Z", "type": "event_msg", "payload": {"type": "x"}}\n')
    assert crystal("sync").code == 0
    assert "sechsundvierzig" not in crystal("search", "sechsundvierzig").out
    assert not [one for one in stored(home) if one[2] == "user"]


@each_row(
    ("words", "message", "hint"),
    [
        ((SESSION,), "--to is missing", "--brief"),
        ((SESSION, "--to", "goose"), "cannot write sessions of 'goose'", "--brief"),
        ((SESSION, "--to", "nobody"), "cannot write sessions of 'nobody'", "codex"),
        ((SESSION, "--to", "codex", "--project", "/nowhere"), "/nowhere is not there", "--project FOLDER"),
        ((SESSION, "--to", "codex", "--tokens", "9"), "--tokens goes with --brief", ""),
        ((SESSION, "--brief", "--tokens", "9"), "--tokens is 9", "use 100 or more"),
        (("ffff", "--to", "codex"), "ffff", "crystal sessions"),
        (("ffff", "--to", "gemini"), "ffff", "crystal sessions"),
        (("@7", "--to", "codex"), "there is no hit @7", "crystal search"),
    ],
)
def test_a_wrong_request_names_the_next_step(home: Path, words: tuple[str, ...], message: str, hint: str) -> None:
    remember(home, ["Which port?", "4711."], cwd=str(home))
    done = crystal("handoff", *words)
    assert done.code in (1, 2)
    assert message in done.err
    assert hint in done.err


def test_a_folder_that_is_gone_is_named(home: Path) -> None:
    remember(home, ["Which port?", "4711."], cwd="/home/me/gone")
    done = crystal("handoff", SESSION, "--to", "pi")
    assert done.code == 2
    assert "the folder /home/me/gone is not there" in done.err
    assert "--project FOLDER" in done.err


def test_a_program_that_must_import_and_is_not_here_is_named(home, project, monkeypatch):
    remember(home, ["Which port?", "4711."], cwd=str(project))
    monkeypatch.setenv("PATH", str(home))
    done = crystal("handoff", SESSION, "--to", "opencode")
    assert done.code == 3
    assert "opencode is not installed" in done.err
    assert f"crystal handoff {SESSION} --brief" in done.err


def test_every_target_is_an_agent_that_crystal_reads() -> None:
    assert set(TARGETS) <= set(HARNESSES)
