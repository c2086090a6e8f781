"""The only place that knows which machine does what: it looks around (environment, clock, home) and joins the rooms."""

from crystal.app.background import enrich, insist, write_summaries_again
from crystal.app.capture import import_sessions, plan_import, run_capture, turn_off, turn_on
from crystal.app.context import (
    Machine,
    now_ms,
    open_kept_machine,
    open_machine,
    open_reader,
    these_places,
    this_config,
    this_home,
    usable_config,
)
from crystal.app.integrity import Mended, mend_memory, prove, repair_all, restore_session
from crystal.capture.lock import CAPTURE_LOCK

__all__ = [
    "CAPTURE_LOCK",
    "Machine",
    "Mended",
    "enrich",
    "import_sessions",
    "insist",
    "mend_memory",
    "now_ms",
    "open_kept_machine",
    "open_machine",
    "open_reader",
    "plan_import",
    "prove",
    "repair_all",
    "restore_session",
    "run_capture",
    "these_places",
    "this_config",
    "this_home",
    "turn_off",
    "turn_on",
    "usable_config",
    "write_summaries_again",
]
