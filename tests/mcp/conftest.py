"""Fixtures of several files of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from crystal.store import Store
from tests.support.mcp_client import Talk, crystal_spec, served
from tests.support.mcp_memory import API, MINE, SHOP
from tests.support.remote_client import Remote, token_for
from tests.support.store_factory import DAY, HOUR, NOW, add_turn, open_store


@pytest.fixture(autouse=True, scope="session")
def _one_event_loop() -> Iterator[None]:
    """Answer all requests in one event loop: a new one for each costs more than most answers."""
    with start_blocking_portal() as Remote.portal:
        yield


@pytest.fixture
def talk() -> Iterator[Talk]:
    with served(crystal_spec()) as talk:
        yield talk


@pytest.fixture
def store(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr("crystal.app.context.now_ms", lambda: NOW)
    folder = home / ".ldm/memory"
    folder.mkdir(parents=True)
    with open_store(folder) as store:
        yield store


@pytest.fixture
def told(store: Store) -> Store:
    add_turn(store, "Why does the zebra checkout fail?", session=SHOP, ts=NOW - 5 * HOUR)
    add_turn(store, "The zebra clock was skewed.", session=SHOP, ts=NOW - 4 * HOUR, role="assistant")
    add_turn(store, "zebra page", session=SHOP, ts=NOW - 4 * HOUR + 1, role="tool_result", tool="WebFetch")
    add_turn(store, "zebra files", session=SHOP, ts=NOW - 4 * HOUR + 2, role="tool_result", tool="Bash")
    add_turn(store, "zebra inside", session=SHOP, ts=NOW - 4 * HOUR + 3, role="subagent", subagent="a1")
    add_turn(store, "Give the zebra api retries", session=API, ts=NOW - 2 * DAY, project="/code/api", device="laptop")
    add_turn(store, "my own zebra words", session=MINE, ts=NOW - HOUR)
    return store


@pytest.fixture
def remote(told: Store) -> Remote:
    return Remote(token_for("phone"))
