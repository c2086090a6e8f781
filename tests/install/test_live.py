"""Claims of install/live: each agent's files get crystal's entries beside the user's own, and get rid of them again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given

from crystal.install.live import json_entries
from crystal.install.live.changes import (
    apply,
    apply_removal,
    folder_of,
    is_live,
    missing_scripts,
    plan_install,
    plan_removal,
)
from crystal.install.live.json_entries import Entry
from crystal.install.live.mechanisms import MECHANISMS, HookCommand, OwnFile, SharedFile
from crystal.install.undo import LIVE, read_record
from tests.install.test_settings import documents
from tests.support.command import crystal
from tests.support.examples import examples, part_of
from tests.support.table import each_row

HOOK = HookCommand(
    ("/py/bin/python", "-I", "-S", "/a b/crystal/hook/main.py", "--harness", "x"),
    moments=("start", "edit", "failure", "subagent"),
)
SHARED = [
    (name, part.name)
    for name, mechanism in MECHANISMS.items()
    for part in mechanism.parts(HOOK, Path("/f"))
    if isinstance(part, SharedFile)
]
USERS = {
    "nothing": None,
    "blank": "\n",
    "own settings": '{\n    "theme": "dark", // mine\n    "list": [1, 2]\n}\n',
    "own entries": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}], "stop": [], '
    '"AfterAgent": []}, "plugins": {"load": {"paths": ["/mine"]}, "entries": {}}}',
    "empty": "",
    "a mark, tabs and comments": '\ufeff{\t// mine\n\t/* "hooks": {} */\n\t"theme":\t"dark"\t// last\n}',
    "one line, no end": '{"theme":"mine"}',
    "the same key in another place": '{"mine": {"hooks": {"Stop": []}, "plugins": []}, "hooks": {}}\n\n\n',
    "Windows lines": '{\r\n\t"hooks": {}\r\n}',
}


def files_in(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder but crystal's own, with the files' bytes."""
    paths = [path for path in folder.rglob("*") if ".ldm" not in path.parts]
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


def install(name: str, home: Path, env: dict[str, str] | None = None) -> list[str]:
    ldm = home / ".ldm"
    plan = plan_install(name, folder_of(name, env or {}, home), HOOK, read_record(ldm, LIVE))
    return [problem.message for problem in apply(plan, ldm).problems]


def remove(home: Path) -> list[str]:
    changes, problems = plan_removal({}, home, home / ".ldm")
    apply_removal(changes, home / ".ldm")
    return [problem.message for problem in problems]


@each_row("name", MECHANISMS)
def test_an_agent_without_files_has_none_afterwards(name: str, home: Path) -> None:
    assert install(name, home) == []
    assert is_live(name, {}, home)
    assert files_in(home)
    assert remove(home) == []
    assert files_in(home) == {}
    assert read_record(home / ".ldm", LIVE) == {}
    assert not is_live(name, {}, home)


@each_row("users", part_of(USERS))
@each_row(("name", "file"), SHARED)
def test_a_shared_file_is_restored_to_the_byte(name: str, file: str, users: str, home: Path) -> None:
    path, text = folder_of(name, {}, home) / file, USERS[users]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_bytes(text.encode())
    before = files_in(home)
    assert install(name, home) == []
    once = files_in(home)
    assert install(name, home) == []
    assert files_in(home) == once, "twice is once"
    assert once != before
    if text and "mine" in text:
        assert "mine" in path.read_text()
    assert remove(home) == []
    assert files_in(home) == before


@pytest.mark.parametrize(("name", "file"), SHARED, ids=[name for name, _ in SHARED])
def test_a_file_that_is_a_link_stays_one(name: str, file: str, home: Path) -> None:
    path, target = folder_of(name, {}, home) / file, home / "dotfiles" / "mine.json"
    for folder in (path.parent, target.parent):
        folder.mkdir(parents=True)
    target.write_text('{"theme": "mine"}\n', "utf-8")
    path.symlink_to(target)
    before = files_in(home)
    assert install(name, home) == []
    assert "crystal" in target.read_text("utf-8")
    assert remove(home) == []
    assert path.is_symlink()
    assert files_in(home) == before


