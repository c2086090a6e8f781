"""Resolve every setting: flag, then environment, then config.toml, then default.

An invalid value is an error that names its place, even if another layer overrides it; it is never silently replaced
by a default.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from crystal.config.kinds import FOLDERS, shown
from crystal.config.paths import absolute, resolve_places
from crystal.config.settings_file import read_file
from crystal.config.table import SETTINGS, TABLES, Config, Setting, setting_for, unknown_key
from crystal.errors import UsageError
from crystal.hook.session_start import stamp_of

Found = tuple[Any, str]
"""A value and its source."""

NO_FLAGS: Mapping[str, object] = {}

_BY_VARIABLE: dict[str, set[str]] = defaultdict(set)
"""The keys that each variable may set: most variables are unset, and testing each takes half of the time."""
for _setting in SETTINGS.values():
    for _alias in _setting.variables:
        _BY_VARIABLE[_alias.variable].add(_setting.key)


def load_config(env: Mapping[str, str], home: Path, *, overrides: Mapping[str, object] = NO_FLAGS) -> Config:
    """Resolve every setting: override, environment, config.toml, default.

    Args:
        env: The environment. A blank variable counts as unset.
        home: The user's home folder.
        overrides: Values of flags by dotted key, and ``data_dir``; None stands for a flag that was not given.

    Raises:
        UsageError: A value is invalid, a key is unknown, or the file is not TOML; the message names the
            file or the variable, the key, the value and what is accepted.
        UnavailableError: The settings file exists and cannot be read.
    """
    flags = {key: value for key, value in overrides.items() if value is not None}
    data_dir = flags.pop("data_dir", None)
    places = resolve_places(env, home, data_dir=None if data_dir is None else Path(str(data_dir)))
    stamp = stamp_of(str(places.config_file))  # before reading: a change during the read counts as a later state
    tables = read_file(places.config_file)
    for key in flags:
        setting_for(key)
    written = dict(_from_file(tables, places.config_file))
    agents = {key: found for key, found in written.items() if key not in SETTINGS}
    resolved = _resolved(env, home, flags, written)
    sources = {key: source for key, (_, source) in {**resolved, **agents}.items()}
    found = {SETTINGS[key].attribute: value for key, (value, _) in resolved.items()}
    reload = partial(load_config, env, home, overrides=overrides)
    return Config(places=places, sources=sources, isolated=_isolated(agents), reload=reload, stamp=stamp, **found)


def _resolved(
    env: Mapping[str, str], home: Path, flags: Mapping[str, object], written: Mapping[str, Found]
) -> dict[str, Found]:
    """Return every setting from the first source that has it: flag, environment, file, default."""
    resolved: dict[str, Found] = {}
    in_environment = set().union(*(_BY_VARIABLE[name] for name in _BY_VARIABLE.keys() & env.keys()))
    for key, setting in SETTINGS.items():
        variable = _from_environment(setting, env, resolved) if key in in_environment else None
        value, source = _from_flag(setting, flags) or variable or written.get(key) or _default(setting)
        resolved[key] = _at_home(value, home, key) if setting.kind is FOLDERS else value, source
    return resolved


def _isolated(agents: Mapping[str, Found]) -> frozenset[str]:
    return frozenset(key.split(".")[1] for key, (value, _) in agents.items() if value)


def parse_text(setting: Setting, text: str, place: str) -> Any:
    """Parse the text of a variable or a flag.

    Raises:
        UsageError: The text is invalid; the message names ``place``.
    """
    try:
        return setting.kind.check(setting.kind.from_text(text))
    except ValueError as error:
        raise bad_value(setting, text, place) from error


def checked(setting: Setting, value: Any, place: str) -> Any:
    """Check a TOML value and return the value to use.

    Raises:
        UsageError: The value is invalid; the message names ``place``.
    """
    try:
        return setting.kind.check(value)
    except ValueError as error:
        raise bad_value(setting, value, place) from error


def bad_value(setting: Setting, value: object, place: str) -> UsageError:
    """Return the error for an invalid value."""
    words = shown(value)
    words = words if len(words) <= 100 else words[:100] + "..."
    words = f"'{words}'" if isinstance(value, str) else words
    hint = f"change or unset it: {place.removeprefix('environment ')}" if place.startswith("environment ") else None
    named = f"{place} ({setting.key})" if hint else f"{place}: {setting.key}".removeprefix(": ")
    return UsageError(f"{named} is {words}; accepted: {setting.kind.accepts}", hint=hint)


def host_name() -> str:
    """Return this machine's short name, without a domain that a network adds."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return name.partition(".")[0].strip() or "unknown"


def _default(setting: Setting) -> Found:
    return host_name() if setting.key == "device" else setting.default, "default"


def _from_flag(setting: Setting, flags: Mapping[str, object]) -> Found | None:
    if setting.key not in flags:
        return None
    value = flags[setting.key]
    if isinstance(value, str):
        return parse_text(setting, value, "flag"), "flag"
    return checked(setting, value, "flag"), "flag"


def _from_environment(setting: Setting, env: Mapping[str, str], known: Mapping[str, Found]) -> Found | None:
    """Return the value of the first variable that is set; its conditions refer to the settings in ``known``."""
    for alias in setting.variables:
        applies = alias.when is None or known[alias.when[0]][0] == alias.when[1]
        text = env.get(alias.variable, "")
        if applies and text.strip():
            source = f"environment {alias.variable}"
            return parse_text(setting, text, source), source
    return None


def _from_file(tables: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Found]]:
    for key, value in _entries(tables, path):
        try:
            setting = setting_for(key)
        except UsageError as error:
            if not key.startswith("agents."):
                raise unknown_key(key, f"{path}: ") from error
            raise UsageError(f"{path}: {error.message}", hint=error.hint) from error
        if setting.only_environment:
            variable = setting.variables[-1].variable
            raise UsageError(f"{path}: {key} cannot be set in a file", hint=f"set the variable {variable}")
        yield key, (checked(setting, value, str(path)), f"file {path}")


def _entries(tables: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Any]]:
    """Yield every key and value of the file, the key dotted."""
    for name, value in tables.items():
        if not isinstance(value, dict):
            if name in TABLES:
                hint = f"write [{name}] on a line of its own, and its keys below"
                raise UsageError(f"{path}: {name} is a table, not a value", hint=hint)
            yield name, value
        else:
            for key, inner in value.items():
                if name == "agents" and isinstance(inner, dict):
                    yield from ((f"{name}.{key}.{last}", one) for last, one in inner.items())
                else:
                    yield f"{name}.{key}", inner


def _at_home(patterns: tuple[str, ...], home: Path, key: str) -> tuple[str, ...]:
    """Expand ``~`` in patterns of folders."""
    return tuple(str(absolute(each, home, name=key)) if each.startswith("~") else each for each in patterns)


def unknown_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield variables that look like misspelt ones of crystal, each with the variable probably meant."""
    known = {alias.variable for setting in SETTINGS.values() for alias in setting.variables}
    known |= {"CRYSTAL_DATA_DIR", "CRYSTAL_CONFIG"}
    for name in sorted(name for name in env if name.startswith("CRYSTAL_") and name not in known):
        import difflib  # noqa: PLC0415 - every hook's worker reads the settings, and nearly none needs this

        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if near:
            yield name, near[0]
