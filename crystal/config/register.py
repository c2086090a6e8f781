"""Read and write ``config.json``, this machine's register of the agents that ``crystal init`` has set up."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from crystal.config.json_file import read_regular
from crystal.config.paths import Places, alone_in, checked_agent_id, make_private_dir, write_private
from crystal.errors import CrystalError, DamagedError

LEFT_OUT = "left_out"


def registered_agents(places: Places) -> tuple[str, ...]:
    """Return the agents that ``crystal init`` has set up on this machine, in the order of addition.

    Raises:
        DamagedError: The register exists and cannot be parsed.
    """
    agents = _read_register(places.machine_json).get("agents", [])
    return tuple(agents)


def register_agent(places: Places, agent: str) -> bool:
    """Add an agent to the machine's register; everything else in the file stays. Return whether it was new.

    Raises:
        UsageError: ``agent`` is not a valid id.
        DamagedError: The register exists and cannot be parsed. It is left untouched.
        UnavailableError: The system refuses to write.
    """
    checked_agent_id(agent)
    make_private_dir(places.ldm_home)
    with alone_in(places.ldm_home):
        register = _read_register(places.machine_json)
        agents = register.setdefault("agents", [])
        if agent in agents and "version" in register:
            return False
        is_new = agent not in agents
        if is_new:
            agents.append(agent)
        _write_register(places.machine_json, register)
        return is_new


def left_out_folders(places: Places) -> list[str] | None:
    """Return the folders of Claude Code that existed when the user set up only other agents; None if it is set up.

    None also for a register that is malformed or cannot be read.
    """
    with contextlib.suppress(CrystalError):
        found = _read_register(places.machine_json).get(LEFT_OUT)
        return found if isinstance(found, list) else None
    return None


def set_left_out(places: Places, folders: list[str] | None) -> None:
    """Store the folders that are left out, or None: see ``left_out_folders``."""
    with alone_in(places.ldm_home):
        register = _read_register(places.machine_json)
        if register.pop(LEFT_OUT, None) != folders:
            _write_register(places.machine_json, register if folders is None else {**register, LEFT_OUT: folders})


def _write_register(path: Path, register: dict[str, Any]) -> None:
    text = json.dumps({"version": 1, **register}, indent=2, ensure_ascii=False) + "\n"
    write_private(path, text.encode("utf-8", "surrogatepass"))


def _read_register(path: Path) -> dict[str, Any]:
    hint = "correct the file by hand, or move it away and run: crystal init"
    content = read_regular(path)
    try:
        register = {} if content is None else json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is not valid JSON: {error}", hint=hint) from error
    if not isinstance(register, dict):
        raise DamagedError(f"{path} should hold one JSON object", hint=hint)
    agents = register.get("agents", [])
    if not isinstance(agents, list) or not all(isinstance(agent, str) for agent in agents):
        raise DamagedError(f"{path}: agents should be a list of names", hint=hint)
    return register
