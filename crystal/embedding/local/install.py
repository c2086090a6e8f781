"""Install and remove models: completely or not at all.

A model is built in a folder whose name begins with a dot, and renamed when it is complete. The next installation
deletes the rest of a killed process. Only one process installs at a time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from crystal.config.paths import alone_in, make_private_dir, sync_folder, system_errors, write_private
from crystal.embedding.local.build import LICENCES, ModelSource, build_model
from crystal.embedding.local.extra import import_package
from crystal.embedding.local.hub import fetch_model
from crystal.embedding.local.known_models import KNOWN, KnownModel
from crystal.embedding.local.manifest import FILE, ModelManifest, check_files, checked_name, read_manifest
from crystal.errors import DamagedError, NotConfiguredError, NotFoundError, UsageError

UNFINISHED = ".unfinished-"


def install_folder(home: Path, folder: Path, name: str, now: int, *, is_float32: bool = False) -> ModelManifest:
    """Install a copy of the model in a folder."""
    if not folder.is_dir():
        hint = "give a model's folder, or one of: " + ", ".join(KNOWN)
        raise UsageError(f"{folder} is not a folder, and not a model that crystal knows", hint=hint)
    has_licence = any((folder / file).is_file() for file in LICENCES)
    licence = "in its LICENSE" if has_licence else "not stated"
    source = ModelSource(folder, str(folder), licence, "nothing: a folder of your own")
    return _install(home, name, now, is_float32, lambda _: source)


def install_from_hub(
    home: Path, model: KnownModel, name: str, hub_url: str, now: int, *, is_float32: bool = False
) -> ModelManifest:
    """Install a model of the hub."""

    def fetch(target: Path) -> ModelSource:
        return fetch_model(target, model, hub_url, is_float32=is_float32)

    return _install(home, name, now, is_float32, fetch)


def remove_model(home: Path, name: str) -> None:
    """Delete an installed model.

    Raises:
        NotFoundError: It is not installed.
    """
    folder = home / checked_name(name)
    if not folder.is_dir():
        raise NotFoundError(f"the model {name} is not installed", hint="run: crystal models list")
    with alone_in(home):
        trash = _unfinished(home)
        with system_errors(folder):
            folder.rename(trash / name)
        shutil.rmtree(trash, ignore_errors=True)


def _install(home: Path, name: str, now: int, is_float32: bool, fetch: Callable[[Path], ModelSource]) -> ModelManifest:
    """Fetch a model, build it in a temporary folder and move it to its final place."""
    for package in ("onnxruntime", "tokenizers"):
        import_package(package)
    place = home / checked_name(name)
    make_private_dir(home)
    with alone_in(home), system_errors(place):
        for left in home.glob(f"{UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        working = _unfinished(home)
        try:
            fetched, made = working / "fetched", working / "made"
            fetched.mkdir(mode=0o700)
            made.mkdir(mode=0o700)
            found = build_model(fetch(fetched), made, name, now, is_float32=is_float32)
            if _is_installed(home, found):
                return read_manifest(home, found.name)
            _make_durable(made, found)
            if place.exists():
                place.rename(working / "old")
            made.rename(place)
            sync_folder(home)
        finally:
            shutil.rmtree(working, ignore_errors=True)
    return found


def _is_installed(home: Path, found: ModelManifest) -> bool:
    """Return True if the same model is installed and intact; a damaged one is replaced, a different one is kept."""
    try:
        present = read_manifest(home, found.name)
        check_files(home / found.name, present)
    except (NotConfiguredError, DamagedError):
        return False
    if present.digest != found.digest:
        hint = f"give this one a name with --name, or first: crystal models remove {found.name}"
        raise UsageError(f"another model {found.name} is already installed, from {present.origin}", hint=hint)
    return True


def _unfinished(home: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=home))


def _make_durable(made: Path, found: ModelManifest) -> None:
    """Flush all files to the disk, readable by the user alone; the manifest comes last."""
    for path in made.iterdir():
        path.chmod(0o600)
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    write_private(made / FILE, found.to_bytes())
