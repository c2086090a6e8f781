"""How many connections the relay keeps open: for one address, in total, and never one too many counted."""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from relay_worker.connections import ConnectionLimits
from relay_worker.limits import networks
from tests.relay_conformance.targets import make_blob, new_stream
from tests.relay_worker.test_relay_server_process import Running, command, home_token, running
from tests.relay_worker.test_relay_server_wire import pems
from tests.support.whole_memory import wait_until

pytestmark = pytest.mark.slow  # every test starts a server
__all__ = ["pems"]
LIMIT = 5
QUIET = {"ACCESS_LOG": "none"}


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("relay") / "data", MAX_CONNECTIONS_PER_ADDRESS=str(LIMIT), **QUIET) as one:
        yield one


def connect(relay: Running, source: str) -> socket.socket:
    return socket.create_connection(relay.address, 10, (source, 0))


def is_closed(raw: socket.socket, seconds: float = 30) -> bool:
    """Return True if the other end closes the connection within a time."""
    raw.settimeout(seconds)
    try:
        return raw.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def health(relay: Running, source: str) -> int:
    transport = httpx.HTTPTransport(local_address=source, trust_env=False, verify=False)
    with httpx.Client(transport=transport, timeout=30) as client:
        return client.get(f"{relay.url}/healthz").status_code


def metric(relay: Running, name: str) -> float:
    text = urllib.request.urlopen(relay.serving["metrics"], timeout=30).read().decode()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def wait_until_open(relay: Running, count: int) -> None:
    wait_until(lambda: metric(relay, "crystal_relay_connections") == count, f"{count} open connections")


def test_idle_connections_of_one_address_leave_room_for_others(relay: Running) -> None:
    refused = 'crystal_relay_connections_refused_total{reason="address"}'
    before = metric(relay, refused)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(relay, "127.0.0.2")) for _ in range(LIMIT)]
        wait_until_open(relay, LIMIT)
        more = [stack.enter_context(connect(relay, "127.0.0.2")) for _ in range(3 * LIMIT)]
        assert all(is_closed(one) for one in more)
        assert not any(is_closed(one, 0.01) for one in idle)
        assert health(relay, "127.0.0.3") == 200
        with pytest.raises(httpx.TransportError):
            health(relay, "127.0.0.2")
        assert metric(relay, refused) - before == 3 * LIMIT + 1
    wait_until_open(relay, 0)
    assert health(relay, "127.0.0.2") == 200, "closed connections are not counted"


def test_a_flood_of_one_address_holds_nobody_up(relay: Running) -> None:
    over = threading.Event()

    def flood() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), connect(relay, "127.0.0.2") as raw:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        floods = [pool.submit(flood) for _ in range(3)]
        try:
            for _ in range(10):
                assert health(relay, "127.0.0.3") == 200
        finally:
            over.set()
        for one in floods:
            one.result(60)
    wait_until_open(relay, 0)


