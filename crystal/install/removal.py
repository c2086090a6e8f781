"""Remove crystal from a machine: the use case of ``crystal uninstall``. A plan is made first and changes nothing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crystal.config.paths import SOURCES_FILE, Places
from crystal.config.register import left_out_folders, registered_agents, set_left_out
from crystal.errors import CrystalError
from crystal.install.claude_settings import claude_file as settings
from crystal.install.claude_settings.claude_file import SettingsPlan
from crystal.install.clients import changes as clients
from crystal.install.clients.changes import ClientPlan
from crystal.install.clients.known import known_clients
from crystal.install.file_change import noted
from crystal.install.live import changes as live
from crystal.install.live.changes import LiveChange
from crystal.install.setup_plan import AGENT_FOLDERS, own_program
from crystal.install.undo import read_record
from crystal.store.forget.forgetting import NAMES_FILE
from crystal.store.private_record import RECORD_FILE

OWN_DATA = (
    "access.json access.log access.log.1 access-requests.json crystal.db crystal.db-* crystal.db.* index/crystal"
    " index/mirror spool context told recovered stalled silence notice.json import.json progress.json"
    " last-search.json unanswered.json .crystal-*.tmp relay.* relay-ca.pem mirror.* backfill.lock capture.lock"
    " off-[0-9]*-* context.lock enrich.lock publish.lock sources.lock sources-watch.lock vault.lock watch.lock"
).split()
"""Files that crystal creates in the data folder, which may also contain other files."""


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """Planned actions of uninstall. ``data`` are files and folders that only ``--purge`` deletes.

    ``problems`` are the errors of files that name crystal and cannot be parsed: these stay, the rest is removed.
    """

    settings: tuple[SettingsPlan, ...]
    data: tuple[Path, ...]
    clients: tuple[ClientPlan, ...] = ()
    problems: tuple[CrystalError, ...] = ()
    live: tuple[LiveChange, ...] = ()


def plan_removal(places: Places, env: Mapping[str, str], home: Path) -> RemovalPlan:
    """Find what init added, and the data: everything that crystal created, and nothing else."""
    data = [path for pattern in OWN_DATA for path in sorted(places.data_dir.glob(pattern))]
    data += [places.config_file, places.machine_json]
    data += [places.ldm_home / name for name in (NAMES_FILE, RECORD_FILE, SOURCES_FILE)]
    data += [folder / name for folder in _agent_folders(places) for name in AGENT_FOLDERS]
    data += [manifest.parent for manifest in sorted(places.models.glob("*/crystal.json"))]
    removed, hooked, problems = list[ClientPlan](), list[SettingsPlan](), list[CrystalError]()
    for folder in places.claude_dirs:
        with noted(problems):
            hooked.append(settings.plan_uninstall(folder / "settings.json"))
    record = read_record(places.ldm_home)
    for each in known_clients(env, home, places).values():
        with noted(problems):
            removed += clients.plan_remove(each, record, own_program(each.name, env))
    told, more_problems = live.plan_removal(env, home, places.ldm_home)
    there = tuple(path for path in data if path.exists())
    return RemovalPlan(tuple(hooked), there, tuple(removed), (*problems, *more_problems), tuple(told))


def _agent_folders(places: Places) -> list[Path]:
    """Return the folders of the registered agents, and of every agent whose folder has transcripts."""
    known = list[Path]()
    with contextlib.suppress(CrystalError):  # a damaged register must not keep crystal on this machine
        known = [places.agent_folder(agent) for agent in registered_agents(places)]
    found = [path.parent for path in sorted((places.ldm_home / "agents").glob("*/memory/transcripts"))]
    return list(dict.fromkeys([*known, *found]))


def apply_removal(plan: RemovalPlan, places: Places, env: Mapping[str, str]) -> None:
    """Remove the hooks, the servers and the entries for live capture of other agents."""
    for change in plan.settings:
        settings.apply(change)
    for each in plan.clients:
        clients.apply(each, places.ldm_home, env)
    live.apply_removal(plan.live, places.ldm_home)
    if left_out_folders(places) is not None:
        set_left_out(places, None)


def purge(plan: RemovalPlan, places: Places) -> None:
    """Delete the data for good, and the folders that become empty."""
    for path in plan.data:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    agents = places.ldm_home / "agents"
    emptied = [folder for path in plan.data for folder in path.parents if agents in folder.parents]
    own = (
        places.data_dir / "index",
        places.data_dir / "imports",
        places.data_dir,
        places.models,
        places.ldm_home,
        places.config_file.parent,
    )
    for folder in (*emptied, agents, *own):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
