"""The relay as a process: sockets, signals, the operator's commands, logs and metrics."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import httpx
import pytest

from relay_worker import bounded_protocol, log
from relay_worker.__main__ import main
from relay_worker.settings import Settings
from tests.relay_conformance.targets import add_account
from tests.support.relay_server import STREAM, sealed

pytestmark = pytest.mark.slow  # every test starts a server

ROOT = Path(__file__).resolve().parent.parent.parent
RELAY = [sys.executable, "-W", "error", "-m", "relay_worker"]


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRYSTAL_") and name != "PORT"}
    given = {"LISTEN": "127.0.0.1:0", "METRICS_LISTEN": "127.0.0.1:0", "DATA_DIR": str(folder), "RATE": "0"} | more
    return kept | {"PYTHONPATH": str(ROOT)} | {f"CRYSTAL_RELAY_{name}": value for name, value in given.items()}


def command(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RELAY, *arguments], env=environment(folder, **more), capture_output=True, text=True, timeout=60, check=False
    )


@dataclass
class Running:
    """A relay's process and what it has logged so far."""

    process: subprocess.Popen[str]
    log: Path
    serving: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.serving["address"]

    @property
    def listen(self) -> str:
        return self.url.partition("://")[2]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host, int(port)

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


@contextlib.contextmanager
def running(folder: Path, *arguments: str, **more: str) -> Iterator[Running]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.parent / f"{folder.name}-{time.monotonic_ns()}.log"
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [*RELAY, "serve", *arguments], env=environment(folder, **more), stderr=out, text=True
        )
    one = Running(process, log)
    try:
        ends_at = time.monotonic() + 60
        while not one.serving:
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < ends_at, log.read_text(encoding="utf-8")
            for line in log.read_text(encoding="utf-8").splitlines():
                if '"event":"serving"' in line:
                    one.serving = json.loads(line)
            time.sleep(0.02)
        yield one
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(20)


def home_token(folder: Path) -> str:
    return add_account(Settings(data_dir=folder), "default")


def client(one: Running, token: str) -> httpx.Client:
    return httpx.Client(base_url=one.url, headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False)


def streams_status(one: Running, token: str) -> int:
    with client(one, token) as http:
        return http.get("/v1/streams").status_code


def path(seq: int, stream: bytes = STREAM) -> str:
    return f"/v1/streams/{stream.hex()}/blobs/{seq}"


@pytest.mark.slow
def test_commands_of_the_operator_work_while_the_relay_serves(tmp_path):
    folder = tmp_path / "data"
    assert command(folder, "token", "list").returncode == 3
    made = command(folder, "token", "make", "--create", "--label", "home", "--scope", "home")
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    with running(folder) as one, client(one, token) as http:
        assert http.get("/v1/streams").status_code == 200
        second = command(folder, "token", "make", "--label", "two", "--scope", "pair", "--json")
        two = json.loads(second.stdout)
        assert streams_status(one, two["token"]) == 403
        listed = command(folder, "token", "list")
        assert [line.split()[2] for line in listed.stdout.splitlines()] == ["home", "two"]
        assert token.split("_", 2)[2] not in listed.stdout
        assert command(folder, "token", "revoke", two["id"]).returncode == 0
        assert streams_status(one, two["token"]) == 401
        assert command(folder, "token", "revoke", "0" * 16).returncode == 1
        http.put(path(1), content=sealed(1, 200_000))
        assert command(folder, "backup", str(tmp_path / "copy")).returncode == 0
        assert command(folder, "health", LISTEN=one.listen).returncode == 0
        assert command(folder, "health", "--ready", LISTEN=one.listen).returncode == 0
        refused = command(folder, "serve", LISTEN="127.0.0.1:0")
        assert refused.returncode == 1
        assert "another crystal-relay" in refused.stderr
        assert one.end() == 0
    assert command(folder, "health", LISTEN=one.listen).returncode == 4
    with running(tmp_path / "copy") as copy, client(copy, token) as http:
        assert len(http.get(path(1)).content) == 200_000


