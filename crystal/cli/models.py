"""Implement ``crystal models``: list, install, remove, choose and test the models that make vectors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crystal.app.context import now_ms, open_machine, open_reader, this_config
from crystal.app.models import ModelChoice, ModelRow, fill_now, in_use, list_models, target_of
from crystal.cli.confirm import ask
from crystal.cli.json_output import answer, json_row, record
from crystal.cli.options import AsJson, argument, flag, option
from crystal.cli.progress import bar_shown, progress_bar
from crystal.cli.render import (
    cells,
    count_words,
    item,
    look_of,
    note,
    one_line,
    padded,
    say,
    size_words,
    table,
    warn,
)
from crystal.config.providers import runs_here
from crystal.embedding.local.known_models import KNOWN, KnownModel
from crystal.embedding.local.manifest import ModelManifest
from crystal.errors import NotConfiguredError, UsageError
from crystal.store.search.vectors import serving_generation

if TYPE_CHECKING:
    from crystal.evaluate.questions import Score
    from crystal.evaluate.trial import ModelScore, Trial

FILL_SECONDS = 7 * 86_400.0

commands = typer.Typer(help="Models that turn text into vectors.", invoke_without_command=True)


@commands.callback()
def models(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List the models: which one serves, which are installed, which could be."""
    context.obj = as_json
    if context.invoked_subcommand is None:
        show(context)


# ------------------------------------------------------------------------------------------------------------- list


