"""Gather the facts that tell whether capture works, for ``crystal.capture.state``."""

# ruff: noqa: PTH112  os.path.isdir never raises, Path.is_dir does below a folder that may not be entered

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from crystal.app.context import current_folder, now_ms
from crystal.app.open_store import refuse_lost
from crystal.capture import finder, spool
from crystal.capture.lock import CAPTURE_LOCK, ENRICH_LOCK, lock_holder, lock_problem
from crystal.capture.off_files import off_periods
from crystal.capture.state import SILENT_SECONDS, CaptureFacts, CaptureState, HookFacts, assess_capture
from crystal.config.file_access import move_away, owner_in_the_way, way_in
from crystal.config.harnesses import CLAUDE_CODE
from crystal.config.paths import Places
from crystal.config.register import left_out_folders
from crystal.config.table import Config
from crystal.errors import CrystalError, StoreLostError, UsageError
from crystal.install.claude_settings.layers import missing_plugin, missing_programs, read_layers, unused_because
from crystal.store import Store
from crystal.store.capture import hook_runs, privacy
from crystal.store.health import stats


def capture_state(config: Config, store: Store | None = None, *, everywhere: bool = False) -> CaptureState:
    """Judge whether conversations are kept on this machine.

    Reads only. Costs a few milliseconds, and a look at every transcript's time where no hook has run for a day.

    Args:
        config: The settings.
        store: The store, if it is open already.
        everywhere: Leave out what holds in the current folder alone.
    """
    try:
        with Store.open_existing(config.places.db) if store is None else contextlib.nullcontext(store) as opened:
            return assess_capture(_facts(config, opened, None, everywhere=everywhere))
    except CrystalError as error:
        return assess_capture(_facts(config, None, _problem_of(config.places, error), everywhere=everywhere))


def _problem_of(places: Places, error: CrystalError) -> tuple[str, str]:
    """Return why the database cannot be opened, and the command that repairs it."""
    try:
        refuse_lost(places)
    except StoreLostError as lost:
        return lost.message, "crystal verify --repair"
    except UsageError as link:
        return link.message, link.hint or "crystal doctor"
    except CrystalError:
        pass  # the first error says more
    return error.message, (error.hint or "crystal doctor").removeprefix("run: ")


def _facts(config: Config, store: Store | None, problem: tuple[str, str] | None, *, everywhere: bool) -> CaptureFacts:
    places, now = config.places, now_ms()
    waiting = waiting_notes(places.spool)
    last_turn = last_turn_hook(places, store)
    is_late = last_turn is not None and now - last_turn > 1000 * SILENT_SECONDS
    folder, left_out = None if everywhere else current_folder(), left_out_folders(places)
    return CaptureFacts(
        now=now,
        hooks=tuple(hook_facts(one, folder) for one in places.claude_dirs if is_meant(config, one, left_out)),
        data_dir=places.data_dir,
        store_problem=problem,
        off_since=next((mark.from_at for mark in off_marks(places, store) if mark.session_id is None), None),
        last_capture=None if store is None else stats.last_capture(store),
        free_bytes=_free_bytes(places.data_dir),
        not_writable=_not_writable(config),
        unusable_lock=unusable_lock(places.data_dir / CAPTURE_LOCK),
        unusable_enrich_lock=unusable_lock(places.data_dir / ENRICH_LOCK),
        read_only_disk=_is_read_only(places.data_dir),
        other_agents=_has_others(places, left_out),
        stalled=_stalled(places.stalled),
        oldest_note=min((note.at for note in waiting), default=None),
        notes=len(waiting),
        lock_holder=lock_holder(places.data_dir / CAPTURE_LOCK) if waiting else None,
        last_turn_hook=last_turn,
        newest_transcript=newest_transcript(places) if is_late else None,
    )


def is_meant(config: Config, folder: Path, left_out: list[str] | None) -> bool:
    """Return True if Claude Code with this configuration folder should run the hooks.

    An existing folder should, unless the user left it out to set up other agents only. For a folder that does not
    exist, True only if another agent keeps conversations here, ``init`` set up no other client or agent, and this
    machine is not a home. ``left_out`` is the result of ``left_out_folders``.
    """
    if os.path.isdir(folder):
        return str(folder) not in (left_out or ())
    from crystal.install.undo import is_for_others  # noqa: PLC0415 - seldom needed, and this runs after each turn

    is_for_it = config.role != "home" and left_out is None and not is_for_others(config.places.ldm_home)
    return is_for_it and _has_others(config.places, left_out)


