"""Store sign-ins that wait for ``crystal access approve``: written by the server, read by the command."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import msgspec

from crystal.config.paths import alone_in, system_errors, write_private
from crystal.errors import NotFoundError

SECONDS = 600
MAX_WAITING = 100
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


class AccessRequest(msgspec.Struct, frozen=True):
    """A sign-in: the code on the page, client, receiver of the token, scopes, time (ms), and the token's hash."""

    code: str
    client: str
    host: str
    scopes: tuple[str, ...]
    at: int
    hashed: str


class RequestList:
    """The sign-ins of the last ten minutes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[AccessRequest]:
        """Return the waiting sign-ins; empty if the file cannot be parsed, because clients can sign in again."""
        try:
            with system_errors(self._path):
                data = self._path.read_bytes() if self._path.exists() else b"[]"
            found = msgspec.json.decode(data, type=list[AccessRequest])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return []
        return [one for one in found if one.at + SECONDS * 1000 > time.time() * 1000]

    def add(self, client: str, host: str, scopes: tuple[str, ...], hashed: str) -> AccessRequest:
        """Add a sign-in with a new code; if there are too many, the oldest is removed."""
        code = "-".join("".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(2))
        made = AccessRequest(code, client, host, scopes, time.time_ns() // 1_000_000, hashed)
        with alone_in(self._path.parent):
            self._write([*self.read(), made][-MAX_WAITING:])
        return made

    def find(self, code: str) -> AccessRequest:
        """Return the sign-in with a code.

        Raises:
            NotFoundError: No sign-in has it.
        """
        found = next((one for one in self.read() if one.code == code.strip().upper()), None)
        if found is None:
            hint = "it may have expired: start the sign-in again"
            raise NotFoundError(f"no sign-in has the code {code[:20]!r}", hint=hint)
        return found

    def remove(self, request: AccessRequest) -> None:
        """Remove a sign-in that was approved."""
        with alone_in(self._path.parent):
            self._write([one for one in self.read() if one.code != request.code])

    def _write(self, rows: list[AccessRequest]) -> None:
        write_private(self._path, msgspec.json.encode(rows))
