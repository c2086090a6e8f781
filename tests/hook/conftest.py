"""Fixtures of several files of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.copied_hook import Hook
from tests.support.hook_machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def door(tmp_path: Path) -> Hook:
    return Hook(tmp_path)
