"""``crystal web`` as a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def serving(env: dict[str, str] | None = None, *options: str) -> Iterator[str]:
    """Run ``crystal web``; yield its link."""
    words = [sys.executable, "-m", "crystal", "web", *(options or ("--no-open", "--port", "0"))]
    process = subprocess.Popen(
        words, cwd=ROOT, env=env or dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        process.stdout.close()
