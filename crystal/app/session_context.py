"""Keep the prepared session contexts up to date. Called after everything that may change them."""

from __future__ import annotations

import contextlib
import json
import os

from crystal.app.context import Machine, open_machine, this_config, this_home
from crystal.capture.privacy import policy_of
from crystal.config.paths import refused, write_derived
from crystal.errors import CrystalError
from crystal.hook.session_start import NOTICE_FILE, stamp_of
from crystal.store import problems
from crystal.store.capture import hook_runs

PROBLEM = "context"
NOTICE_SECONDS = 600.0
HOOK_SETTINGS = ("assist.", "context.")
"""The settings that decide which hooks there are."""
LATE_MS = 120_000
"""Less than the ``GROWTH_NS`` of the hook."""


def refresh(machine: Machine) -> None:
    """Prepare the contexts for session starts, or remove them if the setting or capture is off.

    Cheap when nothing changed. To be called when memories, sessions, settings or privacy may have changed; after
    forgetting it rebuilds what was removed. Errors of the operating system are recorded as a problem, never raised.
    """
    if _is_notice_old(machine):
        from crystal.app.notices import refresh_notice  # noqa: PLC0415 - reads the client's settings; once in ten minutes

        refresh_notice(machine)
    try:
        _refresh(machine)
    except CrystalError as error:
        problems.record_problem(machine.store, PROBLEM, error.message, now=machine.now())
    else:
        problems.clear_problem(machine.store, PROBLEM)


def _is_notice_old(machine: Machine) -> bool:
    """Return True if what is said of capture may have changed: to find out takes some milliseconds after each turn.

    What it says of the last turn must not be late, or the hook reports a silence that was none.
    """
    file = machine.places.data_dir / NOTICE_FILE
    try:
        made, noted = file.stat().st_mtime, int(json.loads(file.read_bytes())["last_turn"] or 0)
    except (OSError, ValueError, TypeError, LookupError):
        return True
    late = (hook_runs.last_turn_run(machine.store) or 0) - noted
    return late > LATE_MS or not 0 <= machine.now() / 1000 - made < NOTICE_SECONDS


def refresh_unless_changed(machine: Machine) -> None:
    """Refresh, unless the settings changed since this process began: who changed them has done it."""
    if stamp_of(str(machine.places.config_file)) == machine.config.stamp:
        refresh(machine)


def _refresh(machine: Machine) -> None:
    data_dir = machine.places.data_dir
    if any(data_dir.glob("told/*")):
        from crystal.app.session_context_content import record_injections  # noqa: PLC0415 - 60 ms; telling is off by default

        record_injections(machine)
    _mark_privacy(machine)
    config = machine.config
    if not config.tells_at_start and not config.assist_moments and not (data_dir / "context").exists():
        return
    from crystal.app.session_context_content import write_session_contexts  # noqa: PLC0415 - the same

    write_session_contexts(machine)
    if config.assist_moments:
        from crystal.app.assist_packet import refresh_packets  # noqa: PLC0415 - the same

        refresh_packets(machine)


def _mark_privacy(machine: Machine) -> None:
    """Write a mark for the hook if anything may be private: the hook then confirms nothing about a prompt.

    Raises:
        CrystalError: The system refuses.
    """
    policy, path = policy_of(machine.store, machine.config), machine.places.data_dir / "private"
    lasting = [mark for mark in policy.marks if mark.until_at is None]
    content = b"paused\n" if policy.is_off else b""
    try:
        if not (policy.projects or policy.sessions or lasting):
            path.unlink(missing_ok=True)
        elif not path.exists() or path.read_bytes() != content:
            write_derived(path, content)
    except OSError as error:
        raise refused(error, path) from error


def settings_changed(key: str) -> list[str]:
    """Make contexts, the mark of privacy and the agents' hooks ready under a new setting, where there is a memory.

    Returns:
        Which hooks cannot be changed, and what the user has to do for an agent that got new ones.
    """
    from crystal.install.setup_plan import update_hooks  # noqa: PLC0415 - a turn loads this module, and changes no setting

    with contextlib.suppress(CrystalError):  # whatever is wrong with it, the setting was written
        config = this_config()
        if config.places.db.exists():
            with contextlib.suppress(CrystalError), open_machine() as machine:
                refresh(machine)
            if key.startswith(HOOK_SETTINGS):
                return update_hooks(config, os.environ, this_home())
    return []
