"""Find API keys: possible places, their order, and protection against display.

A key is never printed, logged or put into a message: it is passed as a ``Secret`` and read only with ``reveal``. A
place without a key is skipped. If a place that the user has set up fails, that is an error, because a silent fallback
to another key may use the wrong account.
"""

from __future__ import annotations

import hmac
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from crystal.config.paths import open_to_others
from crystal.config.providers import EMBEDDING_PROVIDERS
from crystal.config.table import Config
from crystal.errors import NotConfiguredError, UsageError

SERVICE = "crystal"
"""Service name of crystal's keys in the keyring; the user name is the provider's."""

COMMAND_SECONDS = 30.0
_OUTPUT_LIMIT = 64 * 1024
_ENV_FILE_LIMIT = 1024 * 1024

_PROVIDER = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_ENV_LINE = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=
        (?:[ \t]*(?:'(?P<literal>[^']*)' | "(?P<quoted>(?:[^"\\]|\\.)*)")[ \t]*(?:\#[^\n]*)?$ | (?P<bare>[^\n]*)$)""",
    re.MULTILINE | re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}

KeyringReader = Callable[[str, str], "str | None"]
"""Returns the password of (service, user name) or None; raises NotConfiguredError on failure."""


class Secret:
    """A key that is never shown in output, logs, tracebacks or pickles.

    Attributes:
        source: Description of its place.
        note: A notice for the user about that place, or None.
    """

    __slots__ = ("_value", "note", "source")

    def __init__(self, value: str, source: str, note: str | None = None) -> None:
        self._value = value
        self.source = source
        self.note = note

    def reveal(self) -> str:
        """Return the key itself, only for the provider's client."""
        return self._value

    @property
    def last4(self) -> str | None:
        """Return the end of the key, to distinguish keys; None if the key is so short that this would reveal it."""
        return self._value[-4:] if len(self._value) >= 20 else None

    def __repr__(self) -> str:
        return f"Secret(***, source={self.source!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    __hash__ = None  # type: ignore[assignment]  # a hash of a short secret is a way to guess it

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not copied or written anywhere")


@dataclass(frozen=True, slots=True)
class KeyCommand:
    """A command that prints a key, such as a password manager's.

    ``{provider}`` in a word is replaced by the provider's name, which is also in CRYSTAL_KEY_PROVIDER. ``name`` is the
    user's name for this setting.
    """

    line: str
    name: str = "CRYSTAL_KEY_COMMAND"
    timeout: float = COMMAND_SECONDS


def read_keyring(service: str, name: str) -> str | None:
    """Return the password in the system's keyring; None without a password, a keyring or its package.

    Raises:
        NotConfiguredError: The keyring fails: locked, no permission, or its settings name a missing backend.
    """
    try:
        import keyring
        from keyring.errors import NoKeyringError
    except ImportError:
        return None
    try:
        return keyring.get_password(service, name)
    except NoKeyringError:
        return None
    except Exception as error:  # back ends are plug-ins that may raise anything; translate only
        kind = type(error).__name__
        hint = "unlock it, or leave it out: crystal config set credentials.keyring false"
        raise NotConfiguredError(f"the system's keyring failed ({kind})", hint=hint) from error


def key_for(config: Config, provider: str, env: Mapping[str, str]) -> Secret | None:
    """Find a key with the places in the settings, see ``find_key``.

    Raises:
        NotConfiguredError: A place that the user has set up fails, or holds an invalid key.
        UsageError: The command line cannot be split into words.
    """
    origin = config.origin("credentials.key_command").removeprefix("environment ")
    name = origin if origin.startswith("CRYSTAL_") else "credentials.key_command"
    line = config.credentials_key_command
    return find_key(
        provider,
        env=env,
        data_dir=config.places.data_dir,
        keyring=read_keyring if config.credentials_keyring else None,
        command=KeyCommand(line, name) if line else None,
    )


def asked_providers(config: Config) -> list[tuple[str, str | None]]:
    """Return the providers used for vectors, summaries, memories and deep search, each with its address."""
    asked = [(config.embedding_provider, config.embedding_base_url)]
    writes = config.summary_mode == "llm" or (config.summary_mode == "auto" and config.summary_consent)
    if writes or (config.reflect_mode != "off" and config.reflect_extractor == "model"):
        asked.append((config.summary_provider, config.summary_base_url))
    if config.deep_provider != "none":
        asked.append((config.deep_provider, config.deep_base_url))
    return asked


def find_key(
    provider: str,
    *,
    env: Mapping[str, str],
    data_dir: Path,
    keyring: KeyringReader | None = read_keyring,
    command: KeyCommand | None = None,
) -> Secret | None:
    """Find a provider's API key: environment, ``.env`` in the data folder, keyring, command.

    Args:
        provider: ``openai``, ``google``, ``voyage`` or another name.
        env: The environment, also of the command.
        data_dir: The folder that may hold ``.env``.
        keyring: Reads the system's keyring; None to skip it. It is called, and its library imported (86 ms), only if no
            earlier place has the key.
        command: Run last; None to skip it.

    Returns:
        The key with its source, or None if no place has one.

    Raises:
        NotConfiguredError: A place that the user has set up fails, or holds an invalid key.
        UsageError: The command line cannot be split into words.
    """
    found = find_written_key(provider, env=env, data_dir=data_dir)
    if found is None and keyring is not None:
        stored = keyring(SERVICE, provider)
        found = _secret(stored or "", f"keyring {SERVICE}/{provider}")
    if found is None and command is not None:
        found = _secret(run_key_command(command, provider, env), f"command {_split(command)[0]}")
    return found


