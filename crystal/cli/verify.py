"""``crystal verify`` and ``crystal restore``: prove what is kept, and put it back."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crystal.cli.capture import count_words, progress_bar, size_words
from crystal.cli.render import look_of, say_item

if TYPE_CHECKING:
    from crystal.verify import Proof

EXIT_BEHIND = 1
EXIT_DAMAGED = 6


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(verify)
    app.command()(restore)


def verify(
    mend: Annotated[bool, typer.Option("--repair", help="Mend what can be mended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read transcripts and archive again and prove that every byte is kept, private or left out by a named rule.

    Exit code 0: 100 %. 1: some bytes are not captured yet, `crystal sync` captures them. 6: something is damaged.
    """
    from crystal.errors import StoreDamaged

    try:
        proof, done = _prove_and_mend(mend)
    except StoreDamaged as error:
        if not mend:
            raise
        from crystal.wiring import these_places

        hint = f"move {these_places().db} away and run it again: the archive holds what was said"
        raise StoreDamaged(error.message, hint=hint) from error
    if as_json:
        typer.echo(json.dumps(_as_json(proof, done)))
    else:
        _print(proof, done, tried=mend)
    if proof.damaged:
        raise typer.Exit(EXIT_DAMAGED)
    if proof.faults:
        raise typer.Exit(EXIT_BEHIND)


def _prove_and_mend(mend: bool) -> tuple[Proof, list[str]]:
    """The proof, and with ``mend`` what was mended before it."""
    from crystal.wiring import open_kept_machine, prove, repair_all

    with open_kept_machine() as machine:
        with progress_bar("reading", machine.bytes_to_prove()) as advance:
            proof = prove(machine, advance)
        if not (mend and proof.faults):
            return proof, []
        done = repair_all(machine, proof)
        return prove(machine, lambda _: None), done


def restore(
    session: Annotated[str, typer.Argument(help="The session's id, or the beginning of it.")],
    project: Annotated[
        Path | None,
        typer.Option("--project", help="Resume in this folder instead of the one where the session was."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write an archived session back to where `claude --resume` finds it."""
    from crystal.wiring import open_kept_machine, restore_session

    with open_kept_machine() as machine:
        written = restore_session(machine, session, project.absolute() if project else None, dry_run=dry_run)
    if as_json:
        rows = [{"path": str(one.path), "bytes": one.bytes, "missing": one.missing} for one in written]
        typer.echo(json.dumps({"schema": 1, "dry_run": dry_run, "files": rows}))
        return
    for one in written:
        typer.echo(f"{'would write' if dry_run else 'wrote'} {one.path} ({size_words(one.bytes)})")
        if one.missing:
            typer.echo(f"crystal: warning: {size_words(one.missing)} of it were never captured", err=True)
    if written and not dry_run:
        _say_how_to_resume(session, written[0].path.stem, written[0].cwd)


def _say_how_to_resume(wanted: str, session: str, cwd: str | None) -> None:
    """Say which command goes on with a restored session: Claude Code finds it in the folder where it was held."""
    if cwd is None or Path(cwd).is_dir():
        place = "" if cwd is None or Path(cwd) == Path.cwd() else f"cd {shlex.quote(cwd)} && "
        typer.echo(f"resume it with: {place}claude --resume {session}")
        return
    typer.echo(f"the folder {cwd} is gone; choose one that exists:")
    typer.echo(f"  crystal restore {wanted} --project FOLDER, then: cd FOLDER && claude --resume {session}")


def _as_json(proof: Proof, done: list[str]) -> dict[str, object]:
    return {
        "schema": 1,
        "ok": not proof.faults,
        "percent": proof.percent,
        "transcripts": proof.transcripts,
        "files_gone": proof.files_gone,
        "bytes": proof.bytes_by_state,
        "faults": [
            {"kind": fault.kind, "what": fault.what, "message": fault.message, "start": fault.start, "stop": fault.stop}
            for fault in proof.faults
        ],
        "repaired": done,
    }


def _print(proof: Proof, done: list[str], *, tried: bool) -> None:
    look = look_of(sys.stdout)
    for line in done:
        say_item("mended: ", line, look, style=look.good)
    typer.echo(
        f"{count_words(proof.transcripts, 'transcript')}"
        + (f", {proof.files_gone} of them only in the archive" if proof.files_gone else "")
    )
    for state, size in sorted(proof.bytes_by_state.items(), key=lambda item: -item[1]):
        typer.echo(f"  {size_words(size):>10}  {state}")
    for fault in proof.faults:
        where = "" if fault.start is None else f" [{fault.start}, {fault.stop})"
        say_item(f"{fault.kind}: ", f"{fault.what}{where}: {fault.message}", look, style=look.bad)
    if not proof.faults:
        words = "of all bytes are accounted for; archive, database, keywords and vectors agree"
        say_item("100 % ", words, look, style=look.good)
        return
    say_item(f"{proof.percent:.3f} % ", "proved", look, style=look.bad)
    if proof.damaged and tried:
        hint = "what is left cannot be mended from what is here; put the files back from a backup"
    elif proof.damaged:
        hint = "run: crystal verify --repair"
    elif all(fault.kind == "unreadable" for fault in proof.faults):
        hint = "give your user the right to read what is named above, then run: crystal sync"
    else:
        hint = "run: crystal sync"
    typer.echo(f"crystal: hint: {hint}", err=True)
