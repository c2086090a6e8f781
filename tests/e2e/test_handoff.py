"""A session of one agent's real program goes on in another's: the model gets what was said before, once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crystal.handoff.target import TARGETS
from tests.e2e.agents import AGENTS
from tests.e2e.client import Client, find_client
from tests.e2e.fake_anthropic import FakeAnthropic, Use
from tests.e2e.fake_models import Answer, FakeModels
from tests.e2e.paired import paired
from tests.e2e.programs import ENVIRON, NoClient
from tests.e2e.running_agents import Running, install_agent
from tests.e2e.test_lives_of_agents import COMMAND, LIVES, RESULT
from tests.support.whole_memory import Memory, Said, wait_until

QUARTZ, BASALT = "A mineral of silicon and oxygen.", "A dark stone from a volcano."
PRINTED = "It printed a name and a number."
PAIRS = [(source, to) for source in TARGETS for to in TARGETS if source != to]
QUICK_PAIRS = (("claude-code", "codex"), ("codex", "pi"), ("pi", "claude-code"))
"""Those that run with every CI; all of them take minutes."""


@dataclass(frozen=True)
class Program:
    """One agent's program in a home, and the model that it talks to."""

    name: str
    running: Running | Client
    model: FakeModels | FakeAnthropic

    def ask(self, prompt: str) -> str:
        """Begin a session."""
        answer = self.running.ask(prompt)
        return answer if isinstance(answer, str) else answer.text

    def go_on(self, command: str, prompt: str) -> str:
        """Go on with a session as the command says that crystal printed."""
        words = command.rpartition("&& ")[2].split()[1:]
        if isinstance(self.running, Client):
            return self.running.ask(prompt, *words).text
        ended = self.running.go(prompt, words)
        assert ended.code == 0, ended
        return ended.out

    def last_request(self, prompt: str) -> list[dict[str, Any]]:
        """Return the messages of the last request with a prompt."""
        bodies = [body for body in self.model.requests if prompt in json.dumps(body) and body.get("tools")]
        turns = [body.get("messages") or body.get("input") or body.get("contents") for body in bodies]
        return [turn for turn in turns[-1] or [] if turn.get("role") not in ("system", "developer")]

    def env(self) -> dict[str, str]:
        return self.running.env()


@dataclass(frozen=True)
class Models:
    """The models of all programs."""

    others: FakeModels
    claude: FakeAnthropic

    def start(self, name: str, home: Path) -> Program:
        """Return a program in a home."""
        try:
            if name == "claude-code":
                self._teach_claude()
                client = Client(find_client(), home, self.claude.base_url)
                client.prepare()
                return Program(name, client, self.claude)
            agent = next(agent for agent in AGENTS if agent.name == name)
            running = Running(agent, install_agent(agent), home, self.others.url)
        except NoClient as reason:
            pytest.skip(str(reason))
        life = next(life for life in LIVES if life.name == name)
        self.others.when("run the command", Answer(PRINTED, life.tool, life.arguments))
        self.others.when("what is quartz", QUARTZ)
        self.others.when("what is basalt", BASALT)
        return Program(name, running, self.others)

    def _teach_claude(self) -> None:
        self.claude.when("what is quartz", [QUARTZ])
        self.claude.when("what is basalt", [BASALT])
        self.claude.when("run the command", [Use("Bash", {"command": COMMAND})], [PRINTED])


@pytest.fixture
def models() -> Iterator[Models]:
    with FakeModels() as others, FakeAnthropic() as claude:
        yield Models(others, claude)


every_pair = pytest.mark.parametrize(("source", "to"), PAIRS, ids=["-".join(pair) for pair in PAIRS])


def skip_unless_asked_for(source: str, to: str, quick: tuple[tuple[str, str], ...]) -> None:
    if (source, to) not in quick and ENVIRON.get("CRYSTAL_E2E") != "all":
        pytest.skip("takes minutes; set CRYSTAL_E2E=all to run every pair")


def files_of(program: Program) -> dict[Path, bytes]:
    """Return the files in which a program keeps its conversations; a database's index of its log is nobody's."""
    pattern = next((life.files for life in LIVES if life.name == program.name), ".claude/projects/**/*.jsonl")
    found = (path for path in program.running.home.glob(pattern) if path.is_file() and path.suffix != ".db-shm")
    return {path: path.read_bytes() for path in found}


