"""Fixtures of these tests."""

from __future__ import annotations

import pytest

from crystal.store import upgrade
from tests.support.fresh_store import apply_each


@pytest.fixture
def _each_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply every migration to a new database, instead of copying one that has them."""
    monkeypatch.setattr(upgrade, "_apply", apply_each)
