"""Implement ``crystal vault``: memories as editable Markdown files, beside summaries and daily logs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from crystal.app.context import open_machine, this_home
from crystal.app.vault import FoundNote, VaultChanges, VaultReport, choose_folder, side_named, vault_sync
from crystal.cli.confirm import confirm
from crystal.cli.json_output import print_json
from crystal.cli.options import AsJson, Prefer, flag, option
from crystal.cli.render import count_words, first_of, one_line, say, warn
from crystal.model.recall import Remembered

SHOWN = 10
EXIT_LEFT = 1
QUOTED = 200

commands = typer.Typer(help="Memories as Markdown files.", no_args_is_help=True)


@commands.command("export", help="The same as crystal vault sync.", short_help="The same as crystal vault sync.")
@commands.command("sync", short_help="Write memories to files, and read what you changed.")
def sync(
    *,
    to: Annotated[
        str | None,
        option("The folder, remembered as vault.folder. Default: the one vault among your sources.", "FOLDER"),
    ] = None,
    restore: Annotated[
        bool, flag("Write deleted files again instead of forgetting their memories.", "--restore")
    ] = False,
    prefer: Prefer = None,
    yes: Annotated[bool, flag("Do not ask before deleted files are forgotten.", "--yes", "-y")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep memories as files: read what you changed in them, then write memories, summaries and daily logs.

    Exit code 1: a conflict is open, a conflict copy is there, or a file could not be read into the memory.
    """
    from crystal.app.background import embed_soon

    side = side_named(prefer)
    with open_machine() as machine:
        folder = choose_folder(machine, to, this_home())
        with vault_sync(machine, folder, restores=restore) as vault:
            _ask(vault.changes, yes=yes)
            report = vault.run(side)
        embed_soon(machine)
    if as_json:
        print_json(as_dict(report))
    else:
        _say(report)
    if report.conflicts or report.copies or report.failed:
        raise typer.Exit(EXIT_LEFT)


def _ask(changes: VaultChanges, *, yes: bool) -> None:
    if not changes.deleted:
        return
    listed = [f"{one_line(path)}: {one_line(one.text)[:QUOTED]}" for path, one in changes.deleted.items()]
    what = count_words(len(changes.deleted), "deleted file")
    words = "\n".join([
        f"{what}: the memory will be forgotten for good, here and on all machines", *first_of(listed, SHOWN),
        "to write the files again instead: crystal vault sync --restore",
    ])  # fmt: skip
    confirm("forget?", yes=yes, consequence=words)


def as_dict(report: VaultReport) -> dict[str, Any]:
    """Return a report for JSON."""
    names = ("folder", "remembered", "edited", "forgotten", "written", "removed", "copies")
    return {
        **{name: getattr(report, name) for name in names},
        "conflicts": [{"path": one.path, "id": one.ident, "file": one.note.text, "crystal": _memory(one).text}
                      for one in report.conflicts],
        "left": [one._asdict() for one in report.left], "left_behind": report.left_behind,
        "failed": [one._asdict() for one in report.failed],
    }  # fmt: skip


def _memory(one: FoundNote) -> Remembered:
    assert one.memory is not None
    return one.memory


def _say(report: VaultReport) -> None:
    counts = {"remembered": report.remembered, "changed in crystal": report.edited, "forgotten": report.forgotten}
    done = [f"{number:,} {what}" for what, number in counts.items() if number]
    files = {"written": report.written, "deleted": report.removed}
    done += [f"{count_words(number, 'file')} {what}" for what, number in files.items() if number]
    done += [f"{count_words(report.copies, 'conflict copy')} to look at"] if report.copies else []
    say(f"{one_line(report.folder)}: {', '.join(done) or 'nothing new'}")
    say(*_lines("left as they are", [(one.path, one.why) for one in report.left]))
    warnings = [*_lines("not remembered", [(one.path, one.why) for one in report.failed]), *_conflicts(report)]
    say(*warnings, stream=sys.stderr)
    if report.left_behind:
        count = count_words(len(report.left_behind), "file")
        warn(f"in the former folder {count} stay; delete them, because nothing cleans them any more:")
        say(*(f"  {one_line(path)}" for path in report.left_behind), stream=sys.stderr)


def _conflicts(report: VaultReport) -> Iterator[str]:
    for one in report.conflicts:
        yield f"conflict: {one_line(one.path)} was changed, and {_memory(one).id} in crystal, too"
        yield f"  the file:  {one_line(one.note.text)[:QUOTED]}"
        yield f"  crystal:   {one_line(_memory(one).text)[:QUOTED]}"
    if report.conflicts:
        yield "crystal: hint: crystal vault sync --prefer file, or --prefer crystal; the history keeps the other text"


def _lines(what: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield f"{what}: {count_words(len(rows), 'file')}"
        listed = [f"{one_line(path)}: {one_line(why)}" for path, why in rows]
        yield from first_of(listed, SHOWN, rest="; all of them: crystal vault sync --json")
