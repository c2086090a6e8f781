"""Relays to ask: in this process, as a process of its own behind a socket, and any at an address.

The suite speaks only HTTP. A relay somewhere else is asked with

    CRYSTAL_CONFORMANCE_URL=https://... CRYSTAL_CONFORMANCE_TOKEN=crt_... pytest tests/relay_conformance

where the token has the scope ``home``, of an account that may be filled with rubbish. With
``CRYSTAL_CONFORMANCE_STRANGER``, a home token of another account, it is also shown that accounts do not see each
other; ``CRYSTAL_CONFORMANCE_CA`` is the PEM file of a private authority.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from relay_worker.app import RelayApp
from relay_worker.services import Services
from relay_worker.settings import Settings
from relay_worker.store import accounts, choice
from relay_worker.tokens import new_token
from tests.support.served_app import ServedApp
from tests.support.workerd import Clock, Workerd

# Read once, when this is loaded: the tests themselves run with an environment of their own.
URL = os.environ.get("CRYSTAL_CONFORMANCE_URL", "")
URL_TOKEN = os.environ.get("CRYSTAL_CONFORMANCE_TOKEN", "")
URL_STRANGER = os.environ.get("CRYSTAL_CONFORMANCE_STRANGER")
URL_CA = os.environ.get("CRYSTAL_CONFORMANCE_CA")

NOW = 1_790_000_000_000
OPEN = {"rate": 0.0, "refused_rate": 0.0, "pair_rate": 0.0}
"""No rates: a suite asks a thousand things in a few seconds. ``limited`` has them."""
SMALL: dict[str, Any] = {
    "max_body": 40_000,
    "max_blobs": 5,
    "max_streams": 12,
    "quota_bytes": 100_000,
    "rate": 20.0,
    "refused_rate": 5.0,
    "pair_rate": 5.0,
}
HURRIED: dict[str, Any] = {**OPEN, "body_idle": 0.2, "body_total": 0.5}
"""Only for bodies that never come whole: a busy machine sends a good one as slowly."""
HOME = object()


@dataclass
class Target:
    """A relay, and how it is asked. ``ask`` checks what holds for every answer there is."""

    name: str
    url: str
    home: str
    stranger: str | None
    transport: httpx.BaseTransport
    served: ServedApp | Workerd | None = None
    clock: Any = field(default_factory=list)
    context: ssl.SSLContext | None = None
    is_fronted: bool = False
    """Another server parses HTTP, and answers in its own words what is none for it: docs/spec/relay-http.md, section 9."""
    address: str = ""
    """Whose requests these are, for a relay that learns it from the server in front."""
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        # As crystal's own client: a server in front could encode the answers.
        headers = {"Accept-Encoding": "identity", **self._named()}
        self.client = httpx.Client(
            transport=self.transport, base_url=self.url, headers=headers, trust_env=False, timeout=60
        )

    def _named(self) -> dict[str, str]:
        return {"CF-Connecting-IP": self.address} if self.address else {}

    def ask(
        self,
        method: str,
        path: str,
        *,
        token: Any = HOME,
        content: Any = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> httpx.Response:
        """Send a request; ``token`` is home's, another, or None; ``body`` goes as JSON."""
        sent = dict(headers or {})
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {self.home if token is HOME else token}")
        if body is not None:
            content = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        return checked(self.client.request(method, path, content=content, headers=sent, params=params or None))

    def make_token(self, *scopes: str) -> str:
        return self.ask("POST", "/v1/tokens", body={"label": "test", "scopes": list(scopes)}).json()["token"]

    def put(self, stream: bytes, seq: int, blob: bytes | None = None, **more: Any) -> httpx.Response:
        content = make_blob(stream, seq) if blob is None else blob
        return self.ask("PUT", f"/v1/streams/{stream.hex()}/blobs/{seq}", content=content, **more)

    def get(self, stream: bytes, seq: int, **more: Any) -> httpx.Response:
        return self.ask("GET", f"/v1/streams/{stream.hex()}/blobs/{seq}", **more)

    def listed(self, stream: bytes, **params: Any) -> dict[str, Any]:
        return self.ask("GET", f"/v1/streams/{stream.hex()}/blobs", **params).json()

    def seqs(self, stream: bytes, **params: Any) -> list[int]:
        return [one["seq"] for one in self.listed(stream, **params)["blobs"]]

    def state(self, stream: bytes) -> dict[str, Any]:
        return self.ask("GET", f"/v1/streams/{stream.hex()}").json()

    def ack(self, stream: bytes, upto: Any, **more: Any) -> httpx.Response:
        return self.ask("POST", f"/v1/streams/{stream.hex()}/ack", body={"upto": upto}, **more)

    def half(
        self, method: str, path: str, headers: Mapping[str, str], sent: bytes = b"", every: float = 30.0
    ) -> tuple[int, dict[str, Any]]:
        """Send a request's head and the beginning of its body, and wait for the answer; the rest never comes.

        ``sent`` goes out byte by byte, ``every`` so many seconds.
        """
        named = httpx.URL(self.url)
        with self.connection() as connection:
            sent_headers = {"Host": named.host, **self._named(), **headers}
            lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in sent_headers.items())]
            connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
            over = threading.Event()

            def dripping() -> None:
                with contextlib.suppress(OSError):
                    for at in range(len(sent)):
                        connection.sendall(sent[at : at + 1])
                        if over.wait(every):
                            return

            writer = threading.Thread(target=dripping)
            writer.start()
            try:
                return read_answer(connection, is_fronted=self.is_fronted)
            finally:
                over.set()
                writer.join(5)

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        """A bare connection, for what no HTTP library would send."""
        named = httpx.URL(self.url)
        port = named.port or (443 if named.scheme == "https" else 80)
        with socket.create_connection((named.host, port), timeout=20) as plain:
            if named.scheme != "https":
                yield plain
                return
            with (self.context or ssl.create_default_context()).wrap_socket(
                plain, server_hostname=named.host
            ) as secured:
                yield secured


