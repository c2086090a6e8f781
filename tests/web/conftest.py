"""Fixtures of several files of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anyio.from_thread import start_blocking_portal

from tests.support.browser import chromium
from tests.support.web_client import Client


@pytest.fixture(autouse=True, scope="session")
def _one_event_loop() -> Iterator[None]:
    """Answer all requests in one event loop: a new one for each costs more than most answers."""
    with start_blocking_portal() as Client.portal:
        yield


@pytest.fixture(scope="module")  # as long as it runs, no other event loop can run in this thread
def browser() -> Iterator[object]:
    with chromium() as found:
        yield found
