"""The user's own agents choose memories: the real programs answer, and their calls leave no session behind."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.agents import AGENTS
from tests.e2e.fake_models import Answer, FakeModels
from tests.e2e.running_agents import install_agent
from tests.support.whole_memory import Memory

QUARTZ = "The quartz service owns the invoices."
PICKS = json.dumps(
    {"memories": [{"number": 1, "quote": QUARTZ, "kind": "fact", "everywhere": False, "confidence": 0.9}]}
)


def learned(memory: Memory, provider: str, program: Path) -> dict[str, object]:
    """Ask the program through crystal; return the run."""
    memory.env["PATH"] = f"{program.parent}:{memory.env['PATH']}"
    memory.env |= {"CRYSTAL_SUMMARY_PROVIDER": provider, "CRYSTAL_SUMMARY_CONSENT": "true",
                   "CRYSTAL_SUMMARY_MODE": "simple", "CRYSTAL_REFLECT_EXTRACTOR": "model"}  # fmt: skip
    files = {path for path in memory.home.rglob("*.jsonl") if ".ldm" not in path.parts}
    run = json.loads(memory.crystal("reflect", "--now", "--json"))["run"]
    assert {path for path in memory.home.rglob("*.jsonl") if ".ldm" not in path.parts} == files
    memory.crystal("sync")
    texts = [
        one["text"] for one in json.loads(memory.crystal("memories", "--status", "proposed", "--json"))["memories"]
    ]
    assert texts == [QUARTZ], run
    assert len(json.loads(memory.crystal("sessions", "--json"))["sessions"]) == 1
    return dict(run)


def test_claude_chooses_without_tools_and_leaves_no_session(client, model, memory):
    model.when("quartz", ["Noted."])
    model.when("Now the JSON object", [PICKS])
    client.ask(QUARTZ, env={"CRYSTAL_REFLECT_MODE": "off"})  # until the session has ended
    memory.settle()
    run = learned(memory, "claude", client.program)
    assert (run["asked"], run["unusable"], run["inserted"]) == (1, 0, 1)
    asked = [body for body in model.requests if "Now the JSON object" in json.dumps(body["messages"])]
    assert len(asked) == 1
    assert not asked[0].get("tools")


def test_codex_chooses_without_tools_and_leaves_no_session(client, model, memory, tmp_path):
    real = install_agent(next(one for one in AGENTS if one.name == "codex"))
    model.when("quartz", ["Noted."])
    client.ask(QUARTZ, env={"CRYSTAL_REFLECT_MODE": "off"})  # until the session has ended
    memory.settle()
    with FakeModels() as models:
        models.when("Now the JSON object", Answer(PICKS))
        mock = f'{{name="mock",base_url="{models.url}/v1",env_key="MOCK_KEY",wire_api="responses"}}'
        program = tmp_path / "codex"  # crystal has it ignore its settings, which would name the played model
        program.write_text(
            f"#!/bin/sh\nMOCK_KEY=x exec {real} -c model_provider=mock -c model=mock-model"
            f" -c 'model_providers.mock={mock}' \"$@\"\n"
        )
        program.chmod(0o755)
        run = learned(memory, "codex", program)
        tools = [tool.get("name") or tool.get("type") for tool in models.requests[-1].get("tools") or ()]
    assert (run["asked"], run["unusable"], run["inserted"]) == (1, 0, 1)
    assert not {"shell", "exec_command", "local_shell", "web_search", "apply_patch"} & set(tools), tools
