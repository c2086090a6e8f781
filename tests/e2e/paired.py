"""Two homes and a relay between them: a desktop that is home and watches, and a laptop that has joined it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.app.test_processes import end
from tests.support.whole_memory import ROOT, Memory
from tests.sync.test_relay_processes import POLL, Relay


@contextlib.contextmanager
def paired(desktop: Memory, laptop: Memory, folder: Path) -> Iterator[None]:
    """Set both up, pair them, and let the desktop watch the relay, which keeps its files in a folder."""
    site = folder / "site"
    site.mkdir()
    relay = Relay(site / "relay")
    relay.start()
    try:
        token = relay.operate("token", "make", "--label", "home", "--scope", "home")
        desktop.crystal("init", "--yes", "--role", "home", "--relay", relay.url, "--token-stdin", stdin=token)
        laptop.crystal("init", "--yes")
        laptop.crystal("relay", "join", stdin=desktop.crystal("relay", "pair", "--offline", "--name", "laptop"))
        watching = subprocess.Popen(
            POLL, env=desktop.env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield
        finally:
            end(watching)
    finally:
        relay.kill()