@commands.command("list")
def show(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List the models (the same as `crystal models`)."""
    rows = list_models()
    look, width, lines = look_of(sys.stdout), max(cells(one_line(row.name)) for row in rows), list[str]()
    for row in rows:
        label = f"{'*' if row.chosen else ' '} {padded(one_line(row.name), width)}  "
        lines += item(label, f"{_state(row)}, {_facts(row)}", look, style=look.good if row.chosen else look.dim)
    answer({"models": record(rows)}, lines, as_json=as_json or context.obj)


def _state(row: ModelRow) -> str:
    if row.state in ("serving", "filling") and row.done < row.chunks:
        return f"{row.state}, {row.done:,} of {count_words(row.chunks, 'chunk')} ({100 * row.done // row.chunks} %)"
    if row.state == "chosen" and row.chunks:
        return f"chosen, 0 of {count_words(row.chunks, 'chunk')} (run: crystal sync)"
    return row.state


def _facts(row: ModelRow) -> str:
    parts = [one_line(row.about)]
    parts += [f"{row.dimension} dimensions"] if row.dimension else []
    parts += [f"{size_words(row.size)}{' to fetch' if row.state == 'available' else ''}"] if row.size else []
    parts += [row.weights] if row.weights else []
    return ", ".join(parts)


# ---------------------------------------------------------------------------------------------------------- install


@commands.command("install", short_help="Fetch a model, check it, and make it ready.")
def install(
    context: typer.Context,
    model: Annotated[str, argument("A name from the list, a folder, or OWNER/MODEL of the hub.", "MODEL")],
    name: Annotated[str | None, option("Its name on this machine.", "NAME")] = None,
    float32: Annotated[bool, flag("Keep 32-bit weights instead of 8-bit ones.", "--float32")] = False,
    as_json: AsJson = False,
) -> None:
    """Install a model on this machine: fetch it, verify it, make it run. It is not used before `crystal models use`.

    A name or OWNER/MODEL is fetched from the model hub. A folder needs `model.onnx` and `tokenizer.json`.
    """
    place = _place(model)
    found = _install(model, place, name or _usual_name(model, place, float32), float32)
    lines = [
        f"{found.name} is installed: {found.dimension} dimensions, {size_words(found.size)}, {found.weights}",
        f"from {one_line(found.origin)}; licence: {one_line(found.licence)}; verified: {one_line(found.verified)}",
        f"try it on your memory: crystal models use {found.name} --eval",
    ]
    large = "its weights were not rounded to 8 bits: they are too large, or its vectors would change too much"
    notes = [large] * (found.weights == "float32" and not float32)
    answer(_json_manifest(found), lines, as_json=as_json or context.obj, notes=notes)


def _place(model: str) -> Path | None:
    """Return the folder if the user named one; None for a model's name or a repository."""
    if model in KNOWN:
        return None
    path = Path(model).expanduser()
    is_path = model.startswith((".", "/", "~")) or "\\" in model or path.is_dir() or "/" not in model
    return path.absolute() if is_path else None


def _usual_name(model: str, place: Path | None, float32: bool) -> str:
    if model in KNOWN:
        return f"{model}-float32" if float32 else model
    return (place.resolve().name if place else model.rpartition("/")[2]).lower().replace(" ", "-")[:64]


def _install(model: str, place: Path | None, name: str, float32: bool) -> ModelManifest:
    from crystal.embedding.local.install import install_folder, install_from_hub

    config = this_config()
    if place is not None:
        return install_folder(config.places.models, place, name, now_ms(), is_float32=float32)
    known = KNOWN.get(model) or KnownModel(model, model)
    return install_from_hub(config.places.models, known, name, config.models_hub_url, now_ms(), is_float32=float32)


def _json_manifest(found: ModelManifest) -> dict[str, Any]:
    keys = ("name", "dimension", "size", "weights", "pooling", "most_tokens", "query_prefix", "document_prefix")
    told = json_row(found, *keys, "origin", "licence", "verified")
    files = [{"name": name, "sha256": one.sha256, "size": one.size} for name, one in found.files.items()]
    return {**told, "id": found.full_name, "files": files}


# ----------------------------------------------------------------------------------------------------------- remove


@commands.command("remove")
def remove(
    context: typer.Context,
    name: Annotated[str, argument("An installed model.", "NAME")],
    force: Annotated[bool, flag("Also if it is in use; search then uses keywords alone.", "--force")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete an installed model. Its vectors stay in the memory until another model's replace them."""
    from crystal.embedding.local.install import remove_model

    if name == "embedded":
        raise UsageError("the embedded model is part of crystal", hint="crystal models use none")
    why = in_use(name)
    if why is not None and not force:
        raise UsageError(f"{name} is in use: {why}", hint="crystal models use embedded --now, or give --force")
    remove_model(this_config().places.models, name)
    told = {"removed": name, "was_in_use": why is not None}
    notes = ["it was in use; search uses keywords alone until: crystal models use embedded"] * (why is not None)
    answer(told, [f"{one_line(name)} is removed"], as_json=as_json or context.obj, notes=notes)


@commands.command("use")
def use(
    context: typer.Context,
    name: Annotated[str, argument("embedded, an installed model, PROVIDER or PROVIDER:MODEL, or none.", "NAME")],
    evaluate: Annotated[bool, flag("First show on your own memory what would change; then ask.", "--eval")] = False,
    now: Annotated[bool, flag("Make all vectors now, and show progress.", "--now")] = False,
    yes: Annotated[bool, flag("Ask nothing.", "--yes", "-y")] = False,
    questions: Annotated[int, option("With --eval: ask at most N questions.", "N", min=10, max=5000)] = 100,
    as_json: AsJson = False,
) -> None:
    """Choose the model. Its vectors are made in the background; the present ones serve until they are complete.

    With --eval, crystal tests how well keywords, the present model and the new one find turns of your memory.
    Nothing leaves this machine unless the model is on the network, and then it asks first.
    """
    as_json = as_json or bool(context.obj)
    target = target_of(name)
    _agree_to_send(target, yes=yes)
    _check_usable(target)
    report: dict[str, Any] = {"model": target.name}
    if evaluate:
        trial = _evaluate(target, questions)
        report["eval"] = _json_trial(trial)
        if not as_json:
            _print_trial(trial)
        if not (yes or (sys.stdin.isatty() and typer.confirm(f"use {target.name}?", err=True))):
            kept = [f"nothing is changed; to use it: crystal models use {target.name} --yes"]
            answer({**report, "changed": False}, kept, as_json=as_json)
            return
    winners = target.choose()
    for variable in winners:
        note(f"{variable} is set and wins over the file")
    report |= {"changed": True, **_remaining_work(target, now=now)}
    answer(report, _next_lines(target, report), as_json=as_json)
    if report["problem"]:
        warn(str(report["problem"]))


def _agree_to_send(target: ModelChoice, *, yes: bool) -> None:
    """Ask before texts are sent to another machine, and say so."""
    whom = target.leaves_the_machine()
    if whom is None or yes:
        return
    try:
        with open_reader() as machine:
            many = f"{count_words(target.waiting_for(machine), 'chunk')} now, and every later one"
    except NotConfiguredError:
        many = "every chunk"
    words = f"{one_line(whom)} will receive the text of {many}, and every question that you ask"
    if not sys.stdin.isatty():
        raise UsageError(words, hint=f"if that is what you want: crystal models use {target.name} --yes")
    ask(f"{words}. Go on?")


def _check_usable(target: ModelChoice) -> None:
    """Check the model before anything is changed: embed a word if it is local, and check the provider's key."""
    embedder = target.embedder()
    if embedder is not None and runs_here(target.provider):
        embedder.embed_query("crystal")
    target.check_key()


def _evaluate(target: ModelChoice, questions: int) -> Trial:
    from crystal.evaluate.trial import Size

    size = Size(questions)
    with bar_shown() as show:
        return target.try_on_memory(size, lambda done, _: show("trying", done, size.turns))


def _remaining_work(target: ModelChoice, *, now: bool) -> dict[str, Any]:
    """Return what is left to do after a model was chosen; with ``now``, make vectors first."""
    try:
        with open_reader() as reader:
            waiting, serving = target.waiting_for(reader), serving_generation(reader.store)
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


def _next_lines(target: ModelChoice, report: dict[str, Any]) -> Iterator[str]:
    if target.provider == "none":
        yield "no model is used from now on: search is by keywords alone"
        return
    yield f"{one_line(target.name)} is chosen"
    if report["waiting"]:
        yield f"{count_words(report['waiting'], 'chunk')} get new vectors in the background, or now with: crystal sync"
        yield f"{one_line(report['serving'] or 'keywords')} serves until they are complete"
    elif report["embedded"]:
        yield f"{count_words(report['embedded'], 'chunk')} embedded; it serves now"


# ------------------------------------------------------------------------------------------------------------- eval


def _print_trial(trial: Trial) -> None:
    cut = " (as many as the time allowed)" if trial.is_cut else ""
    say(f"{trial.questions} questions from your memory, searched for among {trial.turns} turns{cut}:")
    rows = [("", "first", "in first 5", "MRR"), ("keywords alone", *_cells(trial.keywords))]
    for label, score in (("present", trial.present), ("new", trial.new)):
        rows += _rows_of(label, score) if score else []
    say(*table(rows))
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
