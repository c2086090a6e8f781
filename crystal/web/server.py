"""Serve the page on loopback until somebody stops it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

import uvicorn

from crystal.errors import UnavailableError, UsageError
from crystal.web.app import make_app
from crystal.web.security import OPEN_PATH, Access

HOST = "127.0.0.1"
DEFAULT_PORT = 8642
MAX_PORT = 65_535


def serve(words: Mapping[str, Callable[..., Any]], port: int | None, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        words: Functions of the command line for the templates.
        port: None for the usual port, or any free one if that is taken.
        ready: Called with the opening link as soon as the server listens.

    Raises:
        UsageError: There is no such port.
        UnavailableError: The port is taken.
    """
    with listen(port) as listening:
        number = listening.getsockname()[1]
        access = Access(f"crystal-{number}")
        config = uvicorn.Config(
            make_app(words, access), lifespan="off", ws="none", log_level="error", access_log=False,
            server_header=False, date_header=False, proxy_headers=False, timeout_graceful_shutdown=2,
        )  # fmt: skip
        ready(f"http://{HOST}:{number}{OPEN_PATH}?token={access.link}")
        uvicorn.Server(config).run(sockets=[listening])


def listen(port: int | None) -> socket.socket:
    """Return a socket that listens on loopback, and nowhere else."""
    if port is not None and not 0 <= port <= MAX_PORT:
        raise UsageError(f"the port is {port}", hint=f"use 0 to {MAX_PORT}")
    try:
        return _bind(DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None:
            return _bind(0)
        reason = (error.strerror or str(error)).lower()
        raise UnavailableError(f"port {port}: {reason}", hint="use any free port: crystal web --port 0") from error


def _bind(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening
