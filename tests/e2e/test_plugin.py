"""The plugin in the real client: installed from this repository, used, beside the settings' hooks, and taken out."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crystal.text.fence import HEADER
from tests.e2e.client import SECONDS, Client
from tests.e2e.fake_anthropic import FakeAnthropic, Use
from tests.e2e.programs import run_to_end
from tests.e2e.test_assist import REASON, let_sessions_work
from tests.support.whole_memory import ROOT, Memory, said

PLUGIN = (".claude-plugin", ".mcp.json", "hooks", "skills", "README.md", "LICENSE")
TOOL = "mcp__plugin_crystal_crystal__crystal_search"
REMEMBER, FORGET = (TOOL.replace("search", name) for name in ("remember", "forget"))
PLAIN_TOOL = "mcp__crystal__crystal_search"

Claude = Callable[..., str]


@pytest.fixture
def claude(client: Client) -> Claude:
    """Run a command of the client that is no session; it must succeed."""
    client.extra |= {"CRYSTAL_PYTHON": sys.executable, "PATH": f"{client.program.parent}:{client.env()['PATH']}"}

    def run(*arguments: str) -> str:
        done = run_to_end([client.program, *arguments], SECONDS, client.project, client.env())
        assert done.returncode == 0, f"claude {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


@pytest.fixture
def _installed(claude: Claude, tmp_path: Path) -> None:
    folder = tmp_path / "it's a $HOME plug in"
    folder.mkdir()
    for name in PLUGIN:
        copy: Any = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    assert "Validation passed" in claude("plugin", "validate", str(folder))
    claude("plugin", "marketplace", "add", str(folder))
    claude("plugin", "install", "crystal@crystal")


def asked(model: FakeAnthropic) -> str:
    """All that the client sent to the model."""
    return json.dumps(model.requests, ensure_ascii=False)


def state(client: Client) -> dict[str, Any]:
    """The file in which the client keeps its servers."""
    return dict(json.loads((client.config / ".claude.json").read_text("utf-8")))


@pytest.mark.usefixtures("_modern", "_installed")
def test_the_plugin_alone_keeps_what_is_said_finds_it_and_leaves(client, model, claude):
    memory = Memory(client.home, client.env())
    model.when("what is quartz", ["A mineral of silicon and oxygen."])
    model.when("of what was it", [Use(TOOL, {"query": "quartz mineral", "limit": 3})], ["Of silicon."])
    first = client.ask("what is quartz")
    memory.settle()
    assert memory.said(first.session) == said(
        ("user", "what is quartz"), ("assistant", "A mineral of silicon and oxygen.")
    )
    assert client.ask("of what was it").text == "Of silicon."
    sent = asked(model)
    assert "crystal:memory" in sent, "the skill is not listed"
    assert "crystal:recall" not in sent, "a command is the user's own: the model does not run it"
    result = json.dumps(model.requests[-1]["messages"][-1], ensure_ascii=False)
    assert "tool_result" in result
    assert "A mineral of silicon and oxygen." in result
    memory.verify()
    claude("plugin", "uninstall", "crystal@crystal")
    claude("plugin", "marketplace", "remove", "crystal")
    model.when("is it gone", ["Yes."])
    requests = len(model.requests)
    client.ask("is it gone")
    assert "crystal:memory" not in json.dumps(model.requests[requests:])
    assert TOOL not in json.dumps(model.requests[requests:])
    assert memory.notes() == []
    assert "is it gone" not in memory.texts("user")
    assert "crystal" not in (client.config / "settings.json").read_text("utf-8")


@pytest.mark.usefixtures("_modern", "_installed")
def test_the_plugin_alone_tells_facts_and_none_with_assist_off(client: Client, model: FakeAnthropic) -> None:
    memory = Memory(client.home, client.env())
    memory.crystal("config", "set", "assist.mode", "on")
    memory.crystal("config", "set", "context.enabled", "false")
    _, _, requests = let_sessions_work(client, model, memory)
    assert (requests[-1].count(HEADER), requests[0].count(HEADER)) == (2, 0)
    assert REASON in requests[-1]
    assert "sh setup.sh" in requests[-1]
    assert "hooks" not in (client.config / "settings.json").read_text("utf-8"), "the plugin's are enough"
    memory.crystal("config", "set", "assist.mode", "off")
    _, _, requests = let_sessions_work(client, model, memory)
    assert HEADER not in "".join(requests)


@pytest.mark.usefixtures("_modern", "_installed")
def test_the_slash_commands_reach_the_model_and_the_memory(client: Client, model: FakeAnthropic) -> None:
    memory = Memory(client.home, client.env())
    client.extra["CRYSTAL_PYTHON"] = sys.executable
    model.when("which animal", ["The zebra is striped."])
    client.ask("which animal")
    memory.settle()
    searched = [Use(TOOL, {"query": "zebra"})]
    for words, steps in {
        "recall": ("Answer from the memory what the user looks for: zebra", searched),
        "why": ("Say why this is as it is: zebra", searched),
        "remember": ("Remember for later sessions: zebra", [Use(REMEMBER, {"text": "The zebra is striped."})]),
        "forget": ("The user wants this forgotten: zebra", [Use(FORGET, {"query": "zebra"})]),
    }.items():
        expanded, uses = steps
        model.when(expanded, uses, [f"{words} is done."])
        assert client.ask(f"/crystal:{words} zebra").text == f"{words} is done."
        asked_last = json.dumps(model.requests[-1]["messages"], ensure_ascii=False)
        assert "The zebra is striped." in asked_last, f"{words}: {asked_last[-2000:]}"
    memory.settle()
    assert "The zebra is striped." in memory.texts("assistant"), "the list alone deletes nothing"
    model.when("call `crystal_recent` and say", ["Nothing was named."])
    assert client.ask("/crystal:recall").text == "Nothing was named."


@pytest.mark.usefixtures("_modern", "_installed")
def test_plugin_and_settings_together_keep_everything_once(client: Client, model: FakeAnthropic) -> None:
    memory = Memory(client.home, client.env())
    settings = client.home / ".claude" / "settings.json"
    plugins = json.loads(settings.read_text())["enabledPlugins"]
    assert "run by the plugin" in memory.crystal("init", "--yes")
    settings.write_text("{}")  # as if the hooks had been there before the plugin
    memory.crystal("init", "--yes", "--client", "claude-code")
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "enabledPlugins": plugins}))
    assert state(client)["mcpServers"]["crystal"]["args"] == ["mcp", "--agent", "claude-code"]
    assert "already in" in memory.crystal("init", "--yes", "--client", "claude-code").split("server: ")[1]
    model.when("twice", [Use(PLAIN_TOOL, {"query": "anything"}), Use(TOOL, {"query": "anything"})], ["Once is enough."])
    answer = client.ask("twice")
    memory.settle()
    (stop,) = [line for line in client.lines() if line.get("subtype") == "stop_hook_summary"]
    assert (stop["hookCount"], stop["hookErrors"]) == (2, [])
    kept = memory.said(answer.session)
    words = {turn: count for turn, count in kept.items() if turn[0] in ("user", "assistant")}
    assert words == said(("user", "twice"), ("assistant", "Once is enough."))
    assert sum(count for (role, _), count in kept.items() if role == "tool_result") == 2, "both servers answered"
    memory.verify()
    memory.crystal("uninstall")
    assert not state(client).get("mcpServers")
