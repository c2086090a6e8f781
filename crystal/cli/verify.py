"""Implement ``crystal verify`` and ``crystal restore``: check that nothing is missing; restore a session."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crystal.cli.json_output import answer, json_row
from crystal.cli.last_search import named_by_place
from crystal.cli.options import AsJson, argument, flag, option
from crystal.cli.progress import progress_bar
from crystal.cli.render import count_words, hint, item, look_of, size_words, warn

if TYPE_CHECKING:
    from crystal.app.integrity import RepairResult
    from crystal.integrity.proof import Proof

EXIT_BEHIND = 1
EXIT_DAMAGED = 6
AGREE = "archive, database and vectors agree"
FAULT_FIELDS = ("kind", "what", "message", "start", "stop")


def verify(
    mend: Annotated[bool, flag("Repair what can be repaired.", "--repair")] = False,
    as_json: AsJson = False,
) -> None:
    """Read transcripts and archive again and prove that every byte is captured, private, or skipped by a named rule.

    Exit code 0: 100 %. 1: some bytes are not captured yet, `crystal sync` captures them. 6: something is damaged.
    """
    from crystal.app.integrity import RepairResult, bytes_to_prove, mend_memory, open_to_prove, prove
    from crystal.app.rebuild import archive_bytes, drop_missing

    if mend:
        with progress_bar("reading the archive", archive_bytes()) as advance:
            mended = mend_memory(advance)
    else:
        with open_to_prove() as machine, progress_bar("reading", bytes_to_prove(machine)) as advance:
            mended = RepairResult(prove(machine, advance))
    answer(_as_json(mended), _lines(mended), as_json=as_json)
    if mended.missing:
        drop_missing()  # only now: the program may have been killed before the user was told
    if mended.proof.faults and not as_json:
        hint(_next_step(mended.proof, tried=mend))
    if mended.proof.damaged:
        raise typer.Exit(EXIT_DAMAGED)
    if mended.proof.faults:
        raise typer.Exit(EXIT_BEHIND)


def restore(
    session: Annotated[str, argument("The session's id or its beginning, or a hit: 2, @2, h17.")],
    project: Annotated[Path | None, option("Resume in this folder instead of the one where the session was.")] = None,
    dry_run: Annotated[bool, flag("Only show what would be written.", "--dry-run")] = False,
    as_json: AsJson = False,
) -> None:
    """Write an archived session back to where `claude --resume` finds it."""
    from crystal.app.context import open_kept_machine
    from crystal.app.integrity import restore_session

    with open_kept_machine() as machine:
        wanted = named_by_place(machine.places.data_dir, session, by_person=sys.stdin.isatty())
        written = restore_session(machine, wanted, project.absolute() if project else None, dry_run=dry_run)
    lines = []
    for one in written:
        lines.append(f"{'would write' if dry_run else 'wrote'} {one.path} ({size_words(one.bytes)})")
        if one.missing and not as_json:
            warn(f"{size_words(one.missing)} of it were never captured")
    if written and not dry_run:
        lines += _how_to_resume(written[0].path.stem, written[0].cwd)
    rows = [{"path": str(one.path), "bytes": one.bytes, "missing": one.missing} for one in written]
    answer({"dry_run": dry_run, "files": rows}, lines, as_json=as_json)


def _how_to_resume(session: str, cwd: str | None) -> list[str]:
    """Return the command that resumes a restored session: Claude Code needs the folder of the session."""
    if cwd is None or Path(cwd).is_dir():
        place = "" if cwd is None or Path(cwd) == Path.cwd() else f"cd {shlex.quote(cwd)} && "
        return [f"resume it with: {place}claude --resume {session}"]
    command = f"crystal restore {session} --project FOLDER, then: cd FOLDER && claude --resume {session}"
    return [f"the folder {cwd} is gone; choose one that exists:", f"  {command}"]


def _as_json(mended: RepairResult) -> dict[str, object]:
    proof = mended.proof
    return {
        "ok": not proof.faults,
        "percent": proof.percent,
        "transcripts": proof.transcripts,
        "files_gone": proof.files_gone,
        "bytes": proof.bytes_by_state,
        "faults": [json_row(fault, *FAULT_FIELDS) for fault in proof.faults],
        "repaired": mended.done,
        "came_back": mended.back,
        "missing": mended.missing,
        "kept": None if mended.kept is None else str(mended.kept),
    }


def _lines(mended: RepairResult) -> Iterator[str]:
    look, proof = look_of(sys.stdout), mended.proof
    if mended.back:
        yield from item("recovered: ", ", ".join(mended.back), look, style=look.good)
    for line in mended.missing:
        yield from item("lost: ", line, look, style=look.warning)
    if mended.kept is not None:
        yield f"kept: {mended.kept}, the old file; delete it when nothing is missing"
    for line in mended.done:
        yield from item("repaired: ", line, look, style=look.good)
    gone = f", {proof.files_gone} of them only in the archive" if proof.files_gone else ""
    yield count_words(proof.transcripts, "transcript") + gone
    for state, size in sorted(proof.bytes_by_state.items(), key=lambda row: -row[1]):
        yield f"  {size_words(size):>10}  {state}"
    for fault in proof.faults:
        where = "" if fault.start is None else f", bytes {fault.start:,} to {fault.stop:,}"
        yield from item(f"{fault.kind}: ", f"{fault.what}{where}: {fault.message}", look, style=look.bad)
    if proof.faults:
        yield from item(f"{proof.percent:.3f} % ", "proved", look, style=look.bad)
    elif proof.transcripts:
        yield from item("100 % ", f"of all bytes are accounted for; {AGREE}", look, style=look.good)
    else:
        yield from item("ok ", f"nothing has been captured yet; {AGREE}", look, style=look.good)


def _next_step(proof: Proof, *, tried: bool) -> str:
    """Return the user's next step for the faults; ``tried``: a repair was attempted."""
    if proof.damaged and tried:
        return "crystal cannot repair the rest; restore these files from a backup"
    if proof.damaged:
        return "run: crystal verify --repair"
    if all(fault.kind == "unreadable" for fault in proof.faults):
        return "crystal cannot read the files above; once it can, run: crystal sync"
    commands = {
        "crystal sources sync" if fault.message.startswith("the source ") else "crystal sync" for fault in proof.faults
    }
    return f"run: {' && '.join(sorted(commands, reverse=True))}"
