"""Select, read and write the place of the relay's key or token.

Exactly one place is used; ``place_of`` selects it before anything is opened. If it fails, that is an error: a fallback
could seal with the wrong key. Order and reasons: docs/reference/keys.md.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from crystal.config.paths import absolute, open_to_others
from crystal.credentials.api_keys import Secret
from crystal.errors import CrystalError, NotConfiguredError, UsageError
from crystal.sync.keys.derive import checked_secret
from crystal.sync.keys.forms import RelayKey, format_key, parse_key, parse_key_file
from crystal.sync.keys.keyring_entries import SERVICE, read_entry, write_entry
from crystal.sync.keys.secret_files import backup_names, is_managed, read_secret_file, write_own_file

Choice = Literal["file", "keyring", "command"]
Place = Literal["variable", "given file", "file", "keyring", "command"]

COMMAND_VARIABLE = "CRYSTAL_KEY_COMMAND"

_TOKEN = re.compile(r"[!-~]{1,1024}")
_SETUP = "on the home machine run: crystal relay pair; on a device: crystal relay join"


class KeyMissingError(NotConfiguredError):
    """The selected place works but is empty: nothing has been set up yet."""


class RelayToken(Secret):
    """A token for the relay, the description of its place, and a notice for the user, or None."""

    __slots__ = ()

    def __init__(self, value: str, source: str = "relay", note: str | None = None) -> None:
        if not _TOKEN.fullmatch(value):
            hint = "a token is one word of ASCII characters; copy it again"
            raise UsageError("this cannot be a relay token", hint=hint)
        super().__init__(value, source, note)


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A key, a description of its place, and a notice for the user, or None."""

    key: RelayKey
    source: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """Descriptions of the place of a new secret, and of the place where the replaced one is kept."""

    source: str
    backup: str | None = None


@dataclass(frozen=True, slots=True)
class SecretNames:
    """Names of one of the two secrets: in messages, environment, data folder, keyring and command."""

    secret: str
    variable: str
    file_variable: str
    file: str
    user: str


