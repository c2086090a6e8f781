"""Store secrets in the operating system's keyring, if the user selected it. Any failure of it is an error."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Iterator
from types import ModuleType

from crystal.config.packages import install_command
from crystal.errors import NotConfiguredError, UsageError
from crystal.sync.keys.secret_files import backup_names

SERVICE = "crystal"
"""Service name in the keyring; ``crystal.credentials.api_keys`` uses the same, with the provider as the user."""


def read_entry(user: str) -> str | None:
    """Return the password of ``crystal``/``user``, or None.

    Raises:
        NotConfiguredError: The package is missing, there is no keyring, or it fails.
    """
    with _keyring() as ring:
        found = ring.get_password(SERVICE, user)
    return found if isinstance(found, str) else None


def write_entry(user: str, secret: str, *, replace: bool) -> str | None:
    """Store a password and read it back. A replaced one is kept as ``user.bak``, or the first free ``user.bak.2``.

    Returns:
        The user name of the old password, or None.

    Raises:
        UsageError: Another password is stored and ``replace`` is not given.
        NotConfiguredError: The package is missing, there is no keyring, or it fails or does not keep the password.
    """
    old, backup = read_entry(user), None
    if old == secret:
        return None
    if old is not None:
        if not replace:
            hint = "to replace it: --replace; the old one is kept as a backup"
            raise UsageError(f"keyring {SERVICE}/{user} exists already and is not overwritten", hint=hint)
        backup = next(name for name in backup_names(user) if read_entry(name) is None)
        _store(backup, old)
    _store(user, secret)
    return backup


def _store(user: str, secret: str) -> None:
    with _keyring() as ring:
        ring.set_password(SERVICE, user, secret)
    if not hmac.compare_digest((read_entry(user) or "").encode(), secret.encode()):
        hint = "choose another place: crystal config set relay.key_place file"
        raise NotConfiguredError("the system's keyring does not store the key", hint=hint)


@contextlib.contextmanager
def _keyring() -> Iterator[ModuleType]:
    """Yield the keyring's package; any failure within becomes an error for the user."""
    try:
        import keyring
        from keyring.errors import NoKeyringError
    except ImportError as error:
        hint = f"{install_command('keyring')}, or: crystal config set relay.key_place file"
        raise NotConfiguredError("the keyring is chosen, but its package is not installed", hint=hint) from error
    try:
        yield keyring
    except Exception as error:  # back ends are plug-ins that may raise anything; translate only
        is_absent = isinstance(error, NoKeyringError)
        problem = f"the system's keyring failed ({type(error).__name__})"
        problem = "the keyring is chosen, but this system has none" if is_absent else problem
        hint = "unlock it, or choose another place: crystal config set relay.key_place file"
        raise NotConfiguredError(problem, hint=hint) from error
