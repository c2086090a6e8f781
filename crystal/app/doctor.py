"""The checks of ``crystal doctor``: each one reports its state and, if there is a problem, the next step."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from crystal.app.capture_state import capture_state, is_meant, unusable_lock
from crystal.app.context import damage_explained, this_config
from crystal.app.memory_checks import HOOK_REASONS, Check, check_memory
from crystal.app.open_store import describe_link, links_to
from crystal.app.watcher import NOT_WATCHING, describe_watcher, watcher_state
from crystal.config.file_access import owner_in_the_way, way_in
from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.config.packages import install_command
from crystal.config.paths import refused
from crystal.config.providers import EMBEDDING_PROVIDERS, needs_key
from crystal.config.register import left_out_folders, registered_agents
from crystal.config.table import Config
from crystal.credentials.api_keys import asked_providers, key_for, variables_of
from crystal.errors import CrystalError
from crystal.install.claude_settings.claude_file import SettingsFacts, read_facts
from crystal.install.claude_settings.hooks import wanted
from crystal.install.clients.changes import read_facts as read_client_facts
from crystal.install.clients.known import known_clients
from crystal.install.live.changes import is_live, missing_scripts
from crystal.install.live.mechanisms import MECHANISMS
from crystal.install.setup_plan import found_agents, left_out_agents
from crystal.store.driver import sqlite_vec_library
from crystal.store.health.checks import sqlite_version

LITTLE_SPACE = 500 << 20
NO_SPACE = 1 << 20


def examine(*, deep: bool = False) -> list[Check]:
    """Run all checks, in the order in which a turn passes the parts. A ``CrystalError`` becomes a check, too.

    Args:
        deep: Read every page of the database, however long that takes.
    """
    try:
        config = this_config()
    except CrystalError as error:  # without them it is not known where everything else is
        return [*_python(deep=deep), Check("settings", "failure", error.message, error.hint)]
    parts: dict[str, Callable[[Config], Iterator[Check]]] = {
        "software": lambda config: chain(_python(deep=deep), _packages(config)),
        "hooks": _client,
        "agents": _asking,
        "live": _live,
        "places": _places,
        "privacy": _folders,
        "API key": _keys,
        "memory": lambda _: check_memory(deep=deep),
    }
    return [check for name, part in parts.items() for check in _told(name, partial(part, config))]


def _told(name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """Yield the findings of one part; an error while looking is a finding, too."""
    try:
        with damage_explained():
            yield from look()
    except CrystalError as error:
        yield Check(name, "failure", error.message, error.hint)
    except OSError as error:
        told = refused(error, Path(os.fsdecode(error.filename or "?")))
        yield Check(name, "failure", told.message, told.hint)


def _python(*, deep: bool) -> Iterator[Check]:
    from crystal.config.packages import broken_packages  # noqa: PLC0415 - what cannot be imported is a finding

    broken = list(broken_packages(deep=deep))
    for error in broken:
        yield Check("software", "failure", error.message, error.hint)
    if not broken:
        sqlite_vec_library()
        yield Check("software", "ok", f"Python {sys.version.split()[0]}, SQLite {sqlite_version()}, sqlite-vec")


def _places(config: Config) -> Iterator[Check]:
    """Check links among the places where crystal writes, what may not be written, and locks that cannot be used."""
    places = config.places
    for path, target, own in links_to(places):
        if own:
            yield Check("places", "note", f"{path} is a link to {target}, where crystal writes")
        else:
            yield Check("places", "failure", *describe_link(path, target))
    for folder in dict.fromkeys((places.ldm_home, places.data_dir)):
        if os.path.isdir(folder) and not os.access(folder, os.W_OK | os.X_OK):  # noqa: PTH112 - never raises
            fix = way_in(folder) or "mount its disk so that it can be written"
            words = f"nothing is kept: {folder} cannot be written{owner_in_the_way(folder)}"
            yield Check("places", "failure", words, fix)
    registered_agents(places)  # raises if the register cannot be read, as ``crystal init`` would
    problems = (unusable_lock(path) for path in sorted(places.data_dir.glob("*.lock")))
    yield from (Check("places", "failure", *one) for one in problems if one is not None)


def _packages(config: Config) -> Iterator[Check]:
    row = EMBEDDING_PROVIDERS.get(config.embedding_provider)
    for package in row.packages if row else ():
        if importlib.util.find_spec(package) is None:
            words = f"embedding.provider is {config.embedding_provider}, and the package {package} is not installed"
            yield Check("software", "failure", words, install_command(package))


def _keys(config: Config) -> Iterator[Check]:
    """Check that every provider that needs a key has one; a server of the user's own may have none."""
    strangers = {provider for provider, address in asked_providers(config) if address is None}
    for provider in sorted(filter(needs_key, strangers)):
        try:
            key = key_for(config, provider, os.environ)
        except CrystalError as error:
            yield Check("API key", "warning", error.message, error.hint)
            continue
        if key is None:
            variable = variables_of(provider)[1]
            fix = f"set {variable}, or write {variable}=... into {config.places.data_dir / '.env'}"
            yield Check("API key", "warning", f"no key for {provider}", fix)
        else:
            yield Check("API key", "ok", f"for {provider} from {key.source}")


