"""A home with which all tests of a module begin."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from tests.support.homes import live_in

Made = TypeVar("Made")


class KeptHome(Generic[Made]):
    """A home that is made once, and put back at the same path before each test: paths in its files stay true.

    ``made`` is what its maker returned.
    """

    def __init__(self, folder: Path, make: Callable[[Path], Made]) -> None:
        self._home, self._kept = folder / "home", folder / "kept"
        self._home.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            live_in(self._home, patch)
            self.made = make(self._home)
        shutil.copytree(self._home, self._kept, symlinks=True)

    def put_back(self, patch: pytest.MonkeyPatch) -> Path:
        """Make the home as it was, and let HOME say so; return it."""
        shutil.rmtree(self._home)
        shutil.copytree(self._kept, self._home, symlinks=True)
        live_in(self._home, patch)
        return self._home
