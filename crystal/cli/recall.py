"""Implement ``crystal recall``: measure how well search finds what the memory is known to contain."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from crystal.app.recall import recall_here
from crystal.cli.json_output import answer
from crystal.cli.options import AsJson, option
from crystal.cli.progress import bar_shown
from crystal.cli.render import clipped, count_words, look_of, one_line, table
from crystal.evaluate.recall import DEPTH, Answered, KindScore, RecallReport

SHOWN_MISSES = 5
HEADER = ("question", "asked", "first", "in 5", "session in 5", "ms")
"""``first`` and ``in 5``: the share of answers that are the first hit, or among the first five."""

commands = typer.Typer(help="How well search finds what your memory contains.", no_args_is_help=True)


@commands.callback()
def recall() -> None:
    """Test how well search finds messages of your memory."""


@commands.command("test")
def ask_known(
    questions: Annotated[int, option("Questions of each kind, at most.", "N", min=2, max=1000)] = 25,
    seconds: Annotated[float, option("Ask no more questions after this time.", "S", min=1)] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Ask your memory questions whose answer is known, and show which kinds fail and why.

    The questions are made from messages of your memory, without a model. Nothing is written.
    """
    with bar_shown() as show:
        report = recall_here(questions, seconds, lambda done, total: show("asking", done, total))
    answer(_as_dict(report), _lines(report), as_json=as_json, notes=map(one_line, report.notes))


def _as_dict(report: RecallReport) -> dict[str, Any]:
    made = {key: value for key, value in asdict(report).items() if key != "is_cut"}
    return {**made, "cut": report.is_cut}


def _lines(report: RecallReport) -> Iterator[str]:
    asked = sum(one.questions for one in report.kinds)
    cut = " (as many as the time allowed)" if report.is_cut else ""
    yield f"{count_words(asked, 'question')} made from {count_words(report.turns, 'message')}{cut}:"
    yield from ("", *table([HEADER, *map(_row, report.kinds)]), "")
    if not report.missed:
        yield "every answer is among the first five"
        return
    yield f"{count_words(len(report.missed), 'answer')} not among the first five; the worst:"
    for one in report.missed[:SHOWN_MISSES]:
        yield from _miss(one)
    if len(report.missed) > SHOWN_MISSES:
        yield "all of them: crystal recall test --json"


def _row(one: KindScore) -> tuple[str, ...]:
    shares = (one.score.hit_at_1, one.score.hit_at_5, one.session_hit_at_5)
    return one.kind, str(one.questions), *(f"{100 * share:.0f} %" for share in shares), f"{one.milliseconds:.0f}"


def _miss(one: Answered) -> list[str]:
    width = look_of(sys.stdout).width
    place = f"place {one.rank}" if one.rank is not None else f"not in the first {DEPTH}"
    return [
        clipped(f"  {one.kind}: {one_line(one.question)}", width),
        clipped(f"    wanted: {one_line(one.answer)}", width),
        f"    {place}: {one.why}",
    ]
