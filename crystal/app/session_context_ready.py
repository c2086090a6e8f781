"""Prepare session contexts in files for the hook, which has no time to gather them."""

from __future__ import annotations

import os

from crystal.app.context import Machine
from crystal.app.memory_queries import mirror_of
from crystal.app.session_context_sources import tellable
from crystal.capture.lock import await_lock
from crystal.capture.privacy import policy_of
from crystal.context import Ready, Rules, clear_contexts, take_told, write_contexts
from crystal.context.files import settle_told
from crystal.hook.session_start import stamp_of
from crystal.store.capture.privacy import marks
from crystal.store.sessions.contexts import add_injection, state_of_memory

LOCK = "context.lock"
LOCK_SECONDS = 10.0
TRIES = 3
VARIABLES = (
    "CRYSTAL_CONTEXT_ENABLED",
    "CRYSTAL_CONTEXT_TOKENS",
    "CRYSTAL_PRIVATE_PROJECTS",
    "CRYSTAL_PRIVATE_SESSIONS",
)


def make_ready(machine: Machine) -> None:
    """Write the contexts for session starts; remove them if the setting or capture is off."""
    data_dir = machine.places.data_dir
    with await_lock(data_dir / LOCK, seconds=LOCK_SECONDS) as held:
        if not held or not machine.config.context_enabled or policy_of(machine.store, machine.config).is_off:
            clear_contexts(data_dir)
            return
        for _ in range(TRIES):
            before = state_of_memory(machine.store)
            policy = policy_of(machine.store, machine.config)
            with mirror_of(machine) as mirror:
                here = tellable(machine, mirror)
                folders = [one for one in here.folders() if not policy.is_private_folder(one.cwd)]
                ready = [Ready(None, here.told(None)), *(Ready(one.cwd, here.told(one)) for one in folders)]
            write_contexts(data_dir, _rules(machine), ready)
            if state_of_memory(machine.store) == before:
                return
        clear_contexts(data_dir)  # what was forgotten meanwhile may be in it; the next call rebuilds it


def note_told(machine: Machine) -> None:
    """Move the hook's marks of given contexts since the last call into the store."""
    for path, injection in take_told(machine.places.data_dir, machine.now()):
        if injection is not None:
            add_injection(machine.store, injection)
        settle_told(path)


def _rules(machine: Machine) -> Rules:
    config, file = machine.config, str(machine.places.config_file)
    open_marks = [mark for mark in marks(machine.store) if mark.until_at is None and mark.session_id is not None]
    return Rules(
        config=file,
        stamp=stamp_of(file),
        variables={name: os.environ.get(name, "") for name in VARIABLES},
        private_sessions=tuple(map(beginning, config.private_sessions)),
        private_folders=tuple(map(beginning, config.private_projects)),
        off=tuple(sorted({str(mark.session_id) for mark in open_marks})),
    )


def beginning(pattern: str) -> str:
    """Return the literal prefix of everything that a pattern matches."""
    return pattern[: min((at for at in map(pattern.find, "*?[") if at >= 0), default=len(pattern))]