@pytest.mark.slow
@examples(60)
@given(documents())
@example('{"hooks":{"Stop":[{"hooks":[]}]}}')
@example("{\r}\n")
def test_what_is_added_to_any_document_comes_out_again(text: str) -> None:
    entries = [
        Entry(("hooks", "Stop"), {"hooks": [{"command": HOOK.line("Stop")}]}),
        Entry(("hooks", "stop"), {"command": HOOK.line("Stop")}),
        Entry(("plugins", "entries"), {"enabled": True, "hooks": {}}, "crystal"),
    ]
    kept = json_entries.containers(text, entries)
    after = json_entries.added(text, entries, kept)
    assert len(json_entries.ours(after)) == len(entries)
    assert json_entries.others(json.loads(after)) == json_entries.others(json.loads(text))
    assert json_entries.added(after, entries, kept) == after
    assert json_entries.removed(after, kept) == text


def test_what_the_user_adds_later_stays(home: Path) -> None:
    install("gemini-cli", home)
    path = home / ".gemini" / "settings.json"
    document = json.loads(path.read_bytes())
    document["hooks"]["AfterAgent"][0]["hooks"].append({"type": "command", "command": "mine"})
    document["hooks"]["SessionEnd"][0]["matcher"] = "*"
    document["theme"] = "dark"
    path.write_text(json.dumps(document))
    assert remove(home) == []
    mine = {"AfterAgent": [{"hooks": [{"type": "command", "command": "mine"}]}]}
    assert json.loads(path.read_bytes()) == {"hooks": mine, "theme": "dark"}


def test_an_older_entry_is_replaced(home: Path) -> None:
    install("codex", home)
    path = home / ".codex" / "hooks.json"
    before = path.read_text()
    path.write_text(before.replace("/py/bin/python", "/old/python").replace('"Interrupt"', '"PreCompact"'))
    install("codex", home)
    assert json.loads(path.read_text()) == json.loads(before)


def test_doctor_does_not_say_that_nothing_is_kept_where_only_another_agent_is_used(home: Path) -> None:
    (home / ".pi" / "agent").mkdir(parents=True)
    assert crystal("init", "--yes", "--no-import", "--agent", "pi").code == 0
    said = " ".join(crystal("doctor").out.split())
    assert "Pi: captured as each turn ends" in said
    assert f"note hooks: Claude Code is not set up: {home / '.claude'} is not there" in said
    assert crystal("init", "--yes", "--no-import", "--agent", "opencode").code == 0
    assert "Pi, OpenCode: captured as each turn ends" in " ".join(crystal("doctor").out.split())
    plugin = home / ".config" / "opencode" / "plugin" / "crystal.js"
    plugin.write_text(re.sub(r'[^"]*/crystal/hook/main.py', "/gone/crystal/hook/main.py", plugin.read_text()))
    assert "OpenCode runs /gone/crystal/hook/main.py, which is gone" in " ".join(crystal("doctor").out.split())


def in_node(name: str, folder: Path, script: str, run: str) -> str:
    """Return what an agent's plugin prints in Node.js, with a script as crystal that has little time."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node.js")
    words = ("sh", "-c", script)
    command = HookCommand(words, server={"command": "sh", "args": words[1:]}, moments=("edit", "prompt"))
    part = MECHANISMS[name].parts(command, folder)[0]
    assert isinstance(part, OwnFile)
    text = re.sub(r"_MS = (?:2000|30000)", "_MS = 500", part.text)
    (folder / "crystal.mjs").write_text(re.sub(r"_MS = (?:3000|33000)", "_MS = 900", text))
    done = subprocess.run(
        [node, "--input-type=module", "-e", run], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def opencode(folder: Path, script: str, run: str) -> str:
    """Return what OpenCode's plugin prints."""
    run = f'import {{ Crystal }} from "./crystal.mjs"; const plugin = await Crystal({{ directory: "." }}); {run}'
    return in_node("opencode", folder, script, run)


EDITED = """const result = { output: "edited" };
await plugin["tool.execute.after"]({ tool: "edit", sessionID: "s", args: {} }, result); console.log(result.output);"""


@pytest.mark.slow
@each_row("script", part_of(["echo oops", "echo null", "true", "exit 3", "no-such-program"], 2))
def test_opencode_goes_on_whatever_the_hook_prints(tmp_path: Path, script: str) -> None:
    assert opencode(tmp_path, script, EDITED) == "edited\n"


