"""A home where crystal is set up, the real client in it, and a model of ours on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.client import Client, NoClient, find_client, version
from tests.e2e.fake_anthropic import FakeAnthropic
from tests.support.whole_memory import Memory

ENVIRON = dict(os.environ)  # as it was before the tests' own rule emptied it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker("e2e")


def cache_folder() -> Path:
    """Where real programs are installed."""
    cache = Path(ENVIRON.get("CRYSTAL_E2E_CACHE") or Path(ENVIRON.get("XDG_CACHE_HOME") or "~/.cache", "crystal-e2e"))
    return cache.expanduser().absolute()


@pytest.fixture(scope="session")
def program() -> Path:
    try:
        return find_client(ENVIRON, cache_folder())
    except NoClient as reason:
        pytest.skip(str(reason))


@pytest.fixture
def _modern(program: Path) -> None:
    """Skip on old clients that do not do what the test is about, or write it down otherwise."""
    found = version(program) or "0"
    if tuple(int(part) for part in found.split(".") if part.isdigit()) < (2, 1, 300):
        pytest.skip(f"client {found} does it differently")


@pytest.fixture
def model(program: Path) -> Iterator[FakeAnthropic]:
    with FakeAnthropic() as model:
        yield model
    assert model.surprises == [], "the client asked for something that the test did not expect"


@pytest.fixture
def client(program: Path, model: FakeAnthropic, home: Path) -> Client:
    client = Client(program, home, model.base_url)
    client.prepare()
    return client


@pytest.fixture
def memory(client: Client) -> Iterator[Memory]:
    memory = Memory(client.home, client.env())
    memory.crystal("init", "--yes")
    yield memory
    memory.settle()
