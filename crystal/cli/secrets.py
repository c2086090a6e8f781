"""Implement ``crystal secrets``: find secrets in the agents' transcripts, or in the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from crystal.app.context import default_paths, open_reader
from crystal.capture.finder import TranscriptFile
from crystal.cli.json_output import print_json
from crystal.cli.options import AsJson, Transcripts, existing, flag
from crystal.cli.progress import progress_bar, steps_shown
from crystal.cli.render import count_words, hint, warn
from crystal.errors import CrystalError, UsageError
from crystal.integrity.exposed_secrets import (
    Exposure,
    KeptSecret,
    find_exposures,
    find_kept,
    list_transcripts,
)

EXIT_FOUND = 1
EXIT_UNREADABLE = 4
MAX_HINTED = 50
"""Maximum number of ids in the printed command: a command line has a limit."""


def secrets(
    paths: Transcripts = None,
    *,
    kept: Annotated[
        bool, flag("Look through the memory instead, for what older versions let through.", "--kept")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look for secrets in the agents' transcripts; print where they are, never what they are.

    Nothing is written or changed, and crystal need not be set up. What crystal itself stored is clean by the rules of
    the version that stored it: --kept looks at it with today's.

    Exit code 0: no secret was found. 1: there are some. 4: none was found, but a transcript or an archive could not be
    read.
    """
    if kept:
        _kept(paths, as_json=as_json)
        return
    given = existing(paths)
    unread: dict[str, str] = {}
    roots = default_paths().transcript_roots
    transcripts = list_transcripts(roots, given, lambda folder, error: unread.__setitem__(str(folder), _reason(error)))
    rows: list[Exposure] = []
    with progress_bar("looking for secrets", sum(found.size for found in transcripts)) as advance:
        for row in _find_all(transcripts, unread, advance):
            rows.append(row)
            if not as_json:
                _print_row(row, rows)
    if as_json:
        found = [{**asdict(row), "path": str(row.path)} for row in rows]
        print_json({"transcripts": len(transcripts), "secrets": sum(row.count for row in rows), "found": found})
    else:
        _print_end(rows, len(transcripts))
    _leave([f"{name}: {reason}" for name, reason in unread.items()], is_found=bool(rows))


def _kept(paths: list[Path] | None, *, as_json: bool) -> None:
    """Search the memory of this machine."""
    if paths:
        raise UsageError("--kept looks through the memory, not through files", hint="leave out the paths")
    rows: list[KeptSecret] = []
    unread: list[str] = []
    with open_reader() as machine, steps_shown() as progress:
        for row in find_kept(machine.stores, machine.places.ldm_home, progress, unread.append):
            rows.append(row)
            if not as_json:
                times = f"  x{row.count}" if row.count > 1 else ""
                place = f"session {row.session}, {row.id or 'a note of the agent'}" if row.session else row.id
                typer.echo(f"{place}: {row.kind}{times}")
    if as_json:
        print_json({"secrets": sum(row.count for row in rows), "found": [asdict(row) for row in rows]})
    elif rows:
        _print_kept_end(rows)
    else:
        typer.echo("no secrets in what can be read of the memory" if unread else "no secrets in the memory")
    _leave([f"{name}: not everything in it can be read" for name in sorted(set(unread))], is_found=bool(rows))


def _leave(unread: list[str], *, is_found: bool) -> None:
    """Print what could not be read, and exit with the code of the result; return if nothing was found or unread."""
    warn(*unread)
    if is_found or unread:
        raise typer.Exit(EXIT_FOUND if is_found else EXIT_UNREADABLE)


def _find_all(
    transcripts: Iterable[TranscriptFile], unread: dict[str, str], advance: Callable[[int], None]
) -> Iterator[Exposure]:
    """Yield the secrets of all transcripts; add unreadable transcripts to ``unread``, with the reason."""
    for found in transcripts:
        try:
            yield from find_exposures(found.path, advance)
        except FileNotFoundError:
            continue
        except CrystalError as error:
            unread[str(found.path)] = error.message


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _print_row(row: Exposure, rows: list[Exposure]) -> None:
    if len(rows) < 2 or rows[-2].path != row.path:
        typer.echo(str(row.path))
    times = f"  x{row.count}" if row.count > 1 else ""
    typer.echo(f"  line {row.line}, byte {row.offset}: {row.kind}{times}")


def _print_kept_end(rows: list[KeptSecret]) -> None:
    typer.echo(f"{count_words(sum(row.count for row in rows), 'secret')} in the memory")
    # A note is forgotten with the turn that it repeats, or else with its session.
    every = [*dict.fromkeys(row.id for row in rows if row.id)]
    ids = every[:MAX_HINTED] or ["--session", rows[0].session]
    if len(every) > MAX_HINTED:
        hint(f"this is for the first {MAX_HINTED} of {len(every):,} ids; then once more: crystal secrets --kept")
    hint(f"replace these keys where they were issued; then run: crystal forget {' '.join(ids)} --prove")


def _print_end(rows: list[Exposure], transcripts: int) -> None:
    total, within = sum(row.count for row in rows), len({row.path for row in rows})
    if not rows:
        typer.echo(f"no secrets in {count_words(transcripts, 'transcript')}")
        return
    typer.echo(f"{count_words(total, 'secret')} in {within} of {count_words(transcripts, 'transcript')}")
    hint("replace these keys where they were issued; then delete the transcripts")
