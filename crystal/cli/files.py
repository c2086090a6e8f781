"""Implement ``crystal files``: memories in a block of the files that agents read, such as AGENTS.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crystal.app.context import open_kept_machine, this_home
from crystal.app.memory_files import BlockDecisions, FileList, MemoryFile, file_list, state_of_files
from crystal.app.vault import side_named
from crystal.cli.app import report
from crystal.cli.confirm import confirm
from crystal.cli.json_output import answer, print_json
from crystal.cli.options import AsJson, Prefer, argument, flag
from crystal.cli.render import count_words, hint, one_line, say, warn
from crystal.errors import CrystalError
from crystal.text.harmless import harmless

if TYPE_CHECKING:
    from pathlib import Path

    from crystal.app.vault import Side
    from crystal.install.file_change import FileChange
    from crystal.vault.block import BlockRow

QUOTED = 200
WORDS = {
    "edited": "changed by you, changes the memory", "added": "added by you, becomes a memory",
    "deleted": "deleted by you, hides the memory", "new": "not in the file yet", "gone": "vanishes from the file",
    "conflict": "conflict: the line and its memory were changed", "refused": "cannot be remembered",
}  # fmt: skip
Files = Annotated[list[str] | None, argument("Files such as AGENTS.md; those of the list if none is given.")]
Yes = Annotated[bool, flag("Agree to everything; for scripts.", "--yes", "-y")]

commands = typer.Typer(help="Memories in files that agents read.", no_args_is_help=True)


@commands.command("sync", short_help="Write memories into a file, and read what you changed.")
def sync(
    files: Files = None,
    *,
    prefer: Prefer = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Write the memories that you have confirmed into a block of a file, and import your changes to the block.

    The first time, name the file. One that cannot be read or written is named, and the others are synced.
    Exit code 1: a conflict is open, or a line cannot be remembered.
    """
    from crystal.app.background import embed_soon

    side = side_named(prefer)
    done: list[tuple[MemoryFile, FileChange]] = []
    failed: list[tuple[Path, CrystalError]] = []
    with open_kept_machine() as machine, file_list(machine) as listed:
        for path in listed.named(files or [], this_home()):
            try:
                done.append(_synced(listed, path, side, yes=yes, quiet=as_json))
            except CrystalError as error:
                failed.append((path, error))
        embed_soon(machine)
    if as_json:
        written = [{**as_dict(one), "written": change.changed} for one, change in done]
        print_json({"files": [*written, *(_not_read(path, error) for path, error in failed)]})
    else:
        say(*(f"{one_line(str(one.path))}: {'written' if change.changed else 'nothing new'}" for one, change in done))
    is_open = any(one.refused or (side is None and one.rows_in("conflict")) for one, _ in done)
    if is_open:
        hint("move what is no memory out of the block; a conflict: crystal files sync --prefer file, or crystal")
    _refuse(failed)
    if is_open:
        raise typer.Exit(1)


def _synced(
    listed: FileList, path: Path, side: Side | None, *, yes: bool, quiet: bool
) -> tuple[MemoryFile, FileChange]:
    """Sync one file, and add it to the list unless it cannot be written."""
    one = listed.compared(path)
    answers = _ask_decisions(one, BlockDecisions(adds=True, hides=True, prefer=side), yes=yes, quiet=quiet)
    one.change(answers).check_unchanged()
    listed.note(one.path)
    return one, one.run(answers)


def _refuse(failed: list[tuple[Path, CrystalError]]) -> None:
    """Print the files that could not be synced; raise the last error."""
    for _, error in failed[:-1]:
        report(error)
    if failed:
        raise failed[-1][1]


@commands.command("status", short_help="List the files, and what differs.")
def status(as_json: AsJson = False) -> None:
    """List the files that have memories, and what differs from the memories."""
    with open_kept_machine() as machine:
        found = state_of_files(machine)
    every = [as_dict(one) if isinstance(one, MemoryFile) else _not_read(path, one) for path, one in found]
    answer({"files": every}, _state_lines(found), as_json=as_json)


