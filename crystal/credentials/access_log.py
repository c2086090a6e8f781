"""Log access over HTTP: who, what, when, and the outcome; never a word of a question or an answer.

``access.log`` beside the database has one JSON object per line. At ``MAX_BYTES`` it replaces ``access.log.1``, so both
together have at most twice as many.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec

from crystal.config.paths import system_errors

MAX_BYTES = 1 << 20


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request.

    Attributes:
        at: When it was answered, ms.
        id: The grant's id; empty for a request without a valid token.
        label: The grant's label.
        what: The tool, or the method of the protocol.
        outcome: ``ok``; ``error``: the tool reported one; ``refused``: not allowed; ``limited``: too many requests.
        ms: Its duration.
        address: The sender's address.
    """

    at: int
    id: str
    label: str
    what: str
    outcome: str
    ms: int
    address: str


class AccessLog:
    """The log of one data folder.

    Attributes:
        has_failed: An entry was lost, and the user was warned.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._former = path, path.with_name(f"{path.name}.1")
        self._writing = threading.Lock()
        self.has_failed = False

    def add(self, entry: LogEntry) -> None:
        """Append an entry."""
        line = msgspec.json.encode(entry) + b"\n"
        with self._writing, system_errors(self._path):
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, line)
                is_full = os.fstat(handle).st_size >= MAX_BYTES
            finally:
                os.close(handle)
            if is_full:
                self._path.replace(self._former)

    def read(self) -> list[LogEntry]:
        """Return every entry, oldest first, without lines truncated by a crash."""
        found = []
        for path in (self._former, self._path):
            with system_errors(path):
                lines = path.read_bytes().splitlines() if path.exists() else []
            for line in lines:
                try:
                    found.append(msgspec.json.decode(line, type=LogEntry))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
        return found
