"""Other agents' real programs tell crystal of a turn by their own hooks, and never notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal.config.harnesses import HARNESSES
from tests.e2e.agents import AGENTS, Agent
from tests.e2e.fake_models import Answer, FakeModels
from tests.e2e.programs import NoClient
from tests.e2e.running_agents import Running, install_agent
from tests.support.whole_memory import Memory, wait_until

TURN = [("user", "what is quartz"), ("assistant", "A mineral of silicon and oxygen.")]


@pytest.fixture
def models() -> Iterator[FakeModels]:
    with FakeModels() as models:
        yield models


@pytest.fixture
def running(request: pytest.FixtureRequest, home: Path, models: FakeModels) -> Iterator[Running]:
    agent: Agent = request.param
    try:
        program = install_agent(agent)
    except NoClient as reason:
        pytest.skip(str(reason))
    running = Running(agent, program, home, models.url)
    yield running
    running.close()


@pytest.mark.parametrize("running", AGENTS, ids=[agent.name for agent in AGENTS], indirect=True)
def test_a_turn_is_kept_by_the_agents_own_hook_alone(running: Running, models: FakeModels) -> None:
    models.when(*[text for _, text in TURN])
    memory, before = Memory(running.home, running.env()), running.configuration()
    memory.crystal("init", "--yes", "--agent", running.agent.name)

    out = running.ask("what is quartz")

    assert "A mineral of silicon and oxygen." in out
    assert (running.home / "the-users-hook").exists(), "the user's own hook did not run"
    wait_until(lambda: memory.value("SELECT count(*) FROM hook_runs"), "a run of crystal's hook")
    memory.settle()
    if running.agent.name in HARNESSES:
        said = [(role, text.strip('"')) for role, text in memory.said().elements()]  # OpenCode quotes a prompt itself
        assert [said.count(turn) for turn in TURN] == [1, 1], said
        memory.verify()

    memory.crystal("uninstall")
    after = running.configuration()
    assert {path: after.get(path) for path in before} == before
    assert not [path for path in after if "crystal" in Path(path).name]


@pytest.mark.parametrize("running", AGENTS, ids=[agent.name for agent in AGENTS], indirect=True)
def test_an_agent_works_when_crystal_is_gone(running: Running, models: FakeModels) -> None:
    models.when(*[text for _, text in TURN])
    memory = Memory(running.home, running.env())
    memory.crystal("init", "--yes", "--agent", running.agent.name)
    for path in running.home.rglob("*"):
        if path.is_file() and ".ldm" not in path.parts and b"crystal/hook/main.py" in path.read_bytes():
            path.write_bytes(path.read_bytes().replace(b"crystal/hook/main.py", b"crystal/gone/main.py"))

    assert "A mineral of silicon and oxygen." in running.ask("what is quartz")
    assert not [body for body in models.requests if "crystal/gone" in str(body)], "the hook's failure became a prompt"


@pytest.mark.parametrize("running", [agent for agent in AGENTS if agent.name == "openclaw"], indirect=True)
def test_openclaws_model_remembers_and_searches(running: Running, models: FakeModels) -> None:
    remembering, searching = {"text": "The quartz is in the cellar."}, {"query": "quartz"}
    for prompt, tool, given in (("keep", "remember", remembering), ("where", "search", searching)):
        called = {"id": f"crystal_{tool}", "args": given}
        models.when(f"{prompt} the stone", Answer("It is done.", "tool_call", called))
    memory = Memory(running.home, running.env())
    memory.crystal("init", "--yes", "--agent", "openclaw")
    running.ask("keep the stone")
    assert "The quartz is in the cellar." in memory.crystal("memories")
    running.ask("where the stone")
    [found] = {turn["content"] for turn in models.requests[-1]["messages"][-3:] if turn["role"] == "tool"}
    assert "The quartz is in the cellar." in found
    assert "<crystal-memory-" in found