KEY = SecretNames("relay key", "CRYSTAL_RELAY_KEY", "CRYSTAL_KEY_FILE", "relay.key", "relay")
TOKEN = SecretNames("relay token", "CRYSTAL_RELAY_TOKEN", "CRYSTAL_RELAY_TOKEN_FILE", "relay.token", "relay-token")


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Places of the relay's key and token.

    Attributes:
        data_dir: The folder of ``relay.key`` and ``relay.token``.
        home: The user's home folder, for ``~`` in a variable.
        env: The environment.
        chosen: The setting ``relay.key_place``; None if it is not set.
        command: Runs the user's command for ``relay`` or ``relay-token`` and returns its output; raises
            NotConfiguredError if it fails. None if no command is set.
    """

    data_dir: Path
    home: Path
    env: Mapping[str, str] = field(repr=False)
    chosen: Choice | None = None
    command: Callable[[str], str] | None = None

    def place_of(self, names: SecretNames) -> Place:
        """Return the place used for a secret, without opening it."""
        if self.env.get(names.variable, "").strip():
            return "variable"
        if self.env.get(names.file_variable, "").strip():
            return "given file"
        if self.chosen is not None:
            return self.chosen
        # The command also serves API keys; users who keep the relay's key elsewhere use the setting.
        return "command" if self.env.get(COMMAND_VARIABLE, "").strip() else "file"

    def read_key(self) -> FoundKey:
        """Return the relay's key from the selected place.

        Raises:
            KeyMissingError: The place is empty.
            NotConfiguredError: The place fails, is open to others, or holds no key.
        """
        data, source = self._read(KEY)
        try:
            key = parse_key_file(data) if isinstance(data, bytes) else parse_key(data)
        except UsageError as error:
            raise NotConfiguredError(f"{source}: {error.message}", hint=error.hint) from error
        return FoundKey(key, source, self._note(KEY))

    def read_token(self) -> RelayToken:
        """Return the relay token from the selected place.

        Raises:
            KeyMissingError: The place is empty.
            NotConfiguredError: The place fails, is open to others, or holds no token.
        """
        data, source = self._read(TOKEN)
        text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
        try:
            return RelayToken(text.removeprefix("\ufeff").strip(), source, self._note(TOKEN))
        except UsageError as error:
            raise NotConfiguredError(f"{source}: {error.message}", hint=error.hint) from error

    def read_old_keys(self) -> list[RelayKey]:
        """Return the keys that ``write_key`` replaced, which open what was sealed until then.

        Unreadable files are skipped.
        """
        place, found = self.place_of(KEY), []
        if place == "file":
            for path in sorted(self.data_dir.glob(f"{KEY.file}.bak*")):
                with contextlib.suppress(CrystalError):
                    data = read_secret_file(path, "own")
                    found += [parse_key_file(data)] if data is not None else []
        elif place == "keyring":
            texts = map(read_entry, backup_names(KEY.user))
            found = [parse_key(text) for text in itertools.takewhile(bool, texts) if text]
        return found

    def write_key(self, key: RelayKey, *, replace: bool = False) -> StoredSecret:
        """Store a key in the selected place. Storing the same key changes nothing.

        Raises:
            UsageError: Another is there and ``replace`` is not given, or the key is weak.
            NotConfiguredError: The place is read-only for crystal, or it fails.
            UnavailableError: The system refuses to write. The old secret is untouched.
        """
        checked_secret(key.secret, name="the key")
        return self._write(KEY, format_key(key), replace=replace)

    def write_token(self, token: RelayToken, *, replace: bool = False) -> StoredSecret:
        """Store a token in the selected place. Storing the same token changes nothing.

        Raises:
            UsageError: Another is there and ``replace`` is not given.
            NotConfiguredError: The place is read-only for crystal, or it fails.
            UnavailableError: The system refuses to write. The old secret is untouched.
        """
        return self._write(TOKEN, token.reveal(), replace=replace)

    def check_writable(self, hint: str | None = None, *, but_key: bool = False) -> None:
        """Check that key and token can be stored, before anything is sent or spent; ``but_key`` skips the key.

        Raises:
            NotConfiguredError: Key or token is read from a place that crystal does not write.
        """
        for names in (TOKEN,) if but_key else (KEY, TOKEN):
            if self.place_of(names) not in ("file", "keyring"):
                mend = f"put it into {self.data_dir / names.file}, mode 0600, and unset the other place"
                raise self._read_only(names, hint or mend)

    def _read(self, names: SecretNames) -> tuple[bytes | str, str]:
        place = self.place_of(names)
        if place == "variable":
            return self.env[names.variable], f"environment {names.variable}"
        if place == "command":
            if self.command is None:
                hint = f"set {COMMAND_VARIABLE}, or choose another place: crystal config set relay.key_place file"
                raise NotConfiguredError(f"the {names.secret} should come from a command, but none is set", hint=hint)
            return self.command(names.user), f"command for {names.user}"
        found: bytes | str | None
        if place == "given file":
            path = absolute(self.env[names.file_variable].strip(), self.home, name=names.file_variable)
            source = f"{names.file_variable} {path}"
            found = read_secret_file(path, "managed" if is_managed(path, self.env) else "given")
        elif place == "keyring":
            source, found = f"keyring {SERVICE}/{names.user}", read_entry(names.user)
        else:
            path = self.data_dir / names.file
            source, found = str(path), read_secret_file(path, "own")
        if found is None:
            raise KeyMissingError(f"there is no {names.secret}: {source} does not exist", hint=_SETUP)
        return found, source

    def _write(self, names: SecretNames, text: str, *, replace: bool) -> StoredSecret:
        place = self.place_of(names)
        if place == "file":
            path = self.data_dir / names.file
            backup = write_own_file(path, text.encode("ascii") + b"\n", replace=replace)
            return StoredSecret(str(path), str(backup) if backup else None)
        if place == "keyring":
            user = write_entry(names.user, text, replace=replace)
            return StoredSecret(f"keyring {SERVICE}/{names.user}", f"keyring {SERVICE}/{user}" if user else None)
        hint = (
            "unset it for this command, or choose a place that crystal writes: crystal config set relay.key_place file"
        )
        raise self._read_only(names, hint)

    def _read_only(self, names: SecretNames, hint: str) -> NotConfiguredError:
        place = self.place_of(names)
        read_from = {"variable": names.variable, "given file": names.file_variable}.get(place, "a command")
        return NotConfiguredError(
            f"the {names.secret} is read from {read_from}, where crystal does not write", hint=hint
        )

    def _note(self, names: SecretNames) -> str | None:
        set_both = [name for name in (names.variable, names.file_variable) if self.env.get(name, "").strip()]
        if len(set_both) > 1:
            return f"{names.variable} and {names.file_variable} are both set; only {names.variable} counts"
        if self.place_of(names) == "file" and open_to_others(self.data_dir):
            return f"{self.data_dir} can be used by others; run: chmod 700 {self.data_dir}"
        return None
