"""``crystal secrets``: find secrets in the agents' own transcripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

import typer

from crystal.app.context import default_paths
from crystal.capture.finder import TranscriptFile
from crystal.cli.json_output import print_json
from crystal.cli.options import AsJson, Transcripts, existing
from crystal.cli.progress import progress_bar
from crystal.cli.render import count_words, hint, warn
from crystal.errors import CrystalError
from crystal.integrity.exposed_secrets import Exposure, find_exposures, list_transcripts

EXIT_FOUND = 1
EXIT_UNREADABLE = 4


def secrets(
    paths: Transcripts = None,
    as_json: AsJson = False,
) -> None:
    """Look for secrets in the agents' transcripts; print where they are, never what they are.

    Nothing is written or changed, and crystal need not be set up. What crystal itself stored is already clean.

    Exit code 0: no secret was found. 1: there are some. 4: none was found, but a transcript could not be read.
    """
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
    warn(*(f"{name}: {reason}" for name, reason in unread.items()))
    if rows or unread:
        raise typer.Exit(EXIT_FOUND if rows else EXIT_UNREADABLE)


def _find_all(
    transcripts: Iterable[TranscriptFile], unread: dict[str, str], advance: Callable[[int], None]
) -> Iterator[Exposure]:
    """Yield the secrets of all transcripts; one that cannot be read is added to ``unread`` with the reason."""
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


def _print_end(rows: list[Exposure], transcripts: int) -> None:
    total, within = sum(row.count for row in rows), len({row.path for row in rows})
    if not rows:
        typer.echo(f"no secrets in {count_words(transcripts, 'transcript')}")
        return
    typer.echo(f"{count_words(total, 'secret')} in {within} of {count_words(transcripts, 'transcript')}")
    hint("replace these keys where they were issued; then delete the transcripts")
