"""Implement ``crystal migrate``: import what other memory programs have stored."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from crystal.app.context import open_machine, this_config
from crystal.app.migrate.found import (
    LEGACY,
    FoundStore,
    find_stores,
    legacy_is_own,
    move_aside,
    named_store,
    open_or_empty,
)
from crystal.app.migrate.migration import Migration, RowCounts, TakenVectors
from crystal.app.migrate.relocate import move_own, relocate
from crystal.cli.capture import finish_import, import_with_bar
from crystal.cli.confirm import confirm
from crystal.cli.json_output import answer, print_json
from crystal.cli.options import AsJson, Yes, argument, flag, option
from crystal.cli.render import count_words, item, look_of, note, one_line, say
from crystal.config.stores import MOVED
from crystal.errors import CrystalError, UnavailableError, UsageError


def migrate(
    name: Annotated[str | None, argument("The memory program, as `crystal migrate` lists it.", "NAME")] = None,
    *,
    path: Annotated[
        Path | None, option("Its file, if that is elsewhere.", "FILE", "--from", show_default=False)
    ] = None,
    dry_run: Annotated[bool, flag("Only show what would be taken over.", "--dry-run")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take over what another memory program has stored. Without NAME: list those found here.

    Its files are only read. You can stop it at any time; the next run continues there.
    """
    if name is None and path is not None:
        raise UsageError("--from goes with NAME", hint="see the names: crystal migrate")
    if name is None:
        _list_stores(as_json=as_json)
        return
    if name == LEGACY and legacy_is_own():
        _move_own(dry_run=dry_run, yes=yes, as_json=as_json)
        return
    found = named_store(name, None if path is None else path.absolute())
    with open_or_empty() as machine, found.opened(machine) as container:
        counts = Migration(machine, found, container).counts()
    if not as_json or not yes:
        _say_preview(found, counts, stream=sys.stderr if as_json else sys.stdout)
    if dry_run:
        if as_json:
            print_json({**_store_json(found, counts), "dry_run": True})
        return
    confirm("Take them over?", yes=yes, consequence=f"{count_words(counts.new, 'row')} of {found.title} to take over")
    _run(found, moves=name == LEGACY and found.path.name != MOVED, as_json=as_json)


def _move_own(*, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Move crystal's own memory out of the legacy folder."""
    places = this_config().places
    words = f"crystal's memory would move from {places.data_dir} to {places.ldm_home / 'memory'}"
    told: dict[str, Any] = {"name": LEGACY, "path": str(places.db), "dry_run": dry_run}
    if not dry_run:
        confirm("Move it?", yes=yes, consequence=words)
        rows, new = move_own(places)
        told |= {"read": rows, "moved_to": str(new)}
        words = f"{count_words(rows, 'row')} copied and compared; {places.db} is a link to {new} now"
    answer(told, [words], as_json=as_json)


def _run(found: FoundStore, *, moves: bool, as_json: bool) -> None:
    config = this_config()
    found = move_aside(config, found)
    with open_machine() as machine:
        with found.opened(machine) as container:
            migration = Migration(machine, found, container)
            before = migration.survey()
            tally = import_with_bar(machine, migration.plan(), again=found.command)
            migration.take_memories()
            kept, counts = migration.keep_vectors(), migration.counts(before)
            left = sum(state == "new" for state in migration.survey().values())
        finish_import(machine, tally, quiet=True)
        moved = _link(found, config.places.data_dir) if moves else None
    if as_json:
        print_json({**_store_json(found, counts), "dry_run": False, "vectors": asdict(kept), "moved_to": moved})
    else:
        _say_done(found, counts, kept)
        if moved is not None:
            say(f"{found.path} is a link to {moved} now; the original is beside it")
    if left:
        raise UnavailableError(
            f"{count_words(left, 'row')} of {found.title} were not taken over",
            hint=f"run it again: {found.command}",
        )


def _link(found: FoundStore, folder: Path) -> str:
    new = folder / MOVED
    if found.path != new:
        relocate(found.path, new)
    return str(new)


def _list_stores(*, as_json: bool) -> None:
    rows: list[tuple[FoundStore, RowCounts | None, str]] = []
    with open_or_empty() as machine:
        for found in find_stores():
            try:
                with found.opened(machine) as container:
                    rows.append((found, Migration(machine, found, container).counts(), ""))
            except CrystalError as error:
                rows.append((found, None, error.message))
    look, lines = look_of(sys.stdout), list[str]()
    for found, counts, why in rows:
        words = why if counts is None else f"{count_words(counts.read, 'row')}: {_counts_words(counts, 'to take over')}"
        lines += item(found.name + "  ", f"{one_line(str(found.path))}  {words}", look, style=look.name)
    every = {"stores": [{**_store_json(found, counts), "problem": why or None} for found, counts, why in rows]}
    notes = ["take one over: crystal migrate NAME"] * bool(rows)
    answer(every, lines or ["no other memory program was found here"], as_json=as_json, notes=notes)


def _say_preview(found: FoundStore, counts: RowCounts, stream: Any) -> None:
    words = f"{found.title} has {count_words(counts.read, 'row')}: {_counts_words(counts, 'to take over')}"
    say(one_line(str(found.path)), words, *_reasons(counts), stream=stream)


def _say_done(found: FoundStore, counts: RowCounts, kept: TakenVectors) -> None:
    say(f"{count_words(counts.read, 'row')} of {found.title}: {_counts_words(counts, 'taken over')}", *_reasons(counts))
    if kept.is_chosen:
        say(f"{count_words(kept.kept, 'chunk')} kept their vectors of {' '.join(kept.model or ())}")
    elif kept.model is not None:
        provider, model = kept.model
        note(
            f"its {kept.read:,} vectors are of {provider} {model}, which is not the model that you use; to keep them:"
            f" crystal config set embedding.provider {provider} && {found.command}"
        )


def _counts_words(counts: RowCounts, came: str) -> str:
    return f"{counts.new:,} {came}, {counts.known:,} known already, {counts.left_out.total():,} left out"


def _reasons(counts: RowCounts) -> list[str]:
    return [f"  left out: {number:,}: {why}" for why, number in counts.left_out.most_common()]


def _store_json(found: FoundStore, counts: RowCounts | None) -> dict[str, Any]:
    about: dict[str, Any] = {"name": found.name, "path": str(found.path)}
    if counts is not None:
        about |= {"read": counts.read, "new": counts.new, "known": counts.known, "left_out": dict(counts.left_out)}
    return about
