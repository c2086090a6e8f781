"""Fixtures of several files of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from crystal.config.load import load_config


@pytest.fixture
def data(home: Path) -> Path:
    folder = home / ".ldm/memory"
    folder.mkdir(parents=True, mode=0o700)
    return folder


@pytest.fixture
def file(home: Path) -> Path:
    path = load_config({}, home).places.config_file
    path.parent.mkdir(parents=True)
    return path
