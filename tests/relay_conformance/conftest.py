"""The relays of the suite; and, for one at an address, leave to connect to it."""

from __future__ import annotations

import pytest

from tests.relay_conformance.targets import URL, aging, hurried, limited, relay
from tests.support.postgres import postgres
from tests.support.s3 import s3_server
from tests.support.workerd import workerds

__all__ = ["aging", "hurried", "limited", "postgres", "relay", "s3_server", "workerds"]

if URL:

    @pytest.fixture(autouse=True)
    def _loopback_only() -> None:
        """Somebody asked for a relay elsewhere by name."""
