"""The machine on which sessions are read for memories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.forgetting_machine import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.meet()
    return desk