def read_answer(connection: socket.socket, *, is_fronted: bool = False) -> tuple[int, dict[str, Any]]:
    """Read one answer as far as its length says; that of a server in front has no JSON."""
    held = b""
    while b"\r\n\r\n" not in held and (more := connection.recv(65_536)):
        held += more
    head, _, body = held.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    while len(body) < int(headers.get("content-length", "0")) and (more := connection.recv(65_536)):
        body += more
    if is_fronted and headers.get("content-type") != "application/problem+json":
        body = b""
    return int(lines[0].split()[1]), json.loads(body) if body else {}


def checked(response: httpx.Response) -> httpx.Response:
    """What every answer has to be, success or not."""
    headers = response.headers
    assert headers["crystal-relay-version"] == "1"
    assert headers["cache-control"] == "no-store"
    assert headers["x-request-id"]
    assert "set-cookie" not in headers
    assert "location" not in headers
    assert response.status_code < 500 or response.status_code in (503, 507), response.text
    if response.status_code == 204:
        assert not response.content
    if response.status_code >= 400 and response.request.method != "HEAD":
        assert headers["content-type"] == "application/problem+json"
        problem = response.json()
        assert set(problem) == {"type", "title", "status", "code", "detail"}
        assert problem["type"] == "about:blank"
        assert problem["status"] == response.status_code
        assert problem["code"] == problem["code"].lower()
        assert problem["detail"]
    if response.status_code in (429, 503):
        assert int(headers["retry-after"]) >= 1
    return response


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert (response.status_code, response.json().get("code")) == (status, code), response.text


def make_blob(
    stream: bytes, seq: int, size: int = 200, *, tag: bytes | None = None, content: bytes | None = None, **wrong: Any
) -> bytes:
    """Something that looks sealed from outside: a header, and noise."""
    inner = secrets.token_bytes(max(0, size - 148)) if content is None else content
    header = struct.pack(
        ">4sBBBB16s16sQ32s32sI",
        wrong.get("magic", b"CRB1"),
        wrong.get("version", 1),
        1,
        1,
        0,
        bytes(16),
        stream,
        seq,
        bytes(32),
        secrets.token_bytes(32),
        wrong.get("ct_len", len(inner)),
    )
    return header + inner + (secrets.token_bytes(32) if tag is None else tag)


def new_stream(prefix: bytes | None = None) -> bytes:
    return (secrets.token_bytes(8) if prefix is None else prefix) + secrets.token_bytes(8)


# ------------------------------------------------------------------------------------------------------ where they are


def add_account(settings: Settings, account: str) -> str:
    """A home token of an account, as the operator's command makes it."""
    token, text = new_token(account, "home", ["home"], NOW, secrets.token_bytes)
    with choice.transaction(settings, create=True) as rows:
        accounts.add(rows, token)
    return text


@contextmanager
def in_process(folder: Path, *, ticking: bool = True, **changed: Any) -> Iterator[Target]:
    """The app in this process. Without ``ticking`` its clock stands until the test moves it."""
    settings = Settings(data_dir=folder, metrics_listen="", **changed)
    tokens = add_account(settings, "one"), add_account(settings, "two")
    clock = [NOW]
    timing: dict[str, Callable[[], Any]] = {} if ticking else {"now": lambda: clock[0]}
    store = choice.open_store(settings, now=NOW)
    try:
        name = "postgres" if settings.store else "app"
        with ServedApp(RelayApp(Services(settings, store, **timing))) as served:
            yield Target(name, served.url, *tokens, served.transport, served, clock)
            assert not served.errors, served.errors
    finally:
        store.close()