def test_wrong_commands_say_what_to_do(tmp_path, monkeypatch, capsys):
    for arguments, more, code in (
        (["token", "make", "--label", "x", "--scope", "root"], {}, 2),
        (["token", "make", "--label", "", "--scope", "home"], {}, 2),
        (["token", "make", "--label", "x", "--scope", "home", "--account", "../x"], {}, 2),
        (["serve"], {"LISTEN": "0.0.0.0:0"}, 2),
        (["check"], {"LISTEN": "0.0.0.0:0"}, 2),
        (["check"], {"TLS_CERT": "/nowhere/c.pem", "TLS_KEY": "/nowhere/k.pem"}, 2),
        (["serve"], {"MAX_BODY": "much"}, 2),
        (["backup", "/nowhere"], {}, 3),
        (["token", "make", "--label", "x", "--scope", "home"], {}, 3),
        ([], {}, 2),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(log, "configure", lambda _: None)  # it takes the whole process's logging
            patched.setattr(os, "environ", environment(tmp_path / "data", **more))
            with pytest.raises(SystemExit) as ended:
                main(arguments)
        assert ended.value.code == code, arguments
        assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "data").exists(), "no command but serve makes a store by accident"
    (tmp_path / "data").mkdir()
    refused = command(tmp_path / "data", "token", "make", "--label", "x", "--scope", "home")
    assert (refused.returncode, f"there is no relay in {tmp_path / 'data'}" in refused.stderr) == (3, True)
    assert "crystal-relay serve" in refused.stderr
    assert "--create" in refused.stderr
    assert not any((tmp_path / "data").iterdir())
    checked = command(tmp_path / "data", "check", "--json", MAX_BLOBS="7")
    assert json.loads(checked.stdout)["max_blobs"] == 7
    assert "max_blobs = 7  (CRYSTAL_RELAY_MAX_BLOBS)" in command(tmp_path / "data", "check", MAX_BLOBS="7").stdout
    assert command(tmp_path / "data", "serve", LISTEN="0.0.0.0:0").returncode == 2


