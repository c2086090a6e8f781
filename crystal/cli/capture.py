"""``crystal sync`` and ``crystal backfill``: capture on demand, the sweep and the import of past transcripts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.capture.backfill import Past
    from crystal.capture.engine import Tally

SYNC_SECONDS = 600.0


def sync(
    install_timer: Annotated[bool, typer.Option("--install-timer", help="Sweep every 15 minutes from now on.")] = False,
    remove_timer: Annotated[bool, typer.Option("--remove-timer", help="Remove the timer.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With a timer option: only show what would be done.")
    ] = False,
    summaries: Annotated[
        bool, typer.Option("--summaries", help="Let the model rewrite the summaries that were made without it.")
    ] = False,
    wait: Annotated[
        bool | None,
        typer.Option(
            "--wait/--no-wait",
            help="Wait until all vectors, the index and summaries are made; or leave them to the background."
            " Without either: work on them for ten minutes at most.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Capture what the hooks missed, then make vectors and summaries. Ctrl-C is safe: the rest follows."""
    from crystal.app.background import write_summaries_again
    from crystal.app.capture import run_capture
    from crystal.app.context import open_machine
    from crystal.cli.following import enrich_here, follow_up
    from crystal.store.problems import clear_problem

    if install_timer or remove_timer:
        from crystal.cli.timer import change_timer

        change_timer(install=install_timer, dry_run=dry_run)
        return
    with open_machine() as machine:
        tally = run_capture(machine, lambda capture: capture.sweep())
        problems = send_with_progress(machine)
        clear_problem(machine.store, "embedding")  # it rests after a failure; somebody asks for it now
        show = not (quiet or as_json)
        if wait is False:
            problems += follow_up(machine, say=show)
        else:
            problems += enrich_here(machine, seconds=None if wait else SYNC_SECONDS, show=show)
        if summaries:
            problems += write_summaries_again(machine)
    if as_json:
        typer.echo(json.dumps({"schema": 1, **_tally(tally), "warnings": problems}))
    elif not quiet:
        typer.echo(tally_words(tally))
    _warn(tally, problems)


def backfill(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Transcripts, or folders of them; all of Claude Code's if none is given."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be imported.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Import at most N transcripts, newest first.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only transcripts changed since: 7d, 2026-11-01 ...")
    ] = None,
    privacy_lost: Annotated[
        bool,
        typer.Option("--privacy-lost", help="Also import what a repair left out as perhaps private."),
    ] = False,
    embed: Annotated[bool, typer.Option("--embed/--no-embed", help="Make the vectors too, after the import.")] = True,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until vectors and summaries are made too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Import past sessions, newest first. You can stop it at any time; the next run continues there.

    It ends when keywords find everything; vectors and summaries follow in the background.
    """
    from crystal.app.context import now_ms, open_machine
    from crystal.app.import_past import plan_import
    from crystal.cli.following import enrich_here, follow_up, import_with_bar
    from crystal.errors import UsageError
    from crystal.store.capture.ledger_rebuild import let_in
    from crystal.timewords.parse import parse_when

    for path in paths or ():
        if not path.exists():
            raise UsageError(f"{path} does not exist", hint="give a transcript file, or a folder of them")
    after = None if since is None else parse_when(since, now=now_ms(), name="--since")
    with open_machine() as machine:
        if privacy_lost:
            let_in(machine.store)
        plan = plan_import(machine, [path.absolute() for path in paths or ()], after)[:limit]
        if dry_run:
            _print_plan(plan, as_json)
            return
        tally = import_with_bar(machine, plan)
        if not as_json:
            typer.echo(imported_words(tally))
        problems = send_with_progress(machine)
        if embed:
            problems += enrich_here(machine, show=not as_json) if wait else follow_up(machine, say=not as_json)
    if as_json:
        typer.echo(json.dumps({"schema": 1, **_tally(tally), "warnings": problems}))
    _warn(tally, problems)


def send_with_progress(machine: Machine) -> list[str]:
    """On a device, send what waits to home. Return what went wrong, in words."""
    from crystal.app.sync.device import SEND_SECONDS, deliver_soon
    from crystal.store.sync import outbox

    report = deliver_soon(machine, seconds=SEND_SECONDS, insist=True)
    if report is None or not report.problem:
        return []
    waiting = outbox.backlog(machine.store).blobs
    return [f"{report.problem}; {waiting} sealed blobs wait, nothing is lost"]


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar of bytes on standard error; nothing if that is no terminal. Yield a function that moves it."""
    if not sys.stderr.isatty() or total == 0:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


def size_words(size: int) -> str:
    """Return a number of bytes for people: ``1.4 MB``."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


def count_words(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 session``, ``2 sessions``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _print_plan(plan: list[Past], as_json: bool) -> None:
    sessions = {one.origin.session_id for one in plan}
    size = sum(one.todo for one in plan)
    if as_json:
        rows = [{"path": str(one.found.path), "session_id": one.origin.session_id, "bytes": one.todo} for one in plan]
        typer.echo(json.dumps({"schema": 1, "sessions": len(sessions), "bytes": size, "transcripts": rows}))
        return
    for one in plan:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.found.modified / 1000))
        typer.echo(f"{day}  {size_words(one.todo):>10}  {one.found.path}")
    typer.echo(f"would import {count_words(len(sessions), 'session')}, {size_words(size)}")


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "bytes": tally.bytes_captured,
        "private_bytes": tally.bytes_private,
        "turns": tally.turns,
        "chunks": tally.chunks,
        "problems": [{"path": path, "message": message} for path, message in sorted((tally.problems or {}).items())],
    }


def tally_words(tally: Tally) -> str:
    """Describe in a line what a run captured."""
    if not tally.bytes_captured and not tally.bytes_private:
        return "nothing new"
    kept = f"{size_words(tally.bytes_captured)} captured: {count_words(tally.turns, 'turn')}"
    hidden = f", {size_words(tally.bytes_private)} left out as private" if tally.bytes_private else ""
    return kept + hidden


def imported_words(tally: Tally) -> str:
    """Describe in a line what an import captured."""
    return tally_words(tally) + ("; search works now" if tally.turns else "")


def _warn(tally: Tally, problems: list[str]) -> None:
    for path, message in sorted((tally.problems or {}).items()):
        typer.echo(f"crystal: warning: {path}: {message}", err=True)
    for problem in problems:
        typer.echo(f"crystal: warning: {problem}", err=True)
