"""Find out which user of this machine opened a connection over loopback, if the system reports it (Linux)."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The system's tables of connections; the one for IPv6 may contain IPv4 addresses."""
_ROOT, _ENDED = 0, "06"
"""State of a connection that has ended (TIME_WAIT), which the system always attributes to root."""


def is_other_user(
    address: tuple[str, int] | None, server: tuple[str, int] | None = None, tables: tuple[Path, ...] = TABLES
) -> bool:
    """Return True if the peer with this address and port is a program of another user of this machine, except root.

    ``server`` is its other end. False also if unknown: the system has no such table, or the peer is not in it.
    A table that changes while it is read may lack a row, so it is read three times.
    """
    if address is None or not hasattr(os, "getuid"):
        return False
    return not next(filter(None, (_users_of(address, server, tables) for _ in range(3))), set()) <= {_ROOT, os.getuid()}


def _users_of(address: tuple[str, int], server: tuple[str, int] | None, tables: tuple[Path, ...]) -> set[int]:
    try:
        number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
        end, other = f"{number:08X}:{address[1]:04X}", "" if server is None else f":{server[1]:04X}"
        rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()]
    except OSError:  # no address, or no readable table
        return set()
    return {int(row[7]) for row in rows if row[1].endswith(end) and row[2].endswith(other) and row[3] != _ENDED}