def _client(config: Config) -> Iterator[Check]:
    """Check that Claude Code runs the hook at the end of a turn and at every other event."""
    judged = [one for one in capture_state(config).reasons if one.code in HOOK_REASONS]
    yield from (Check("hooks", "failure", one.message, one.fix) for one in judged)
    for folder in config.places.claude_dirs:
        facts = read_facts(folder / "settings.json")
        if facts.problem is not None:
            continue
        if not is_meant(config, folder, left_out_folders(config.places)):
            words = "captured only when crystal sync runs" if folder.is_dir() else f"not set up: {folder} is not there"
            yield Check("hooks", "note", f"Claude Code is {words}", "crystal init")
        elif not judged:
            yield _hooks_in(facts, [event for event in wanted(config.assist_moments) if not facts.commands.get(event)])


def _hooks_in(facts: SettingsFacts, missing: list[str]) -> Check:
    if facts.plugin and not facts.commands:
        return Check("hooks", "ok", f"installed by the plugin, which is on in {facts.path}")
    broken = Check("hooks", "failure", f"{facts.path}: no hook for {', '.join(missing)}", "crystal init")
    return broken if missing else Check("hooks", "ok", f"installed in {facts.path}")


def _asking(config: Config) -> Iterator[Check]:
    """Check which agents can use this memory, and that the commands they would start exist."""
    known = known_clients(os.environ, Path.home(), config.places)
    plugin = any(read_facts(folder / "settings.json").plugin for folder in config.places.claude_dirs)
    asking = ["Claude Code (plugin)"] if plugin else []
    for name, client in known.items():
        facts = read_client_facts(client)
        fix = f"crystal init --client {name}"
        if facts.problem is not None:
            yield Check("agents", "warning", facts.problem.message, facts.problem.hint)
        elif facts.entry is not None and shutil.which(facts.entry["command"]) is None:
            command = facts.entry["command"]
            yield Check("agents", "failure", f"{client.title} starts {command}, which is gone", fix)
        elif facts.entry is not None:
            asking.append(client.title)
        elif facts.present and not (plugin and name == "claude-code"):
            yield Check("agents", "note", f"{client.title} cannot search this memory itself yet", fix)
    if asking:
        yield Check("agents", "ok", f"{', '.join(asking)} can use this memory")


def _live(config: Config) -> Iterator[Check]:
    """Check which other agents report the end of each turn, that their hook exists, and how the others are read."""
    home, telling, swept, silent = Path.home(), list[str](), list[str](), list[str]()
    left_out = left_out_agents(config.places, os.environ, home)
    for name in (*found_agents(config.places, os.environ, home), *left_out):
        if name not in MECHANISMS:
            silent += [HARNESSES[name].title] if name != CLAUDE_CODE else []
            continue
        gone = missing_scripts(name, os.environ, home)
        if gone:
            words = f"{MECHANISMS[name].title} runs {gone[0]}, which is gone"
            yield Check("live", "failure", words, f"crystal init --agent {name}")
        elif is_live(name, os.environ, home):
            telling.append(MECHANISMS[name].title)
        else:
            (silent if name in left_out else swept).append(MECHANISMS[name].title)
    if telling:
        yield Check("live", "ok", f"{', '.join(telling)}: captured as each turn ends")
    watcher = watcher_state(config.places)
    if watcher.is_running:
        yield Check("live", "ok", describe_watcher([*swept, *silent]))
        return
    if watcher.is_installed:
        yield Check("live", "failure", NOT_WATCHING, "crystal watch --install")
    for titles, fix in ((swept, "crystal init --all"), (silent, "crystal watch --install")):
        if titles:
            yield Check("live", "note", f"{', '.join(titles)}: captured only when crystal sync runs", fix)


def _folders(config: Config) -> Iterator[Check]:
    places = config.places
    for path in (places.ldm_home, places.db):
        if path.exists() and os.name != "nt" and path.stat().st_mode & 0o077:
            yield Check("privacy", "warning", f"{path} can be read by others", f"chmod go-rwx {shlex.quote(str(path))}")
            break
    else:
        yield Check("privacy", "ok", f"{places.ldm_home} is readable by you alone")
    folder = next(parent for parent in (places.data_dir, *places.data_dir.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    if free < NO_SPACE:
        yield Check("disk", "failure", "nothing is kept: no space is left on the memory's disk", "free some space")
    elif free < LITTLE_SPACE:
        yield Check("disk", "warning", f"{free >> 20} MB are free on the memory's disk", "free some space")
    else:
        yield Check("disk", "ok", f"{free / 1e9:.0f} GB are free on the memory's disk")
