"""What Claude Code decided and cured in a project reaches the models of the other agents, by their real hooks, once."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crystal.text.fence import HEADER
from tests.e2e.agents import AGENTS
from tests.e2e.fake_models import Answer, FakeModels
from tests.e2e.programs import NoClient
from tests.e2e.running_agents import Running, install_agent
from tests.e2e.test_lives_of_agents import HELP, LIVES, newest_file
from tests.support.whole_memory import Memory, wait_until

REASON = "I keep three retries because the queue drops a message after the fourth attempt."
OLD, NEW = "RETRIES = 3  # attempts for each message", "RETRIES = 7  # attempts for each message"
REMEMBERED = "The shop deploys with just ship."
FAR = "." * 220 + " "
"""A context has only the beginning of a request, and so not the words that the model answers to."""
FAILING = "sh check.sh"
CURE = "make settings"
ERROR = "error: there is no settings file for the shop"


@dataclass(frozen=True)
class Tools:
    """How one agent edits a file and runs a command, as its model calls it; None where its hooks tell no failure.

    ``reading`` is what it asks for before an edit.
    """

    name: str
    edit: tuple[str, Mapping[str, Any]]
    fail: tuple[str, Mapping[str, Any]] | None
    reading: tuple[str, Mapping[str, Any]] | None = None


PATCH = f"apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: FILE\n@@\n-{OLD}\n+{NEW}\n*** End Patch\nEOF"
BEFORE_AFTER = {"old_string": OLD, "new_string": NEW}
OLD_NEW = {"old_str": OLD, "new_str": NEW}
DESCRIBED = {"command": FAILING, "description": "check"}
TOOLS = (
    Tools("codex", ("exec_command", {"cmd": PATCH}), ("exec_command", {"cmd": FAILING})),
    Tools(
        "pi", ("edit", {"path": "FILE", "edits": [{"oldText": OLD, "newText": NEW}]}), ("bash", {"command": FAILING})
    ),
    Tools(
        "gemini-cli",
        ("replace", {"file_path": "FILE", "instruction": "raise", **BEFORE_AFTER}),
        ("run_shell_command", DESCRIBED),
    ),
    Tools(
        "qwen-code",
        ("edit", {"file_path": "FILE", **BEFORE_AFTER}),
        ("run_shell_command", {**DESCRIBED, "is_background": False}),
        ("read_file", {"file_path": "FILE"}),
    ),
    Tools("copilot-cli", ("edit", {"path": "FILE", **OLD_NEW}), ("bash", DESCRIBED)),
    Tools("droid", ("Edit", {"file_path": "FILE", **OLD_NEW}), None),
    Tools(
        "opencode",
        ("edit", {"filePath": "FILE", "oldString": OLD, "newString": NEW}),
        ("bash", DESCRIBED),
    ),
)


@pytest.fixture
def models() -> Iterator[FakeModels]:
    with FakeModels() as models:
        yield models


def remember_a_session(memory: Memory, project: Path) -> None:
    """Claude Code has decided something in the project, and cured an error."""
    lines: list[dict[str, Any]] = []

    def say(kind: str, content: Any, **more: Any) -> None:
        parent = lines[-1]["uuid"] if lines else None
        lines.append(
            {
                "type": kind,
                "uuid": f"00000000-0000-4000-8000-{len(lines):012}",
                "parentUuid": parent,
                "sessionId": "11111111-1111-4111-8111-111111111111",
                "timestamp": f"2026-11-20T10:{len(lines):02}:00.000Z",
                "cwd": str(project),
                "version": "2.1.329",
                "message": {"role": kind, "content": content},
                **more,
            }
        )

    def use(name: str, given: dict[str, Any], result: str, *, failed: bool = False, before: str = "") -> None:
        ident = f"toolu_{len(lines)}"
        text = [{"type": "text", "text": before}] if before else []
        say("assistant", [*text, {"type": "tool_use", "id": ident, "name": name, "input": given}])
        say("user", [{"type": "tool_result", "tool_use_id": ident, "content": result, "is_error": failed}])

    say("user", "How often does the queue retry a message? Settle it.")
    use("Write", {"file_path": str(project / "worker.py"), "content": f"{OLD}\n"}, "written", before=REASON)
    use("Bash", {"command": FAILING}, f"Exit code 1\n{ERROR}", failed=True)
    use("Bash", {"command": CURE}, "made")
    use("Bash", {"command": FAILING}, "fine")
    say("assistant", [{"type": "text", "text": "It works."}])
    folder = memory.home / ".claude" / "projects" / "-shop"
    folder.mkdir(parents=True)
    (folder / f"{lines[0]['sessionId']}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    memory.crystal("backfill")
    memory.crystal("remember", REMEMBERED)


def in_project(given: Mapping[str, Any], file: Path) -> Any:
    """Return a tool's arguments, with the file's path."""
    return json.loads(json.dumps(given).replace("FILE", str(file)))


def asked(
    one: Running, models: FakeModels, memory: Memory, prompt: str, tools: Tools, call: tuple[str, Mapping[str, Any]]
) -> str:
    """Return the last request after a prompt to which the model answers with a call, once it is captured."""
    file = one.project / "worker.py"
    first = tools.reading and (tools.reading[0], in_project(tools.reading[1], file))
    models.when(prompt, Answer("Done.", call[0], in_project(call[1], file), first=first))
    at = len(models.requests)
    assert "Done." in one.ask(FAR + prompt)
    assert CURE not in json.dumps(models.requests[at])
    wait_until(lambda: any(prompt in text for _, text in memory.said().elements()), "the prompt to be captured")
    memory.settle()
    return json.dumps(models.requests[-1])


@pytest.mark.parametrize("tools", TOOLS, ids=[tools.name for tools in TOOLS])
def test_what_was_done_before_reaches_the_model_once(tools: Tools, home: Path, models: FakeModels) -> None:
    agent = next(agent for agent in AGENTS if agent.name == tools.name)
    try:
        one = Running(agent, install_agent(agent), home, models.url)
    except NoClient as reason:
        pytest.skip(str(reason))
    file = one.project / "worker.py"
    file.write_text(f"{OLD}\n")
    (one.project / "check.sh").write_text(f"echo '{ERROR}'; exit 1\n")
    memory, before = Memory(home, one.env()), one.configuration()
    memory.crystal("init", "--yes", "--agent", tools.name)
    quiet = one.configuration()
    remember_a_session(memory, one.project)
    memory.crystal("config", "set", "assist.mode", "on")
    memory.crystal("config", "set", "context.enabled", "false")
    memory.settle()
    memory.crystal("sync")
    memory.settle()

    for prompt, call in (("raise the retries", tools.edit), ("run the check", tools.fail)):
        if call is not None:
            sent = asked(one, models, memory, prompt, tools, call)
            assert (sent.count(REASON), sent.count(CURE)) == ((1, 0) if call is tools.edit else (0, 1)), sent
    models.when("what is this", "I know it.")
    assert "I know it." in one.ask(f"{FAR}\n{ERROR}\nwhat is this")
    sent = next(text for text in map(json.dumps, models.requests) if "what is this" in text and '"tools"' in text)
    assert sent.count(CURE) == (tools.name != "droid"), sent  # which runs no hook at a prompt outside its terminal
    if tools.name == "opencode":
        assert sent.index("what is this") < sent.index(CURE), sent
    assert one.configuration() != quiet or tools.name in ("pi", "opencode", "copilot-cli")
    memory.crystal("config", "set", "context.enabled", "true")
    memory.settle()
    file.write_text(f"{OLD}\n")
    sent = asked(one, models, memory, "raise them again", tools, tools.edit)
    assert (sent.count(REMEMBERED), sent.count(REASON)) == (1, 1), sent  # the reason is told when the session begins
    if tools.name == "opencode":  # which keeps no system prompt: a new process has to ask again
        life = next(life for life in LIVES if life.name == tools.name)
        assert life.resume is not None
        models.when("go on with it", "Going on.")
        at = len(models.requests)
        assert one.go("go on with it", life.resume(newest_file(life, home))).code == 0
        assert max(json.dumps(body).count(REMEMBERED) for body in models.requests[at:]) == 1
    one.close()
    said = "\n".join(text for _, text in memory.said().elements())
    assert HEADER not in said, "what crystal told came back as something said"
    memory.verify()

    memory.crystal("config", "set", "assist.mode", "off")
    memory.crystal("config", "set", "context.enabled", "false")
    assert {path: one.configuration().get(path) for path in quiet} == quiet
    memory.crystal("uninstall")
    assert {path: one.configuration().get(path) for path in before} == before


@pytest.mark.parametrize("name", ["pi", "opencode"])
def test_a_hook_that_hangs_is_ended_and_the_agent_goes_on(name: str, home: Path, models: FakeModels) -> None:
    agent = next(agent for agent in AGENTS if agent.name == name)
    try:
        one = Running(agent, install_agent(agent), home, models.url)
    except NoClient as reason:
        pytest.skip(str(reason))
    memory = Memory(home, one.env())
    memory.crystal("init", "--yes", "--agent", name)
    memory.crystal("config", "set", "assist.mode", "on")
    plugins = [path for path in home.rglob("crystal*.[jt]s") if "const COMMAND = [" in path.read_text("utf-8")]
    assert len(plugins) == 1
    script = f"trap '' TERM; echo $$ >> {home}/pids; while :; do sleep 0.1; done"
    text = re.sub(r"const COMMAND = .*", f"const COMMAND = {json.dumps(['sh', '-c', script])};", plugins[0].read_text())
    plugins[0].write_text(text.replace("_MS = 2000", "_MS = 500").replace("_MS = 3000", "_MS = 900"))
    models.when("good morning", "Good morning.")
    assert one.go("good morning").code == 0
    one.close()
    assert any("good morning" in json.dumps(body) for body in models.requests)
    asked, told = [], (home / "pids").read_text().split()
    for pid in told:
        try:
            os.kill(int(pid), signal.SIGKILL)  # a hook that nobody waits for, at the turn's end, is not the plugin's
            asked.append(pid)
        except ProcessLookupError:
            continue
    assert len(asked) <= 2, told
    assert len(told) > len(asked), told


RULE = "From now on use three retries for the queue."
STATED, FAILS = "The user had said", "failed when it ran last"


def test_codexs_subagent_is_told_what_its_session_has_decided(home: Path, models: FakeModels) -> None:
    agent = next(agent for agent in AGENTS if agent.name == "codex")
    life = next(life for life in LIVES if life.name == "codex")
    tools = next(tools for tools in TOOLS if tools.name == "codex")
    try:
        one = Running(agent, install_agent(agent), home, models.url)
    except NoClient as reason:
        pytest.skip(str(reason))
    assert life.resume is not None
    assert life.helper is not None
    assert tools.fail is not None
    (one.project / "check.sh").write_text(f"echo '{ERROR}'; exit 1\n")
    memory = Memory(home, one.env())
    memory.crystal("init", "--yes", "--agent", "codex")
    memory.crystal("config", "set", "assist.mode", "on")
    memory.crystal("config", "set", "context.enabled", "false")
    models.when(HELP, "There are two minerals.")
    models.when("good morning", "Good morning.")
    models.when("begin now", Answer("Noted.", *tools.fail))
    models.when("begin again", Answer("Noted.", *tools.fail))
    models.when("start somebody", Answer("I have asked around.", *life.helper, waits_for=HELP))
    assert one.go("good morning").code == 0
    for prompt in (f"{RULE}{FAR}begin now", f"{RULE}{FAR}begin again", f"{FAR}start somebody"):
        memory.settle()
        assert one.go(prompt, life.resume(newest_file(life, home))).code == 0
    one.close()
    sent = [json.dumps(body) for body in models.requests]
    helper = [text for text in sent if HELP in text and "start somebody" not in text]
    assert [(text.count(STATED), text.count(FAILS)) for text in helper] == [(1, 1)]
    memory.settle()
    memory.verify()
