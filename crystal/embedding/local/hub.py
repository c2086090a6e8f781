"""Fetch the files of a model with ``huggingface_hub``, and compare each with its hash.

Files come from one commit. Large files are compared with the SHA-256 and small ones with the Git hash that the hub
lists for that commit, and with any hash that crystal or the user knows.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crystal.embedding.local.build import ModelSource, graph_names, has_external_data
from crystal.embedding.local.extra import import_package
from crystal.embedding.local.known_models import KnownModel
from crystal.embedding.local.manifest import TOKENIZER, hash_file
from crystal.errors import DamagedError, DeniedError, UnavailableError, UsageError
from crystal.provider_http.post import shown

OFFICIAL_HUB = "https://huggingface.co"
DESCRIPTIONS = (
    "config.json tokenizer.json tokenizer_config.json modules.json sentence_bert_config.json"
    " config_sentence_transformers.json 1_Pooling/config.json LICENSE"
).split()
"""Small files that describe how to use a model."""


def fetch_model(target: Path, model: KnownModel, hub_url: str, *, is_float32: bool = False) -> ModelSource:
    """Download what a model needs to run into ``target``.

    Args:
        target: An empty folder.
        model: Its repository and known hashes.
        hub_url: The address of the hub or of a mirror.
        is_float32: Prefer a graph with 32-bit weights to one with 8-bit weights.

    Raises:
        NotConfiguredError: The package ``huggingface_hub`` is missing.
        UsageError: There is no such repository, or it has no graph or tokenizer.
        DeniedError: The repository requires a login.
        UnavailableError: The hub cannot be reached.
        DamagedError: A file differs from the listed or known hash.
    """
    hub = import_package("huggingface_hub")
    token = None if hub_url == OFFICIAL_HUB else False  # a stored login is sent to no other server
    place: dict[str, Any] = {"endpoint": hub_url, "token": token}
    with _translated_errors(model.repository, hub_url):
        info = hub.HfApi(**place).model_info(model.repository, revision=model.revision, files_metadata=True)
        listed = {file.rfilename: file for file in info.siblings or []}
        graph = _find_graph(model, listed, is_float32=is_float32)
        data = [name for name in listed if has_external_data(graph, name)]
        for name in [*(name for name in DESCRIPTIONS if name in listed), graph, *data]:
            path = hub.hf_hub_download(model.repository, name, revision=info.sha, local_dir=target, **place)
            _check_file(Path(path), listed[name], model.sha256.get(name))
    told = info.card_data.get("license") if info.card_data else None
    licence = model.licence or str(told or "not told")[:100]
    origin = f"{model.repository} at {shown(hub_url)}, commit {info.sha}"
    checked = ", ".join(f"{name} by SHA-256 {digest}" for name, digest in model.sha256.items())
    return ModelSource(target, origin, licence, checked or "the hub's own list; crystal has no hash to compare", model)


def _find_graph(model: KnownModel, listed: Mapping[str, Any], *, is_float32: bool) -> str:
    """Choose a graph: the one with a known hash, else the first of ``graph_names``."""
    names = (*model.sha256, *graph_names(is_float32=is_float32))
    graph = next((name for name in names if name.endswith(".onnx") and name in listed), None)
    if graph is None or TOKENIZER not in listed:
        missing = "model.onnx" if graph is None else TOKENIZER
        hint = "export it (docs/how-to/choose-a-model.md), then: crystal models install FOLDER"
        raise UsageError(f"{model.repository} has no {missing}", hint=hint)
    return graph


def _check_file(path: Path, listed: Any, known: str | None) -> None:
    """Compare a downloaded file with the hub's list, and with a known hash."""
    if known is not None or listed.lfs is not None:
        found, wanted = hash_file(path), known or listed.lfs.sha256
    else:
        content = path.read_bytes()
        git_blob = b"blob %d\0%b" % (len(content), content)
        found, wanted = hashlib.sha1(git_blob, usedforsecurity=False).hexdigest(), listed.blob_id
    if found != wanted:
        raise DamagedError(
            f"{listed.rfilename} has the hash {found}, not {wanted}", hint="do not use it; install again"
        )


@contextmanager
def _translated_errors(repository: str, hub_url: str) -> Iterator[None]:
    """Translate the errors of ``huggingface_hub``; show its progress only on a terminal."""
    errors = import_package("huggingface_hub.errors")
    if not sys.stderr.isatty():
        import_package("huggingface_hub.utils").disable_progress_bars()
    try:
        yield
    except errors.HFValidationError as error:
        raise UsageError(f"{repository!r} is not the name of a repository", hint="write OWNER/MODEL") from error
    except (errors.GatedRepoError, errors.DisabledRepoError) as error:
        hint = "run: hf auth login, or fetch it yourself, then: crystal models install FOLDER"
        raise DeniedError(f"{shown(hub_url)} gives {repository} only after a login", hint=hint) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        hint = "check the name (OWNER/MODEL) and models.hub_url; for a private model run: hf auth login"
        raise UsageError(f"{shown(hub_url)} has no model {repository}", hint=hint) from error
    except (*errors.HfHubHTTPError.__bases__, ValueError) as error:  # base class of HTTP errors, and OSError
        hint = "check the network, or fetch the folder elsewhere (docs/how-to/choose-a-model.md)"
        words = f"{repository} cannot be fetched from {shown(hub_url)} ({type(error).__name__})"
        raise UnavailableError(words, hint=hint) from error