def test_stopping_lets_waiting_requests_go_and_keeps_what_was_acknowledged(tmp_path):
    folder = tmp_path / "data"
    token = home_token(folder)
    with running(folder) as one, client(one, token) as http:
        assert http.put(path(1), content=sealed(1)).status_code == 201
        change = http.get("/v1/streams").json()["change"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(http.get, "/v1/streams", params={"changed_after": change, "wait": 30})
            while not [line for line in one.lines() if line.get("route") == "/v1/streams"]:
                time.sleep(0.01)
            time.sleep(0.2)
            began = time.monotonic()
            assert one.end() == 0
            assert waiting.result(5).json()["streams"] == []
        assert time.monotonic() - began < 5
        assert [line["event"] for line in one.lines()][-2:] in (["stopping", "stopped"], ["request", "stopped"])
    assert not (folder / "relay.db-wal").exists()
    db = apsw.Connection(str(folder / "relay.db"))
    assert db.execute("SELECT count(*) FROM blobs").get == 1
    assert db.execute("SELECT last_used_at IS NOT NULL FROM tokens").get == 1
    db.close()


@pytest.mark.slow
def test_a_body_that_never_ends_does_not_keep_the_relay_from_stopping(tmp_path):
    folder = tmp_path / "data"
    token = home_token(folder)
    with running(folder) as one, socket.create_connection(one.address) as slow:
        slow.sendall(f"PUT {path(1)} HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer {token}\r\n".encode())
        slow.sendall(b"Content-Length: 400000\r\n\r\n" + b"x" * 200_000)
        time.sleep(0.2)
        began = time.monotonic()
        assert one.end() == 0
        assert time.monotonic() - began < 8


@pytest.mark.slow
def test_slow_and_damaged_bodies_are_refused_and_leave_nothing(tmp_path):
    folder = tmp_path / "data"
    token = home_token(folder)
    with running(folder, BODY_IDLE="0.2", BODY_TOTAL="1", MAX_BODY="300000") as one:
        head = f"PUT {path(1)} HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer {token}\r\n"
        for lines, body, expected in (
            ("Content-Length: 200000\r\n\r\n", b"x" * 150_000, b"408"),
            ("Content-Length: 2000\r\n\r\n", b"x" * 1000, b"408"),
            ("Content-Length: 300001\r\n\r\n", b"", b"413"),
            ("Transfer-Encoding: chunked\r\n\r\n", b"ffff\r\n" + (b"x" * 65_535 + b"\r\nffff\r\n") * 5, b"413"),
            ("Transfer-Encoding: chunked\r\n\r\n", b"zz\r\n", b"400"),
            ("Content-Length: 1, 2\r\n\r\n", b"", b"400"),
            ("Content-Length: 148\r\nContent-Encoding: gzip\r\n\r\n", b"", b"415"),
            ("Content-Length: 3\r\n\r\n", b"abc", b"400"),
            ("Content-Length: 3\r\nContent-Digest: sha-256=:" + "A" * 43 + "=:\r\n\r\n", b"abc", b"400"),
        ):
            with socket.create_connection(one.address) as raw:
                raw.settimeout(10)
                raw.sendall((head + lines).encode() + body)
                assert raw.recv(65_536).split()[1] == expected, lines
        with socket.create_connection(one.address) as gone:
            gone.sendall((head + "Content-Length: 200000\r\n\r\n").encode() + b"x" * 150_000)
        statuses = [line.get("status") for line in one.lines()]
        assert not [status for status in statuses if status and status >= 500]
        assert one.end() == 0
    assert not [found for found in (folder / "bodies").rglob("*") if found.is_file()]


def test_nobody_unknown_can_make_the_relay_read_or_wait(tmp_path):
    with running(tmp_path / "data", REFUSED_RATE="20") as one:
        huge = b"PUT " + path(1).encode() + b" HTTP/1.1\r\nHost: r\r\nContent-Length: 104857600\r\n\r\n"
        with socket.create_connection(one.address) as raw:
            raw.settimeout(5)
            raw.sendall(huge)
            assert b"401 Unauthorized" in raw.recv(65_536)
        with socket.create_connection(one.address) as raw:
            raw.settimeout(5)
            raw.sendall(huge.replace(b"Host: r", b"Host: r\r\nExpect: 100-continue"))
            assert raw.recv(65_536).startswith(b"HTTP/1.1 401")
        for head in (b"GET /" + b"a" * 40_000, b"GET / HTTP/1.1\r\nx: " + b"a" * 40_000, b"a: b\r\n" * 10_000):
            with socket.create_connection(one.address) as raw, contextlib.suppress(ConnectionError):
                raw.settimeout(5)
                raw.sendall(head)
                assert raw.recv(65_536)[:12] in {b"HTTP/1.1 431", b"HTTP/1.1 400"}
        answers = [httpx.get(f"{one.url}/v1/streams", trust_env=False, timeout=30) for _ in range(25)]
        assert {answer.status_code for answer in answers} == {401, 429}
        assert int(answers[-1].headers["Retry-After"]) >= 1
        assert httpx.get(f"{one.url}/healthz", trust_env=False, timeout=30).json() == {"status": "ok"}


@pytest.mark.slow
def test_a_head_that_does_not_come_closes_the_connection(tmp_path):
    code = "from relay_worker import bounded_protocol as wire; wire.HEAD_SECONDS = 0.3; from relay_worker.__main__ import main; main()"
    folder = tmp_path / "data"
    original = RELAY[:]
    RELAY[:] = [sys.executable, "-W", "error", "-c", code]
    try:
        with running(folder) as one:
            for start in (b"", b"\r\n", b"GET / HT", b"GET / HTTP/1.1\r\nHost: r\r\n"):
                with socket.create_connection(one.address) as raw:
                    raw.settimeout(5)
                    raw.sendall(start)
                    assert raw.recv(65_536) == b""
            with socket.create_connection(one.address) as raw:
                raw.settimeout(5)
                raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: r\r\n\r\n")
                while not raw.recv(65_536).endswith(b"}"):
                    pass
                raw.sendall(b"\r\n")
                assert raw.recv(65_536) == b"", "blank lines are no reason to stay"
    finally:
        RELAY[:] = original
    assert bounded_protocol.HEAD_SECONDS >= 10


def test_metrics_are_on_their_own_listener_and_name_nobody(tmp_path):
    folder = tmp_path / "data"
    token = home_token(folder)
    with running(folder) as one, client(one, token) as http:
        http.put(path(1), content=sealed(1))
        http.get("/v1/streams/" + "x" * 50)
        text = httpx.get(one.serving["metrics"], trust_env=False, timeout=30).text
        assert (
            'crystal_relay_requests_total{method="PUT",route="/v1/streams/{stream}/blobs/{seq}",status="201"} 1.0'
            in text
        )
        assert "crystal_relay_blobs 1.0" in text
        assert "crystal_relay_stored_bytes 300.0" in text
        assert "crystal_relay_commit_batch_count" in text
        for secret in (STREAM.hex(), STREAM.hex()[:8], token, token[4:20], "default"):
            assert secret not in text
        assert http.get("/metrics").status_code == 404
        logged = one.log.read_text(encoding="utf-8")
        assert STREAM.hex()[:8] in logged
        assert STREAM.hex()[:9] not in logged
        assert token[21:64] not in logged
        asked = next(line for line in one.lines() if line["event"] == "request")
        assert {"request_id", "token", "status", "ms", "route"} <= set(asked)


def test_tls_is_spoken_where_a_certificate_is_given(tmp_path):
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    own = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    tls = {"TLS_CERT": str(tmp_path / "cert.pem"), "TLS_KEY": str(tmp_path / "key.pem")}
    with running(tmp_path / "data", **tls) as one:
        import ssl

        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with httpx.Client(verify=context, trust_env=False, timeout=30) as http:
            assert http.get(f"{one.url}/healthz").status_code == 200
        healthy = command(tmp_path / "data", "health", LISTEN=one.listen, **tls)
        assert healthy.returncode == 0, healthy.stderr
        assert one.end() == 0


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_missing_after_a_kill(tmp_path):
    folder = tmp_path / "data"
    token = home_token(folder)
    acknowledged: dict[tuple[bytes, int], bytes] = {}
    for round_number in range(4):
        with running(folder) as one, concurrent.futures.ThreadPoolExecutor(9) as pool:

            def storing(number: int, one: Running = one, round_number: int = round_number) -> None:
                stream = bytes([round_number, number]) * 8
                connection = http.client.HTTPConnection(*one.address, timeout=20)
                with contextlib.suppress(OSError, http.client.HTTPException):
                    for seq in range(1, 100_000):
                        body = sealed(seq, 200_000 if number % 4 == 0 else 3000, stream=stream)
                        connection.request("PUT", path(seq, stream), body, {"Authorization": f"Bearer {token}"})
                        reply = connection.getresponse()
                        reply.read()
                        assert reply.status == 201
                        acknowledged[stream, seq] = body[-32:]
                connection.close()

            busy = [pool.submit(storing, number) for number in range(8)]
            time.sleep(0.5 + 0.15 * round_number)
            one.process.kill()
            one.process.wait(20)
            for future in busy:
                future.result(20)
    assert len(acknowledged) > 200
    with running(folder) as one, client(one, token) as http_client:
        for (stream, seq), tag in acknowledged.items():
            body = http_client.get(path(seq, stream))
            assert body.status_code == 200, (stream.hex(), seq)
            assert body.content[-32:] == tag
        assert one.end() == 0
    db = apsw.Connection(str(folder / "relay.db"))
    assert db.execute("PRAGMA integrity_check").get == "ok"
    named = {name for (name,) in db.execute("SELECT file FROM blobs WHERE file IS NOT NULL")}
    db.close()
    assert {found.name for found in (folder / "bodies").rglob("*") if found.is_file()} == named
