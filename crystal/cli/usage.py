"""``crystal usage``: what was learned from sessions, what sessions were told, and what models cost."""

from __future__ import annotations

from dataclasses import asdict

from crystal.app.context import open_reader
from crystal.app.usage import Period
from crystal.app.usage import usage as gather
from crystal.cli.json_output import print_json
from crystal.cli.options import AsJson
from crystal.cli.reflect import asked_lines
from crystal.cli.render import count_words, say


def usage(as_json: AsJson = False) -> None:
    """Show what was learned, what sessions were told, and what models cost, in 24 hours, 7 and 30 days."""
    with open_reader() as machine:
        found = gather(machine)
    if as_json:
        periods = {name: {**asdict(one), "run": one.run._asdict()} for name, one in found.periods.items()}
        for figures in periods.values():
            figures["run"].pop("at")
        print_json({"pool": found.pool, "sessions_to_read": found.sessions_to_read, "periods": periods})
        return
    pool = found.pool
    say(
        f"memories    {pool['active']} active, {pool['proposed']} proposed, {pool['archived']} archived;"
        f" {pool['unreviewed']} to review, {pool['low_confidence']} of low confidence",
        f"to learn    from {count_words(found.sessions_to_read, 'session')}",
    )
    for name, period in found.periods.items():
        say("", f"last {name}", *_lines(period))


def _lines(period: Period) -> list[str]:
    run = period.run
    share = "" if period.coverage is None else f" ({period.coverage:.0%} of the candidates)"
    spent = ", ".join(f"{purpose} ${usd:.4f}" for purpose, usd in sorted(period.usd.items())) or "nothing"
    read = f"{count_words(run.turns, 'turn')} in {run.ms / 1000:.1f} s: {run.inserted} new, {run.confirmed} confirmed,"
    other = f"{run.replaced} replaced, {run.archived} archived, {run.skipped} left out"
    omitted = f"{count_words(period.omitted, 'memory')} omitted"
    entries = f"{count_words(period.selected, 'entry')}{share}"
    told = f"{count_words(period.injections, 'session')}: {entries}, {omitted},"
    learned = [f"  learned   {read}", f"            {other}"] if period.runs else ["  learned   nothing"]
    said = (
        [f"  told      {told}", f"            {period.tokens:,} tokens", _used(period)]
        if period.injections
        else ["  told      nothing"]
    )
    if period.assisted:
        said.append(f"  assist    {count_words(period.assisted, 'fact')}, {period.assisted_tokens:,} tokens")
    if period.hook_runs:
        half, most = (f"{ms:.0f} ms" for ms in (period.hook_p50_ms, period.hook_p95_ms))
        said.append(f"  hook      {count_words(period.hook_runs, 'run')}: half within {half}, 95% within {most}")
    asked = [f"            {line}" for line in asked_lines(run)]
    return [*learned, *asked, *said, f"  spent     {spent}"]


def _used(period: Period) -> str:
    if not period.told:
        return "  used      not known yet: the sessions that were told have said nothing since"
    share = f"{period.used / period.told:.0%}"
    return f"  used      {share}: words of {period.used} of {period.told} told memories came up later"
