"""The data of ``crystal status``: capture, queues, sizes, speed and cost. Reads, never changes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from stat import S_ISREG
from typing import Any, Literal

from crystal.app.agents import AgentFiles, deleting_agents, describe_cleanup, look_at_files
from crystal.app.background import count_due, count_waiting
from crystal.app.capture_state import capture_state, off_marks, waiting_notes
from crystal.app.context import Machine
from crystal.app.progress import read_pending_import, read_progress
from crystal.app.source_list import list_sources
from crystal.app.watcher import watcher_state
from crystal.capture.lock import BACKFILL_LOCK, lock_holder
from crystal.capture.refused_files import FIXES, SWEEP
from crystal.capture.state import CaptureState
from crystal.config.paths import Places
from crystal.errors import CrystalError
from crystal.store import costs, problems
from crystal.store.capture import hook_runs, ledger, privacy
from crystal.store.forget.forgotten_rows import archived_bytes
from crystal.store.health import stats
from crystal.store.search import vectors

FIND_UNEXAMINED = "crystal secrets says where they are"


def describe_unexamined(redactions: Mapping[str, int]) -> str | None:
    """Describe what was left out whole because it could not be examined, from the count of each kind; else None."""
    parts = [
        f"{redactions[kind]:,} {one if redactions[kind] == 1 else many}"
        for kind, one, many in _UNEXAMINED
        if redactions.get(kind)
    ]
    return f"not stored, too hard to examine for secrets: {' and '.join(parts)}" if parts else None


_UNEXAMINED = (("dense", "text", "texts"), ("unprocessable", "line", "lines"))


def gather(machine: Machine, state: CaptureState | None = None) -> dict[str, Any]:
    """Return all that ``crystal status --json`` prints, see docs/reference/json.md. Times are ms, sizes bytes.

    ``state`` is that of capture where it is known already.
    """
    look = look_at_files(machine)
    cleanup = [describe_cleanup(agent) for agent in deleting_agents(machine, look)]
    return {**gather_shown(machine, look, state), "cleanup": cleanup}


def gather_shown(machine: Machine, look: AgentFiles, state: CaptureState | None = None) -> dict[str, Any]:
    """Return the part of ``gather`` that the page shows: without what agents delete by themselves."""
    store, places, config = machine.store, machine.places, machine.config
    now = machine.now()
    notes = waiting_notes(places.spool)
    first, last = stats.time_span(store)
    serving = vectors.serving_generation(store)
    return {
        "schema": 1,
        **gather_health(machine, look, state),
        "counts": stats.counts(store),
        "span": {"first": first, "last": last},
        "sizes": {**sizes_of(places), "archived_plain": archived_bytes(store)},
        "sources": [
            {"name": one.name, "folder": one.folder, "is_here": one.is_here, "files": one.files, "chunks": one.chunks}
            for one in list_sources(machine)
        ],
        "queues": {
            "notes": len(notes),
            "oldest_note_ms": max(0, now - min(note.at for note in notes)) if notes else 0,
            "chunks_without_vector": count_without_vector(machine),
            "sessions_without_summary": count_due(machine),
        },
        "progress": _progress(machine),
        "watcher": asdict(watcher_state(places)),
        "embedding": {
            "provider": config.embedding_provider,
            "serving": None
            if serving is None
            else {"provider": serving.provider, "model": serving.model, "dimension": serving.dimension},
        },
        "summaries": {"mode": config.summary_mode, "provider": config.summary_provider, "model": config.summary_model},
        "costs": _costs(machine, now),
        "places": {
            "database": str(places.db),
            "home": str(places.ldm_home),
            "settings": str(places.config_file),
            "agent": config.agent_id,
            "device": config.device,
        },
    }


def gather_health(machine: Machine, look: AgentFiles, state: CaptureState | None = None) -> dict[str, Any]:
    """Return the part of ``gather`` that says whether all is well."""
    store = machine.store
    return {
        "capture": _capture(machine, state or capture_state(machine.config, store)),
        "ledger": stats.bytes_by_state(store),
        "transcripts": _transcripts(machine, look),
        "relay": _relay(machine),
        "hook": hook_runs.latency(hook_runs.latencies(store))._asdict(),
        "redactions": privacy.redaction_counts(store),
        "problems": [
            {"part": one.part, "message": one.message, "since": one.since, "at": one.at, "tries": one.tries}
            for one in problems.list_problems(store)
        ],
    }


def capture_switch(machine: Machine) -> dict[str, Any]:
    """Return whether capture is on, since when it is off, and which sessions are switched off on their own."""
    off = off_marks(machine.places, machine.store)
    everywhere = next((mark for mark in off if mark.session_id is None), None)
    return {
        "on": everywhere is None,
        "off_since": everywhere.from_at if everywhere else None,
        "private_sessions": sorted({mark.session_id for mark in off if mark.session_id}),
    }


def state_as_json(state: CaptureState) -> dict[str, Any]:
    """Return the state of capture as JSON shows it."""
    return {
        "state": state.condition.value,
        "reasons": [asdict(one) for one in state.reasons],
        "remarks": [asdict(one) for one in state.remarks],
    }


def _capture(machine: Machine, state: CaptureState) -> dict[str, Any]:
    stalled = next((one.message for one in state.reasons if one.code in ("stalled", "locked")), None)
    return {**state_as_json(state), **capture_switch(machine), "stalled": stalled, "last": state.last_capture}


def _transcripts(machine: Machine, look: AgentFiles) -> dict[str, Any]:
    """Return how far capture is behind the agents' files: in sum, and each that is behind."""
    behind = [
        {"path": str(one.found.path), "offset": one.offset, "size": one.found.size, "lag": one.unread}
        for one in look.files
        if one.unread
    ]
    return {
        "on_disk": look.number,
        "known": ledger.count_transcripts(machine.store, machine.config.device),
        "lag": sum(one.unread for one in look.files),
        "to_import": len(read_pending_import(machine.places.data_dir)),
        "is_importing": lock_holder(machine.places.data_dir / BACKFILL_LOCK) is not None,
        "behind": behind[:20],
        "unreadable": sorted(map(str, look.refused))[:20],
    }