def _state_lines(found: Sequence[tuple[Path, MemoryFile | CrystalError]]) -> Iterator[str]:
    for path, one in found:
        if isinstance(one, MemoryFile):
            differs = [f"{number} {state}" for state, number in one.counts.items() if number and state in WORDS]
            held = count_words(len(one.rows_in("same")), "line")
            yield f"{one_line(str(path))}: {held} as remembered" + "".join(f", {words}" for words in differs)
        else:
            warn(one.message)
    if not found:
        say("no file has memories; to write one: crystal files sync AGENTS.md", stream=sys.stderr)


@commands.command("remove", short_help="Take the block out of a file.")
def remove(files: Annotated[list[str], argument("The files.")], *, yes: Yes = False) -> None:
    """Remove the block from files, which restores their former content; the memories stay."""
    with open_kept_machine() as machine, file_list(machine) as listed:
        for path in listed.named(files, this_home()):
            one = listed.compared(path)
            change = one.without()
            words = [*_rows(one, "edited", "added", "conflict", "refused"), *map(harmless, change.diff().splitlines())]
            confirm("remove the block?", yes=yes, consequence="\n".join(words))
            change.apply()
            listed.drop(one.path)
            say(f"{one_line(str(one.path))}: {'the block is removed' if change.changed else 'it has no block'}")


def _ask_decisions(one: MemoryFile, answers: BlockDecisions, *, yes: bool, quiet: bool) -> BlockDecisions:
    """Show the change and ask about it; return the user's decisions."""
    is_asked = sys.stdin.isatty() and not yes  # otherwise show what --yes would do
    if is_asked:
        adds = _agrees(one, "added", "remember these lines?")
        answers = answers._replace(adds=adds, hides=_agrees(one, "deleted", "hide the memories of these lines?"))
    change, others = one.change(answers), () if is_asked else ("added", "deleted")
    diff = change.diff().splitlines() if change.changed else []
    words = [*_rows(one, *others, "edited", "conflict", "refused"), *map(harmless, diff)]
    if yes or not (change.changed or one.rows_in("edited", "added", "deleted")):
        if not quiet:
            say(*words, stream=sys.stderr)
    else:
        confirm("write?", yes=False, consequence="\n".join(words))
    return answers


def _agrees(one: MemoryFile, state: str, question: str) -> bool:
    rows = _rows(one, state)
    if not rows:
        return False
    say(*rows, stream=sys.stderr)
    return typer.confirm(question, err=True)


def _rows(one: MemoryFile, *states: str) -> list[str]:
    """Return the lines in some states, each with an explanation."""
    found = [(row.state, row) for row in one.rows_in(*states)]
    found += [("refused", row) for row in one.refused if "refused" in states]
    return [line for state, row in found for line in _row_lines(state, row, one.refused.get(row))]


def _row_lines(state: str, row: BlockRow, why: str | None) -> Iterator[str]:
    place = "" if row.memory is None else f" ({one_line(row.memory.project or 'everywhere')})"
    yield f"{WORDS[state]}{place}{f': {why}' if why else ''}"
    if row.entry is not None:
        yield f"  the file:  {one_line(row.entry.text)[:QUOTED]}"
    if row.memory is not None:
        yield f"  crystal:   {one_line(row.memory.text)[:QUOTED]}"


def _not_read(path: Path, error: CrystalError) -> dict[str, str]:
    return {"path": str(path), "error": error.message}


def as_dict(one: MemoryFile) -> dict[str, Any]:
    """Return a file as a JSON object."""
    return {
        "path": str(one.path), "project": one.project.name, "lines": one.counts,
        "conflicts": [{"id": row.memory.id, "file": row.entry.text, "crystal": row.memory.text}
                      for row in one.rows_in("conflict") if row.memory and row.entry],
        "refused": [{"file": row.entry.text, "why": why} for row, why in one.refused.items() if row.entry],
    }  # fmt: skip
