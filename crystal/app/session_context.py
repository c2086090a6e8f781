"""What sessions are told at their start: made ready for the hook whenever it may have changed, and shown on request."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from crystal.app.context import Machine, open_machine, this_config
from crystal.errors import CrystalError
from crystal.hook.session_start import NOTICE_FILE

if TYPE_CHECKING:
    from crystal.capture.privacy import Policy
    from crystal.context import Rules, Told
    from crystal.store.sessions.contexts import Injection

ROOM = "context"
LOCK = "context.lock"
LOCK_SECONDS = 10.0
TRIES = 3
NOTICE_SECONDS = 600.0
VARIABLES = (
    "CRYSTAL_CONTEXT_ENABLED",
    "CRYSTAL_CONTEXT_TOKENS",
    "CRYSTAL_PRIVATE_PROJECTS",
    "CRYSTAL_PRIVATE_SESSIONS",
)


class Preview(NamedTuple):
    """What a session that began in a folder now would be told; ``refusals`` say why it would be nothing."""

    folder: str
    project: str | None
    budget: int
    told: Told
    refusals: tuple[str, ...]
    notes: tuple[str, ...] = ()


def refresh(machine: Machine) -> None:
    """Make ready what sessions are told at their start, or remove it where the setting is off or capture is.

    Cheap when nothing changed. To be called when memories, sessions, settings or privacy may have changed; after
    forgetting it makes anew what was removed. Never raises for what the system refuses: that is a problem on record.
    """
    from crystal.store import problems

    if _is_notice_old(machine):
        from crystal.app.notices import refresh_notice

        refresh_notice(machine)
    try:
        _refresh(machine)
    except CrystalError as error:
        problems.record_problem(machine.store, ROOM, error.message, now=machine.now())
    else:
        problems.clear_problem(machine.store, ROOM)


def _is_notice_old(machine: Machine) -> bool:
    """Return True if what is said of capture may have changed: to find out takes some milliseconds after each turn."""
    try:
        made = (machine.places.data_dir / NOTICE_FILE).stat().st_mtime
    except OSError:
        return True
    return not 0 <= machine.now() / 1000 - made < NOTICE_SECONDS


def _refresh(machine: Machine) -> None:
    note_told(machine)
    data_dir = machine.places.data_dir
    _mark_privacy(machine)
    if not machine.config.context_enabled and not (data_dir / "context").exists():
        return
    from crystal.app.memory_queries import mirror_of
    from crystal.app.session_context_sources import tellable
    from crystal.capture.lock import await_lock
    from crystal.context import Ready, clear_contexts, write_contexts
    from crystal.store.sessions.contexts import state_of_memory

    with await_lock(data_dir / LOCK, seconds=LOCK_SECONDS) as held:
        if not held or not machine.config.context_enabled or _is_off(_policy(machine)):
            clear_contexts(data_dir)
            return
        for _ in range(TRIES):
            before = state_of_memory(machine.store)
            policy = _policy(machine)
            with mirror_of(machine) as mirror:
                here = tellable(machine, mirror)
                folders = [one for one in here.folders() if not policy.is_private_folder(one.cwd)]
                ready = [Ready(None, here.told(None)), *(Ready(one.cwd, here.told(one)) for one in folders)]
            write_contexts(data_dir, _rules(machine), ready)
            if state_of_memory(machine.store) == before:
                return
        clear_contexts(data_dir)  # what was forgotten meanwhile may be in it; the next call makes it anew


def _mark_privacy(machine: Machine) -> None:
    """Leave a mark for the hook where something may be private: then it promises nothing of a prompt.

    Raises:
        CrystalError: The system refuses.
    """
    from crystal.config.paths import refused, write_derived

    policy, path = _policy(machine), machine.places.data_dir / "private"
    lasting = [mark for mark in policy.marks if mark.until_at is None]
    content = b"paused\n" if _is_off(policy) else b""
    try:
        if not (policy.projects or policy.sessions or lasting):
            path.unlink(missing_ok=True)
        elif not path.exists() or path.read_bytes() != content:
            write_derived(path, content)
    except OSError as error:
        raise refused(error, path) from error


def settings_changed() -> None:
    """Make contexts and the mark of privacy ready under new settings, where there is a memory."""
    with contextlib.suppress(CrystalError):  # whatever is wrong with it, the setting was written
        config = this_config()
        if config.places.db.exists():
            with open_machine() as machine:
                refresh(machine)


def note_told(machine: Machine) -> None:
    """Move what the hook told since the last time into the store."""
    if not any(machine.places.data_dir.glob("told/*")):
        return
    from crystal.context import take_told
    from crystal.context.files import settle_told
    from crystal.store.sessions.contexts import add_injection

    for path, injection in take_told(machine.places.data_dir, machine.now()):
        if injection is not None:
            add_injection(machine.store, injection)
        settle_told(path)


def preview(machine: Machine, folder: str) -> Preview:
    """What a session in a folder would be told now, and why it might be nothing."""
    from crystal.app.memory_queries import mirror_of
    from crystal.app.session_context_sources import tellable
    from crystal.hook.main import truthy

    policy, config = _policy(machine), machine.config
    with mirror_of(machine) as mirror:
        found = tellable(machine, mirror)
        here = next((one for one in found.folders() if one.cwd == folder), None)
        told = found.told(here)
    notes = [] if here else ["no session was captured in this folder yet: only what holds everywhere is told here"]
    refusals = []
    if not config.context_enabled:
        refusals.append("context is off; to switch it on: crystal config set context.enabled true")
    if truthy(os.environ.get("CRYSTAL_PRIVATE")):
        refusals.append("CRYSTAL_PRIVATE is set")
    if _is_off(policy):
        refusals.append("capture is off: crystal --on")
    beginnings = tuple(map(_beginning, config.private_projects))
    if policy.is_private_folder(folder):
        refusals.append("the folder is private")
    elif here is None and folder.startswith(beginnings):
        refusals.append("the folder is not known, and begins as private ones do")
    return Preview(folder, here.name if here else None, config.context_tokens, told, tuple(refusals), tuple(notes))


def told_log(machine: Machine, limit: int) -> list[Injection]:
    """What was told, the latest first; marks that no worker has moved yet are among it."""
    from crystal.context import take_told
    from crystal.store.sessions.contexts import injections

    noted = injections(machine.store, limit)
    known = {(one.session_id, one.source) for one in noted}
    waiting = [one for _, one in take_told(machine.places.data_dir, machine.now()) if one is not None]
    fresh = [one for one in waiting if (one.session_id, one.source) not in known]
    return sorted([*fresh, *noted], key=lambda one: -one.at)[:limit]


def _rules(machine: Machine) -> Rules:
    from crystal.context import Rules
    from crystal.hook.session_start import stamp_of
    from crystal.store.capture.privacy import marks

    config, file = machine.config, str(machine.places.config_file)
    open_marks = [mark for mark in marks(machine.store) if mark.until_at is None and mark.session_id is not None]
    return Rules(
        config=file,
        stamp=stamp_of(file),
        variables={name: os.environ.get(name, "") for name in VARIABLES},
        private_sessions=tuple(map(_beginning, config.private_sessions)),
        private_folders=tuple(map(_beginning, config.private_projects)),
        off=tuple(sorted({str(mark.session_id) for mark in open_marks})),
    )


def _beginning(pattern: str) -> str:
    """What everything that a pattern fits begins with."""
    return pattern[: min((at for at in map(pattern.find, "*?[") if at >= 0), default=len(pattern))]


def _policy(machine: Machine) -> Policy:
    from crystal.capture.privacy import Policy
    from crystal.store.capture.privacy import marks

    return Policy(marks(machine.store), tuple(machine.config.private_projects), tuple(machine.config.private_sessions))


def _is_off(policy: Policy) -> bool:
    return any(mark.until_at is None and mark.session_id is None and mark.folder is None for mark in policy.marks)