def describe_lag(found: dict[str, Any]) -> tuple[Literal["ok", "note", "warning"], str, str | None]:
    """Return the kind, text and next step for what is not captured; the step is no sync if no file can be read."""
    refused = next((one["message"] for one in found["problems"] if one["part"] == SWEEP), "")
    lag, unreadable = found["transcripts"]["lag"], found["transcripts"]["unreadable"]
    new = next((path for path in unreadable if path not in refused), None)
    if new is not None:
        return "warning", f"{new} cannot be read: nothing new of it is captured", FIXES[SWEEP]
    if lag:
        can_be_read = any(one["path"] not in refused for one in found["transcripts"]["behind"])
        fix = "crystal sync" if can_be_read else FIXES[SWEEP]
        return "note", f"{lag:,} bytes of transcripts are not captured yet", fix
    which = "every transcript that can be read" if unreadable else "every transcript"
    return "ok", f"{which} is captured up to its last line", None


def count_without_vector(machine: Machine) -> int:
    """Return how many chunks wait for a vector of the chosen model; if it cannot be used, of the serving one."""
    try:
        return count_waiting(machine)
    except CrystalError:
        serving = vectors.serving_generation(machine.store)
        return vectors.count_pending(machine.store, serving.id if serving else 0)


def _progress(machine: Machine) -> dict[str, Any] | None:
    """Return the progress of the work that is running, or None."""
    found = read_progress(machine.places.data_dir)
    if found is None:
        return None
    seconds = found.seconds_left
    left = None if seconds is None else round(seconds)
    return {"step": found.step, "done": found.done, "total": found.total, "seconds_left": left}


def _relay(machine: Machine) -> dict[str, Any] | None:
    """Return the relay's part of the status; None on a standalone machine."""
    if machine.config.role == "standalone":
        return None
    from crystal.app.sync.status import relay_status  # noqa: PLC0415 - only where a relay is set

    return relay_status(machine)


def _costs(machine: Machine, now: int) -> dict[str, Any]:
    day = now - now % 86_400_000
    return {
        "today_usd": costs.spent_since(machine.store, day),
        "summaries_today_usd": costs.spent_since(machine.store, day, purpose="summary"),
        "total_usd": costs.spent_since(machine.store, 0),
        "summary_cap_usd": machine.config.summary_daily_cap_usd,
    }


PARTS = ("database", "log", "index", "archive", "summaries", "spool", "models", "backups", "other")
"""``log`` is the database's write-ahead log; ``backups`` are copies made before an upgrade; ``other`` holds the mirror
and contexts."""


def sizes_of(places: Places) -> dict[str, int]:
    """Return the bytes of each part, and of all of them as ``whole``. Only links in place of a part are followed."""
    found, db = dict.fromkeys(PARTS, 0), places.db.name
    agents, index = places.ldm_home / "agents", places.data_dir / "index"
    named = (("index", index), ("spool", places.spool), ("models", places.models), ("summaries", agents))
    parts = [(part, Path(os.path.realpath(one))) for part, one in named]
    tops = {Path(os.path.realpath(one)) for one in (places.ldm_home, places.data_dir)} | {one for _, one in parts}
    begins = [(part, f"{one}{os.sep}") for part, one in parts]
    for top in [one for one in tops if not any(one.is_relative_to(other) for other in tops - {one})]:
        for folder, _, names in os.walk(top):
            usual = next((part for part, begin in begins if f"{folder}{os.sep}".startswith(begin)), "other")
            for name in names:
                with contextlib.suppress(OSError):
                    status = os.lstat(f"{folder}{os.sep}{name}")
                    if S_ISREG(status.st_mode):
                        found[_part_of_file(name, usual, db)] += status.st_size
    return {**found, "whole": sum(found.values())}


def _part_of_file(name: str, usual: str, db: str) -> str:
    if usual == "summaries" and name.endswith(".zst"):
        return "archive"
    endings = {"": "database", "-wal": "log", "-shm": "log"}
    return "backups" if name.startswith(f"{db}.v") else endings.get(name.removeprefix(db), usual)
