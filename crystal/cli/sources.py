"""Implement ``crystal sources``: add, sync, watch and remove folders of files to search."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from crystal.app.context import Machine, open_kept_machine, open_machine, open_reader
from crystal.app.source_list import SourceState, list_sources
from crystal.app.sources import RemovedSource, add_source, remove_source, sync_sources
from crystal.cli.capture import SYNC_SECONDS
from crystal.cli.confirm import confirm
from crystal.cli.follow_up import enrich_here
from crystal.cli.json_output import answer, record
from crystal.cli.options import AsJson, Yes, argument, flag, option
from crystal.cli.progress import bar_shown
from crystal.cli.render import cells, count_words, first_of, item, look_of, one_line, padded, say, warn
from crystal.sources.sync import SyncReport
from crystal.timewords.parse import ago

SHOWN = 10
NOTHING = "no sources yet", "crystal sources add PATH"
CHANGES = ("added", "changed", "renamed", "removed")
"""Numbers of files in a report."""
TIMES = frozenset(("added_at", "synced_at"))
Name = Annotated[str, argument("The name of a source.", "NAME", show_default=False)]

commands = typer.Typer(help="Your own files in the memory.", invoke_without_command=True)


@commands.callback()
def list_them(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Search your own files too: list the folders that are indexed."""
    if context.invoked_subcommand is None:
        status(as_json=as_json)


@commands.command("add")
def add(
    path: Annotated[Path, argument("A folder with text files.", "PATH", show_default=False)],
    name: Annotated[str | None, option("Its name. Default: the folder's name.", "NAME")] = None,
    vault: Annotated[bool, flag("It is an Obsidian vault.", "--vault")] = False,
    as_json: AsJson = False,
) -> None:
    """Index the files of a folder. You can stop it with Ctrl-C; `crystal sources sync` continues."""
    with open_machine() as machine:
        added = add_source(machine, path, name, is_vault=vault)
        _sync_and_say(machine, added.name, as_json=as_json)


@commands.command("sync")
def sync(
    name: Annotated[str | None, argument("Only this source.", "NAME", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Read what has changed in the folders, and forget what is gone."""
    with open_kept_machine() as machine:
        _sync_and_say(machine, name, as_json=as_json)


@commands.command("status")
def status(as_json: AsJson = False) -> None:
    """Show what is stored of each folder."""
    with open_reader() as machine:
        found, now = list_sources(machine), machine.now()
    look, width, lines = look_of(sys.stdout), max((cells(one.name) for one in found), default=0), list[str]()
    for one in found:
        lines += item(f"{padded(one.name, width)}  ", ", ".join(_state_words(one, now)), look, style=look.name)
    answer({"sources": record(found, TIMES)}, lines, as_json=as_json, nothing=NOTHING)


@commands.command("remove")
def remove(
    name: Name,
    yes: Yes = False,
    prove: Annotated[bool, flag("Then search every byte of crystal's files for its texts.", "--prove")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a folder from the memory. Your files stay."""
    with open_kept_machine() as machine:
        counts = next((one for one in list_sources(machine) if one.name == name), None)
        if counts is not None:
            words = f"{count_words(counts.files, 'file')} of {counts.folder} will not be found any more"
            confirm("remove it?", yes=yes, consequence=f"{words}; the files themselves stay")
        done = remove_source(machine, name, is_proved=prove)
    _say_removed(done, as_json=as_json)


@commands.command("watch")
def watch() -> None:
    """Index changes as they happen, until Ctrl-C. Needs the package watchfiles."""
    from crystal.app.watch import watch_sources

    watch_sources(_print_sync, begin=lambda: say("watching; Ctrl-C ends it", stream=sys.stderr))


def _print_sync(reports: Sequence[SyncReport], problems: Sequence[str]) -> None:
    """Print what a sync changed and its problems."""
    say(*changed_lines(reports))
    warn(*problems)


def changed_lines(reports: Sequence[SyncReport]) -> list[str]:
    """Describe the sources in which something has changed."""
    return [f"{one.name}: {_changes(one)}" for one in reports if any(getattr(one, what) for what in CHANGES)]


# ----------------------------------------------------------------------------------------------------------- syncing


def read_sources(machine: Machine, name: str | None = None, *, show: bool) -> tuple[list[SyncReport], list[str]]:
    """Read what has changed in the folders of sources, with a bar; return the reports and the problems, in words."""
    with bar_shown(enabled=show, remark="Ctrl-C is safe") as bar:
        return sync_sources(machine, name, progress=lambda source: partial(bar, f"reading {source}"))


def _sync_and_say(machine: Machine, name: str | None, *, as_json: bool) -> None:
    reports, problems = read_sources(machine, name, show=not as_json)
    problems += enrich_here(machine, seconds=SYNC_SECONDS, show=not as_json)
    done = {"sources": [asdict_of(one) for one in reports], "warnings": problems}
    lines = chain.from_iterable(map(_report_lines, reports))
    answer(done, lines, as_json=as_json, nothing=None if problems else NOTHING)
    warn(*([] if as_json else problems))


def asdict_of(one: SyncReport) -> dict[str, Any]:
    """Return a report for JSON."""
    return {**asdict(one), "skipped": [skipped._asdict() for skipped in one.skipped]}


def counts_of(one: SyncReport) -> dict[str, Any]:
    """Return the name of a source and the numbers of its changed files, for JSON."""
    return {name: getattr(one, name) for name in ("name", *CHANGES)}


def _changes(one: SyncReport) -> str:
    done = [f"{getattr(one, what):,} {what}" for what in CHANGES if getattr(one, what)]
    return ", ".join(done) or "nothing new"


def _report_lines(one: SyncReport) -> Iterator[str]:
    files = count_words(one.added + one.changed + one.renamed + one.unchanged, "file")
    chunks = (
        f"; {one.chunks_new:,} of {count_words(one.chunks_new + one.chunks_kept, 'chunk')} new"
        if one.chunks_new
        else ""
    )
    yield f"{one.name}: {_changes(one)}{chunks}; {files} in all"
    if one.redacted:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(one.redacted.items()))
        yield f"  removed before storing: {kinds}"
    if one.skipped:
        yield f"  not indexed: {count_words(len(one.skipped), 'file')}"
        rest = f"; all of them: crystal sources sync {one.name} --json"
        yield from first_of([f"{one_line(path)}: {why}" for path, why in one.skipped], SHOWN, "    ", rest)
    if not one.is_whole:
        yield f"  stopped; to continue: crystal sources sync {one.name}"


# ------------------------------------------------------------------------------------------------------------ output


def _state_words(one: SourceState, now: int) -> Iterator[str]:
    yield one_line(one.folder)
    if not one.is_here:
        yield "the folder is NOT THERE, its text is still found"
    yield count_words(one.files, "file")
    if one.skipped:
        yield f"{one.skipped:,} not indexed"
    yield count_words(one.chunks, "chunk")
    if one.waiting:
        yield f"{one.waiting:,} without a vector yet"
    yield "not read yet" if one.synced_at is None else f"read {ago(one.synced_at, now)}"


def _say_removed(done: RemovedSource, *, as_json: bool) -> None:
    from crystal.cli.forget import proof_words

    lines = [f"removed: {done.name}, {count_words(done.chunks, 'chunk')}; the files in {one_line(done.folder)} stay"]
    lines += [] if done.proof is None else proof_words(done.proof, ())
    answer({**record(done), "proof": done.proof and done.proof.as_dict()}, lines, as_json=as_json)
    if done.pending and not as_json:
        warn(done.pending)