@pytest.mark.parametrize(
    "sent", [b"", b"G", b"\x16\x03\x01", b"\0\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"PUT / HTTP/1.1\r\n"]
)
@pytest.mark.parametrize("ending", ["closed", "reset", "half"])
def test_no_way_to_leave_is_counted_for_ever(relay: Running, sent: bytes, ending: str) -> None:
    for _ in range(3):
        with connect(relay, "127.0.0.2") as raw:
            raw.sendall(sent)
            if ending == "reset":
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            elif ending == "half":
                raw.shutdown(socket.SHUT_WR)
    wait_until_open(relay, 0)


def test_who_leaves_while_waiting_waits_no_longer(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    token = home_token(tmp_path / "data")
    left = 'crystal_relay_requests_total{method="GET",route="/v1/streams",status="499"}'
    with running(tmp_path / "data", **QUIET) as relay:
        listed = httpx.get(f"{relay.url}/v1/streams", headers={"Authorization": f"Bearer {token}"}, timeout=30).json()
        for count, ending in enumerate(("closed", "reset", "half"), 1):
            with connect(relay, "127.0.0.2") as raw:
                ask = f"GET /v1/streams?changed_after={listed['change']}&wait=50 HTTP/1.1\r\nHost: relay\r\n"
                raw.sendall(f"{ask}Authorization: Bearer {token}\r\n\r\n".encode())
                assert not is_closed(raw, 0.5)
                if ending == "reset":
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                elif ending == "half":
                    raw.shutdown(socket.SHUT_WR)
                    assert is_closed(raw)
            wait_until(lambda count=count: metric(relay, left) == count, f"the one who left: {ending}")


def test_handshakes_that_stop_count_and_end(pems: Path, tmp_path: Path) -> None:
    """A connection counts before TLS is spoken, so that half a handshake holds no place that nobody counts."""
    tls = {"TLS_CERT": str(pems / "own.pem"), "TLS_KEY": str(pems / "own.key")}
    with running(tmp_path / "data", MAX_CONNECTIONS_PER_ADDRESS="2", **tls, **QUIET) as relay:
        with connect(relay, "127.0.0.2") as silent, connect(relay, "127.0.0.2") as half:
            half.sendall(b"\x16\x03\x01\x02\x00\x01")
            wait_until_open(relay, 2)
            with connect(relay, "127.0.0.2") as third:
                assert is_closed(third)
            assert health(relay, "127.0.0.3") == 200
            assert not is_closed(silent, 0.01)
        with connect(relay, "127.0.0.2") as wrong:  # no TLS at all
            wrong.sendall(b"GET / HTTP/1.1\r\n\r\n")
        wait_until_open(relay, 0)


def test_a_trusted_proxy_is_not_one_client(tmp_path: Path) -> None:
    """Its connections are not limited; the requests of each client that it names are."""
    folder = tmp_path / "data"
    folder.mkdir()
    given = {"MAX_CONNECTIONS_PER_ADDRESS": "2", "TRUSTED_PROXIES": "127.0.0.9", **QUIET}
    with running(folder, **given) as relay, contextlib.ExitStack() as stack:
        token = home_token(folder)
        for _ in range(6):
            stack.enter_context(connect(relay, "127.0.0.9"))
        transport = httpx.HTTPTransport(local_address="127.0.0.9", trust_env=False)
        client = stack.enter_context(httpx.Client(transport=transport, base_url=relay.url, timeout=60))

        def ask(address: str, wait: int) -> int:
            headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": address}
            return client.get("/v1/streams", params={"changed_after": 0, "wait": wait}, headers=headers).status_code

        with concurrent.futures.ThreadPoolExecutor(2) as pool:

            def hold(address: str) -> int:
                while (status := ask(address, 50)) == 429:  # the question below came before and took the place
                    time.sleep(0.05)
                return status

            held = [pool.submit(hold, f"2001:db8::{number}") for number in (1, 2)]
            answers = set()
            while 429 not in answers and not any(one.done() for one in held):
                answers.add(ask("2001:db8::3", 0))
                time.sleep(0.02)
            assert 429 in answers, "a third request of the same /64 is served"
            assert ask("2001:db8:0:1::3", 0) == 200
            stream = new_stream()
            headers = {"Authorization": f"Bearer {token}"}
            put = client.put(f"/v1/streams/{stream.hex()}/blobs/1", content=make_blob(stream, 1), headers=headers)
            assert put.status_code == 201, "ends the waiting"
            assert [one.result(60) for one in held] == [200, 200]
        assert ask("2001:db8::3", 0) == 200, "what has ended does not count"
        assert ask("127.0.0.9", 0) == 200, "the proxy's own questions are not limited"


def test_a_proxy_that_nobody_named_is_not_limited_and_said(tmp_path: Path) -> None:
    with running(tmp_path / "data", BEHIND_PROXY="1", MAX_CONNECTIONS_PER_ADDRESS="1", **QUIET) as relay:
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(connect(relay, "127.0.0.2"))
            assert health(relay, "127.0.0.2") == 200
        warned = [line for line in relay.lines() if "CRYSTAL_RELAY_TRUSTED_PROXIES" in str(line["event"])]
        assert len(warned) == 1


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_total_holds_and_an_ipv6_client_is_its_network() -> None:
    reasons: list[str] = []
    limits = ConnectionLimits(2, 3, networks(["10.0.0.0/8"]), reasons.append)
    ends: list[socket.socket] = []

    def admit(peer: str) -> socket.socket | None:
        accepted, other = socket.socketpair()
        ends.append(other)
        return limits.admit(accepted, peer)

    kept = [admit("2001:db8::1"), admit("2001:db8::2")]
    assert admit("2001:db8::3") is None
    kept += [admit("10.0.0.1")]
    assert admit("10.0.0.1") is None
    assert admit("2001:db8:0:1::1") is None
    assert reasons == ["address", "total", "total"]
    assert all(one is not None for one in kept)
    first = kept.pop(0)
    assert first is not None
    first.close()
    first.close()
    assert limits.open == 2, "a second close counts nothing"
    del first
    kept.clear()  # never closed, only dropped
    assert (limits.open, dict(limits.counts._open)) == (0, {})
    for one in ends:
        one.close()


def test_check_names_the_limit(tmp_path: Path) -> None:
    done = command(tmp_path / "data", "check", MAX_CONNECTIONS_PER_ADDRESS="7")
    assert "max_connections_per_address = 7  (CRYSTAL_RELAY_MAX_CONNECTIONS_PER_ADDRESS)" in done.stdout
    assert command(tmp_path / "data", "check", MAX_CONNECTIONS_PER_ADDRESS="-1").returncode == 2
