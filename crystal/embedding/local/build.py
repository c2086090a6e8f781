"""Make an installed model from a folder with ``model.onnx`` and ``tokenizer.json``.

The folder has the layout of sentence-transformers, Optimum or the model hub; its settings files say how to use the
model. ``onnxruntime`` rounds the weights to 8 bits unless that changes the vectors too much.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crystal.config.paths import system_errors
from crystal.embedding.local.encoder import Array, Encoder, runtime_errors
from crystal.embedding.local.extra import import_package
from crystal.embedding.local.known_models import KnownModel
from crystal.embedding.local.manifest import GRAPH, TOKENIZER, ModelManifest, hash_file, hold_file
from crystal.errors import UsageError

INT8_GRAPHS = ("onnx/model_quantized.onnx", "onnx/model_int8.onnx", "model_quantized.onnx", "model_int8.onnx")
FLOAT32_GRAPHS = ("onnx/model.onnx", "model.onnx")
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md")
POOLINGS = ("mean", "cls", "lasttoken")
_POOLING_KEYS = {f"pooling_mode_{name}": name for name in POOLINGS} | {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
}
_ROBERTAS = ("xlm-roberta", "roberta", "camembert", "mpnet")
"""Model types whose positions begin at 2."""

DEFAULT_TOKENS = 512
MAX_TOKENS = 1024
"""Maximum tokens read of a text, and the default if a model names none; a chunk has about 400."""
MIN_COSINE = 0.97
"""Minimum cosine between the vectors of 8-bit and of whole weights; below it the weights are not rounded."""
MAX_BATCH_DIFFERENCE = 1e-4
"""Maximum difference between a text's vector alone and in a batch; above it each text runs alone."""
MAX_ROUNDED_BYTES = 1 << 30
"""Larger graphs are not rounded, because rounding takes several times their size in memory."""

SAMPLES = (
    "The deploy failed because the certificate of the staging host had expired.",
    "How do I make pytest stop at the first failure?",
    "TypeError: unsupported operand type(s) for +: 'int' and 'str' in billing/invoice.py, line 214",
    "We moved the holiday to the second week of May, and Ana takes the dog.",
    "def retry(times: int) -> None:\n    for attempt in range(times):\n        if send():\n            return",
    "ok",
    "Die Sitzung wurde auf Donnerstag verschoben, weil der Raum belegt war.",
    "The query SELECT count(*) FROM orders WHERE created_at > '2026-01-01' takes 14 s, or 80 ms with the index",
)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A folder with a model, its origin, its licence, and what its files were compared with.

    ``known`` has data that its files may lack.
    """

    folder: Path
    origin: str
    licence: str
    verified: str
    known: KnownModel | None = None


def has_external_data(graph: str, name: str) -> bool:
    """Return True if the name of a file shows that it contains weights of a graph."""
    return re.fullmatch(rf"{re.escape(graph)}(_data(_\d+)?|\.data)", name) is not None


def build_model(source: ModelSource, made: Path, name: str, now: int, *, is_float32: bool = False) -> ModelManifest:
    """Copy a model into the empty folder ``made``, round its weights unless ``is_float32``, and try it.

    Raises:
        UsageError: The folder has no model that crystal can run.
        NotConfiguredError: A package is missing.
        DamagedError: A file cannot be parsed.
    """
    with system_errors(source.folder):
        graph = _find_graph(source.folder, is_float32=is_float32)
        _copy_tokenizer(source.folder, made)
        draft = _read_settings(source, graph, name, now)
        shutil.copyfile(graph, made / GRAPH)
        for data in graph.parent.iterdir():
            if has_external_data(graph.name, data.name):
                shutil.copyfile(data, made / data.name)
        found, vectors = _try_model(made, draft)
        if found.weights == "float32" and not is_float32:
            found = _with_rounded_weights(made, found, vectors)
        for licence in (source.folder / name for name in LICENCES):
            if licence.is_file():
                shutil.copyfile(licence, made / "LICENSE")
                break
        return replace(found, files={path.name: hold_file(path) for path in sorted(made.iterdir())})


def graph_names(*, is_float32: bool) -> tuple[str, ...]:
    """Return the possible paths of a model's graph, best first."""
    return (*FLOAT32_GRAPHS, *INT8_GRAPHS) if is_float32 else (*INT8_GRAPHS, *FLOAT32_GRAPHS)


def _find_graph(folder: Path, *, is_float32: bool) -> Path:
    graph = next((folder / name for name in graph_names(is_float32=is_float32) if (folder / name).is_file()), None)
    if graph is None:
        hint = "export it: optimum-cli export onnx --model FOLDER OUT (docs/how-to/choose-a-model.md)"
        raise UsageError(f"{folder} has no model.onnx or onnx/model.onnx", hint=hint)
    return graph


def _copy_tokenizer(folder: Path, made: Path) -> None:
    for path in (folder / TOKENIZER, folder / "onnx" / TOKENIZER):
        if path.is_file():
            shutil.copyfile(path, made / TOKENIZER)
            return
    raise UsageError(f"{folder} has no tokenizer.json", hint="take it from the model's page at the hub")


