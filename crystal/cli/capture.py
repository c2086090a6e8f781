"""Implement ``crystal sync``, ``backfill`` and ``import``: capture on demand, then make vectors and summaries."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crystal.app.background import write_summaries_again
from crystal.app.capture import run_capture
from crystal.app.context import Machine, now_ms, open_machine
from crystal.capture.backfill import PastFile
from crystal.capture.engine import Tally
from crystal.cli.follow_up import (
    DAY_SECONDS,
    REST,
    STEPS,
    deferred,
    ending_as_by_ctrl_c,
    enrich_here,
    follow_up,
    stop,
)
from crystal.cli.json_output import answer, print_json
from crystal.cli.options import (
    AsJson,
    Quiet,
    RemoveTimer,
    TimerDryRun,
    Transcripts,
    argument,
    changes_timer,
    existing,
    flag,
    option,
)
from crystal.cli.progress import bar_shown, progress_bar
from crystal.cli.render import count_words, say, say_aside, size_words, warn
from crystal.errors import CrystalError
from crystal.store.capture.ledger_rebuild import let_in
from crystal.store.problems import clear_problem
from crystal.timewords.parse import local, parse_when

if TYPE_CHECKING:
    from crystal.sources.sync import SyncReport

SYNC_SECONDS = 600.0
CANCEL = "call it off: crystal backfill --cancel"


def sync(
    install_timer: Annotated[bool, flag("Run this every 15 minutes from now on.", "--install-timer")] = False,
    remove_timer: RemoveTimer = False,
    dry_run: TimerDryRun = False,
    summaries: Annotated[
        bool, flag("Let the model rewrite the summaries that were made without it.", "--summaries")
    ] = False,
    wait: Annotated[
        bool | None,
        flag(
            "Wait until all vectors, the index and summaries are made; or leave them to the background."
            " Without either: work on them for ten minutes at most.",
            "--wait/--no-wait",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Capture what the hooks missed, read your sources, then make vectors and summaries. Ctrl-C is safe."""
    from crystal.cli.sources import changed_lines, counts_of

    if changes_timer(install=install_timer, remove=remove_timer, dry_run=dry_run):
        from crystal.cli.timer import change_timer

        change_timer(install=install_timer, dry_run=dry_run)
        return
    with open_machine() as machine:
        tally = run_capture(machine, lambda capture: capture.sweep(), _say_waiting)
        problems = send_with_progress(machine)
        clear_problem(machine.store, "embedding")  # it pauses after a failure, but the user requests it now
        show = not (quiet or as_json)
        reports, failed = _read_sources(machine, show=show)
        problems += failed
        before = deferred(machine)
        if wait is False:
            problems += follow_up(machine, say=show)
        else:
            problems += enrich_here(machine, seconds=None if wait else SYNC_SECONDS, show=show)
        if summaries:
            problems += write_summaries_again(machine)
        made = before.made_since(deferred(machine))
    if as_json:
        sources = [counts_of(one) for one in reports]
        print_json({**_tally(tally), "sources": sources, "made": made._asdict(), "warnings": problems})
    elif not quiet:
        changed = changed_lines(reports)
        if tally.bytes_captured or tally.bytes_private:
            typer.echo(tally_words(tally))
        elif not changed:
            typer.echo(f"nothing new to capture; {made.words}" if made.words else tally_words(tally))
        say(*changed)
    warn_of(tally, problems)


def _read_sources(machine: Machine, *, show: bool) -> tuple[list[SyncReport], list[str]]:
    from crystal.app.source_list import list_sources
    from crystal.cli.sources import read_sources

    try:
        return read_sources(machine, show=show) if list_sources(machine) else ([], [])
    except CrystalError as error:  # the captured chunks still get their vectors
        return [], [error.message]


def backfill(
    paths: Transcripts = None,
    dry_run: Annotated[bool, flag("Only show what would be imported.", "--dry-run")] = False,
    limit: Annotated[int | None, option("Import at most N transcripts, newest first.", min=1)] = None,
    since: Annotated[str | None, option("Only transcripts changed since: 7d, 2026-11-01 ...")] = None,
    privacy_lost: Annotated[
        bool, flag("Also import bytes that a repair left out because they may be private.", "--privacy-lost")
    ] = False,
    cancel: Annotated[
        bool, flag("Call off what an interrupted import left; what is imported stays.", "--cancel")
    ] = False,
    embed: Annotated[bool, flag("Make the vectors too, after the import.", "--embed/--no-embed")] = True,
    wait: Annotated[bool, flag("Wait until vectors and summaries are made too.", "--wait")] = False,
    as_json: AsJson = False,
) -> None:
    """Import past sessions, newest first. You can stop it at any time; the rest follows in the background.

    It ends when keywords find everything; vectors and summaries follow in the background.
    """
    from crystal.app.import_past import cancel_pending, note_refused, plan_import

    given = [path.absolute() for path in existing(paths)]
    after = None if since is None else parse_when(since, now=now_ms(), name="--since")
    with open_machine() as machine:
        if cancel:
            count = count_words(cancel_pending(machine), "transcript")
            typer.echo(f"import of {count} called off; to import again: crystal backfill")
            return
        if privacy_lost:
            let_in(machine.store)
        refused = Tally()
        plan = plan_import(machine, given, after, refused)[:limit]
        if dry_run:
            _print_plan(plan, as_json)
            warn_of(refused)
            return
        tally = import_with_bar(machine, plan)
        if not given and limit is None:
            tally.join(import_in_projects(machine, after))
        tally.join(refused)
        if not given and limit is None and after is None:
            note_refused(machine, tally)
        finish_import(machine, tally, embed=embed, wait=wait, as_json=as_json)


