"""A machine that has captured two sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.capture_machine import CaptureMachine, line


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CaptureMachine]:
    machine = CaptureMachine.at(tmp_path / "m")
    machine.capture().meet()
    for session in ("a", "b"):
        with machine.transcript(session).open("ab") as file:
            for at in range(3):
                file.write(line(f"{session} says {at}"))
                file.flush()
                machine.capture().sweep()
    yield machine
    machine.store.close()