def is_told_once(program: Program, *then: str) -> None:
    """Check what the model of a program was sent when the session had gone on: all that was said, in order, once."""
    sent = json.dumps(program.last_request(then[-1]), ensure_ascii=False)
    for text in ("run the command", PRINTED, COMMAND, RESULT, *then):
        assert sent.count(text) == 1, (text, sent)
    places = [sent.index(text) for text in ("run the command", RESULT, PRINTED, *then)]
    assert places == sorted(places)


def is_new_alone(memory: Memory, before: Said, session: str) -> None:
    """Check that a memory has the new turn, and the whole session where it is shown."""
    new = {(role, text.strip('"')): count for (role, text), count in (memory.said() - before).items()}
    assert new == {("user", "what is basalt"): 1, ("assistant", BASALT): 1}, new
    shown = json.loads(memory.crystal("show", session, "--json"))["turns"]
    assert [turn["text"].strip('"') for turn in shown] == ["run the command", PRINTED, "what is basalt", BASALT]


@every_pair
def test_another_agent_goes_on_and_nothing_is_stored_twice(source: str, to: str, home: Path, models: Models) -> None:
    skip_unless_asked_for(source, to, QUICK_PAIRS)
    second, first = models.start(to, home), models.start(source, home)  # the last one's tool is called
    path = os.pathsep.join(dict.fromkeys(one.env()["PATH"] for one in (first, second)))
    memory = Memory(home, {**first.env(), **second.env(), "PATH": path})
    memory.crystal("init", "--yes")
    assert PRINTED in first.ask("run the command")
    memory.verify()
    before, files = memory.said(), files_of(first)
    session = json.loads(memory.crystal("sessions", "--json"))["sessions"][0]["id"]

    done = json.loads(memory.crystal("handoff", session, "--to", to, "--json"))
    memory.verify()
    assert memory.said() == before, "what was handed over is stored already"

    assert BASALT in second.go_on(done["command"], "what is basalt")
    is_told_once(second, "what is basalt")
    memory.verify()
    is_new_alone(memory, before, done["new_session"])
    assert files
    assert files_of(first) == files, "the files of the one that was left were changed"

    back = json.loads(memory.crystal("handoff", done["new_session"], "--to", source, "--json"))
    assert QUARTZ in first.go_on(back["command"], "what is quartz")
    is_told_once(first, "what is basalt", BASALT, "what is quartz")
    memory.verify()


@every_pair
def test_it_goes_on_on_another_machine(source: str, to: str, tmp_path: Path, models: Models) -> None:
    skip_unless_asked_for(source, to, QUICK_PAIRS[:1])
    homes = [tmp_path / name for name in ("laptop", "desktop")]
    for home in homes:
        home.mkdir()
    second, first = models.start(to, homes[0]), models.start(source, homes[1])
    laptop = Memory(homes[0], {**second.env(), "CRYSTAL_DEVICE": "laptop"})
    desktop = Memory(homes[1], {**first.env(), "CRYSTAL_DEVICE": "desktop"})
    with paired(desktop, laptop, tmp_path):
        assert PRINTED in first.ask("run the command")
        desktop.verify()
        before, files = desktop.said(), files_of(first)
        session = json.loads(desktop.crystal("sessions", "--json"))["sessions"][0]["id"]

        def is_listed() -> bool:
            laptop.crystal("relay", "sync")
            return session in laptop.crystal("sessions", "--json")

        wait_until(is_listed, "the laptop to list it")
        folder = str(second.running.project)
        done = json.loads(laptop.crystal("handoff", session, "--to", to, "--project", folder, "--json"))
        assert BASALT in second.go_on(done["command"], "what is basalt")
        is_told_once(second, "what is basalt")
        laptop.verify()
        laptop.crystal("relay", "sync")
        wait_until(lambda: BASALT in desktop.crystal("search", f'"{BASALT}"'), "the desktop to find what is new")
        is_new_alone(desktop, before, done["new_session"])
        assert files_of(first) == files
        for memory in (laptop, desktop):
            brief = memory.crystal("handoff", done["new_session"], "--brief")
            assert brief.index(COMMAND) < brief.index(RESULT) < brief.index(BASALT)
