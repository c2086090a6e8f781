"""Every setting, resolved once: flag, then environment, then config.toml, then default.

``Config`` is frozen and remembers where each value came from. The table of keys below is the only one: the loader,
``crystal config`` and the reference page are made from it. A value that cannot be used is an error that names its
place; nothing is ever replaced by a default in silence.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from crystal import config_file
from crystal.errors import UsageProblem
from crystal.paths import Places, absolute, resolve_places
from crystal.settings import (
    AGENT,
    BOOLEAN,
    FOLDER_GLOBS,
    GLOBS,
    TEXT,
    URL,
    Alias,
    Kind,
    Setting,
    choice,
    number,
    shown,
    whole,
)

T = TypeVar("T")

EMBEDDERS = ("embedded", "openai", "ollama", "google", "voyage", "none")
WRITERS = ("openai", "ollama", "google")


def _setting(default: T, key: str, kind: Kind, meaning: str, *aliases: Alias, **more: Any) -> T:
    return field(default=default, metadata={"setting": Setting(key, kind, meaning, aliases, **more)})


def _for(provider_key: str, provider: str, variable: str) -> Alias:
    return Alias(variable, (provider_key, provider))


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one run. Attribute ``table_key`` holds key ``table.key``; made by ``load_config``."""

    places: Places
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Where each key's value came from; a key that is absent has its default."""

    agent_id: str = _setting(
        "cc-mini", "agent_id", AGENT, "This machine's agent: the name under which its conversations are kept."
    )
    device: str = _setting(
        "", "device", TEXT, "This machine's name, kept with everything that is captured.", default_words="the host name"
    )
    embedding_provider: str = _setting(
        "embedded",
        "embedding.provider",
        choice(*EMBEDDERS),
        "Who turns text into vectors. `embedded` needs no key and no network; `none` leaves search to keywords alone.",
    )
    embedding_model: str | None = _setting(
        None,
        "embedding.model",
        TEXT,
        "The embedding model, by its provider's name for it.",
        _for("embedding.provider", "openai", "CRYSTAL_OPENAI_MODEL"),
        _for("embedding.provider", "ollama", "CRYSTAL_OLLAMA_MODEL"),
        _for("embedding.provider", "google", "CRYSTAL_GOOGLE_MODEL"),
        default_words="the provider's usual model",
    )
    embedding_dimension: int | None = _setting(
        None,
        "embedding.dimension",
        whole(1, 8192),
        "How many numbers a vector has, for models that let one choose or that crystal does not know.",
        default_words="the model's own",
    )
    embedding_base_url: str | None = _setting(
        None,
        "embedding.base_url",
        URL,
        "Where the embedding provider answers, for a server of your own or a proxy.",
        _for("embedding.provider", "ollama", "CRYSTAL_OLLAMA_HOST"),
        _for("embedding.provider", "openai", "OPENAI_BASE_URL"),
        default_words="the provider's public address; for ollama http://localhost:11434",
    )
    summary_mode: str = _setting(
        "auto",
        "summary.mode",
        choice("simple", "llm", "auto"),
        "How a session's summary is written: `simple` from its own words, `llm` by a model, "
        "`auto` by a model when a key and `summary.consent` exist.",
    )
    summary_provider: str = _setting(
        "openai", "summary.provider", choice(*WRITERS), "Whose model writes summaries when a model writes them."
    )
    summary_model: str | None = _setting(
        None,
        "summary.model",
        TEXT,
        "The model that writes summaries.",
        default_words="the provider's small model; for openai gpt-4o-mini",
    )
    summary_base_url: str | None = _setting(
        None,
        "summary.base_url",
        URL,
        "Where the summary provider answers: any server that speaks OpenAI's protocol, or Ollama.",
        _for("summary.provider", "ollama", "CRYSTAL_OLLAMA_HOST"),
        _for("summary.provider", "openai", "OPENAI_BASE_URL"),
        default_words="the provider's public address; for ollama http://localhost:11434",
    )
    summary_consent: bool = _setting(
        False,
        "summary.consent",
        BOOLEAN,
        "Whether condensed conversations may be sent to the summary provider. Mode `auto` never sends without it.",
    )
    summary_daily_cap_usd: float = _setting(
        0.5,
        "summary.daily_cap_usd",
        number(0, 1000),
        "The most that summaries may cost in a day, in US dollars. Over it they are written by `simple`.",
    )
    summary_idle_minutes: int = _setting(
        30,
        "summary.idle_minutes",
        whole(1, 10_080),
        "How long a session must rest before its summary is written or renewed.",
    )
    private_now: bool = _setting(
        False,
        "private.now",
        BOOLEAN,
        "Record nothing of the sessions that run with it.",
        Alias("CRYSTAL_PRIVATE"),
        only_environment=True,
    )
    private_projects: tuple[str, ...] = _setting(
        (),
        "private.projects",
        FOLDER_GLOBS,
        "Patterns of project folders. What is said in such a folder, or below it, is never recorded.",
    )
    private_sessions: tuple[str, ...] = _setting(
        (), "private.sessions", GLOBS, "Patterns of session ids that are never recorded."
    )
    redact_enabled: bool = _setting(
        True,
        "redact.enabled",
        BOOLEAN,
        "Whether keys, tokens and passwords are taken out before anything is stored. "
        "`<private>` spans are taken out in any case.",
    )
    search_limit: int = _setting(10, "search.limit", whole(1, 1000), "How many hits a search shows.")
    hook_wait: bool = _setting(
        False,
        "hook.wait",
        BOOLEAN,
        "Let the hook wait until its turn is stored, for containers that vanish when the client ends.",
        only_environment=True,
    )
    hook_flush_seconds: float = _setting(
        5.0,
        "hook.flush_seconds",
        number(0, 60),
        "How long the worker waits for the client to write the last answer into the transcript.",
    )
    credentials_keyring: bool = _setting(
        True, "credentials.keyring", BOOLEAN, "Whether API keys are looked for in the system's keyring."
    )
    credentials_key_command: str | None = _setting(
        None,
        "credentials.key_command",
        TEXT,
        "A command that prints an API key, asked last. `{provider}` in it becomes the provider's name; no shell runs it.",
        Alias("CRYSTAL_KEY_COMMAND"),
    )

    def value(self, key: str) -> Any:
        """The value of a dotted key.

        Raises:
            UsageProblem: There is no such key.
        """
        return getattr(self, setting_for(key).attribute)

    def origin(self, key: str) -> str:
        """Where a key's value came from: ``flag``, ``environment NAME``, ``file PATH`` or ``default``.

        Raises:
            UsageProblem: There is no such key.
        """
        return self.sources.get(setting_for(key).key, "default")