@contextmanager
def as_process(folder: Path, *, code: str = "", tls: bool = False, **changed: Any) -> Iterator[Target]:
    """``python -m relay_worker serve``, as it is started for real; ``code`` is run in its place."""
    place = Settings(data_dir=folder, store=changed.get("store", ""))
    tokens = add_account(place, "one"), add_account(place, "two")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    chosen = {"listen": f"127.0.0.1:{port}", "data_dir": str(folder), "metrics_listen": "off", **changed}
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "COVERAGE_PROCESS_START") if name in os.environ}
    env = {**kept, **{f"CRYSTAL_RELAY_{name.upper()}": str(value) for name, value in chosen.items()}}
    root = Path(__file__).resolve().parents[2]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *(["-c", code] if code else ["-m", "relay_worker", "serve"])],
            env=env,
            cwd=root,
            stdout=log,
            stderr=log,
        )
        try:
            url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
            _wait_for(url, process, folder / "server.log")
            with httpx.HTTPTransport(trust_env=False) as transport:
                yield Target("socket", url, *tokens, transport)
        finally:
            process.terminate()
            assert process.wait(30) == 0


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    pause = threading.Event()
    for _ in range(600):
        with contextlib.suppress(httpx.TransportError):
            # Who it is does not matter here, only that it answers.
            if httpx.get(url + "/healthz", trust_env=False, verify=False).status_code == 200:
                return
        assert process.poll() is None, log.read_text("utf-8", "replace")
        pause.wait(0.05)
    raise AssertionError(log.read_text("utf-8", "replace"))


@contextmanager
def elsewhere() -> Iterator[Target]:
    """The relay at ``CRYSTAL_CONFORMANCE_URL``."""
    context = ssl.create_default_context(cafile=URL_CA)
    with httpx.HTTPTransport(verify=context, trust_env=False) as transport:
        yield Target("url", URL.rstrip("/"), URL_TOKEN, URL_STRANGER, transport, context=context)


KINDS = ["app", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("postgres", "bucket", "workerd"))]
ALL_KINDS = [*KINDS, pytest.param("socket", marks=pytest.mark.slow)]


@contextmanager
def on_workerd(request: pytest.FixtureRequest, name: str, *, ticking: bool = True, **changed: Any) -> Iterator[Target]:
    """The relay on Cloudflare Workers: two accounts and an address of one's own at a process that tests share."""
    variables = {f"CRYSTAL_RELAY_{key.upper()}": value for key, value in changed.items()}
    served = request.getfixturevalue("workerds")(name, **variables)
    tokens = served.token("home", "home"), served.token("home", "home")
    clock = [] if ticking else Clock(served.url)
    address = f"2001:db8:{secrets.token_hex(2)}:{secrets.token_hex(2)}::1"
    with httpx.HTTPTransport(trust_env=False) as transport:
        yield Target("workerd", served.url, *tokens, transport, served, clock=clock, is_fronted=True, address=address)
    if served.process.poll() is not None:
        served.start()


@contextmanager
def started(request: pytest.FixtureRequest, name: str, folder: Path, **changed: Any) -> Iterator[Target]:
    """A relay of the kind that the fixture ``name`` is for.

    ``postgres`` has a database of its own; ``bucket``, too, and nearly all of its bodies are in a bucket.
    """
    kind = request.param
    if kind == "workerd":
        with on_workerd(request, name, **changed) as target:
            yield target
        return
    with ExitStack() as opened:
        with pytest.MonkeyPatch.context() as patch:  # until the store is open: other tests share this process
            if kind in {"postgres", "bucket"}:
                changed["store"] = request.getfixturevalue("postgres").database(secrets.token_hex(8))
            if kind == "bucket":
                server = request.getfixturevalue("s3_server")
                changed["bodies"] = server.address()
                patch.setattr("relay_worker.store.postgres.store.INLINE_BYTES", 150)
                for variable, value in server.environ.items():
                    patch.setenv(variable, value)
            target = opened.enter_context((as_process if kind == "socket" else in_process)(folder, **changed))
        yield target


@pytest.fixture(scope="session", params=[*ALL_KINDS, *(["url"] if URL else [])])
def relay(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A relay with room and without rates, shared by all tests: each makes streams of its own."""
    if request.param == "url":
        with elsewhere() as target:
            yield target
        return
    with started(request, "relay", tmp_path_factory.mktemp("relay"), **OPEN) as target:
        yield target


@pytest.fixture(params=ALL_KINDS)
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """A relay of one's own whose limits are reached at once."""
    with started(request, "limited", tmp_path / "relay", **SMALL) as target:
        yield target


@pytest.fixture(params=ALL_KINDS)
def hurried(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """A relay of one's own that hardly waits for a body."""
    with started(request, "hurried", tmp_path / "relay", **HURRIED) as target:
        yield target


@pytest.fixture(params=KINDS)
def aging(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """A relay of one's own whose clock the test moves: ``aging.clock[0] += ...``."""
    with started(request, "aging", tmp_path / "relay", ticking=False, **OPEN) as target:
        yield target
