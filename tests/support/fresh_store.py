"""Fresh stores, as tests want them by the thousand: the first is made by all migrations, the others copy its file."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from crystal.store import Store


def open_fresh(path: Path) -> Store:
    """Open the store at ``path``; where there is none, it is as ``Store.open`` makes it."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(_empty())
    return Store.open(path)


@functools.cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "crystal.db"
        Store.open(path).close()
        return path.read_bytes()
