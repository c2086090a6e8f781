"""From the files of a model to what crystal runs: its graph, its tokenizer, and the description of both.

A folder as sentence-transformers or a model hub has it goes in. A plain BERT is made into a graph here, with 8-bit
weights unless that changes its vectors too much; anything else must bring an ONNX file. Nothing of it is executed but
the operations of its graph, by the runtime.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crystal.embedding.local.bert import bert_onnx, shape_of
from crystal.embedding.local.manifest import GRAPH, Manifest, held_file
from crystal.embedding.local.model import Encoder, open_session, runtime, runtime_errors
from crystal.embedding.local.safetensors import read_safetensors
from crystal.embedding.local.tokens import read_tokenizer
from crystal.errors import UsageProblem
from crystal.paths import refused

USUAL_TOKENS = 512
MOST_TOKENS = 1024
"""A chunk has about 400; a model that takes more is not asked to."""

LEAST_COSINE = 0.98
"""Between the vectors of 8-bit and of whole weights; below that whole ones are kept."""

TRIED = (
    "The deploy failed because the certificate of the staging host had expired.",
    "How do I make pytest stop at the first failure?",
    "TypeError: unsupported operand type(s) for +: 'int' and 'str' in billing/invoice.py, line 214",
    "We moved the holiday to the second week of May, and Ana takes the dog.",
    "def retry(times: int) -> None:\n    for attempt in range(times):\n        if send():\n            return",
    "ok",
    "Die Sitzung wurde auf Donnerstag verschoben, weil der Raum belegt war.",
    "The query SELECT count(*) FROM orders WHERE created_at > '2026-01-01' takes 14 s, or 80 ms with the index",
)
_INT8_FILES = ("onnx/model_quantized.onnx", "onnx/model_int8.onnx", "model_quantized.onnx", "model_int8.onnx")
_ONNX_FILES = ("onnx/model.onnx", "model.onnx")
_ROBERTAS = ("xlm-roberta", "roberta", "camembert", "mpnet")
"""Whose first place is number 2."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How a model shall be installed; None leaves it to the model's own files.

    ``is_int8`` wants 8-bit weights where quality allows.
    """

    name: str
    is_int8: bool = True
    pooling: str | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None
    most_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where files came from, their licence, and what they were compared with; all in words."""

    origin: str
    licence: str
    verified: str


def build_model(source: Path, made: Path, wish: Wish, told: Provenance, now: int) -> Manifest:
    """Make a model of the files in ``source`` in the empty folder ``made``, and try it.

    Raises:
        UsageProblem: The files are none of a model that crystal can run.
        NotConfigured: A package is missing.
        Damaged: A file cannot be understood.
    """
    runtime()
    try:
        return _build(source, made, wish, told, now)
    except OSError as error:
        raise refused(error, source) from error


def _build(source: Path, made: Path, wish: Wish, told: Provenance, now: int) -> Manifest:
    config = _read_json(source / "config.json")
    _copy_tokenizer(source, made)
    pooling = wish.pooling or _pooling(source)
    query_prefix, document_prefix = _prefixes(source)
    draft = Manifest(
        name=wish.name,
        dimension=1,
        weights="",
        pooling=pooling,
        most_tokens=wish.most_tokens or _most_tokens(source, config),
        query_prefix=query_prefix if wish.query_prefix is None else wish.query_prefix,
        document_prefix=document_prefix if wish.document_prefix is None else wish.document_prefix,
        output="",
        token_output=None,
        origin=told.origin,
        licence=told.licence,
        verified=told.verified,
        installed_at=now,
    )
    found = _with_graph(source, made, config, draft, is_int8=wish.is_int8)
    for licence in ("LICENSE", "LICENSE.txt", "LICENSE.md"):
        if (source / licence).is_file():
            shutil.copyfile(source / licence, made / "LICENSE")
            break
    return replace(found, files={path.name: held_file(path) for path in sorted(made.iterdir())})


# ----------------------------------------------------------------------------------------------------------- graph


def _with_graph(source: Path, made: Path, config: Mapping[str, Any], draft: Manifest, *, is_int8: bool) -> Manifest:
    weights = source / "model.safetensors"
    ready = next(
        (source / name for name in (*(_INT8_FILES if is_int8 else ()), *_ONNX_FILES) if (source / name).is_file()), None
    )
    if weights.is_file() and (ready is None or config.get("model_type") == "bert"):
        return _made_graph(weights, made, config, draft, is_int8=is_int8)
    if ready is None:
        raise UsageProblem(
            f"{source} has no model: neither model.onnx, onnx/model.onnx nor model.safetensors",
            hint="give a folder as sentence-transformers or the model hub has it",
        )
    shutil.copyfile(ready, made / GRAPH)
    for data in ready.parent.glob("*.onnx*data*"):  # weights beside the graph, under the name that it knows
        if data.name.startswith(ready.name):
            shutil.copyfile(data, made / data.name)
    return _tried(made, replace(draft, weights="as given"))[0]