def import_(
    paths: Annotated[list[Path], argument("Exports, .zip archives, or folders of them.", "FILE...")],
    as_json: AsJson = False,
) -> None:
    """Import what ChatGPT, Claude.ai, SpecStory or crystal exported. You need not unpack an archive.

    You can import a newer export at any time: only what is new is added.
    """
    from crystal.app.import_exports import KNOWN_FORMS, name_archives, plan_exports, unpacked
    from crystal.app.import_open_form import import_export
    from crystal.export.form import is_export

    given = [path.absolute() for path in existing(paths, f"give {KNOWN_FORMS}")]
    with open_machine() as machine, unpacked(machine, given) as files:
        own = [path for path in files if is_export(path)]
        others = [path for path in files if path not in own]
        unread = Tally()
        plan = plan_exports(machine, others, named=given, tally=unread)
        tally = import_with_bar(machine, plan, again="the same command")
        tally.join(unread)
        with progress_bar("importing", sum(path.stat().st_size for path in own)) as advance:
            for path in own:
                tally.join(import_export(machine, path, advance))
        tally.problems = name_archives(tally.problems or {}, machine, given)
        finish_import(machine, tally, as_json=as_json)


def finish_import(
    machine: Machine,
    tally: Tally,
    *,
    embed: bool = True,
    wait: bool = False,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Print the result of an import, send it home, and make vectors and summaries, or leave them to the background."""
    show = not (as_json or quiet)
    if show:
        typer.echo(imported_words(tally))
    problems = send_with_progress(machine)
    if embed:
        problems += enrich_here(machine, show=show) if wait else follow_up(machine, say=show)
    if as_json:
        print_json({**_tally(tally), "warnings": problems})
    warn_of(tally, problems)


def send_with_progress(machine: Machine) -> list[str]:
    """Send waiting blobs home, on a device. Return the problems, in words."""
    from crystal.app.sync.device import SEND_SECONDS, deliver_soon
    from crystal.store.sync import outbox

    report = deliver_soon(machine, seconds=SEND_SECONDS, skip_delay=True)
    if report is None or not report.problem:
        return []
    waiting = outbox.backlog(machine.store).blobs
    return [f"{report.problem}; {count_words(waiting, 'sealed blob')} to send, nothing is lost"]


def _print_plan(plan: list[PastFile], as_json: bool) -> None:
    sessions = {one.origin.session_id for one in plan}
    size = sum(one.todo for one in plan)
    rows = [{"path": str(one.found.path), "session_id": one.origin.session_id, "bytes": one.todo} for one in plan]
    lines = [
        f"{local(one.found.modified):%Y-%m-%d %H:%M}  {size_words(one.todo):>10}  {one.found.path}" for one in plan
    ]
    whole = f"would import {count_words(len(sessions), 'session')}, {size_words(size)}"
    told = {"sessions": len(sessions), "bytes": size, "transcripts": rows}
    answer(told, [*lines, whole] if plan else ["nothing to import"], as_json=as_json)


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "bytes": tally.bytes_captured,
        "private_bytes": tally.bytes_private,
        "turns": tally.turns,
        "chunks": tally.chunks,
        "problems": [{"path": path, "message": message} for path, message in sorted((tally.problems or {}).items())],
    }


def _say_waiting() -> None:
    say_aside("crystal: ", "another crystal process is at work; waiting for it · Ctrl-C is safe")


def tally_words(tally: Tally) -> str:
    """Describe in one line what a run captured."""
    if not tally.bytes_captured and not tally.bytes_private:
        return "nothing new"
    kept = f"{size_words(tally.bytes_captured)} captured: {count_words(tally.turns, 'turn')}"
    hidden = f", {size_words(tally.bytes_private)} left out as private" if tally.bytes_private else ""
    return kept + hidden


def imported_words(tally: Tally) -> str:
    """Describe in one line what an import captured."""
    return tally_words(tally) + ("; search works now" if tally.turns else "")


def warn_of(tally: Tally, problems: Sequence[str] = ()) -> None:
    """Print what could not be read, and other problems, as warnings."""
    warn(*(f"{path}: {message}" for path, message in sorted((tally.problems or {}).items())), *problems)


def import_with_bar(machine: Machine, past: Sequence[PastFile], again: str | None = None) -> Tally:
    """Import past transcripts and index their words; what is imported is kept if the user interrupts it.

    Args:
        machine: This machine.
        past: What to import.
        again: The command that continues an import which the background cannot, because files were unpacked for it.

    Raises:
        Exit: The user interrupted it; with code 130.
    """
    from crystal.app import maintenance
    from crystal.app.import_past import drop_pending, import_sessions, note_pending

    if again is None:
        note_pending(machine, past)
    try:
        with ending_as_by_ctrl_c(), progress_bar("importing", sum(one.todo for one in past)) as advance:
            tally = import_sessions(machine, past, advance, on_wait=_say_waiting)
        if again is None:
            drop_pending(machine, past)
        # If the disk is full, the background does it; a search reports what it did not read.
        with contextlib.suppress(CrystalError), bar_shown() as bar:
            until = time.monotonic() + DAY_SECONDS
            maintenance.index(machine.store, machine.now(), until, partial(bar, STEPS["index"]))
        return tally
    except KeyboardInterrupt:
        stop(machine, "what is imported stays; " + (f"{REST}; {CANCEL}" if again is None else f"to continue: {again}"))


def import_in_projects(machine: Machine, since: int | None = None) -> Tally:
    """Import what agents keep in the folders of projects that the last import has found."""
    from crystal.app.import_past import plan_in_projects

    refused = Tally()
    plan = plan_in_projects(machine, since, refused)
    if plan:
        refused.join(import_with_bar(machine, plan))
    return refused
