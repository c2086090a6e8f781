"""Running a transformer on this machine: onnxruntime, few threads, small batches, and memory that stays flat.

Texts are sorted by length and run a few at a time: what one run holds is bounded by tokens, not by texts, so that ten
thousand texts take the memory of eight. Every text is padded with tokens that are masked; its vector does not depend on
the texts beside it. Nothing of a model's folder is executed but the operations of its graph.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crystal.embedding.embedder import TokenRows, WrongAnswer
from crystal.embedding.local.manifest import GRAPH, Manifest, check_files, damaged_model, read_manifest
from crystal.embedding.local.tokens import Encoded, Tokenizer, read_tokenizer
from crystal.errors import NotConfigured, UsageProblem
from crystal.packages import LOCAL_MODELS, install_command

Array = npt.NDArray[np.float32]

TOKENS_AT_ONCE = 1024
"""Of all texts in one run, padding included: about what the caches of a processor hold."""

INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "position_ids"})


def runtime() -> Any:
    """The module ``onnxruntime``.

    Raises:
        NotConfigured: It is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise NotConfigured("the package onnxruntime is not installed", hint=install_command(*LOCAL_MODELS)) from error
    return onnxruntime


def runtime_errors() -> tuple[type[Exception], ...]:
    """What the runtime raises; its classes have no common one of their own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found = [each for each in vars(state).values() if isinstance(each, type) and issubclass(each, Exception)]
    return (*found, RuntimeError)


def open_session(graph: Path | bytes, threads: int) -> Any:
    """Load a graph for ``threads`` threads, without the arena that never gives memory back."""
    ort = runtime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = max(1, min(threads, os.cpu_count() or 1))
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 4  # what goes wrong is raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    ort.disable_telemetry_events()
    source = graph if isinstance(graph, bytes) else str(graph)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class Encoder:
    """A graph with its tokenizer: texts to hidden states and vectors.

    Args:
        session: The graph, loaded.
        tokenizer: Makes tokens of texts.
        found: What is known of the model.
    """

    def __init__(self, session: Any, tokenizer: Tokenizer, found: Manifest) -> None:
        self._session, self._tokenizer, self._found = session, tokenizer, found
        self._inputs = {each.name: np.int32 if "int32" in each.type else np.int64 for each in session.get_inputs()}
        strange = self._inputs.keys() - INPUTS
        if strange:
            raise UsageProblem(
                f"the model wants {', '.join(sorted(strange))}, which crystal does not know",
                hint="take the plain export for feature extraction",
            )

    def vectors(self, texts: Sequence[str], prefix: str) -> Array:
        """A vector of length 1 for each text: ``(texts, dimension)``."""
        made = np.empty((len(texts), self._found.dimension), np.float32)
        for places, encoded, (output,) in self._run(texts, prefix, [self._found.output]):
            made[places] = unit_rows(self._pooled(output, encoded))
        if not np.isfinite(made).all():
            raise WrongAnswer(f"the model {self._found.name} gave numbers that are not finite")
        return made

    def token_vectors(self, texts: Sequence[str], prefix: str = "") -> list[TokenRows]:
        """The hidden states of each text's own tokens, each of length 1; those of special tokens are left out."""
        if self._found.token_output is None:
            raise UsageProblem(f"the model {self._found.name} gives no vectors of tokens")
        made: dict[int, TokenRows] = {}
        for places, encoded, (states,) in self._run(texts, prefix, [self._found.token_output]):
            for row, (place, one) in enumerate(zip(places, encoded, strict=True)):
                rows = states[row, one.begin : one.end].astype(np.float32)
                made[place] = one.ids[one.begin : one.end], unit_rows(rows)
        return [made[place] for place in range(len(texts))]

    def fed(self, texts: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """What the graph is given for texts, all in one run."""
        return self._fed([self._tokenizer.encode(text, self._found.most_tokens) for text in texts])

    def _run(
        self, texts: Sequence[str], prefix: str, outputs: list[str]
    ) -> Iterator[tuple[list[int], list[Encoded], list[Any]]]:
        most = self._found.most_tokens
        encoded = [self._tokenizer.encode(prefix + text, most) for text in texts]
        for places in _batches([len(one.ids) for one in encoded]):
            batch = [encoded[place] for place in places]
            yield places, batch, self._session.run(outputs, self._fed(batch))

    def _fed(self, batch: list[Encoded]) -> dict[str, npt.NDArray[Any]]:
        width = max(1, *(len(one.ids) for one in batch))
        ids = np.zeros((len(batch), width), np.int64)
        mask = np.zeros_like(ids)
        for row, one in enumerate(batch):
            ids[row, : len(one.ids)] = one.ids
            mask[row, : len(one.ids) or 1] = 1
        known = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.broadcast_to(np.arange(width), ids.shape),
        }
        return {name: known[name].astype(kind, copy=False) for name, kind in self._inputs.items()}

    def _pooled(self, output: Array, encoded: list[Encoded]) -> Array:
        pooling = self._found.pooling
        if pooling == "given":
            return np.asarray(output, np.float32)
        lengths = [max(1, len(one.ids)) for one in encoded]
        if pooling == "cls":
            return np.asarray(output[:, 0], np.float32)
        if pooling == "lasttoken":
            return np.asarray([output[row, length - 1] for row, length in enumerate(lengths)], np.float32)
        return np.asarray([output[row, :length].mean(axis=0) for row, length in enumerate(lengths)], np.float32)


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Places of texts that run together, the longest first, so that a lack of memory shows at once."""
    batch: list[int] = []
    widest = 0
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        if batch and (len(batch) + 1) * widest > TOKENS_AT_ONCE:
            yield batch
            batch = []
        widest = widest if batch else lengths[place]
        batch.append(place)
    if batch:
        yield batch


def unit_rows(rows: Array) -> Array:
    """Rows of length 1; one of zeros becomes one that points nowhere in particular."""
    lengths = np.sqrt((rows * rows).sum(axis=-1, keepdims=True))
    even = np.float32(1 / np.sqrt(max(1, rows.shape[-1])))
    return np.asarray(np.where(lengths > 0, rows / np.maximum(lengths, 1e-30), even), np.float32)


class LocalEmbedder:
    """An installed model, see ``Embedder`` and ``TokenVectors``. It is loaded when it is first asked.

    Args:
        home: The folder of models.
        name: Its name, or its full name.
        threads: How many processors it may use.
    """

    def __init__(self, home: Path, name: str, threads: int) -> None:
        self._home, self._name, self._threads = home, name, threads

    @cached_property
    def found(self) -> Manifest:
        """What is known of the model."""
        return read_manifest(self._home, self._name)

    @cached_property
    def encoder(self) -> Encoder:
        """The graph, loaded after its files were compared with what was installed."""
        folder = self._home / self.found.name
        runtime()
        check_files(folder, self.found)
        try:
            session = open_session(folder / GRAPH, self._threads)
        except runtime_errors() as error:
            raise damaged_model(self.found.name, "onnxruntime cannot load it") from error
        return Encoder(session, read_tokenizer(folder), self.found)

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """See ``Embedder``."""
        return self._embed(texts, self.found.document_prefix)

    def embed_query(self, text: str) -> bytes:
        """See ``Embedder``."""
        return self._embed([text], self.found.query_prefix)[0]

    def token_vectors(self, texts: Sequence[str]) -> list[TokenRows]:
        """See ``TokenVectors``."""
        return self.encoder.token_vectors(texts) if texts else []

    def take_tokens(self) -> int:
        """Nothing is ever paid."""
        return 0

    def _embed(self, texts: Sequence[str], prefix: str) -> list[bytes]:
        try:
            return [row.astype("<f4").tobytes() for row in self.encoder.vectors(texts, prefix)] if texts else []
        except runtime_errors() as error:
            raise WrongAnswer(
                f"onnxruntime failed with the model {self.found.name} ({type(error).__name__})",
                hint="install it again, or: crystal models use embedded",
            ) from error
