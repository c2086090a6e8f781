"""Set up crystal on a machine: the use case of ``crystal init``.

A plan is made first and changes nothing. A settings file that cannot be parsed stops it before any change, unless other
agents are set up too.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crystal.config.edit import set_value
from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.config.load import host_name
from crystal.config.paths import Places, checked_agent_id, make_private_dir
from crystal.config.register import register_agent, set_left_out
from crystal.config.table import Config
from crystal.errors import CrystalError
from crystal.hook import event as hook
from crystal.install.claude_settings import claude_file as settings
from crystal.install.claude_settings.claude_file import SettingsPlan
from crystal.install.claude_settings.hooks import MATCHERS, TIMEOUTS, wanted
from crystal.install.claude_settings.layers import read_layers
from crystal.install.clients import changes as clients
from crystal.install.clients.changes import ClientPlan
from crystal.install.clients.known import ServerCommand, known_clients
from crystal.install.file_change import noted
from crystal.install.live import changes as live
from crystal.install.live.changes import LivePlan
from crystal.install.live.mechanisms import MECHANISMS, ONLY_BY_NAME, HookCommand
from crystal.install.undo import LIVE, read_record

AGENT_NAMES = tuple(dict.fromkeys([*(one.name for one in HARNESSES.values() if not one.is_export), *MECHANISMS]))
"""The values for ``--agent``."""
AGENT_FOLDERS = ("transcripts", "sessions", "daily", "journals")


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """Planned actions of init.

    ``folders`` are the missing ones; ``settings`` has one plan for each client folder, unless one of ``plugins`` runs
    the hook for it. ``device`` is the machine's name to save, None if it is saved already: a laptop's host name changes
    with its network, and must not make its own transcripts look like another machine's. ``clients`` are those whose
    own files get the MCP server. ``live`` has one plan for each agent whose hooks can run crystal, ``swept`` the names
    of requested agents without hooks. ``unusable`` are the errors of Claude Code's files that cannot be used.
    """

    agent: str
    places: Places
    write_agent: bool
    device: str | None
    folders: tuple[Path, ...]
    settings: tuple[SettingsPlan, ...]
    clients: tuple[ClientPlan, ...] = ()
    live: tuple[LivePlan, ...] = ()
    swept: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    unusable: tuple[CrystalError, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Return whether everything is set up already."""
        files = any(plan.changed for plan in (*self.settings, *self.clients)) or any(plan.changed for plan in self.live)
        return not (self.write_agent or self.device or self.folders or files)

    @property
    def problems(self) -> tuple[CrystalError, ...]:
        """Return the errors of agents' files that cannot be used and stay unchanged."""
        return (*self.unusable, *(problem for plan in self.live for problem in plan.problems))


def proposed_agent(config: Config) -> str:
    """Return the agent id to propose: the configured one, else ``cc-<hostname>``."""
    if config.origin("agent_id") != "default":
        return config.agent_id
    name = re.sub(r"[^a-z0-9._-]+", "-", host_name().lower()).strip("-._")[:60]
    return f"cc-{name}" if name else config.agent_id


def server_entry(config: Config, env: Mapping[str, str], home: Path) -> ServerCommand:
    """Return the command that starts this installation's MCP server, independent of the client's environment."""
    baked = settings.locations_to_bake(env, home)
    if env.get("XDG_CONFIG_HOME", "").strip():
        baked.setdefault("CRYSTAL_CONFIG", str(config.places.config_file))
    if env.get("OPENCLAW_HOME", "").strip():
        baked.setdefault("CRYSTAL_DATA_DIR", str(config.places.data_dir))
    command = _own_command()
    if command is None:
        return ServerCommand(sys.executable, ("-I", "-m", "crystal", "mcp"), baked)
    return ServerCommand(str(command), ("mcp",), baked)


def _own_command() -> Path | None:
    """Return the command ``crystal`` of this package; another program of this name may come first on PATH."""
    beside = Path(sys.executable).parent
    try:
        files = importlib.metadata.files("crystal-memory") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    named = [Path(str(each.locate())) for each in files if each.name in ("crystal", "crystal.exe")]
    found = [path.parent.resolve() / path.name for path in named if path.parent.name in ("bin", "Scripts")]
    for path in found:
        if path.is_file():
            return beside / path.name if path.parent == beside.resolve() else path
    return None


