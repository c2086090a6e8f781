"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal.app.context import Machine, open_machine

# --- what lies ready


@pytest.fixture
def machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("CRYSTAL_CONTEXT_ENABLED", "1")
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "none")
    (home / ".claude" / "projects" / "p").mkdir(parents=True)
    with open_machine() as machine:
        yield machine
