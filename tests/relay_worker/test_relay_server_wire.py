"""What a relay's socket bears: trailers, who does not read, handshakes that stop; and certificates, before it begins."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay_worker import bounded_protocol as wire
from relay_worker import serving
from tests.relay_conformance.targets import OPEN, Target, as_process, make_blob, new_stream, read_answer

pytestmark = pytest.mark.slow  # every test starts a server

QUICK = (
    "from relay_worker import serving, bounded_protocol as wire; wire.HEAD_SECONDS = serving.HEAD_SECONDS = 0.5;"
    "wire.STALL_SECONDS = wire.DRAIN_SECONDS = 0.3; from relay_worker.__main__ import main; main(['serve'])"
)
"""A relay that is sooner out of patience; the times that hold are looked at below."""


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with as_process(tmp_path_factory.mktemp("relay"), code=QUICK, **OPEN) as target:
        yield target


def request(relay: Target, method: str, path: str, *headers: str, token: bool = True) -> bytes:
    given = [f"Authorization: Bearer {relay.home}"] if token else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: r", *given, *headers, "", ""]).encode()


def chunked(body: bytes, *trailers: str) -> bytes:
    return b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, "".join(f"{one}\r\n" for one in trailers).encode())


def test_the_times_that_hold_are_longer():
    assert (wire.HEAD_SECONDS, wire.DRAIN_SECONDS, wire.STALL_SECONDS) == (15, 10, 60)
    assert serving.HEAD_SECONDS == 15


def test_a_trailer_is_no_header(relay):
    stream = new_stream()
    path = f"/v1/streams/{stream.hex()}/blobs/1"
    body = chunked(make_blob(stream, 1), f"Authorization: Bearer {relay.home}")
    with relay.connection() as raw:
        raw.sendall(request(relay, "PUT", path, "Transfer-Encoding: chunked", token=False) + body)
        assert read_answer(raw)[0] == 401
    body = chunked(make_blob(stream, 1), "Crystal-Relay-Version: 9", "X-Forwarded-For: 192.0.2.1", "Content-Digest: no")
    with relay.connection() as raw:
        raw.sendall(request(relay, "PUT", path, "Transfer-Encoding: chunked") + body)
        assert read_answer(raw)[0] == 201
        raw.sendall(request(relay, "GET", "/v1/streams"))
        assert read_answer(raw)[0] == 200, "the connection goes on behind a trailer"


def flood(raw: socket.socket) -> None:
    for _ in range(100):
        raw.sendall(b"a" * 65_536)
        time.sleep(0.001)


@pytest.mark.parametrize("start", [b"0\r\nX: ", b"0\r\n", b"5;", b"5;a="])
def test_framing_without_end_is_given_up_before_it_fills_the_memory(relay, start):
    for method, path in (("PUT", "/healthz"), ("PUT", f"/v1/objects/{new_stream().hex()}")):
        with relay.connection() as raw:
            raw.sendall(request(relay, method, path, "Transfer-Encoding: chunked") + start)
            with pytest.raises(ConnectionError):
                flood(raw)


def test_many_small_chunks_are_a_body_like_any_other(relay):
    stream = new_stream()
    blob = make_blob(stream, 1, 40_000)
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in blob) + b"0\r\n\r\n"
    with relay.connection() as raw:
        path = f"/v1/streams/{stream.hex()}/blobs/1"
        raw.sendall(request(relay, "PUT", path, "Transfer-Encoding: chunked") + body)
        assert read_answer(raw)[0] == 201
    assert relay.get(stream, 1).content == blob


def test_another_transfer_encoding_is_refused(relay):
    with relay.connection() as raw:
        sent = request(relay, "PUT", f"/v1/objects/{new_stream().hex()}", "Transfer-Encoding: gzip, chunked")
        raw.sendall(sent + chunked(b"not gzip"))
        status, problem = read_answer(raw)
        assert (status, problem["code"]) == (415, "unsupported-media-type")


def test_after_an_answer_no_other_comes_for_the_same_request(relay):
    with relay.connection() as raw:
        raw.sendall(request(relay, "PUT", "/healthz", "Transfer-Encoding: chunked"))
        assert read_answer(raw)[0] == 405
        raw.sendall(b"no size\r\n")
        assert raw.recv(1000) == b""


def slow_reader(relay: Target) -> socket.socket:
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.settimeout(10)
    host, _, port = relay.url.partition("://")[2].rpartition(":")
    raw.connect((host, int(port)))
    return raw


@pytest.mark.slow
def test_who_does_not_read_is_given_up_and_who_reads_slowly_is_not(relay):
    stream = new_stream()
    blob = make_blob(stream, 1, 6_000_000)
    assert relay.put(stream, 1, blob).status_code == 201
    fetch = request(relay, "GET", f"/v1/streams/{stream.hex()}/blobs/1", "Connection: close")
    many = request(relay, "GET", "/openapi.json", token=False) * 200
    for sent in (fetch, many):
        with slow_reader(relay) as raw:
            raw.sendall(sent)
            time.sleep(1.2)
            got = 0
            with contextlib.suppress(ConnectionResetError):
                while more := raw.recv(65_536):
                    got += len(more)
            assert got < 6_000_000, "it was still sending"
    with slow_reader(relay) as raw:
        raw.sendall(fetch)
        got = pauses = 0
        while more := raw.recv(65_536):
            got += len(more)
            if got > pauses * 600_000:
                pauses += 1
                time.sleep(0.1)
        assert got > 6_000_000


# ------------------------------------------------------------------------------------------------------------------ TLS


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trustme = pytest.importorskip("trustme")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    folder = tmp_path_factory.mktemp("pems")
    authority = trustme.CA()
    for name in ("own", "other"):
        cert = authority.issue_cert("localhost", "127.0.0.1")
        cert.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        cert.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
    key = serialization.load_pem_private_key((folder / "own.key").read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"pass phrase")
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    (folder / "locked.key").write_bytes(key.private_bytes(*form, locked))
    (folder / "text.pem").write_text("no certificate")
    return folder


@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [
        ("absent.pem", "own.key", "absent.pem cannot be read"),
        (".", "own.key", "cannot be read: Is a directory"),
        ("text.pem", "own.key", "are not a certificate and its key"),
        ("own.pem", "other.key", "are not a certificate and its key"),
        ("own.pem", "locked.key", "locked.key needs a pass phrase"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_named_before_serving(pems, cert, key, said):
    settings = serving.Settings(tls_cert=pems / cert, tls_key=pems / key)
    with pytest.raises(serving.CannotServeError) as caught:
        serving.refuse_bad_certificate(settings)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2
    assert caught.value.hint


@pytest.mark.parametrize("verb", ["serve", "check"])
def test_both_serving_and_checking_look_at_the_certificate(pems, tmp_path, verb):
    env = {
        **os.environ,
        "CRYSTAL_RELAY_TLS_CERT": str(pems / "own.pem"),
        "CRYSTAL_RELAY_TLS_KEY": str(pems / "own.pem"),
    }
    env |= {"CRYSTAL_RELAY_LISTEN": "127.0.0.1:0", "CRYSTAL_RELAY_DATA_DIR": str(tmp_path / "data")}
    root = Path(__file__).resolve().parent.parent.parent
    command = [sys.executable, "-m", "relay_worker", verb]
    done = subprocess.run(command, env=env, cwd=root, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2, done.stderr
    assert "are not a certificate and its key" in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_handshake_that_stops_is_given_up_like_a_head(pems, tmp_path):
    tls = {"tls_cert": pems / "own.pem", "tls_key": pems / "own.key"}
    with as_process(tmp_path / "relay", code=QUICK, tls=True, **OPEN, **tls) as relay:
        with slow_reader(relay) as nothing, slow_reader(relay) as some:
            some.sendall(b"\x16\x03\x01\x02\x00\x01")
            began = time.monotonic()
            for raw in (nothing, some):
                with contextlib.suppress(ConnectionResetError):
                    assert raw.recv(1000) == b""
            assert time.monotonic() - began < 5
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        host, _, port = relay.url.partition("://")[2].rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=10)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
