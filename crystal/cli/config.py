"""Implement ``crystal config``: show every setting with its value and source; change or remove one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from crystal.app.context import default_paths, open_reader, this_config, this_home
from crystal.cli.json_output import answer
from crystal.cli.options import AsJson, argument
from crystal.cli.render import count_words, item, look_of, note, padded
from crystal.config.kinds import shown
from crystal.config.load import unknown_variables
from crystal.config.providers import EMBEDDING_PROVIDERS, needs_key
from crystal.config.settings_file import read_file
from crystal.config.table import SETTINGS, Config, setting_for
from crystal.errors import CrystalError, NotConfiguredError, UsageError


def _with_mode(key: str) -> str:
    """Return the mode setting of a group that is named alone: ``assist`` means ``assist.mode``."""
    mode = f"{key}.mode"
    return mode if mode in SETTINGS else key


Key = Annotated[str, argument("A setting, such as search.limit.", show_default=False, callback=_with_mode)]

LAYOUT: dict[str, Any] = {"indent": 2, "ensure_ascii": False}
commands = typer.Typer(help="Show and change settings.", invoke_without_command=True)


@commands.callback()
def config(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Show every setting, its value and where that came from; secrets are masked.

    Flag wins over environment, environment over the settings file, the file over the default.
    """
    context.obj = as_json
    if context.invoked_subcommand is None:
        show(context)


