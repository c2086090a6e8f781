"""Files that the system refuses to open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Take away the right to read a file; for root, whom no mode stops, by refusing to open it."""
    path.chmod(0)
    opened = os.open

    def refuse(name: Any, flags: int, *more: Any, **words: Any) -> int:
        if str(path) in (name, str(name), os.path.realpath(name)) and not flags & getattr(os, "O_PATH", 0):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(name, flags, *more, **words)

    monkeypatch.setattr(os, "open", refuse)


def refuse_to_list(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Refuse to list a folder, also to root."""
    listed = os.scandir

    def refuse(name: Any = ".") -> Any:
        if str(name) == str(folder):
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(name)

    monkeypatch.setattr(os, "scandir", refuse)
