"""Fixtures of several files of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.capture_machine import CaptureMachine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CaptureMachine]:
    machine = CaptureMachine.at(tmp_path / "m")
    machine.capture().meet()
    yield machine
    machine.assert_sound()
    machine.store.close()
