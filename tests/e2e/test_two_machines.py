"""The real client on a laptop, and a desktop that is home: what is said on either is found on both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import AGENTS
from tests.e2e.client import Client
from tests.e2e.fake_anthropic import FakeAnthropic, Use
from tests.e2e.fake_models import FakeModels
from tests.e2e.paired import paired
from tests.e2e.running_agents import Running, install_agent
from tests.support.whole_memory import Memory, said, wait_until

QUARTZ = "Quartz is silicon and oxygen."
MICA = "Mica splits into sheets."


class Place(Memory):
    """A machine with a name, the client, and crystal."""

    def __init__(self, name: str, client: Client) -> None:
        client.extra["CRYSTAL_DEVICE"] = name
        super().__init__(client.home, client.env())
        self.name = name
        self.client = client

    def finds(self, words: str) -> str:
        """What a person sees who looks for these words here."""
        return self.run("search", f'"{words}"').stdout


@pytest.fixture
def places(program: Path, model: FakeAnthropic, tmp_path: Path) -> Iterator[tuple[Place, Place]]:
    """Desktop and laptop, paired, with home watching."""
    made = []
    for name in ("desktop", "laptop"):
        client = Client(program, tmp_path / name, model.base_url)
        client.home.mkdir()
        client.prepare()
        made.append(Place(name, client))
    desktop, laptop = made
    with paired(desktop, laptop, tmp_path):
        yield desktop, laptop
        for place in made:
            place.settle()


def test_a_conversation_on_the_laptop_is_found_on_the_desktop(places, model):
    desktop, laptop = places
    model.when("what is quartz", [Use("Bash", {"command": "echo from-the-laptop"})], [QUARTZ])
    answer = laptop.client.ask("what is quartz")
    assert answer.text == QUARTZ
    wait_until(lambda: QUARTZ in desktop.finds("silicon and oxygen"), "the desktop to find it")
    assert desktop.said(answer.session) == said(
        ("user", "what is quartz"),
        ("tool_call", "Bash: echo from-the-laptop"),
        ("tool_result", "from-the-laptop"),
        ("assistant", QUARTZ),
    )
    laptop.settle()
    laptop.verify()
    desktop.verify()
    assert desktop.value("SELECT DISTINCT device FROM sessions") == "laptop"
    laptop.crystal("relay", "sync")
    wait_until(lambda: laptop.run("relay", "status").returncode == 0, "the receipt of everything")


def test_what_was_said_on_the_desktop_is_found_on_the_laptop(places: tuple[Place, Place], model: FakeAnthropic) -> None:
    desktop, laptop = places
    model.when("what is mica", [MICA])
    model.when("what is quartz", [QUARTZ])
    desktop.client.ask("what is mica")
    desktop.settle()

    def is_found() -> bool:
        laptop.crystal("relay", "sync")
        return MICA in laptop.finds("splits into sheets")

    wait_until(is_found, "the laptop to find it")
    assert "from desktop" in laptop.finds("splits into sheets")
    assert not laptop.said(), "only the mirror has it"
    laptop.client.ask("what is quartz")
    laptop.settle()
    both = laptop.run("search", "quartz mica", "-n", "5").stdout
    assert QUARTZ in both
    assert MICA in both


def test_a_session_goes_on_while_the_relay_is_away(places: tuple[Place, Place], model: FakeAnthropic) -> None:
    desktop, laptop = places
    model.when("first question", ["First answer."])
    model.when("second question", ["Second answer."])
    first = laptop.client.ask("first question")
    laptop.settle()
    url = laptop.crystal("config", "get", "relay.url").split()[0]
    laptop.crystal("config", "set", "relay.url", "http://127.0.0.1:9")
    laptop.client.ask("second question", "--resume", first.session)
    laptop.settle()
    assert laptop.run("relay", "status").returncode == 4
    laptop.crystal("config", "set", "relay.url", url)
    laptop.crystal("relay", "sync")
    wait_until(lambda: "Second answer." in desktop.finds("second answer"), "the desktop to find it")
    assert desktop.said(first.session) == laptop.said(first.session)
    desktop.verify()


def test_a_session_of_the_desktop_goes_on_in_another_agent_on_the_laptop(places, model):
    desktop, laptop = places
    model.when("what is mica", [MICA])
    session = desktop.client.ask("what is mica").session
    desktop.settle()

    def is_listed() -> bool:
        laptop.crystal("relay", "sync")
        return session in laptop.crystal("sessions", "--json")

    wait_until(is_listed, "the laptop to list it")
    with FakeModels() as models:
        models.when("what is quartz", QUARTZ)
        pi = next(agent for agent in AGENTS if agent.name == "pi")
        running = Running(pi, install_agent(pi), laptop.home, models.url)
        words = ("handoff", session[:8], "--to", "pi", "--project", str(running.project), "--json")
        done = json.loads(laptop.crystal(*words))
        assert QUARTZ in running.go("what is quartz", ("--session", done["file"])).out
        sent = json.dumps(models.requests[-1])
    assert [sent.count(text) for text in ("what is mica", MICA, "what is quartz")] == [1, 1, 1]

    laptop.crystal("sync")
    laptop.crystal("relay", "sync")
    wait_until(lambda: QUARTZ in desktop.finds("silicon and oxygen"), "the desktop to find what is new")
    assert desktop.said() == said(
        ("user", "what is mica"), ("assistant", MICA), ("user", "what is quartz"), ("assistant", QUARTZ)
    )
    laptop.verify()
    desktop.verify()
