"""Which user of this machine a connection over loopback comes from, where the system tells (Linux)."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The system's connections; one over IPv6 may have an IPv4 address inside its own."""
ROOT = 0


def is_other_user(address: tuple[str, int] | None, tables: tuple[Path, ...] = TABLES) -> bool:
    """Return True if the peer with this address and port is a program of another user of this machine, but root.

    False also if nobody can tell: the system has no such table, or the peer is not in it.
    """
    if address is None or not hasattr(os, "getuid"):
        return False
    user = _user_of(address, tables)
    return user not in (None, ROOT, os.getuid())


def _user_of(address: tuple[str, int], tables: tuple[Path, ...]) -> int | None:
    try:
        number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
        end = f"{number:08X}:{address[1]:04X}"
        rows = (line.split() for table in tables if table.exists() for line in table.read_text().splitlines())
        return next((int(fields[7]) for fields in rows if fields[1].endswith(end)), None)
    except OSError:  # no address, or no table that may be read
        return None
