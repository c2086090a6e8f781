"""Secrets in the operating system's keyring, if the user selected it: any failure there is an error."""

from __future__ import annotations

import hmac
from types import ModuleType

from crystal.config.packages import install_command
from crystal.errors import NotConfiguredError, UsageError
from crystal.sync.keys.files import backup_names

SERVICE = "crystal"
"""Service name in the keyring; ``crystal.credentials.api_keys`` uses the same, with the provider as the user."""


def read_entry(user: str) -> str | None:
    """Return the password of ``crystal``/``user``, or None if there is none.

    Raises:
        NotConfiguredError: The package is missing, there is no keyring, or it fails.
    """
    ring = _keyring()
    try:
        found = ring.get_password(SERVICE, user)
    except Exception as error:  # back ends are plug-ins that may raise anything; translate only
        raise _failure(error) from error
    return found if isinstance(found, str) else None


def write_entry(user: str, secret: str, *, replace: bool) -> str | None:
    """Store a password and read it back. A replaced one is kept as ``user.bak``, or the first free ``user.bak.2``.

    Returns:
        The user name of the old password, or None.

    Raises:
        UsageError: Another is there and ``replace`` is not given.
        NotConfiguredError: The package is missing, there is no keyring, or it fails or does not keep the password.
    """
    old = read_entry(user)
    if old == secret:
        return None
    if old is not None and not replace:
        hint = "to replace it: --replace; the old one is kept as a backup"
        raise UsageError(f"keyring {SERVICE}/{user} exists already and is not overwritten", hint=hint)
    backup = None
    if old is not None:
        backup = next(name for name in backup_names(user) if read_entry(name) is None)
        _store(backup, old)
    _store(user, secret)
    return backup


def _store(user: str, secret: str) -> None:
    ring = _keyring()
    try:
        ring.set_password(SERVICE, user, secret)
    except Exception as error:  # as above
        raise _failure(error) from error
    if not hmac.compare_digest((read_entry(user) or "").encode(), secret.encode()):
        hint = "choose another place: crystal config set relay.key_place file"
        raise NotConfiguredError("the system's keyring does not store the key", hint=hint)


def _keyring() -> ModuleType:
    try:
        import keyring
        import keyring.errors
    except ImportError as error:
        hint = f"{install_command('keyring')}, or: crystal config set relay.key_place file"
        raise NotConfiguredError("the keyring is chosen, but its package is not installed", hint=hint) from error
    return keyring


def _failure(error: Exception) -> NotConfiguredError:
    hint = "unlock it, or choose another place: crystal config set relay.key_place file"
    if isinstance(error, _keyring().errors.NoKeyringError):
        return NotConfiguredError("the keyring is chosen, but this system has none", hint=hint)
    return NotConfiguredError(f"the system's keyring failed ({type(error).__name__})", hint=hint)