def find_written_key(provider: str, *, env: Mapping[str, str], data_dir: Path) -> Secret | None:
    """Find a key in the places that start no other program: environment, ``.env`` in the data folder.

    Raises:
        NotConfiguredError: ``.env`` exists and cannot be read, or the value is not a valid key.
    """
    names = variables_of(provider)
    for name in names:
        if env.get(name, "").strip():
            return _secret(env[name], f"environment {name}")
    path = data_dir / ".env"
    written = read_env_file(path)
    for name in names:
        if written.get(name, "").strip():
            note = f"{path} can be read by other users; run: chmod 600 {path}" if open_to_others(path) else None
            return _secret(written[name], f"{path}: {name}", note)
    return None


def variables_of(provider: str) -> tuple[str, ...]:
    """Return the environment variables of a provider's key, in order of precedence.

    Raises:
        UsageError: The name is not a valid provider name.
    """
    if not _PROVIDER.fullmatch(provider):
        raise UsageError(f"there is no provider {provider!r}")
    name = provider.upper().replace("-", "_")
    row = EMBEDDING_PROVIDERS.get(provider)
    own = row.key_variables if row else ()
    return (f"CRYSTAL_{name}_API_KEY", *(own or (f"{name}_API_KEY",)))


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a ``.env`` file: ``NAME=value`` with ``export``, quotes and comments as in a shell.

    Nothing is expanded or run. The last value of a name counts; other lines are ignored.

    Raises:
        NotConfiguredError: The file exists and cannot be read.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_ENV_FILE_LIMIT)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return {}
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise NotConfiguredError(f"{path}: {reason}", hint=f"make it readable for you, or remove it: {path}") from error
    return parse_env(raw.decode("utf-8-sig", "replace"))


def parse_env(text: str) -> dict[str, str]:
    """Return the assignments in the text of a ``.env`` file."""
    found: dict[str, str] = {}
    for match in _ENV_LINE.finditer(text.replace("\r\n", "\n")):
        literal, quoted, bare = match["literal"], match["quoted"], match["bare"]
        if quoted is not None:
            quoted = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), quoted, flags=re.DOTALL)
        if bare is not None:
            bare = re.split(r"[ \t]#", bare, maxsplit=1)[0].strip()
        found[match["name"]] = next(value for value in (literal, quoted, bare) if value is not None)
    return found


def run_key_command(command: KeyCommand, provider: str, env: Mapping[str, str]) -> str:
    """Run a command without a shell. Return the first line of its output.

    Raises:
        NotConfiguredError: It does not exist, fails, prints nothing or takes too long. Its output is never shown.
        UsageError: The line cannot be split into words.
    """
    words = [word.replace("{provider}", provider) for word in _split(command)]
    named = f"{command.name} ({words[0]})"
    home = env.get("HOME", "")
    if words[0].startswith("~/") and home:
        words[0] = str(Path(home) / words[0][2:])
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**env, "CRYSTAL_KEY_PROVIDER": provider},
        )
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "cannot be run").lower()
        raise NotConfiguredError(f"{named}: {reason}", hint="name a program that exists, with its full path") from error
    output = _output(process, command.timeout, named)
    if process.returncode != 0:
        ended = f"exit status {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        raise NotConfiguredError(f"{named} ended with {ended}", hint="run the command by hand to see why")
    line = output.decode("utf-8", "replace").lstrip("\ufeff").partition("\n")[0].strip()
    if not line:
        raise NotConfiguredError(f"{named} printed no key for {provider}", hint="run the command by hand to see why")
    return line


def _output(process: subprocess.Popen[bytes], timeout: float, named: str) -> bytes:
    """Return a process's output, read in a thread: a daemon that it leaves behind may keep the pipe open forever."""
    pieces: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(process.stdout, pieces, process), daemon=True)
    reader.start()
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired as error:
        problem = f"{named} did not end within {timeout:g} seconds"
        raise NotConfiguredError(problem, hint="run the command by hand: it may be waiting for an answer") from error
    finally:
        process.kill()
        process.wait()
    reader.join(1.0)
    return b"".join(pieces)


def _read_all(pipe: IO[bytes], pieces: list[bytes], process: subprocess.Popen[bytes]) -> None:
    size = 0
    with pipe:
        while piece := os.read(pipe.fileno(), 4096):
            pieces.append(piece)
            size += len(piece)
            if size > _OUTPUT_LIMIT:
                process.kill()
                return


def _split(command: KeyCommand) -> list[str]:
    try:
        words = shlex.split(command.line, posix=sys.platform != "win32")
    except ValueError as error:
        raise UsageError(f"{command.name} cannot be split into words: {str(error).lower()}") from error
    if not words:
        raise UsageError(f"{command.name} holds no command")
    return [word.strip('"') for word in words] if sys.platform == "win32" else words


def _secret(text: str, source: str, note: str | None = None) -> Secret | None:
    """Return the value of a place as a secret; None if it is blank.

    The value must be valid in an HTTP header, because the library shows an invalid one in its error.
    """
    key = text.strip()
    if not key:
        return None
    if not re.fullmatch(r"[!-~]{1,4096}", key):
        hint = "a key is one word of ASCII characters; copy it again"
        raise NotConfiguredError(f"{source} has a value that cannot be a key", hint=hint)
    return Secret(key, source, note)
