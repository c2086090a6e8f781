"""Serve the page on loopback until the user stops it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from crystal.serving.listening import LOOPBACK, listen, run
from crystal.web.app import make_app
from crystal.web.security import OPEN_PATH, Access

DEFAULT_PORT = 8642


def serve(filters: Mapping[str, Callable[..., Any]], port: int | None, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        filters: Functions of the command line for the templates.
        port: None for the usual port, or any free one if that is taken.
        ready: Called with the opening link as soon as the server listens.

    Raises:
        UsageError: The number is not a port.
        UnavailableError: The port is taken.
    """
    with listen(port, DEFAULT_PORT, "crystal web") as listening:
        number = listening.getsockname()[1]
        access = Access(f"crystal-{number}")
        ready(f"http://{LOOPBACK}:{number}{OPEN_PATH}?token={access.link}")
        run(make_app(filters, access), listening)
