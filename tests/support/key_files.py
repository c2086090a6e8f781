"""Keys and tokens of a relay, and files with modes and owners."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.places import RelayToken

ONE = RelayKey("root", bytes(range(32)))
TWO = RelayKey("device", bytes(range(100, 132)), bytes(range(16)), 4)
THREE = RelayKey("root", bytes(range(200, 232)))
TOKEN = RelayToken("crt_0123_" + "a" * 43 + "_89ab")
OTHER = RelayToken("crt_4567_" + "b" * 43 + "_cdef")
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes and owners of this kind")
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def put(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path