SETTINGS: Mapping[str, Setting] = {
    entry.metadata["setting"].key: entry.metadata["setting"] for entry in dataclasses.fields(Config) if entry.metadata
}


def load_config(env: Mapping[str, str], home: Path, *, overrides: Mapping[str, object] = {}) -> Config:
    """Resolve every setting: override, environment, config.toml, default.

    Args:
        env: The environment. An empty variable counts as unset.
        home: The user's home folder.
        overrides: Values of flags by dotted key, and ``data_dir``; None stands for a flag that was not given.

    Raises:
        UsageProblem: A value that cannot be used, an unknown key or a file that is not TOML; the message names the
            file or the variable, the key, the value and what is accepted.
    """
    flags = {key: value for key, value in overrides.items() if value is not None}
    data_dir = flags.pop("data_dir", None)
    places = resolve_places(env, home, data_dir=None if data_dir is None else Path(str(data_dir)))
    return resolve(places, env, home, config_file.read_file(places.config_file), flags)


def resolve(
    places: Places, env: Mapping[str, str], home: Path, tables: Mapping[str, Any], flags: Mapping[str, object]
) -> Config:
    """Combine the layers; ``tables`` is the settings file, parsed."""
    written = dict(_file_values(tables, places.config_file))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key in flags:
        setting_for(key)
    for setting in SETTINGS.values():
        found = _from_flag(setting, flags) or _from_environment(setting, env, values) or written.get(setting.key)
        value, source = found or (_default(setting), "default")
        if setting.kind is FOLDER_GLOBS:
            value = tuple(str(absolute(glob, home, name=setting.key)) if glob.startswith("~") else glob for glob in value)
        values[setting.key], sources[setting.key] = value, source
    return Config(places, sources, **{SETTINGS[key].attribute: value for key, value in values.items()})


def setting_for(key: str) -> Setting:
    """The setting of a dotted key.

    Raises:
        UsageProblem: There is none; the hint names the closest.
    """
    if key not in SETTINGS:
        raise UsageProblem(f"there is no setting {key!r}", hint=closest(key) or "run: crystal config list")
    return SETTINGS[key]