def plan_setup(
    config: Config,
    agent: str,
    env: Mapping[str, str],
    home: Path,
    *,
    only: Sequence[str] | None = None,
    agents: Sequence[str] | None = None,
) -> SetupPlan:
    """Plan the missing parts of the setup.

    Args:
        config: The settings.
        agent: This machine's agent id.
        env: The environment, usually ``os.environ``.
        home: The user's home folder.
        only: The requested clients of the MCP server, or None.
        agents: The agents to capture live, or None. Without both, that is Claude Code.

    Raises:
        UsageError: The agent id cannot be used, or the only file to change cannot be parsed. Nothing was changed.
    """
    places = config.places
    checked_agent_id(agent)
    if only is None and agents is None:
        agents = [CLAUDE_CODE]
    only, agents = only or (), agents or ()
    folders = places.claude_dirs if CLAUDE_CODE in (*only, *agents) else ()
    plugins = {folder: _plugin_with_hook(folder) for folder in folders}
    words, entry = _hook_words(env, home), server_entry(config, env, home)
    others = [name for name in dict.fromkeys(agents) if name != CLAUDE_CODE]
    hooks, unusable = _plan_all_hooks(config, [folder for folder in folders if plugins[folder] is None], words)
    if unusable and not others:
        raise unusable[0]
    return SetupPlan(
        agent,
        places,
        *_unsaved(config, agent),
        _missing_folders(places, agent),
        hooks,
        tuple(_plan_clients(only, entry, places, env, home)),
        tuple(_plan_live(others, words, entry, config, env, home)),
        tuple(name for name in others if name not in MECHANISMS),
        tuple(dict.fromkeys(filter(None, plugins.values()))),
        tuple(unusable),
    )


def _unsaved(config: Config, agent: str) -> tuple[bool, str | None]:
    """Return whether the agent id must be saved, and the machine's name if it must be saved."""
    is_saved = config.origin("agent_id").startswith("file ") and config.agent_id == agent
    return not is_saved, config.device if config.origin("device") == "default" else None


def _plugin_with_hook(folder: Path) -> str | None:
    """Return the plugin that runs the hook for a client folder; None if our own entries must do it."""
    layers = read_layers(folder, None)
    return layers.plugins[0] if layers.plugins and not layers.commands else None


def _missing_folders(places: Places, agent: str) -> tuple[Path, ...]:
    own = places.agent_folder(agent)
    wanted = (places.ldm_home, places.data_dir, *(own / name for name in AGENT_FOLDERS))
    return tuple(folder for folder in wanted if not folder.is_dir())


def _hook_words(env: Mapping[str, str], home: Path) -> list[str]:
    file = Path(hook.SCRIPT).resolve()
    return settings.hook_words(Path(sys.executable), file, settings.locations_to_bake(env, home))


def _plan_all_hooks(
    config: Config, folders: Sequence[Path], words: Sequence[str]
) -> tuple[tuple[SettingsPlan, ...], list[CrystalError]]:
    """Plan the hooks of Claude Code's folders; also return the errors of settings that cannot be used."""
    plans, unusable = list[SettingsPlan](), list[CrystalError]()
    for folder in folders:
        with noted(unusable):
            plans.append(_plan_hooks(config, folder, words))
    return tuple(plans), unusable


def _plan_hooks(config: Config, folder: Path, words: Sequence[str]) -> SettingsPlan:
    command = settings.hook_line(words, windows=sys.platform == "win32")
    return settings.plan_install(folder / "settings.json", command, config.assist_moments)


def has_hooks(places: Places) -> bool:
    """Return whether Claude Code runs our hooks: by entries in its settings, or by the plugin."""
    facts = [settings.read_facts(folder / "settings.json") for folder in places.claude_dirs]
    return any(one.commands or one.plugin for one in facts)


def _left_out(plan: SetupPlan) -> list[str] | None:
    """Return Claude Code's folders if the user excludes it: none of them has or had a hook. Else return None."""
    had = (settings.backup_path(folder / "settings.json").exists() for folder in plan.places.claude_dirs)
    if plan.settings or plan.plugins or plan.unusable or has_hooks(plan.places) or any(had):
        return None
    return [str(folder) for folder in plan.places.claude_dirs if folder.is_dir()]


def update_hooks(config: Config, env: Mapping[str, str], home: Path) -> list[str]:
    """Add or remove entries for the moments at which agents get context, in files that have our other entries.

    Returns:
        Errors of files that cannot be changed, and the user's next steps for agents with new entries.
    """
    words, entry = _hook_words(env, home), server_entry(config, env, home)
    errors, steps = list[CrystalError](), list[str]()
    for folder in config.places.claude_dirs:
        commands = settings.read_facts(folder / "settings.json").commands
        now = {event for event in commands if event in MATCHERS}
        if TIMEOUTS.keys() & commands.keys() and now != wanted(config.assist_moments).keys() & MATCHERS.keys():
            with noted(errors):
                settings.apply(_plan_hooks(config, folder, words))
    for plan in _plan_live(live_agents(env, home), words, entry, config, env, home):
        errors += plan.problems
        with noted(errors):
            if plan.changed:
                live.apply(plan, config.places.ldm_home)
            if plan.has_more and plan.name not in ONLY_BY_NAME:
                steps.append(MECHANISMS[plan.name].next_step)
    return [*(f"{error.message}; {error.hint}" for error in errors), *filter(None, steps)]


