"""A home where crystal is set up, the real client in it, and a model of ours on loopback."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.client import Client, find_client, version
from tests.e2e.fake_anthropic import FakeAnthropic
from tests.e2e.programs import ENVIRON, NoClient
from tests.support.whole_memory import Memory

MOST_SECONDS = 1200 if ENVIRON.get("CRYSTAL_E2E") == "all" else 300
SLOW_SECONDS, SLOW_FAILURES = 25, 3
"""Seconds after which a failure is one of patience, and how many of them end all other tests of this process."""

_slow_failures: list[str] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what runs real programs. Where it is not asked for, one test of each file is left, to be skipped."""
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in here:
        item.add_marker("e2e")
    if not ENVIRON.get("CRYSTAL_E2E"):
        kept = {item.path: item for item in reversed(here)}
        others = {item for item in here if item is not kept[item.path]}
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=list(others))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and report.duration > SLOW_SECONDS and "tests/e2e/" in report.nodeid:
        _slow_failures.append(report.nodeid.rpartition("::")[2])


def _took_too_long(*_: object) -> None:
    raise AssertionError(f"the test takes longer than {MOST_SECONDS} s")


@pytest.fixture(autouse=True)
def _in_time_and_nothing_left(home: Path) -> Iterator[None]:
    """End a test that takes longer than any may, and what its programs left running; skip none of it silently."""
    if len(_slow_failures) >= SLOW_FAILURES:
        pytest.fail(f"not tried, because others failed after more than {SLOW_SECONDS} s: {', '.join(_slow_failures)}")
    if not ENVIRON.get("CRYSTAL_E2E"):
        yield
        return
    before = signal.signal(signal.SIGALRM, _took_too_long)
    signal.alarm(MOST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HOME={home.parent}/".encode() in environ.read_bytes():
                os.kill(int(environ.parent.name), signal.SIGKILL)


@pytest.fixture(scope="session")
def program() -> Path:
    try:
        return find_client()
    except NoClient as reason:
        pytest.skip(str(reason))


@pytest.fixture
def _modern(program: Path) -> None:
    """Skip on old clients that do not do what the test is about, or write it down otherwise."""
    found = version(program)
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
