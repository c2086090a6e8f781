"""The relay on Cloudflare Workers, run by the real workerd: npm installs it once, a process of node starts it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.programs import ENVIRON, INSTALL_SECONDS, cache_folder, run_to_end

WORKER = Path(__file__).resolve().parents[3] / "relay_worker" / "cloudflare"
SERVE = Path(__file__).with_name("serve.mjs")
SECRET = secrets.token_hex(32)
START_SECONDS = 60.0
MIN_NODE = 18


def packages() -> Path:
    """Return the folder with the packages of the lock file, installed once into the cache of the real programs.

    The test is skipped where Node is missing or too old.
    """
    node, npm = (shutil.which(name, path=ENVIRON.get("PATH")) for name in ("node", "npm"))
    if node is None or npm is None:
        pytest.skip("node and npm are not installed: no workerd")
    version = run_to_end((node, "--version"), 20, WORKER, ENVIRON).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < MIN_NODE:
        pytest.skip(f"node {version} is older than {MIN_NODE}: no workerd")
    lock = (WORKER / "package-lock.json").read_bytes()
    folder = cache_folder() / f"relay-cloudflare-{hashlib.sha256(lock).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as note:
        fcntl.flock(note, fcntl.LOCK_EX)  # tests in other processes want it, too
        if not (folder / "node_modules").exists():
            _install(npm, folder)
    return folder


def _install(npm: str, folder: Path) -> None:
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(WORKER / name, part / name)
    done = run_to_end((npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"), INSTALL_SECONDS, part, ENVIRON)
    assert done.returncode == 0, done.stderr[-500:]
    part.rename(folder)


class Workerd:
    """A relay at work. ``kill`` and ``start`` play a crash; what it stored stays in its folder.

    Args:
        folder: Where it stores everything, and its log.
        variables: Variables of the Worker, beside the operator's secret.
    """

    def __init__(self, folder: Path, **variables: str | float) -> None:
        self._packages = packages()
        self.folder = folder
        self._accounts: dict[str, str] = {}
        self._variables = json.dumps({"ADMIN_SECRET": SECRET, **variables})
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Serve; returns when it does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "log"
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                ["node", str(SERVE), str(self._packages), str(self.folder), str(self.port), self._variables],
                env=ENVIRON, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while not self._is_serving():
            assert self.process.poll() is None, log.read_text("utf-8", "replace")[-2000:]
            assert time.monotonic() < deadline, log.read_text("utf-8", "replace")[-2000:]
            time.sleep(0.05)

    def _is_serving(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/healthz", trust_env=False).status_code == 200
        return False

    def kill(self) -> None:
        """End node and workerd at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def token(self, label: str, *scopes: str, account: str = "") -> str:
        """Make a home token as its operator does; the first one with an account's name makes the account."""
        assert scopes == ("home",)
        asked = {"label": label, **({"account": self._accounts[account]} if account in self._accounts else {})}
        headers = {"Authorization": f"Bearer {SECRET}"}
        made = httpx.post(f"{self.url}/admin/tokens", json=asked, headers=headers, trust_env=False, timeout=60)
        assert made.status_code == 201, made.text
        if account:
            self._accounts[account] = made.json()["account"]
        return str(made.json()["token"])


class Clock:
    """The clock of a relay, which stands until a test moves it: ``clock[0] += 1000``."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/test/clock"
        self[0] = time.time_ns() // 1_000_000

    def __getitem__(self, at: int) -> int:
        return int(httpx.get(self._url, trust_env=False, timeout=60).text)

    def __setitem__(self, at: int, now: int) -> None:
        httpx.get(self._url, params={"now": now}, trust_env=False, timeout=60).raise_for_status()


@pytest.fixture(scope="session")
def workerds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Workerd]]:
    """Relays by their variables, each started once; ``name`` tells those with the same apart."""
    started: dict[str, Workerd] = {}

    def serve(name: str, **variables: Any) -> Workerd:
        if name not in started:
            started[name] = Workerd(tmp_path_factory.mktemp("workerd"), **variables)
        return started[name]

    yield serve
    for one in started.values():
        one.kill()
        shutil.rmtree(one.folder, ignore_errors=True)
