"""Implement ``crystal usage``: show what was learned, what sessions were told, and what models cost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict

from crystal.app.context import open_reader
from crystal.app.usage import Period, UsageReport
from crystal.app.usage import usage as gather
from crystal.cli.json_output import answer
from crystal.cli.options import AsJson
from crystal.cli.reflect import asked_lines
from crystal.cli.render import count_words, item, lasting, look_of, price


def usage(as_json: AsJson = False) -> None:
    """Show what was learned, what sessions were told, and what models cost, in 24 hours, 7 and 30 days."""
    with open_reader() as machine:
        found = gather(machine)
    periods = {name: {**asdict(one), "run": one.run._asdict()} for name, one in found.periods.items()}
    for figures in periods.values():
        figures["run"].pop("at")
    told = {"pool": found.pool, "sessions_to_read": found.sessions_to_read, "periods": periods}
    answer(told, _lines(found), as_json=as_json)


def _lines(found: UsageReport) -> Iterator[str]:
    pool, look = found.pool, look_of(sys.stdout)
    states = ", ".join(f"{pool[state]:,} {state}" for state in ("active", "proposed", "archived"))
    doubts = f"{pool['unreviewed']:,} to review, {pool['low_confidence']:,} of low confidence"
    yield from item("memories    ", f"{states}; {doubts}", look)
    yield f"to learn    from {count_words(found.sessions_to_read, 'session')}"
    for name, period in found.periods.items():
        yield from ("", f"last {name}")
        for label, text in _rows(period):
            yield from item(f"  {label:10}", text, look)


def _rows(period: Period) -> Iterator[tuple[str, str]]:
    run = period.run
    read = f"{count_words(run.turns, 'turn')} in {lasting(run.ms / 1000)}: {run.inserted:,} new, {run.confirmed:,}"
    other = f"confirmed, {run.replaced:,} replaced, {run.archived:,} archived, {run.skipped:,} left out"
    yield "learned", f"{read} {other}" if period.runs else "nothing"
    yield from (("", line) for line in asked_lines(run))
    if period.injections:
        share = "" if period.coverage is None else f" ({100 * period.coverage:.0f} % of the candidates)"
        entries = f"{count_words(period.selected, 'entry')}{share}"
        omitted = f"{count_words(period.omitted, 'memory')} omitted, {period.tokens:,} tokens"
        yield "told", f"{count_words(period.injections, 'session')}: {entries}, {omitted}"
        yield "used", _used(period)
    else:
        yield "told", "nothing"
    if period.searches:
        yield "found", _found(period)
    if period.assisted:
        yield "assist", f"{count_words(period.assisted, 'fact')}, {period.assisted_tokens:,} tokens"
    if period.hook_runs:
        half, most = (f"{ms:.0f} ms" for ms in (period.hook_p50_ms, period.hook_p95_ms))
        yield "hook", f"{count_words(period.hook_runs, 'run')}: half within {half}, 95 % within {most}"
    yield "spent", ", ".join(f"{purpose} {price(usd)}" for purpose, usd in sorted(period.usd.items())) or "nothing"


def _used(period: Period) -> str:
    if not period.told:
        return "not known yet: the sessions that were told have said nothing since"
    share = f"{100 * period.used / period.told:.0f} %"
    return f"{share}: words of {period.used:,} of {period.told:,} told memories came up later"


def _found(period: Period) -> str:
    asked = f"agents searched {count_words(period.searches, 'time')} and opened {count_words(period.opened, 'hit')}"
    return f"{asked}; names of {period.opened_used:,} came up later" if period.opened else asked
