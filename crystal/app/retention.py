"""Retention: automatically forget messages that are older than ``retention.days``."""

import json

from crystal.app.context import Machine
from crystal.store.json_columns import read_json_note
from crystal.store.notes import write_note

DAY_MS = 24 * 60 * 60 * 1000
MAX_LEAP_MS = 7 * DAY_MS
NOTE = "retention"
"""Name of the note with the setting as it was last seen and the time of its next run, ms."""


def apply_retention(machine: Machine) -> int:
    """Forget what is older than ``retention.days``; return the number of messages that went.

    Does nothing on a device, within a day after the setting was changed or the clock leapt, or more than once a day.
    """
    days, now = machine.config.retention_days, machine.now()
    if not days or machine.config.role == "device" or not _is_due(machine, days, now):
        return 0
    from crystal.app.forget import execute_plan, forget_context  # noqa: PLC0415 - brings NumPy, 0.4 s: once a day at most
    from crystal.forgetting.plan.planner import plan  # noqa: PLC0415 - the same
    from crystal.forgetting.request import ForgetRequest  # noqa: PLC0415 - the same

    request = ForgetRequest(before=now - days * DAY_MS, keep_memories=True)
    found = plan(forget_context(machine), request)
    gone = 0 if found.is_empty else execute_plan(machine, found).lines
    _note_next(machine, days, now)
    return gone


def _is_due(machine: Machine, days: int, now: int) -> bool:
    known = read_json_note(machine.store, NOTE) or {}
    # After a leap of the clock it waits a day too: a clock that is wrong for an hour must not cost years.
    if known.get("days") != days or abs(now - known["next_at"]) > MAX_LEAP_MS:
        _note_next(machine, days, now)
        return False
    return bool(now >= known["next_at"])


def _note_next(machine: Machine, days: int, now: int) -> None:
    with machine.store.transaction():
        write_note(machine.store, NOTE, json.dumps({"days": days, "next_at": now + DAY_MS}))
