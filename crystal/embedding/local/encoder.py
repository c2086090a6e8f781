"""Run an installed model with ``onnxruntime`` and ``tokenizers``.

Texts are sorted by length and run in small batches, so that memory depends on tokens, not on the number of texts.
Nothing from a model's folder is executed except the operations of its graph.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crystal.embedding.embedder import TokenRows
from crystal.embedding.local.extra import import_package
from crystal.embedding.local.manifest import GRAPH, TOKENIZER, ModelManifest, check_files, damaged_model, read_manifest
from crystal.errors import DamagedError, UsageError, WrongAnswerError

Array = npt.NDArray[np.float32]

MAX_BATCH_TOKENS = 1024
"""Maximum tokens of all texts in one run, padding included: about the size of a processor's cache."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def runtime_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that ``onnxruntime`` raises, which have no common base class."""
    state = import_package("onnxruntime.capi.onnxruntime_pybind11_state")
    found = [kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    return (*found, RuntimeError)


def open_session(graph: Path, threads: int) -> Any:
    """Load a graph without the memory arena, which would keep the memory of the largest batch."""
    ort = import_package("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = max(1, min(threads, os.cpu_count() or 1))
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 4  # failures are raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    ort.disable_telemetry_events()
    return ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def read_tokenizer(path: Path) -> Any:
    """Load a ``tokenizer.json``. Special tokens in a text are treated as plain text.

    Raises:
        NotConfiguredError: The package ``tokenizers`` is missing.
        DamagedError: The file cannot be parsed.
    """
    tokenizers = import_package("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower class
        raise DamagedError(f"{path} cannot be understood", hint="install the model again") from error
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


class Encoder:
    """A graph with its tokenizer: texts to vectors.

    Args:
        folder: Contains the graph and ``tokenizer.json``.
        manifest: How to use the model.
        threads: Maximum number of processors.
    """

    def __init__(self, folder: Path, manifest: ModelManifest, threads: int) -> None:
        self.manifest = manifest
        self.session = open_session(folder / GRAPH, threads)
        self._tokenizer = read_tokenizer(folder / TOKENIZER)
        self._tokenizer.enable_truncation(manifest.most_tokens)
        self._types = {one.name: np.int32 if "int32" in one.type else np.int64 for one in self.session.get_inputs()}
        if unknown := self._types.keys() - INPUTS:
            words = f"the model wants {', '.join(sorted(unknown))}, which crystal does not know"
            raise UsageError(words, hint="take the plain export for feature extraction")

    def vectors(self, texts: Sequence[str], prefix: str) -> Array:
        """Return a vector of length 1 for each text: ``(texts, dimension)``."""
        made = np.empty((len(texts), self.manifest.dimension), np.float32)
        for places, encodings, output in self._run([prefix + text for text in texts], self.manifest.output):
            made[places] = unit_rows(self._pool(output, [len(one.ids) for one in encodings]))
        if not np.isfinite(made).all():
            raise WrongAnswerError(f"the model {self.manifest.name} gave numbers that are not finite")
        return made

    def token_vectors(self, texts: Sequence[str]) -> list[TokenRows]:
        """Return each text's tokens and their hidden states, of length 1; special tokens are left out."""
        if self.manifest.token_output is None:
            raise UsageError(f"the model {self.manifest.name} gives no vectors of tokens")
        made: dict[int, TokenRows] = {}
        for places, encodings, states in self._run(texts, self.manifest.token_output):
            for row, (place, one) in enumerate(zip(places, encodings, strict=True)):
                own = np.flatnonzero(np.array(one.special_tokens_mask) == 0)
                made[place] = [one.ids[at] for at in own], unit_rows(states[row, own].astype(np.float32))
        return [made[place] for place in range(len(texts))]

    def first_outputs(self, text: str) -> dict[str, Array]:
        """Return all outputs of the graph for one text, by name."""
        outputs = self.session.run(None, self._inputs([self._encode(text)]))
        return {one.name: held for one, held in zip(self.session.get_outputs(), outputs, strict=True)}

    def _encode(self, text: str) -> Any:
        return self._tokenizer.encode(text.encode("utf-8", "replace").decode())

    def _run(self, texts: Sequence[str], output: str) -> Iterator[tuple[list[int], list[Any], Array]]:
        encodings = [self._encode(text) for text in texts]
        budget = MAX_BATCH_TOKENS if self.manifest.is_batched else 1
        for places in _batches([len(one.ids) for one in encodings], budget):
            batch = [encodings[place] for place in places]
            yield places, batch, self.session.run([output], self._inputs(batch))[0]

    def _inputs(self, batch: list[Any]) -> dict[str, npt.NDArray[Any]]:
        width = max(1, *(len(one.ids) for one in batch))
        ids = np.zeros((len(batch), width), np.int64)
        mask = np.zeros_like(ids)
        for row, one in enumerate(batch):
            ids[row, : len(one.ids)] = one.ids
            mask[row, : len(one.ids) or 1] = 1
        positions = np.broadcast_to(np.arange(width), ids.shape)
        known = dict(zip(INPUTS, (ids, mask, np.zeros_like(ids), positions), strict=True))
        return {name: known[name].astype(kind, copy=False) for name, kind in self._types.items()}

    def _pool(self, output: Array, lengths: list[int]) -> Array:
        if self.manifest.pooling == "given":
            rows = list(output)
        elif self.manifest.pooling == "cls":
            rows = list(output[:, 0])
        elif self.manifest.pooling == "lasttoken":
            rows = [states[max(1, length) - 1] for states, length in zip(output, lengths, strict=True)]
        else:
            rows = [states[: max(1, length)].mean(axis=0) for states, length in zip(output, lengths, strict=True)]
        return np.asarray(rows, np.float32)


def _batches(lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Yield the indexes of texts that run together, longest first, so that a lack of memory shows early."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def unit_rows(rows: Array) -> Array:
    """Scale rows to length 1; a row of zeros becomes one of equal numbers."""
    lengths = np.sqrt((rows * rows).sum(axis=-1, keepdims=True))
    even = np.float32(1 / np.sqrt(max(1, rows.shape[-1])))
    return np.asarray(np.where(lengths > 0, rows / np.maximum(lengths, 1e-30), even), np.float32)


class LocalEmbedder:
    """An installed model, see ``Embedder`` and ``TokenVectors``; its files are compared with what was installed.

    Args:
        home: The folder of models.
        name: Its name, or its full name.
        threads: Maximum number of processors.
    """

    def __init__(self, home: Path, name: str, threads: int) -> None:
        self.manifest = read_manifest(home, name)
        folder = home / self.manifest.name
        import_package("onnxruntime")
        check_files(folder, self.manifest)
        try:
            self.encoder = Encoder(folder, self.manifest, threads)
        except runtime_errors() as error:
            raise damaged_model(self.manifest.name, "onnxruntime cannot load it") from error

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """Embed documents, see ``Embedder``."""
        return self._embed(texts, self.manifest.document_prefix)

    def embed_query(self, text: str) -> bytes:
        """Embed a question, see ``Embedder``."""
        return self._embed([text], self.manifest.query_prefix)[0]

    def token_vectors(self, texts: Sequence[str]) -> list[TokenRows]:
        """Return token vectors, see ``TokenVectors``."""
        return self.encoder.token_vectors(texts)

    def _embed(self, texts: Sequence[str], prefix: str) -> list[bytes]:
        try:
            return [row.astype("<f4").tobytes() for row in self.encoder.vectors(texts, prefix)]
        except runtime_errors() as error:
            words = f"onnxruntime failed with the model {self.manifest.name} ({type(error).__name__})"
            raise WrongAnswerError(words, hint="install it again, or: crystal models use embedded") from error
