"""``crystal models use``: try a model on the memory, choose it, fill its vectors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crystal.cli.capture import count_words, progress_bar
from crystal.cli.render import cells, note, one_line, padded, say

if TYPE_CHECKING:
    from crystal.app.models import ModelChoice
    from crystal.evaluate.trial import ModelScore, Score, Trial

FILL_SECONDS = 7 * 86_400.0


def use(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="embedded, an installed model, PROVIDER or PROVIDER:MODEL, or none.", metavar="NAME")
    ],
    evaluate: Annotated[
        bool, typer.Option("--eval", help="First show on your own memory what would change; then ask.")
    ] = False,
    now: Annotated[bool, typer.Option("--now", help="Make all vectors now, and show progress.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    questions: Annotated[
        int, typer.Option("--questions", help="With --eval: ask at most N questions.", min=10, max=5000, metavar="N")
    ] = 100,
    turns: Annotated[
        int, typer.Option("--turns", help="With --eval: search at most N turns.", min=10, max=50_000, metavar="N")
    ] = 500,
    seconds: Annotated[
        float,
        typer.Option("--seconds", help="With --eval: how long each model may work.", min=1, max=86_400, metavar="N"),
    ] = 120,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Choose the model. Its vectors are made in the background; the present ones serve until they are complete.

    With --eval, crystal tests how well keywords, the present model and the new one find turns of your memory.
    Nothing leaves this machine unless the model is on the network, and then it asks first.
    """
    from crystal.app.models import choose, target_of

    as_json = as_json or bool(context.obj)
    target = target_of(name)
    _agree_to_send(target, yes=yes)
    _check_usable(target)
    report: dict[str, Any] = {"schema": 1, "model": target.name}
    if evaluate:
        trial = _evaluate(target, questions, turns, seconds)
        report["eval"] = _json_trial(trial)
        if not as_json:
            _print_trial(trial)
        if not (yes or (sys.stdin.isatty() and typer.confirm(f"use {target.name}?", err=True))):
            _say_unchanged(target, report, as_json=as_json)
            return
    winners = choose(target)
    for variable in winners:
        note(f"{variable} is set and wins over the file")
    report |= {"changed": True, **_after(target, now=now)}
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        _say_next(target, report)
    if report["problem"]:
        say(f"crystal: warning: {one_line(str(report['problem']))}", stream=sys.stderr)


def _agree_to_send(target: ModelChoice, *, yes: bool) -> None:
    """Ask before texts leave the machine, in words that say so."""
    from crystal.app.context import open_reader
    from crystal.app.models import leaves_the_machine, waiting_for
    from crystal.errors import NotConfiguredError, UsageError

    whom = leaves_the_machine(target)
    if whom is None or yes:
        return
    try:
        with open_reader() as machine:
            many = f"{count_words(waiting_for(machine, target), 'chunk')} now, and every later one"
    except NotConfiguredError:
        many = "every chunk"
    words = f"{one_line(whom)} will receive the text of {many}, and every question that you ask"
    if not sys.stdin.isatty():
        raise UsageError(words, hint=f"if that is what you want: crystal models use {target.name} --yes")
    typer.confirm(f"{words}. Go on?", abort=True, err=True)


def _check_usable(target: ModelChoice) -> None:
    """Let a model on this machine embed a word before anything is changed, and look whether a provider has its key."""
    from crystal.app.models import check_key, embedder_of
    from crystal.config.providers import runs_here

    embedder = embedder_of(target)
    if embedder is not None and runs_here(target.provider):
        embedder.embed_query("crystal")
    check_key(target)


def _evaluate(target: ModelChoice, questions: int, turns: int, seconds: float) -> Trial:
    from crystal.app.models import try_on_memory
    from crystal.evaluate.trial import Size

    with _count_bar("trying", turns) as progress:
        return try_on_memory(target, Size(questions, turns, seconds), lambda done, _: progress(done))