@commands.command("list", short_help="Show every setting and where its value comes from.")
def show(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Show every setting, its value and where that came from (the same as `crystal config`)."""
    found = this_config()
    keys, notes = _keys(found, os.environ)
    is_json = as_json or context.obj
    answer(_listing(found, keys, notes), _table(found, keys), as_json=is_json, notes=notes, **LAYOUT)


@commands.command("get")
def get(context: typer.Context, key: Key, *, as_json: AsJson = False) -> None:
    """Print only the value of one setting; a list as one item per line."""
    found = this_config()
    places = _places(found)
    value, source = places[key] if key in places else (found.value(key), found.origin(key))
    lines = value if isinstance(value, tuple) else [] if value is None else [value]
    told = {"key": key, "value": _plain(value), "source": source}
    answer(told, map(shown, lines), as_json=as_json or context.obj, **LAYOUT)


@commands.command("set", context_settings={"ignore_unknown_options": True})
def set_(
    key: Key,
    values: Annotated[list[str], argument("The value; for a list, its items.", "VALUE...")],
) -> None:
    """Write one setting into the settings file. Comments and layout of the file stay."""
    from crystal.app.session_context import settings_changed
    from crystal.config.edit import below_home, set_value
    from crystal.install.setup_plan import has_hooks, live_agents

    setting = setting_for(key)
    if len(values) > 1 and not setting.kind.is_list:
        raise UsageError(f"{key} takes one value, {len(values)} were given", hint="put quotes around it")
    path = default_paths().config_file
    before = _items_in(path, key) if setting.kind.is_list else []
    value = set_value(path, key, values if len(values) > 1 else values[0], this_home())
    print(f"{key} = {shown(value)}")
    gone = [one for one in before if not {one, below_home(str(one), this_home())} & {*value}]
    if gone:
        note(f"no longer in the list: {shown(gone)}")
    note(*settings_changed(key))
    is_told = (key, value) in (("assist.mode", "on"), ("context.enabled", True))
    if is_told and not has_hooks(this_config().places) and not live_agents(os.environ, this_home()):
        note("no agent runs crystal's hooks yet, so nothing changes; run: crystal init")
    if key == "retention.days" and value:
        _say_what_goes(int(value))
    for alias in setting.variables:
        if alias.when is None and os.environ.get(alias.variable, "").strip():
            note(f"{alias.variable} is set and wins over the file")


def _items_in(path: Path, key: str) -> list[Any]:
    """Return the items of a list in the settings file."""
    table, _, name = key.rpartition(".")
    inner = read_file(path).get(table)
    found = inner.get(name) if isinstance(inner, dict) else None
    return found if isinstance(found, list) else []


def _say_what_goes(days: int) -> None:
    """Print what a retention period will forget, and how to preview or undo it."""
    from crystal.app.retention import DAY_MS
    from crystal.store.forget.forgotten_rows import counts_before

    try:
        with open_reader() as machine:
            messages, sessions = counts_before(machine.store, machine.now() - days * DAY_MS)
            role = machine.config.role
    except NotConfiguredError:
        return
    if role == "device":
        note("this machine is a device: set it on the home machine")
        return
    counts = f"{count_words(messages, 'message')} of {count_words(sessions, 'session')}"
    print(f"{counts} would be forgotten now; memories stay")
    print("deletion begins in a day, for good and on every machine")
    print(f"to see them: crystal forget --before {days}d --keep-memories --dry-run")
    print("to undo it: crystal config unset retention.days")


@commands.command("unset", short_help="Remove a setting; its default applies again.")
def unset(key: Key) -> None:
    """Remove one setting from the settings file; its default applies again."""
    from crystal.app.session_context import settings_changed
    from crystal.config.edit import unset_value

    path = default_paths().config_file
    if unset_value(path, key):
        print(f"{key} is no longer in {path}")
        note(*settings_changed(key))
    else:
        print(f"{key} is not in {path}")


@commands.command("path")
def path() -> None:
    """Print where the settings file is, or would be."""
    print(default_paths().config_file)


def _places(config: Config) -> dict[str, tuple[str, str]]:
    """Return the places that are not settings but are shown beside them, with their sources."""
    places = config.places

    def place(path: Path, variable: str) -> tuple[str, str]:
        is_set = bool(os.environ.get(variable, "").strip())
        return str(path), f"environment {variable}" if is_set else "default"

    return {
        "config_file": place(places.config_file, "CRYSTAL_CONFIG"),
        "ldm_home": place(places.ldm_home, "LDM_HOME"),
        "data_dir": (str(places.data_dir), places.data_dir_source),
        "claude_dir": place(places.claude_dirs[0], "CLAUDE_CONFIG_DIR"),
    }


def _keys(config: Config, env: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the state of each provider's API key, and notes for the user."""
    from crystal.credentials.api_keys import asked_providers, find_written_key, key_for

    asked = {provider for provider, _ in asked_providers(config)}
    notes = [f"{name} is not a crystal variable; did you mean {near}?" for name, near in unknown_variables(env)]
    notes += _ignored_in_env_file(config)
    keys: list[dict[str, Any]] = []
    for provider in filter(needs_key, EMBEDDING_PROVIDERS):
        key = {"provider": provider, "needed": provider in asked, "found": False, "source": None}
        try:
            if key["needed"]:
                secret = key_for(config, provider, env)
            else:  # a keyring or password manager may prompt the user, so unused keys are not looked up there
                secret = find_written_key(provider, env=env, data_dir=config.places.data_dir)
        except CrystalError as error:
            keys.append({**key, "problem": error.message})
            continue
        if secret is not None:
            key |= {"found": True, "source": secret.source, "last4": secret.last4}
            notes += [secret.note] if secret.note else []
        keys.append(key)
    return keys, list(dict.fromkeys(notes))


def _ignored_in_env_file(config: Config) -> list[str]:
    from crystal.credentials.api_keys import read_env_file

    path = config.places.data_dir / ".env"
    try:
        written = read_env_file(path)
    except CrystalError:
        return []  # reported with the key whose look-up failed
    known = {alias.variable for setting in SETTINGS.values() for alias in setting.variables}
    return [f"{path} sets {name}, but only API keys are read from it" for name in sorted(known & set(written))]


def _listing(config: Config, keys: list[dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    settings = [{"key": key, "value": _plain(config.value(key)), "source": config.origin(key)} for key in config.keys]
    places = {name: {"value": value, "source": source} for name, (value, source) in _places(config).items()}
    return {
        "config_file": str(config.places.config_file),
        "config_file_exists": config.places.config_file.exists(),
        "places": places,
        "settings": settings,
        "api_keys": keys,
        "notes": notes,
    }


def _table(config: Config, keys: list[dict[str, Any]]) -> Iterator[str]:
    """Yield rows aligned and coloured on a terminal; elsewhere one line each, its three fields separated by tabs."""
    file = f"file {config.places.config_file}"
    places = [(name, value, source) for name, (value, source) in _places(config).items()]
    settings = [(key, shown(config.value(key)), config.origin(key)) for key in config.keys]
    secrets = [_key_row(key) for key in keys]
    if not sys.stdout.isatty():
        yield from map("\t".join, places + settings + secrets)
        return
    look, home, width = look_of(sys.stdout), f"{this_home()}{os.sep}", max(len(name) for name, *_ in places + settings)
    for section in (places, settings, secrets):
        for key, value, source in section:
            is_usual = source == "default" or value in ("not found", "(not set)")
            origin = "config.toml" if source == file else source
            words = f"{value}  ({origin})".replace(home, "~/")
            yield from item(f"{padded(key, width)}  ", words, look, style=look.dim if is_usual else look.bold)
        yield ""


def _key_row(key: Mapping[str, Any]) -> tuple[str, str, str]:
    name = f"{key['provider']} API key"
    if "problem" in key:
        return name, "failed", key["problem"]
    if not key["found"]:
        return name, "not found", "needed" if key["needed"] else "not needed"
    return name, f"found, ends with {key['last4']}" if key["last4"] else "found", key["source"]


def _plain(value: Any) -> Any:
    """Return a value for JSON, without the user and password of an address."""
    if isinstance(value, tuple):
        return [shown(one) for one in value]
    return shown(value) if isinstance(value, str) else value