SEARCHED = """import plugin from "./crystal.mjs"; plugin.register({ on() {}, registerTool: (tool) =>
tool.name === "crystal_search" && tool.execute("1", {}).catch((error) => console.log(error.message)) });"""
HANGING = "trap '' TERM; printf '{'; echo $$ > pid; sleep 4 & while :; do sleep 0.1; done"


@pytest.mark.slow
@each_row(
    ("name", "run", "printed"),
    [
        ("opencode", EDITED, "edited\n"),
        ("openclaw", SEARCHED, "crystal did not answer; run: crystal doctor\n"),
    ],
)
def test_a_program_of_ours_that_hangs_is_ended(tmp_path: Path, name: str, run: str, printed: str) -> None:
    assert (opencode if name == "opencode" else partial(in_node, name))(tmp_path, HANGING, run) == printed
    assert not Path("/proc", (tmp_path / "pid").read_text().strip(), "exe").exists()


def test_what_opencode_is_told_at_a_prompt_comes_after_the_users_words(tmp_path: Path) -> None:
    said = json.dumps({"hookSpecificOutput": {"additionalContext": "told"}})
    parts = """[{ id: "prt_fffffffffffczzz", text: "second" }, { id: "prt_ffffffffffebAAA", text: "first" }]"""
    run = """await plugin["chat.message"]({ sessionID: "s" }, { message: { id: "msg_1" }, parts });
    console.log(JSON.stringify(parts));"""
    for users in (parts, "[]"):
        told = json.loads(opencode(tmp_path, f"cat > /dev/null; echo '{said}'", f"const parts = {users}; {run}"))
        assert (max(told, key=lambda one: one["id"])["text"], told[-1]["id"][:4]) == ("told", "prt_")


def test_the_users_own_hook_file_stays_and_ours_runs_beside_it(home: Path) -> None:
    path = home / ".cline" / "hooks" / "TaskComplete"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{HOOK.line('Stop')}\necho '{{}}'\n")  # the user's own, with a line of ours in it
    before = files_in(home)
    for _ in range(2):
        assert install("cline", home) == []
        assert is_live("cline", {}, home)
        assert path.read_bytes() == before[str(path)]
    assert {one.name for one in path.parent.iterdir()} == {"TaskComplete", "TaskComplete.sh", "TaskError", "TaskCancel"}
    assert remove(home) == []
    assert files_in(home) == before


def test_each_agents_own_variable_moves_its_files(home: Path, tmp_path: Path) -> None:
    for name, mechanism in MECHANISMS.items():
        variable = mechanism.place.variable
        if variable is not None:
            moved = tmp_path / name
            assert install(name, home, {variable: str(moved)}) == []
            assert is_live(name, {variable: str(moved)}, home)
            assert not is_live(name, {}, home)
            assert remove(home) == [], "the variable is unknown at the end"
            assert not moved.exists()


