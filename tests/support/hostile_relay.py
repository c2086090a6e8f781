"""A server on loopback that answers with whatever bytes a test wants, as slowly and for as long as it wants.

    with hostile(says(answer(b"{}"))) as relay:
        RelayClient(relay.url, "token").streams()

A script gets the connection after the request's head was read, and the server's face. Endless scripts watch
``relay.over``. ``relay.asked`` keeps the heads of the requests as they came.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

VERSION = b"Crystal-Relay-Version: 1\r\n"


@dataclass
class Hostile:
    """The server's face for tests."""

    url: str
    asked: list[bytes] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    sent: int = 0


Script = Callable[[socket.socket, Hostile], None]


@contextmanager
def hostile(script: Script, *, tls: ssl.SSLContext | None = None, name: str = "127.0.0.1") -> Iterator[Hostile]:
    """Serve every connection with a script until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        scheme = "https" if tls is not None else "http"
        relay = Hostile(f"{scheme}://{name}:{listening.getsockname()[1]}")
        listening.settimeout(0.5)
        threads: list[threading.Thread] = []
        accepting = threading.Thread(target=_accept, args=(listening, script, relay, tls, threads), daemon=True)
        accepting.start()
        try:
            yield relay
        finally:
            relay.over.set()
            # A last guest, so that the one who accepts looks up.
            with contextlib.suppress(OSError):
                socket.create_connection(listening.getsockname(), 1).close()
            accepting.join(10)
            for thread in threads:
                thread.join(10)


def _accept(
    listening: socket.socket,
    script: Script,
    relay: Hostile,
    tls: ssl.SSLContext | None,
    threads: list[threading.Thread],
) -> None:
    while not relay.over.is_set():
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        if relay.over.is_set():
            connection.close()
            return
        thread = threading.Thread(target=_serve, args=(connection, script, relay, tls), daemon=True)
        threads.append(thread)
        thread.start()


def _serve(connection: socket.socket, script: Script, relay: Hostile, tls: ssl.SSLContext | None) -> None:
    # Whatever the other side does to the connection is its right.
    with contextlib.suppress(OSError), connection:
        connection.settimeout(10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is None:
            _talk(connection, script, relay)
        else:
            with tls.wrap_socket(connection, server_side=True) as secured:
                _talk(secured, script, relay)


def _talk(connection: socket.socket, script: Script, relay: Hostile) -> None:
    head = b""
    # A client that wants TLS (22) of a server that has none is answered like any other nonsense: at once.
    while b"\r\n\r\n" not in head and head[:1] != b"\x16" and (more := connection.recv(65_536)):
        head += more
    relay.asked.append(head)
    if head:
        script(connection, relay)


def answer(
    body: bytes = b"",
    *,
    status: bytes = b"200 OK",
    kind: bytes = b"application/json",
    more: bytes = b"",
    length: int | None = None,
    version: bytes = VERSION,
) -> bytes:
    """A whole answer, well formed unless the arguments are not."""
    lines = [
        b"HTTP/1.1 " + status,
        b"Content-Type: " + kind,
        b"Content-Length: %d" % (len(body) if length is None else length),
        b"Connection: close",
    ]
    return b"\r\n".join(lines) + b"\r\n" + version + more + b"\r\n" + body


def says(data: bytes) -> Script:
    """Send some bytes and close."""

    def script(connection: socket.socket, relay: Hostile) -> None:
        connection.sendall(data)
        relay.sent += len(data)
        _close(connection)

    return script


def says_json(value: object) -> Script:
    """Send a good answer that holds some JSON."""
    return says(answer(json.dumps(value).encode()))


def floods(head: bytes, piece: bytes, pieces: int = 1 << 40) -> Script:
    """Send a head, and then the same piece as often and as fast as the other side takes it."""

    def script(connection: socket.socket, relay: Hostile) -> None:
        connection.sendall(head)
        for _ in range(pieces):
            if relay.over.is_set():
                return
            connection.sendall(piece)
            relay.sent += len(piece)
        _close(connection)

    return script


def drips(head: bytes, data: bytes, every: float = 0.02) -> Script:
    """Send a head at once and the rest byte by byte, forever again from its start."""

    def script(connection: socket.socket, relay: Hostile) -> None:
        connection.sendall(head)
        while True:
            for at in range(len(data)):
                if relay.over.wait(every):
                    return
                connection.sendall(data[at : at + 1])
                relay.sent += 1

    return script


def silent(connection: socket.socket, relay: Hostile) -> None:
    """Say nothing, and keep the connection."""
    relay.over.wait(30)


def _close(connection: socket.socket) -> None:
    """Close without a reset, so that what was sent arrives."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(2)
        while connection.recv(65_536):
            pass
