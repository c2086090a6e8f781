"""Setting crystal up on a machine, and taking it out again: what ``crystal init`` and ``crystal uninstall`` do.

A plan comes first and touches nothing; a settings file that cannot be understood stops it before anything is made.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crystal import hook, settings
from crystal.config import Config
from crystal.config.edit import set_value
from crystal.config.load import host_name
from crystal.paths import Places, checked_agent_id, make_private_dir, register_agent, registered_agents
from crystal.settings import SettingsPlan

AGENT_FOLDERS = ("transcripts", "sessions", "daily", "journals")
OWN_DATA = (
    "crystal.db",
    "crystal.db-*",
    "crystal.db.*",
    "index/crystal",
    "index/mirror",
    "spool",
    "recovered",
    "stalled",
    "capture.lock",
    "backfill.lock",
    "enrich.lock",
    "relay.*",
    "relay-ca.pem",
    "publish.lock",
    "mirror.*",
)
"""What crystal makes in the data folder, which may be a folder that holds other things too."""


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """What init would do.

    ``folders`` are those that are missing; ``settings`` one plan for each client folder. ``device`` is the machine's
    name to write down, None when it is written already: a laptop's host name changes with its network, and must not
    make its own transcripts look like another machine's.
    """

    agent: str
    places: Places
    write_agent: bool
    device: str | None
    folders: tuple[Path, ...]
    settings: tuple[SettingsPlan, ...]

    @property
    def changes_nothing(self) -> bool:
        """Whether all of it is there already."""
        return not (self.write_agent or self.device or self.folders or any(plan.changed for plan in self.settings))


def proposed_agent(config: Config) -> str:
    """The agent id to offer: the one that is set, else ``cc-<hostname>``."""
    if config.origin("agent_id") != "default":
        return config.agent_id
    name = re.sub(r"[^a-z0-9._-]+", "-", host_name().lower()).strip("-._")[:60]
    return f"cc-{name}" if name else config.agent_id


def plan_setup(config: Config, agent: str, env: Mapping[str, str], home: Path) -> SetupPlan:
    """Find out what is missing.

    Raises:
        UsageProblem: The agent id cannot be used, or a settings file cannot be understood. Nothing was changed.
    """
    places = config.places
    checked_agent_id(agent)
    command = settings.hook_command(
        Path(sys.executable),
        Path(hook.__file__).resolve(),
        settings.locations_to_bake(env, home),
        windows=sys.platform == "win32",
    )
    agent_folder = places.agent_folder(agent)
    wanted = [places.ldm_home, places.data_dir, *(agent_folder / name for name in AGENT_FOLDERS)]
    in_file = config.origin("agent_id").startswith("file ") and config.agent_id == agent
    return SetupPlan(
        agent,
        places,
        not in_file,
        config.device if config.origin("device") == "default" else None,
        tuple(folder for folder in wanted if not folder.is_dir()),
        tuple(settings.plan_install(folder / "settings.json", command) for folder in places.claude_dirs),
    )


def apply_setup(plan: SetupPlan) -> None:
    """Make the tree, register the agent, put the hooks in. Doing it twice changes nothing."""
    for folder in plan.folders:
        make_private_dir(folder)
    if plan.places.ldm_home.stat().st_mode & 0o077:
        plan.places.ldm_home.chmod(0o700)
    register_agent(plan.places, plan.agent)
    if plan.write_agent:
        set_value(plan.places.config_file, "agent_id", plan.agent)
    if plan.device is not None:
        set_value(plan.places.config_file, "device", plan.device)
    for change in plan.settings:
        settings.apply(change)


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What uninstall would do. ``data`` are files and folders that only ``--purge`` deletes."""

    settings: tuple[SettingsPlan, ...]
    data: tuple[Path, ...]


def plan_removal(places: Places) -> RemovalPlan:
    """Find out what init put in, and where the data is: all that crystal made, and nothing that others did."""
    data = [path for pattern in OWN_DATA for path in sorted(places.data_dir.glob(pattern))]
    data += [places.config_file, places.machine_json]
    data += [folder / name for folder in _agent_folders(places) for name in AGENT_FOLDERS]
    data += [manifest.parent for manifest in sorted(places.models.glob("*/crystal.json"))]
    return RemovalPlan(
        tuple(settings.plan_uninstall(folder / "settings.json") for folder in places.claude_dirs),
        tuple(path for path in data if path.exists()),
    )


def _agent_folders(places: Places) -> list[Path]:
    """The folders of the registered agents, and of those that only an environment ever named."""
    known = [places.agent_folder(agent) for agent in registered_agents(places)]
    found = [path.parent for path in sorted((places.ldm_home / "agents").glob("*/memory/transcripts"))]
    return list(dict.fromkeys([*known, *found]))


def apply_removal(plan: RemovalPlan) -> None:
    """Take the hooks out."""
    for change in plan.settings:
        settings.apply(change)


def purge(plan: RemovalPlan, places: Places) -> None:
    """Delete the data for good, and the folders that are empty then."""
    for path in plan.data:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    agents = places.ldm_home / "agents"
    emptied = [folder for path in plan.data for folder in path.parents if agents in folder.parents]
    own = (places.data_dir / "index", places.data_dir, places.models, places.ldm_home, places.config_file.parent)
    for folder in (*emptied, agents, *own):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
