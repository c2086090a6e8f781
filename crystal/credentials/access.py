"""Manage the tokens that may query this memory over HTTP: what each allows, and until when.

``access.json`` beside the database contains the hash of each token, never the token. It is read again when it changes,
so a revoked token is refused from the next request on.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from crystal.config.paths import alone_in, make_private_dir, system_errors, write_private
from crystal.errors import NotConfiguredError, NotFoundError, UsageError
from crystal.model.granted import GrantedProject

SCOPES = ("read", "remember", "forget")
PREFIX = "crystal-access-"
MAX_GRANTS, MAX_LABEL = 1_000, 60


class Grant(msgspec.Struct, frozen=True):
    """Rights of one token.

    Attributes:
        id: Its name in the log, unique.
        label: The user's name for it.
        scopes: Some of ``SCOPES``.
        projects: The projects to which it is limited; empty: the whole memory.
        made_at: When it was made, ms.
        expires_at: When it expires, ms, or None.
        hashed: The SHA-256 of the token, which has 256 random bits.
    """

    id: str
    label: str
    scopes: tuple[str, ...]
    projects: tuple[GrantedProject, ...]
    made_at: int
    expires_at: int | None
    hashed: str

    def is_valid(self, now: int) -> bool:
        """Return whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


def read_grants(path: Path) -> tuple[Grant, ...]:
    """Return every grant, oldest first.

    Raises:
        NotConfiguredError: The file cannot be parsed.
    """
    try:
        with system_errors(path):
            return msgspec.json.decode(path.read_bytes(), type=tuple[Grant, ...]) if path.exists() else ()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = f"no token works until it is repaired; or delete {path} and make new tokens"
        raise NotConfiguredError(f"{path} cannot be understood", hint=hint) from error


def make_grant(path: Path, label: str, *allowed: Any) -> tuple[Grant, str]:
    """Make a token; ``allowed`` as for ``add_grant``. Return its grant, and the token, which is stored nowhere."""
    token = new_token()
    return add_grant(path, hash_of(token), label, *allowed), token


def add_grant(
    path: Path,
    hashed: str,
    label: str,
    scopes: tuple[str, ...],
    projects: tuple[GrantedProject, ...],
    now: int,
    end: int | None,
) -> Grant:
    """Store a grant for the token with this hash. Expired grants are removed.

    Raises:
        UsageError: The label is in use or invalid, or there are too many grants.
    """
    name = " ".join(label.split())
    if not 0 < len(name) <= MAX_LABEL or not name.isprintable():
        raise UsageError(f"the label is {label[:MAX_LABEL]!r}", hint=f"use 1 to {MAX_LABEL} characters")
    made = Grant(secrets.token_hex(4), name, scopes, projects, now, end, hashed)

    def add(known: tuple[Grant, ...]) -> tuple[Grant, ...]:
        known = tuple(one for one in known if one.is_valid(now))
        if any(one.label == name for one in known):
            hint = f"use another one with --label, or run: crystal access revoke {shlex.quote(name)}"
            raise UsageError(f"the label {name!r} is taken", hint=hint)
        if len(known) >= MAX_GRANTS:
            hint = "list them: crystal access list; then: crystal access revoke NAME"
            raise UsageError(f"there are {len(known)} tokens", hint=hint)
        return (*known, made)

    _change(path, add)
    return made


def revoke_grant(path: Path, wanted: str) -> Grant:
    """Remove a grant, by its label or its id.

    Raises:
        NotFoundError: There is none.
    """
    found = next((one for one in read_grants(path) if wanted in (one.label, one.id)), None)
    if found is None:
        raise NotFoundError(f"there is no access {wanted!r}", hint="run: crystal access list")
    _change(path, lambda known: tuple(one for one in known if one.id != found.id))
    return found


def _change(path: Path, change: Callable[[tuple[Grant, ...]], tuple[Grant, ...]]) -> None:
    make_private_dir(path.parent)
    with alone_in(path.parent):
        write_private(path, msgspec.json.format(msgspec.json.encode(change(read_grants(path)))))


def new_token() -> str:
    """Return a token of 256 random bits."""
    return f"{PREFIX}{secrets.token_urlsafe(32)}"


def hash_of(token: str) -> str:
    """Return the hash that is stored for a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class TokenChecker:
    """Finds the grant of a token in the current list."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] = ()
        self._grants: tuple[Grant, ...] = ()

    def grants(self) -> tuple[Grant, ...]:
        """Return every grant; read the file again if it has changed."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._seen, self._grants = (), ()
            return ()
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._seen:
            self._grants, self._seen = read_grants(self._path), seen
        return self._grants

    def find(self, token: str, now: int) -> Grant | None:
        """Return the grant of a token; None if it is unknown or expired. Takes the same time for every token."""
        given, found = hash_of(token), None
        for one in self.grants():
            found = one if hmac.compare_digest(one.hashed, given) else found
        return found if found is not None and found.is_valid(now) else None

    def is_current(self, grant: Grant, now: int) -> bool:
        """Return whether a grant is still in the list and has not expired."""
        return grant in self.grants() and grant.is_valid(now)
