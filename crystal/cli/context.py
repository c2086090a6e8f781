"""Implement ``crystal context``: show the context of a new session, the reasons for it, and past contexts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from crystal.app.context import open_reader
from crystal.app.mirror import mirror_notes
from crystal.app.session_context_content import Preview, injection_log, preview
from crystal.cli import render
from crystal.cli.json_output import answer, record
from crystal.cli.options import AsJson, flag, option
from crystal.cli.values import whole_number
from crystal.errors import UsageError
from crystal.store.sessions.contexts import Injection
from crystal.text.fence import fenced, new_nonce
from crystal.text.harmless import harmless
from crystal.timewords.parse import clock


def context(
    log: Annotated[bool, flag("Show which context sessions got, newest first.", "--log")] = False,
    explain: Annotated[bool, flag("Show every candidate, and why it is given or not.", "--explain")] = False,
    limit: Annotated[str, option("With --log: how many at most.", "N", "-n", "--limit")] = "20",
    as_json: AsJson = False,
) -> None:
    """Show the context that a new session in this folder would get, and why."""
    try:
        here = str(Path.cwd())
    except FileNotFoundError as error:
        raise UsageError("the current folder is gone", hint="change to a folder that exists") from error
    count = whole_number(limit, "--limit")
    with open_reader() as machine:
        now = machine.now()
        if log:
            told = injection_log(machine, count)
        else:
            shown = preview(machine, here)
            notes = (*shown.notes, *mirror_notes(machine.mirror, now))
    if log:
        answer({"told": record(told)}, _log_lines(told, now), as_json=as_json)
    else:
        lines = _reasons(shown) if explain else _lines(shown)
        answer(_as_json(shown, notes), map(harmless, lines), as_json=as_json, notes=notes)


def _log_lines(told: list[Injection], now: int) -> Iterator[str]:
    for one in told:
        head = harmless(f"{clock(one.at, now)}  {one.session_id[:8]}  {one.source}")
        yield f"{head}  {len(one.chosen)} of {one.candidates} given, {_omitted(one.omitted)}, {one.tokens} tokens"
        yield from (f"    {harmless(ident)}" for ident in one.chosen)
    if not told:
        render.say_aside("crystal: ", "no session got a context yet")


def _omitted(number: int) -> str:
    return f"{render.count_words(number, 'memory')} omitted"


def _text(shown: Preview) -> str:
    return fenced(shown.told.body, new_nonce()) if shown.told.body else ""


def _as_json(shown: Preview, notes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "folder": shown.folder,
        "project": shown.project,
        "would_tell": not shown.refusals and bool(shown.told.body),
        "refusals": shown.refusals,
        "notes": notes,
        "budget": shown.budget,
        "tokens": shown.told.tokens,
        "omitted": shown.told.omitted,
        "text": _text(shown),
        "candidates": record(shown.told.choices),
    }


def _reasons(shown: Preview) -> list[str]:
    """Return each candidate with its text and reason, then the number of candidates for each reason."""
    told = shown.told
    head = f"{len(told.chosen)} of {len(told.choices)} candidates told, {_omitted(told.omitted)},"
    lines = [*shown.refusals, f"{head} {told.tokens} of {shown.budget} tokens", ""]
    lines += [f"{'+' if one.chosen else '-'} {one.text}\n    {one.why}" for one in told.choices]
    return [*lines, "", *(f"{number:5}  {why}" for why, number in sorted(told.reasons.items()))]


def _lines(shown: Preview) -> list[str]:
    """Return the text that a session would get, then each candidate with its reason."""
    told = shown.told
    lines = [f"no context here: {reason}" for reason in shown.refusals]
    if not told.body:
        return lines or ["no context here: there are no memories and no sessions"]
    would = "would be" if shown.refusals else "is"
    head = f"A new session here {would} given ({told.tokens} of {shown.budget} tokens):"
    lines += [head, "", _text(shown), "", "Why:"]
    lines += [f"  {'+' if one.chosen else '-'} {one.id[:16]:16}  {one.why}" for one in told.choices]
    return lines