def _has_others(places: Places, left_out: list[str] | None) -> bool:
    """Return whether agents other than Claude Code keep conversations here, or any does where that is left out."""
    roots = places.transcript_roots
    others = (one for one in roots if one.harness != CLAUDE_CODE and not one.place.in_projects)
    return any(one.is_here for one in (roots if left_out else others))


def hook_facts(folder: Path, cwd: str | None) -> HookFacts:
    """Find out which hooks a client with this configuration folder runs when it is started in ``cwd``."""
    layers = read_layers(folder, cwd)
    gone = missing_programs(layers.commands)
    for plugin in layers.plugins if not layers.commands else ():
        gone += missing_plugin(folder, plugin)
    return HookFacts(
        settings=layers.user.path,
        problem=unused_because(layers.user),
        disabled_by=layers.disabled_by,
        managed_only=layers.managed_only,
        has_hook=bool(layers.commands),
        plugins=layers.plugins,
        gone=tuple(gone),
        is_here=os.path.isdir(folder),
        way_in=None if layers.user.problem is None else way_in(layers.user.path),
    )


def newest_transcript(places: Places) -> int | None:
    """Return when a transcript of Claude Code grew last, ms."""
    roots = [root for root in places.transcript_roots if root.harness == CLAUDE_CODE]
    return max((found.modified for found in finder.all_transcripts(roots)), default=None)


def waiting_notes(folder: Path) -> list[spool.Note]:
    """Return the hook's notes that wait; none if they cannot be read."""
    try:
        return spool.read_notes(folder)
    except OSError:
        return []  # a folder that may not be read is a problem of its own, see ``not_writable``


def off_marks(places: Places, store: Store | None) -> list[privacy.PrivatePeriod]:
    """Return the private times that last, also those that the store could not hold yet."""
    marks = [] if store is None else [mark for mark in privacy.marks(store) if mark.until_at is None]
    return [*marks, *off_periods(places.data_dir)]


def _free_bytes(folder: Path) -> int | None:
    existing = next((each for each in (folder, *folder.parents) if os.path.isdir(each)), None)
    try:
        return None if existing is None else shutil.disk_usage(existing).free
    except OSError:
        return None


def _not_writable(config: Config) -> tuple[str, str] | None:
    """Return which of the folders, the database and the archive cannot be written, and the next step."""
    places = config.places
    archive = places.agent_folder(config.agent_id) / "transcripts"
    # In a folder without access, os.path returns False where Path raises.
    existing = (one for one in (archive, *archive.parents) if os.path.exists(one))  # noqa: PTH110
    folders = (places.data_dir, places.spool, next(existing))
    for path in folders:
        if os.path.exists(path) and not os.path.isdir(path):  # noqa: PTH110
            return f"{path} is not a folder", move_away(path)
    for path in (*folders, places.db):
        if os.path.exists(path) and not os.access(path, os.W_OK):  # noqa: PTH110
            words = f"{path} cannot be written{owner_in_the_way(path)}"
            return words, way_in(path) or "mount its disk so that it can be written"
    return None


def unusable_lock(path: Path) -> tuple[str, str] | None:
    """Return why the lock at a path cannot be used, and what to do; None if it can, or is not there."""
    problem = lock_problem(path) if os.path.lexists(path) else None
    return None if problem is None else (problem.message, problem.hint or "crystal doctor")


def _is_read_only(folder: Path) -> bool:
    if not hasattr(os, "statvfs"):
        return False
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _stalled(marker: Path) -> str | None:
    try:
        text = marker.read_text("utf-8", "replace")
    except OSError:
        return None
    line = text.split("\n", 1)[0].removesuffix(". Run: crystal doctor")
    return line.removeprefix("nothing is being kept: ") or "capture is stalled"


def last_turn_hook(places: Places, store: Store | None) -> int | None:
    """Return when a hook at the end of a turn ran last; not before the last ``crystal init``, which put it there."""
    times = [] if store is None else [hook_runs.last_turn_run(store)]
    times += [at for at, event, _ in spool.read_latencies(places.spool) if event not in ("SessionStart", "-")]
    with contextlib.suppress(OSError):
        times.append(places.machine_json.stat().st_mtime_ns // 1_000_000)
    return max((at for at in times if at is not None), default=None)