def test_cline_runs_our_file_and_gets_json(home: Path) -> None:
    install("cline", home)
    path = home / ".cline" / "hooks" / "TaskComplete"
    path.write_text(path.read_text().replace("/py/bin/python", "/nowhere/python"))
    done = subprocess.run([path], capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (0, {})


@pytest.mark.skipif(os.name != "posix", reason="the line is for sh")
def test_a_missing_hook_succeeds(home: Path) -> None:
    # Python ends with 2 if its script is missing, and that makes some agents go on with the turn.
    command = HookCommand(("python3", "-I", "/gone/crystal/hook/main.py"))
    assert subprocess.run(["sh", "-c", command.line("Stop")], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("users", ["own settings", "blank", "nothing"])
@pytest.mark.parametrize("order", [("--client", "--agent"), ("--agent", "--client")], ids=" ".join)
def test_a_server_and_hooks_in_one_file_come_and_go_together(order: tuple[str, str], users: str, home: Path) -> None:
    path, text = home / ".gemini" / "settings.json", USERS[users]
    if text is not None:
        path.parent.mkdir()
        path.write_text(text)
    before = files_in(home)
    names = {"--client": "gemini", "--agent": "gemini-cli"}
    for option in order:
        assert crystal("init", "--yes", "--no-import", option, names[option]).code == 0
    assert crystal("init", "--yes", "--no-import", "--client", "gemini", "--agent", "gemini").code == 0
    assert '"mcpServers"' in path.read_text()
    assert '"AfterAgent"' in path.read_text()
    assert crystal("uninstall").code == 0
    assert {path: data for path, data in files_in(home).items() if ".gemini" in path} == before


def test_all_is_every_agent_found_here(home: Path) -> None:
    assert "no agent was found" in crystal("init", "--yes", "--no-import", "--all").err
    assert crystal("status").out.startswith("nothing to capture: no coding agent is found on this machine")
    for folder in (".gemini/tmp", ".pi/agent/sessions", ".aider"):
        (home / folder).mkdir(parents=True)
    assert crystal("status").out.startswith("NOT capturing: no agent runs crystal's hook (fix: crystal init --all)")
    dry = crystal("init", "--yes", "--all", "--dry-run")
    assert str(home / ".gemini" / "settings.json") in dry.out
    assert not (home / ".gemini" / "settings.json").exists()
    done = crystal("init", "--yes", "--no-import", "--all")
    assert [name for name in MECHANISMS if is_live(name, {}, home)] == ["gemini-cli", "pi"]
    assert "now: use Gemini CLI and Pi as before" in done.out
    assert "no agent was found" not in done.err
    assert not (home / ".claude").exists()


def test_an_agent_without_a_mechanism_is_read_by_the_sweep_and_an_unknown_one_refused(home: Path) -> None:
    done = crystal("init", "--yes", "--no-import", "--agent", "roo-code")
    assert done.code == 0
    assert "sync: Roo Code has no hook for the end of a turn" in done.out
    refused = crystal("init", "--agent", "nobody")
    assert refused.code == 2
    assert "'nobody'" in refused.err
    assert "gemini-cli" in refused.err


def test_codex_needs_trust_and_that_is_said(home: Path) -> None:
    assert "/hooks" in crystal("init", "--yes", "--no-import", "--agent", "codex").err
    assert "/hooks" not in crystal("init", "--yes", "--no-import", "--agent", "codex").err


def test_agents_and_doctor_say_who_is_live(home: Path) -> None:
    (home / ".gemini" / "tmp").mkdir(parents=True)
    assert crystal("init", "--yes", "--no-import", "--agent", "pi").code == 0
    found = {one["name"]: one["live"] for one in json.loads(crystal("agents", "--json").out)["agents"]}
    assert (found["pi"], found["gemini-cli"], found["roo-code"], found["claude-code"]) == (True, False, None, False)
    checks = crystal("doctor").out
    assert "Pi: captured as each turn ends" in checks
    assert "Gemini CLI: captured only when crystal sync runs" in checks
    extension = home / ".pi" / "agent" / "extensions" / "crystal.ts"
    extension.write_text(extension.read_text().replace("crystal/hook/main.py", "gone/crystal/hook/main.py"))
    assert "gone/crystal/hook/main.py, which is gone" in crystal("doctor").out


@pytest.mark.parametrize("folder", ["tools", "my own tools", "tools -v2"])
def test_a_hook_is_missed_when_it_is_gone_and_not_before(home: Path, folder: str) -> None:
    script = home / folder / "crystal" / "hook" / "main.py"
    script.parent.mkdir(parents=True)
    script.touch()
    for name in MECHANISMS:
        command = HookCommand((str(home / folder / "python"), "-I", "-S", str(script), "--harness", name))
        apply(plan_install(name, folder_of(name, os.environ, home), command, {}), home / ".ldm")
        assert missing_scripts(name, os.environ, home) == [], name
    script.unlink()
    for name in MECHANISMS:
        assert missing_scripts(name, os.environ, home) == [str(script)], name


def test_our_files_are_those_of_the_package(home: Path) -> None:
    for name, mechanism in MECHANISMS.items():
        for part in mechanism.parts(HOOK, Path("/f")):
            if isinstance(part, OwnFile):
                assert "COMMAND = []" not in part.text, f"{name}: the command is not in {part.name}"


def test_init_all_says_which_agent_it_leaves_out_and_how_to_get_it(home: Path) -> None:
    (home / ".config" / "opencode").mkdir(parents=True)
    done = crystal("init", "--yes", "--no-import", "--all")
    assert (done.code, "to add it: crystal init --agent opencode" in done.out) == (0, True), done.out + done.err
    assert "restart" not in done.out
    assert not (home / ".config" / "opencode" / "plugin").exists()
