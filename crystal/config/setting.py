"""Define a setting: a key with its kind, its meaning and its environment variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar, cast

from crystal.config.kinds import ValueKind
from crystal.model.named_tuple import NamedTuple

T = TypeVar("T")
TOP_LEVEL = ("agent_id", "device", "role")
"""The keys that are in no table."""


class Alias(NamedTuple):
    """Another environment variable for a key; with ``when`` (key, value), only while that key has that value."""

    variable: str
    when: tuple[str, str] | None = None


class Setting(NamedTuple):
    """One key of the configuration.

    Attributes:
        key: Its dotted name, ``table.key``, or just ``key`` at the top of the file.
        default: The value if nothing sets it.
        kind: The kind of its values.
        meaning: What it does, in a sentence or two, for the documentation.
        aliases: Variables besides ``variable``, which takes precedence; the first that is set counts.
        default_words: The default in words, if the value is not clear.
        only_environment: The file must not contain it, because the hook needs it and reads no file.
    """

    key: str
    default: Any
    kind: ValueKind
    meaning: str
    aliases: tuple[Alias, ...] = ()
    default_words: str | None = None
    only_environment: bool = False

    def named(self, attribute: str) -> Setting:
        """Return the setting for an attribute of ``Config``, whose name up to the first underscore is the table."""
        return self._replace(key=attribute if attribute in TOP_LEVEL else attribute.replace("_", ".", 1))

    @property
    def attribute(self) -> str:
        """Return the name of the attribute of ``Config``."""
        return self.key.replace(".", "_")

    @property
    def variable(self) -> str:
        """Return the environment variable made from its key."""
        return "CRYSTAL_" + self.attribute.upper()

    @property
    def variables(self) -> tuple[Alias, ...]:
        """Return all its environment variables, in order of precedence. The hook uses only one name of each."""
        return self.aliases if self.only_environment and self.aliases else (Alias(self.variable), *self.aliases)


class SettingValues:
    """The settings of one run, by attribute. They cannot be changed."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse to change a value."""
        raise AttributeError(f"{name} cannot be changed: settings are read once")


def setting(default: T, kind: ValueKind, meaning: str, *aliases: Alias, **more: Any) -> T:
    """Return a setting without a key, as the default of an attribute of ``Config``."""
    return cast("T", Setting("", default, kind, meaning, aliases, **more))


def only_for(provider_key: str, provider: str, variable: str) -> Alias:
    """Return a variable that applies only while that provider is chosen."""
    return Alias(variable, (provider_key, provider))


def meant(key: str, known: Iterable[str]) -> str | None:
    """Return a hint for an unknown key, or None if no known key resembles it."""
    tail = key.lower().rpartition(".")[2].replace("-", "_")
    if tail.endswith(("key", "token", "secret", "password")):
        return "secrets do not belong in this file: use the environment, .env in the data folder, or the keyring"
    if tail in ("data_dir", "ldm_home"):
        return f"the hook reads no file: set the variable {'LDM_HOME' if tail == 'ldm_home' else 'CRYSTAL_DATA_DIR'}"
    import difflib  # noqa: PLC0415 - as in table.py

    names = list(known)
    tails = {name.rpartition(".")[2]: name for name in names}
    near = difflib.get_close_matches(key.lower().replace("-", "_"), names, n=1, cutoff=0.7)
    near = near or [tails[name] for name in difflib.get_close_matches(tail, tails, n=1, cutoff=0.8)]
    return f"did you mean {near[0]}?" if near else None
