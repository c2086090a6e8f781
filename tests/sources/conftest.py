"""Fixtures of several files of this folder: a folder of notes, and the same as a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import crystal

NOTE = "# Deploy\n\nWe use blue green.\n\n## Rollback\n\nRun the zebracorn script."


@pytest.fixture
def notes(home: Path) -> Path:
    folder = home / "notes"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.md").write_text(NOTE)
    (folder / "sub" / "b.py").write_text("def quagga():\n    return 'stripes'\n")
    (folder / "image.png").write_bytes(b"\x89PNG\0")
    return folder


@pytest.fixture
def added(notes: Path) -> Path:
    assert crystal("sources", "add", str(notes)).code == 0
    return notes
