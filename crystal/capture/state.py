"""Decide from facts whether capture works on this machine.

The facts are gathered elsewhere (``crystal.app.capture_state``); nothing here touches a disk or a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from crystal.model.quick_dataclass import dataclass
from crystal.timewords.parse import ago, clock

MIN_FREE_BYTES = 1 << 20
LOCK_SECONDS = 120
STALLED_SECONDS = 15 * 60
SILENT_SECONDS = 24 * 3600
GROWTH_SECONDS = 300
"""The client writes the last lines of a turn after its hook: only later growth shows a hook that did not run."""
NO_CLIENT = "no client"


class Condition(str, Enum):
    """State of capture."""

    CAPTURING = "capturing"
    PAUSED = "paused"
    NOT_CAPTURING = "not capturing"


@dataclass(frozen=True, slots=True)
class Reason:
    """Something that keeps capture from working, or is worth knowing about it; ``fix`` is the next step."""

    code: str
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class HookFacts:
    """Hooks of crystal that the client runs.

    Attributes:
        settings: The user's settings file.
        problem: Why the client does not use that file, if it does not.
        disabled_by: The settings file that switches all hooks off, if one does.
        managed_only: The managed settings that allow no hooks but their own, if they do.
        has_hook: An entry of crystal for ``Stop`` is in a settings file.
        plugins: The ids of crystal's plugins that are switched on, such as ``crystal@crystal``.
        gone: Files that the hook or the plugin runs and that do not exist.
        is_here: The client's folder exists.
        way_in: The command that makes an unreadable settings file readable.
    """

    settings: Path
    problem: str | None = None
    disabled_by: Path | None = None
    managed_only: Path | None = None
    has_hook: bool = False
    plugins: tuple[str, ...] = ()
    gone: tuple[Path, ...] = ()
    is_here: bool = True
    way_in: str | None = None


@dataclass(frozen=True, slots=True)
class CaptureFacts:
    """Facts found on this machine. Times are ms since the epoch.

    Attributes:
        now: The present.
        hooks: One for each of the client's folders; none on a machine that is used without the client.
        data_dir: The folder of the store.
        store_problem: Why the store cannot be used, and the next step, if it cannot.
        off_since: Since when capture is switched off.
        last_capture: When something was captured last.
        free_bytes: Free bytes on the disk of ``data_dir``.
        not_writable: What should be writable and is not, in words, and the next step.
        unusable_lock: Why the capture lock cannot be used, and the next step, if it cannot.
        unusable_enrich_lock: The same of the lock of what follows capture.
        read_only_disk: Whether that disk is mounted for reading only.
        stalled: What the last worker said about a store that it could not use.
        oldest_note: The time of the oldest note of the hook that still waits.
        notes: How many wait.
        lock_holder: Who holds the capture lock: a process id, 0 for an unknown one, None for nobody.
        last_turn_hook: When a hook at the end of a turn ran last, or since when one could have run.
        newest_transcript: When a transcript grew last.
        other_agents: Whether agents other than Claude Code keep conversations here.
    """

    now: int
    hooks: tuple[HookFacts, ...]
    data_dir: Path
    store_problem: tuple[str, str] | None = None
    off_since: int | None = None
    last_capture: int | None = None
    free_bytes: int | None = None
    not_writable: tuple[str, str] | None = None
    unusable_lock: tuple[str, str] | None = None
    unusable_enrich_lock: tuple[str, str] | None = None
    read_only_disk: bool = False
    stalled: str | None = None
    oldest_note: int | None = None
    notes: int = 0
    lock_holder: int | None = None
    last_turn_hook: int | None = None
    newest_transcript: int | None = None
    other_agents: bool = False


@dataclass(frozen=True, slots=True)
class CaptureState:
    """Result: ``since`` belongs to ``paused``; ``reasons`` keep capture from working, ``remarks`` do not."""

    condition: Condition
    since: int | None = None
    last_capture: int | None = None
    reasons: tuple[Reason, ...] = ()
    remarks: tuple[Reason, ...] = ()


def assess_capture(facts: CaptureFacts) -> CaptureState:
    """Judge from the facts whether conversations are kept.

    Paused comes first, because it is the user's own choice; what else is wrong is still listed then.
    """
    reasons = (*_store_reasons(facts), *_hook_reasons(facts), *_worker_reasons(facts))
    remarks = tuple(_remarks(facts))
    if facts.off_since is not None:
        return CaptureState(Condition.PAUSED, facts.off_since, facts.last_capture, reasons, remarks)
    condition = Condition.NOT_CAPTURING if reasons else Condition.CAPTURING
    return CaptureState(condition, None, facts.last_capture, reasons, remarks)


def describe(state: CaptureState, now: int) -> str:
    """Describe the state of capture in one line, with the next step if there is one."""
    if state.condition is Condition.PAUSED:
        since = "" if state.since is None else f" since {clock(state.since, now)} ({ago(state.since, now)})"
        return f"paused{since}: nothing is captured (resume: crystal --on)"
    if state.reasons:
        first = state.reasons[0]
        more = len({one.fix for one in state.reasons} - {first.fix})
        others = f"; and {more} more: crystal doctor" if more else ""
        return f"NOT capturing: {first.message} (fix: {first.fix}){others}"
    if any(one.code == NO_CLIENT for one in state.remarks):
        return "nothing to capture: no coding agent is found on this machine"
    last = "nothing captured yet" if state.last_capture is None else f"last capture {ago(state.last_capture, now)}"
    remarks = "".join(f"; {one.message} (fix: {one.fix})" for one in state.remarks)
    return f"capturing; {last}{remarks}"


def is_silent(*, now: int, last_turn_hook: int | None, newest_transcript: int | None) -> bool:
    """Return True if no hook has run for a day although a transcript grew since. Times are ms."""
    if last_turn_hook is None or newest_transcript is None:
        return False
    is_long = now - last_turn_hook > 1000 * SILENT_SECONDS
    return is_long and newest_transcript > last_turn_hook + 1000 * GROWTH_SECONDS


def _store_reasons(facts: CaptureFacts) -> Iterator[Reason]:
    if facts.free_bytes is not None and facts.free_bytes < MIN_FREE_BYTES:
        yield Reason("disk full", f"the disk of {facts.data_dir} is full", "free some disk space")
    if facts.read_only_disk:
        yield Reason("not writable", f"the disk of {facts.data_dir} is read-only", "mount it so that it can be written")
    elif facts.not_writable is not None:
        yield Reason("not writable", *facts.not_writable)
    for code, problem in (("database", facts.store_problem), ("lock", facts.unusable_lock)):
        if problem is not None:
            yield Reason(code, *problem)


def _hook_reasons(facts: CaptureFacts) -> Iterator[Reason]:
    for hooks in facts.hooks:
        if hooks.problem is not None:
            yield Reason("settings", hooks.problem, hooks.way_in or f"correct {hooks.settings}")
        elif hooks.disabled_by is not None:
            fix = "set disableAllHooks to false in it"
            yield Reason("hooks disabled", f"{hooks.disabled_by} switches all hooks off (disableAllHooks)", fix)
        elif hooks.managed_only is not None:
            message = f"{hooks.managed_only} allows only managed hooks (allowManagedHooksOnly)"
            yield Reason("hooks disabled", message, "ask who manages this machine")
        elif not hooks.is_here:
            yield Reason("no hook", "no agent runs crystal's hook", "crystal init --all")
        elif not hooks.has_hook and not hooks.plugins:
            yield Reason("no hook", f"no hook in {hooks.settings}", "crystal init")
        elif hooks.gone:
            fix = "crystal init" if hooks.has_hook else f"claude plugin install {hooks.plugins[0]}"
            yield Reason("program gone", f"the hook runs {hooks.gone[0]}, which is gone", fix)


def _worker_reasons(facts: CaptureFacts) -> Iterator[Reason]:
    if facts.store_problem is None and facts.stalled is not None:
        yield Reason("stalled", facts.stalled, "crystal sync")
    oldest = facts.now if facts.oldest_note is None else facts.oldest_note
    if facts.lock_holder is not None and facts.now - oldest > 1000 * LOCK_SECONDS:
        yield _locked(facts.lock_holder, facts.data_dir / "capture.lock", ago(oldest, facts.now))
    elif facts.now - oldest > 1000 * STALLED_SECONDS:
        message = f"{facts.notes} notes of the hook wait, the oldest from {ago(oldest, facts.now)}"
        yield Reason("stalled", message, "crystal sync")
    is_quiet = is_silent(now=facts.now, last_turn_hook=facts.last_turn_hook, newest_transcript=facts.newest_transcript)
    if is_quiet and facts.last_turn_hook is not None and not any(_hook_reasons(facts)):
        message = f"the hook ran last {ago(facts.last_turn_hook, facts.now)}, although sessions went on since"
        yield Reason("silent", message, "crystal sync; then look at /hooks in Claude Code")


def _locked(holder: int, lock: Path, since: str) -> Reason:
    who = f"process {holder}" if holder else "another process"
    fix = f"kill {holder}, if it does nothing" if holder else "end that process"
    return Reason("locked", f"{who} holds {lock}, and turns from {since} wait", fix)


def _remarks(facts: CaptureFacts) -> Iterator[Reason]:
    for hooks in facts.hooks:
        if hooks.has_hook and hooks.plugins:
            message = f"the hook runs twice: by {hooks.settings} and by the plugin {hooks.plugins[0]}"
            yield Reason("twice", message, f"claude plugin uninstall {hooks.plugins[0]}")
    if facts.unusable_enrich_lock is not None:
        problem, fix = facts.unusable_enrich_lock
        yield Reason("vectors", f"vectors and summaries wait: {problem}", fix)
    if not facts.hooks and not facts.other_agents:
        yield Reason(NO_CLIENT, "no coding agent is found on this machine", "use one, then: crystal init --all")