def _made_graph(weights: Path, made: Path, config: Mapping[str, Any], draft: Manifest, *, is_int8: bool) -> Manifest:
    held, shape = read_safetensors(weights), shape_of(config)
    places = next((rows.shape[0] for name, rows in held.items() if name.endswith("position_embeddings.weight")), 0)
    draft = replace(draft, most_tokens=max(3, min(draft.most_tokens, places or draft.most_tokens)))
    _write(made / GRAPH, bert_onnx(held, shape, is_int8=False))
    found, exact = _tried(made, replace(draft, weights="float32"))
    if not is_int8:
        return found
    _write(made / GRAPH, bert_onnx(held, shape, is_int8=True))
    small, near = _tried(made, replace(draft, weights="int8"))
    if float((exact * near).sum(axis=1).min()) >= LEAST_COSINE:
        return small
    _write(made / GRAPH, bert_onnx(held, shape, is_int8=False))
    return found


def _write(path: Path, pieces: Sequence[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(pieces)


def _tried(made: Path, draft: Manifest) -> tuple[Manifest, np.ndarray[Any, np.dtype[np.float32]]]:
    """The description with what the graph itself tells, and the vectors of some texts."""
    try:
        session = open_session(made / GRAPH, 1)
        tokenizer = read_tokenizer(made)
        given = session.run(None, Encoder(session, tokenizer, draft).fed([TRIED[0]]))
        known = {each.name: held for each, held in zip(session.get_outputs(), given, strict=True)}
        outputs = {name: held.ndim for name, held in known.items()}  # what an export says of its shapes may be nothing
        states = next((name for name in ("last_hidden_state", "token_embeddings") if outputs.get(name) == 3), None)
        states = states or next((name for name, rank in outputs.items() if rank == 3), None)
        whole = next((name for name in ("sentence_embedding", *outputs) if outputs.get(name) == 2), None)
        is_given = draft.pooling == "given" or states is None
        output = whole if is_given else states
        if output is None:
            raise UsageProblem("the graph gives no vectors", hint="take the plain export for feature extraction")
        found = replace(draft, pooling="given" if is_given else draft.pooling, output=output, token_output=states)
        found = replace(found, dimension=int(known[output].shape[-1]))
        return found, Encoder(session, tokenizer, found).vectors(TRIED, found.document_prefix)
    except runtime_errors() as error:
        words = f"onnxruntime cannot run it ({type(error).__name__})"
        raise UsageProblem(words, hint="take another export of the model") from error


# ----------------------------------------------------------------------------------------- what a folder tells of it


def _copy_tokenizer(source: Path, made: Path) -> None:
    for folder in (source, source / "onnx"):
        if (folder / "tokenizer.json").is_file():
            shutil.copyfile(folder / "tokenizer.json", made / "tokenizer.json")
            return
    is_uncased = _read_json(source / "tokenizer_config.json").get("do_lower_case", True) is not False
    if (source / "vocab.txt").is_file() and is_uncased:
        shutil.copyfile(source / "vocab.txt", made / "vocab.txt")
        return
    raise UsageProblem(
        f"{source} has no tokenizer: neither tokenizer.json nor the vocab.txt of an uncased BERT",
        hint="the model hub has a tokenizer.json with every newer model",
    )


def _pooling(source: Path) -> str:
    kinds = [str(one.get("type", "")).rpartition(".")[2] for one in _modules(source)]
    if "Dense" in kinds:
        return "given"
    held = _read_json(source / "1_Pooling" / "config.json")
    named = {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_lasttoken": "lasttoken",
    }
    asked = [named.get(key, key) for key, value in held.items() if key.startswith("pooling_mode_") and value is True]
    asked += [str(held["pooling_mode"])] if "pooling_mode" in held else []
    if len(asked) > 1 or not set(asked) <= set(named.values()):
        raise UsageProblem(
            f"its pooling is {' and '.join(asked)}", hint="crystal knows mean, cls and lasttoken: --pooling"
        )
    return asked[0] if asked else "mean"


def _modules(source: Path) -> list[Mapping[str, Any]]:
    held = _read_any(source / "modules.json")
    return [one for one in held if isinstance(one, dict)] if isinstance(held, list) else []


def _prefixes(source: Path) -> tuple[str, str]:
    prompts = _read_json(source / "config_sentence_transformers.json").get("prompts")
    prompts = prompts if isinstance(prompts, dict) else {}

    def first(*names: str) -> str:
        return next((prompts[name] for name in names if isinstance(prompts.get(name), str)), "")

    return first("query", "Retrieval-query"), first("document", "passage", "corpus", "Retrieval-document")


def _most_tokens(source: Path, config: Mapping[str, Any]) -> int:
    told = [
        _read_json(source / "sentence_bert_config.json").get("max_seq_length"),
        _read_json(source / "tokenizer_config.json").get("model_max_length"),
    ]
    places = config.get("max_position_embeddings")
    if isinstance(places, int):
        told.append(places - 2 if config.get("model_type") in _ROBERTAS else places)
    known = [number for number in _numbers(told) if 3 <= number < 1e9]
    return min([*known, MOST_TOKENS]) if known else USUAL_TOKENS


def _numbers(told: Sequence[Any]) -> Iterator[int]:
    for one in told:
        if type(one) in (int, float) and one < 1e9:
            yield int(one)


def _read_json(path: Path) -> Mapping[str, Any]:
    held = _read_any(path)
    return held if isinstance(held, dict) else {}


def _read_any(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, RecursionError) as error:
        raise UsageProblem(f"{path} is no JSON", hint="fetch the model again") from error