def _try_model(folder: Path, draft: ModelManifest) -> tuple[ModelManifest, Array]:
    """Run the graph on samples; return the manifest completed from its outputs, and the vectors of the samples."""
    try:
        encoder = Encoder(folder, draft, 1)
        encoder.manifest = _with_outputs(draft, encoder.first_outputs(SAMPLES[0]))
        together = encoder.vectors(SAMPLES, draft.document_prefix)
        batched, encoder.manifest = encoder.manifest, replace(encoder.manifest, is_batched=False)
        alone = encoder.vectors(SAMPLES, draft.document_prefix)
        is_batched = float(np.abs(together - alone).max()) <= MAX_BATCH_DIFFERENCE
        return replace(batched, is_batched=is_batched), alone
    except runtime_errors() as error:
        words = f"onnxruntime cannot run it ({type(error).__name__})"
        raise UsageError(words, hint="take another export of the model") from error


def _with_outputs(draft: ModelManifest, outputs: Mapping[str, Array]) -> ModelManifest:
    """Choose the outputs by their actual shapes; the shapes that an export declares may be wrong."""
    ranks = {name: held.ndim for name, held in outputs.items()}
    states = next((name for name in ("last_hidden_state", "token_embeddings", *ranks) if ranks.get(name) == 3), None)
    whole = next((name for name in ("sentence_embedding", *ranks) if ranks.get(name) == 2), None)
    is_given = draft.pooling == "given" or states is None
    output = whole if is_given else states
    if output is None:
        raise UsageError("the graph gives no vectors", hint="take the plain export for feature extraction")
    pooling = "given" if is_given else draft.pooling
    dimension = int(outputs[output].shape[-1])
    return replace(draft, pooling=pooling, output=output, token_output=states, dimension=dimension)


def _with_rounded_weights(folder: Path, whole: ModelManifest, exact: Array) -> ModelManifest:
    """Round the weights to 8 bits, but keep whole weights if the vectors change too much."""
    graph, rounded = folder / GRAPH, folder / "rounded.onnx"
    if len(list(folder.glob(f"{GRAPH}*"))) > 1 or graph.stat().st_size > MAX_ROUNDED_BYTES:
        return whole
    _round_weights(graph, rounded)
    kept = graph.rename(folder / "whole.onnx")
    rounded.rename(graph)
    found, near = _try_model(folder, replace(whole, weights="int8"))
    if float((exact * near).sum(axis=1).min()) >= MIN_COSINE:
        kept.unlink()
        return found
    kept.replace(graph)
    return whole


def _round_weights(graph: Path, target: Path) -> None:
    """Round to 7 bits for each column: with 8 bits, sums overflow on processors without VNNI."""
    import_package("onnx")
    quantization = import_package("onnxruntime.quantization")
    logging.disable(logging.WARNING)  # it advises to optimize the graph first
    try:
        quantization.quantize_dynamic(
            graph, target, per_channel=True, reduce_range=True, weight_type=quantization.QuantType.QInt8
        )
    finally:
        logging.disable(logging.NOTSET)


# ------------------------------------------------------------------------------------------------- settings files


def _read_settings(source: ModelSource, graph: Path, name: str, now: int) -> ModelManifest:
    known = source.known
    query_prefix, document_prefix = _read_prefixes(source.folder)
    if known is not None and known.query_prefix is not None and known.document_prefix is not None:
        query_prefix, document_prefix = known.query_prefix, known.document_prefix
    return ModelManifest(
        name=name,
        dimension=1,
        weights="float32" if graph.name == GRAPH else "as given",
        pooling=_read_pooling(source.folder),
        most_tokens=(known and known.most_tokens) or _read_length(source.folder),
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        output="",
        token_output=None,
        is_batched=True,
        source_sha256=hash_file(graph),
        origin=source.origin,
        licence=source.licence,
        verified=source.verified,
        installed_at=now,
    )


def _read_pooling(folder: Path) -> str:
    modules = _read_json(folder / "modules.json", list)
    if any(isinstance(one, dict) and str(one.get("type", "")).endswith("Dense") for one in modules):
        return "given"
    settings = _read_json(folder / "1_Pooling" / "config.json", dict)
    asked = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    asked += [str(settings["pooling_mode"])] if "pooling_mode" in settings else []
    named = sorted({_POOLING_KEYS.get(key, key) for key in asked} or {"mean"})
    if len(named) != 1 or named[0] not in POOLINGS:
        words = f"its pooling is {' and '.join(named)}"
        hint = f"crystal knows {', '.join(POOLINGS)}; write one into 1_Pooling/config.json"
        raise UsageError(words, hint=hint)
    return str(named[0])


def _read_prefixes(folder: Path) -> tuple[str, str]:
    prompts = _read_json(folder / "config_sentence_transformers.json", dict).get("prompts")
    prompts = prompts if isinstance(prompts, dict) else {}

    def first(*names: str) -> str:
        return next((prompts[name] for name in names if isinstance(prompts.get(name), str)), "")

    return first("query", "Retrieval-query"), first("document", "passage", "corpus", "Retrieval-document")


def _read_length(folder: Path) -> int:
    """Return how many tokens of a text the model reads."""
    config = _read_json(folder / "config.json", dict)
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and config.get("model_type") in _ROBERTAS:
        positions -= 2
    told = (
        positions,
        _read_json(folder / "sentence_bert_config.json", dict).get("max_seq_length"),
        _read_json(folder / "tokenizer_config.json", dict).get("model_max_length"),
    )
    known = [int(number) for number in told if type(number) in (int, float) and 3 <= number < 1e9]
    return min([*known, MAX_TOKENS]) if known else DEFAULT_TOKENS


def _read_json(path: Path, kind: type) -> Any:
    """Return the content of a JSON file; an empty value if it is missing or has another type."""
    try:
        held = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        held = None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON", hint="fetch the model again") from error
    return held if isinstance(held, kind) else kind()