def closest(key: str) -> str | None:
    """The question ``did you mean ...?`` for a key that does not exist, if anything is close."""
    if key.rpartition(".")[2].lower().replace("-", "_").endswith(("api_key", "apikey", "token", "secret")):
        return "keys do not belong in this file: use the environment, .env in the data folder, or the keyring"
    if key in ("data_dir", "ldm_home"):
        return f"set the variable {'LDM_HOME' if key == 'ldm_home' else 'CRYSTAL_DATA_DIR'}; the hook reads no file"
    tails = {name.rpartition(".")[2]: name for name in SETTINGS}
    near = difflib.get_close_matches(key.lower(), SETTINGS, n=1, cutoff=0.6)
    near = near or [tails[tail] for tail in difflib.get_close_matches(key.lower(), tails, n=1, cutoff=0.7)]
    return f"did you mean {near[0]}?" if near else None


def unknown_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that look like misspelt settings, each with the closest real one."""
    known = {alias.variable for setting in SETTINGS.values() for alias in setting.variables}
    known |= {"CRYSTAL_DATA_DIR", "CRYSTAL_CONFIG"}
    for name in sorted(env):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85) if name.startswith("CRYSTAL_") else []
        if near and name not in known:
            yield name, near[0]


def parse_text(setting: Setting, text: str, place: str) -> Any:
    """Give the value that a text stands for.

    Raises:
        UsageProblem: The text is not a value of this setting; the message names ``place``.
    """
    try:
        value = setting.kind.from_text(text)
    except ValueError as error:
        raise bad_value(setting, text, place) from error
    return checked(setting, value, place)


def checked(setting: Setting, value: Any, place: str) -> Any:
    """Give the value to use for a TOML value.

    Raises:
        UsageProblem: It is not a value of this setting; the message names ``place``.
    """
    try:
        return setting.kind.check(value)
    except ValueError as error:
        raise bad_value(setting, value, place) from error


def bad_value(setting: Setting, value: object, place: str) -> UsageProblem:
    """The error for a value that cannot be used."""
    words = repr(shown(value)) if isinstance(value, str) else shown(value)
    named = place if setting.key in place else f"{place} ({setting.key})"
    hint = f"change or unset it: {place.removeprefix('environment ')}" if place.startswith("environment ") else None
    return UsageProblem(f"{named} is {words[:200]}; accepted: {setting.kind.accepts}", hint=hint)


def _from_flag(setting: Setting, flags: Mapping[str, object]) -> tuple[Any, str] | None:
    if setting.key not in flags:
        return None
    value = flags[setting.key]
    place = f"flag {setting.key}"
    return (parse_text if isinstance(value, str) else checked)(setting, cast("Any", value), place), "flag"


def _from_environment(setting: Setting, env: Mapping[str, str], known: Mapping[str, Any]) -> tuple[Any, str] | None:
    for alias in setting.variables:
        applies = alias.when is None or known[alias.when[0]] == alias.when[1]
        if applies and env.get(alias.variable, "").strip():
            source = f"environment {alias.variable}"
            return parse_text(setting, env[alias.variable], source), source
    return None


def _file_values(tables: Mapping[str, Any], path: Path) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Check every entry of the settings file, also those that another layer wins over."""
    for key, value in _leaves(tables, path):
        if key not in SETTINGS:
            raise UsageProblem(f"{path}: there is no setting {key!r}", hint=closest(key) or "run: crystal config list")
        setting = SETTINGS[key]
        if setting.only_environment:
            variables = " or ".join(alias.variable for alias in reversed(setting.variables))
            raise UsageProblem(f"{path}: {key} cannot be set in a file", hint=f"set the variable {variables}")
        yield key, (checked(setting, value, f"{path}: {key}"), f"file {path}")


def _leaves(tables: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Any]]:
    names = {key.partition(".")[0] for key in SETTINGS if "." in key}
    for name, value in tables.items():
        if not isinstance(value, dict):
            if name in names:
                raise UsageProblem(f"{path}: {name} is a table, not a value", hint=f"write a line [{name}] above its keys")
            yield name, value
        elif not value and name not in names:
            yield name, value
        for key, inner in value.items() if isinstance(value, dict) else ():
            yield f"{name}.{key}", inner


def _default(setting: Setting) -> Any:
    if setting.key == "device":
        return host_name()
    return next(entry.default for entry in dataclasses.fields(Config) if entry.name == setting.attribute)


def host_name() -> str:
    """This machine's short name, without the domain that a network lends it."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return name.partition(".")[0].strip() or "unknown"