def live_agents(env: Mapping[str, str], home: Path) -> list[str]:
    """Return the agents other than Claude Code that have our hooks."""
    return [name for name in MECHANISMS if live.is_live(name, env, home)]


def _moments(config: Config) -> tuple[str, ...]:
    """Return the moments at which other agents get context, see ``HookCommand``."""
    return (*config.assist_moments, *(["start"] if config.tells_at_start else []))


def _plan_live(
    names: Sequence[str], words: Sequence[str], entry: ServerCommand, config: Config, env: Mapping[str, str], home: Path
) -> Iterator[live.LivePlan]:
    record = read_record(config.places.ldm_home, LIVE)
    for name in filter(MECHANISMS.__contains__, names):
        server = entry.asked_by(name).as_document()
        words_of_it = (*words, "--harness", name)
        command = HookCommand(words_of_it, sys.platform == "win32", server, _moments(config))
        yield live.plan_install(name, live.folder_of(name, env, home), command, record)


def _plan_clients(
    names: Sequence[str], entry: ServerCommand, places: Places, env: Mapping[str, str], home: Path
) -> Iterator[ClientPlan]:
    known, record = known_clients(env, home, places), read_record(places.ldm_home)
    for name in dict.fromkeys(names):
        yield clients.plan_add(known[name], known[name].asking(entry), record, own_program(name, env))


def found_agents(places: Places, env: Mapping[str, str], home: Path) -> list[str]:
    """Return the agents that seem to be on this machine, except those that are set up only by name."""
    return [name for name in _agents_here(places, env, home) if name not in ONLY_BY_NAME]


def left_out_agents(places: Places, env: Mapping[str, str], home: Path) -> list[str]:
    """Return the agents on this machine that are set up only by name, because their mechanism has a cost."""
    return [name for name in _agents_here(places, env, home) if name in ONLY_BY_NAME]


def _agents_here(places: Places, env: Mapping[str, str], home: Path) -> list[str]:
    """Return the agents that have a folder on this machine."""
    theirs = {root.harness for root in places.transcript_roots if root.is_here and not root.place.in_projects}
    theirs |= {name for name in MECHANISMS if live.folder_of(name, env, home).is_dir()}
    if any(folder.is_dir() for folder in places.claude_dirs):
        theirs.add(CLAUDE_CODE)
    return [name for name in AGENT_NAMES if name in theirs]


def own_program(name: str, env: Mapping[str, str]) -> str | None:
    """Return the client's own command if it must be used: a running Claude Code rewrites its file repeatedly."""
    return shutil.which("claude", path=env.get("PATH", "")) if name == "claude-code" else None


def apply_setup(plan: SetupPlan, env: Mapping[str, str]) -> SetupPlan:
    """Create the folders, register the agent, add the hooks and the servers. Idempotent.

    Returns:
        What was done; if other agents are set up, a file that cannot be changed is among the ``problems``.

    Raises:
        UsageError, UnavailableError: The only file to change cannot be changed.
    """
    for folder in plan.folders:
        make_private_dir(folder)
    if plan.places.ldm_home.stat().st_mode & 0o077:
        plan.places.ldm_home.chmod(0o700)
    register_agent(plan.places, plan.agent)
    if plan.settings or plan.plugins or plan.live or plan.swept:
        set_left_out(plan.places, _left_out(plan))
    plan.places.machine_json.touch()  # from now on ``crystal.app.capture_state`` reports a hook that does not run
    if plan.write_agent:
        set_value(plan.places.config_file, "agent_id", plan.agent)
    if plan.device is not None:
        set_value(plan.places.config_file, "device", plan.device)
    hooks, unusable = list[SettingsPlan](), [*plan.unusable]
    for change in plan.settings:
        with noted(unusable):
            settings.apply(change)
            hooks.append(change)
    if unusable and not plan.live:
        raise unusable[0]
    for each in plan.clients:
        clients.apply(each, plan.places.ldm_home, env)
    done = tuple(_apply_live(agent, plan.places) for agent in plan.live)  # last: a change above may be in the same file
    return replace(plan, settings=tuple(hooks), live=done, unusable=tuple(unusable))


def _apply_live(agent: LivePlan, places: Places) -> LivePlan:
    """Apply the changes for an agent. Return what was done, with the error of a file that could not be changed."""
    errors = list[CrystalError]()
    with noted(errors):
        live.apply(agent, places.ldm_home)
    return replace(agent, changes=() if errors else agent.changes, problems=(*agent.problems, *errors))
