"""``crystal models``: which model turns text into vectors; list, install, remove. ``use`` has a file of its own."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crystal.cli.capture import count_words, size_words
from crystal.cli.models_use import use
from crystal.cli.render import cells, look_of, note, one_line, padded, say, say_item

if TYPE_CHECKING:
    from crystal.app.models import ModelRow
    from crystal.embedding.local.build import InstallOptions
    from crystal.embedding.local.manifest import ModelManifest

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

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
    from crystal.app.models import list_models

    rows = list_models()
    if as_json or context.obj:
        print(json.dumps({"schema": 1, "models": [_json_row(row) for row in rows]}, ensure_ascii=False))
        return
    look, width = look_of(sys.stdout), max(cells(one_line(row.name)) for row in rows)
    for row in rows:
        label = f"{'*' if row.is_chosen else ' '} {padded(one_line(row.name), width)}  "
        say_item(label, f"{_state(row)}, {_facts(row)}", look, style=look.good if row.is_chosen else look.dim)


def _json_row(row: ModelRow) -> dict[str, Any]:
    return {"chosen" if key == "is_chosen" else key: value for key, value in asdict(row).items()}


def _state(row: ModelRow) -> str:
    if row.state in ("serving", "filling") and row.done < row.chunks:
        return f"{row.state}, {row.done:,} of {count_words(row.chunks, 'chunk')} ({100 * row.done // row.chunks} %)"
    if row.state == "chosen" and row.chunks:
        return f"chosen, 0 of {count_words(row.chunks, 'chunk')} (run: crystal sync)"
    return row.state


def _facts(row: ModelRow) -> str:
    parts = [one_line(row.about)]
    parts += [f"{row.dimension} numbers"] if row.dimension else []
    parts += [f"{size_words(row.size)}{' to fetch' if row.state == 'available' else ''}"] if row.size else []
    parts += [row.weights] if row.weights else []
    return ", ".join(parts)


# ---------------------------------------------------------------------------------------------------------- install


@commands.command("install")
def install(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="A name from the list, a folder, or OWNER/MODEL of the hub.", metavar="MODEL")
    ],
    name: Annotated[str | None, typer.Option("--name", help="Its name on this machine.", metavar="NAME")] = None,
    float32: Annotated[bool, typer.Option("--float32", help="Keep 32-bit weights instead of 8-bit ones.")] = False,
    sha256: Annotated[
        str | None,
        typer.Option("--sha256", help="With OWNER/MODEL: the hash that its weights must have.", metavar="HEX"),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option("--pooling", help="mean, cls or lasttoken, if its files do not say.", metavar="HOW"),
    ] = None,
    query_prefix: Annotated[
        str | None, typer.Option("--query-prefix", help="Text that it expects before a question.", metavar="TEXT")
    ] = None,
    document_prefix: Annotated[
        str | None, typer.Option("--document-prefix", help="Text that it expects before a passage.", metavar="TEXT")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Read at most N tokens of a text.", metavar="N", min=8, max=8192)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Install a model on this machine: fetch it, verify it, make it run. It is not used before `crystal models use`.

    A name or OWNER/MODEL is fetched from the model hub. A folder needs `model.onnx` and `tokenizer.json`.
    """
    from crystal.embedding.local.build import InstallOptions

    place = _place(model)
    _check(pooling, sha256, model, place)
    options = InstallOptions(
        name or _usual_name(model, place, float32), not float32, pooling, query_prefix, document_prefix, max_tokens
    )
    found = _install(model, place, options, sha256)
    if as_json or context.obj:
        print(json.dumps({"schema": 1, **_json_manifest(found)}, ensure_ascii=False))
        return
    say(f"{found.name} is installed: {found.dimension} numbers, {size_words(found.size)}, {found.weights}")
    say(f"from {one_line(found.origin)}; licence: {one_line(found.licence)}; verified: {one_line(found.verified)}")
    if not float32 and found.weights == "float32":
        note("its weights were not rounded to 8 bits: they are too large, or its vectors would change too much")
    say(f"try it on your memory: crystal models use {found.name} --eval")


def _place(model: str) -> Path | None:
    """Return the folder that is meant; None for a name or a repository."""
    from crystal.embedding.local.catalog import KNOWN

    if model in KNOWN:
        return None
    path = Path(model).expanduser()
    is_path = model.startswith((".", "/", "~")) or "\\" in model or path.is_dir() or "/" not in model
    return path.absolute() if is_path else None


def _usual_name(model: str, place: Path | None, float32: bool) -> str:
    from crystal.embedding.local.catalog import KNOWN

    if model in KNOWN:
        return f"{model}-float32" if float32 else model
    return (place.resolve().name if place else model.rpartition("/")[2]).lower().replace(" ", "-")[:64]


def _check(pooling: str | None, sha256: str | None, model: str, place: Path | None) -> None:
    from crystal.embedding.local.build import POOLINGS
    from crystal.embedding.local.catalog import KNOWN
    from crystal.errors import UsageError

    if pooling is not None and pooling not in POOLINGS:
        raise UsageError(f"--pooling is {pooling!r}", hint=f"use one of: {', '.join(POOLINGS)}")
    if sha256 is None:
        return
    if len(sha256) != 64 or not set(sha256.lower()) <= set("0123456789abcdef"):
        raise UsageError(f"--sha256 is {sha256[:80]!r}, which is not a SHA-256", hint="64 hexadecimal digits")
    if place is not None or (model in KNOWN and KNOWN[model].sha256):
        hint = "leave it out"
        raise UsageError("--sha256 is only for a hub model whose hash crystal does not know", hint=hint)


def _install(model: str, place: Path | None, options: InstallOptions, sha256: str | None) -> ModelManifest:
    from crystal.app.context import now_ms, this_config
    from crystal.embedding.local.catalog import KNOWN, KnownModel
    from crystal.embedding.local.install import install_folder, install_from_hub

    config = this_config()
    home = config.places.models
    if place is not None:
        return install_folder(home, place, options, now_ms())
    known = KNOWN.get(model) or KnownModel(model, model)
    return install_from_hub(home, known, options, config.models_hub_url, now_ms(), sha256=sha256)


def _json_manifest(found: ModelManifest) -> dict[str, Any]:
    keys = ("name", "dimension", "size", "weights", "pooling", "most_tokens", "query_prefix", "document_prefix")
    told = {key: getattr(found, key) for key in (*keys, "origin", "licence", "verified")}
    files = [{"name": name, "sha256": one.sha256, "size": one.size} for name, one in found.files.items()]
    return {**told, "id": found.full_name, "files": files}


# ----------------------------------------------------------------------------------------------------------- remove


@commands.command("remove")
def remove(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="An installed model.", metavar="NAME")],
    force: Annotated[bool, typer.Option("--force", help="Even if in use; search then uses keywords alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete an installed model. Its vectors stay in the memory until another model's replace them."""
    from crystal.app.context import this_config
    from crystal.app.models import in_use
    from crystal.embedding.local.install import remove_model
    from crystal.errors import UsageError

    if name == "embedded":
        raise UsageError("the embedded model is part of crystal", hint="crystal models use none")
    why = in_use(name)
    if why is not None and not force:
        raise UsageError(f"{name} is in use: {why}", hint="crystal models use embedded --now, or give --force")
    remove_model(this_config().places.models, name)
    if as_json or context.obj:
        print(json.dumps({"schema": 1, "removed": name, "was_in_use": why is not None}))
        return
    say(f"{one_line(name)} is removed")
    if why is not None:
        note("it was in use; search uses keywords alone until: crystal models use embedded")


commands.command("use")(use)