@contextmanager
def _count_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar that takes totals instead of steps; nothing if standard error is no terminal."""
    with progress_bar(what, total) as advance:
        at = 0

        def progress(done: int) -> None:
            nonlocal at
            advance(done - at)
            at = done

        yield progress


def _say_unchanged(target: ModelChoice, report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**report, "changed": False}, ensure_ascii=False))
    else:
        say(f"nothing is changed; to use it: crystal models use {target.name} --yes")


def _after(target: ModelChoice, *, now: bool) -> dict[str, Any]:
    """Return what is left to do after a model was chosen; do it first if ``now`` is set."""
    from crystal.app.context import open_machine, open_reader
    from crystal.app.models import fill_now, waiting_for
    from crystal.errors import NotConfiguredError
    from crystal.store.search.vectors import serving_generation

    try:
        with open_reader() as reader:
            waiting, serving = waiting_for(reader, target), serving_generation(reader.store)
    except NotConfiguredError:
        return {"waiting": 0, "embedded": 0, "serving": None, "problem": None}
    done, problem = 0, None
    if now and target.provider != "none":
        with open_machine() as machine, progress_bar("embedding", waiting) as advance:
            report = fill_now(machine, advance, seconds=FILL_SECONDS)
            serving = serving_generation(machine.store)
        if report is None:
            problem = "another process is making vectors; it continues"
        else:
            waiting, done, problem = report.left, report.embedded + report.reused, report.problem
    name = None if serving is None else f"{serving.provider} {serving.model}"
    return {"waiting": waiting, "embedded": done, "serving": name, "problem": problem}


def _say_next(target: ModelChoice, report: dict[str, Any]) -> None:
    if target.provider == "none":
        say("no model is used from now on: search is by keywords alone")
        return
    say(f"{one_line(target.name)} is chosen")
    if report["waiting"]:
        say(f"{count_words(report['waiting'], 'chunk')} get new vectors in the background, or now with: crystal sync")
        say(f"{one_line(report['serving'] or 'keywords')} serves until they are complete")
    elif report["embedded"]:
        say(f"{count_words(report['embedded'], 'chunk')} embedded; it serves now")


# ------------------------------------------------------------------------------------------------------------- eval


def _print_trial(trial: Trial) -> None:
    cut = " (as many as the time allowed)" if trial.is_cut else ""
    say(f"{trial.questions} questions from your memory, searched for among {trial.turns} turns{cut}:")
    rows = [("", "first", "in first 5", "MRR"), ("keywords alone", *_cells(trial.keywords))]
    for label, score in (("present", trial.present), ("new", trial.new)):
        rows += _rows_of(label, score) if score else []
    width = max(cells(row[0]) for row in rows)
    for row in rows:
        say(f"{padded(row[0], width)}  {row[1]:>6}  {row[2]:>10}  {row[3]:>6}")
    if trial.present is None:
        note(f"the present model was left out: {one_line(trial.why_no_present or '')}")
    else:
        say(f"with the new model {trial.better} rank higher, {trial.worse} lower: {trial.verdict}")
    speeds = [f"{one.name} {one.chunks_a_second:,.0f}" for one in (trial.present, trial.new) if one]
    say(f"turns embedded in a second: {', '.join(map(one_line, speeds))}")


def _rows_of(label: str, model: ModelScore) -> list[tuple[str, str, str, str]]:
    name = f"{label}: {one_line(model.name)}"
    return [(f"{name}, vectors alone", *_cells(model.alone)), (f"{name}, with keywords", *_cells(model.together))]


def _cells(score: Score) -> tuple[str, str, str]:
    return f"{score.hit_at_1:.2f}", f"{score.hit_at_5:.2f}", f"{score.mrr:.3f}"


def _json_trial(trial: Trial) -> dict[str, Any]:
    made = {key: value for key, value in asdict(trial).items() if key != "is_cut"}
    return {**made, "cut": trial.is_cut, "verdict": None if trial.present is None else trial.verdict}
