"""A BERT from its weights: the ONNX graph of its encoder, in float32 or with 8-bit weights.

What goes in are token numbers and the mask of what is text, what comes out are the last hidden states; pooling is left
to who asks. Weights are rounded to 7 bits, a scale for each column: with 8 bits the sums of processors without VNNI
overflow, and the same model would give other vectors there.

Source: https://arxiv.org/abs/1810.04805, and the names of the weights in the files of the model hub.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crystal.embedding.local.onnxfile import FLOAT, INT64, UINT8, Graph
from crystal.embedding.local.safetensors import Weights
from crystal.errors import UsageProblem

Array = npt.NDArray[np.float32]

MOST_QUANTIZED = 63
FAR_BELOW = -1e9
"""What is added to the score of a token that is no text: nothing is left of it after the softmax."""


@dataclass(frozen=True, slots=True)
class BertShape:
    """The numbers of a BERT that its weights alone do not tell."""

    layers: int
    heads: int
    width: int
    epsilon: float = 1e-12


def shape_of(config: Mapping[str, Any]) -> BertShape:
    """Read ``config.json``.

    Raises:
        UsageProblem: It is no plain BERT; such a model must come as an ONNX file.
    """
    hint = "only a plain BERT can be made from model.safetensors; take the model's onnx/model.onnx instead"
    kind = config.get("model_type")
    if kind != "bert":
        raise UsageProblem(f"config.json says model_type {kind!r}, not 'bert'", hint=hint)
    position, act = config.get("position_embedding_type", "absolute"), config.get("hidden_act", "gelu")
    if position != "absolute" or act != "gelu":
        raise UsageProblem(f"config.json says positions {position!r} and activation {act!r}", hint=hint)
    try:
        shape = BertShape(
            int(config["num_hidden_layers"]),
            int(config["num_attention_heads"]),
            int(config["hidden_size"]),
            float(config.get("layer_norm_eps", 1e-12)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageProblem("config.json does not tell layers, heads and width", hint=hint) from error
    if not (0 < shape.layers <= 100 and 0 < shape.heads <= 256 and shape.width > 0 and shape.width % shape.heads == 0):
        raise UsageProblem(f"config.json tells an impossible shape: {shape}", hint=hint)
    return shape


def bert_onnx(weights: Weights, shape: BertShape, *, is_int8: bool) -> list[bytes]:
    """The encoder as an ONNX file, in pieces.

    Raises:
        UsageProblem: A weight is missing or has another shape than the configuration says.
    """
    return _Builder(weights, shape, is_int8=is_int8).build()


class _Builder:
    def __init__(self, weights: Weights, shape: BertShape, *, is_int8: bool) -> None:
        self.weights, self.shape = weights, shape
        self.prefix = "bert." if "bert.embeddings.word_embeddings.weight" in weights else ""
        self.graph = Graph()
        self.is_int8 = is_int8
        self.linear: Callable[[str, str, Array, Array], str] = self._linear_int8 if is_int8 else self._linear_float

    def weight(self, name: str, *size: int) -> Array:
        """A weight of the expected shape; -1 for any size."""
        found = self.weights.get(self.prefix + name)
        if found is None:
            raise UsageProblem(
                f"model.safetensors lacks {self.prefix + name}", hint="is it a BERT with its config.json?"
            )
        if len(found.shape) != len(size) or any(s not in (-1, f) for s, f in zip(size, found.shape, strict=True)):
            raise UsageProblem(f"{name} has shape {found.shape}, not {size}", hint="is it a BERT with its config.json?")
        return found

    def build(self) -> list[bytes]:
        graph, width = self.graph, self.shape.width
        mask = graph.op("Unsqueeze", self._mask(), graph.constant("axes_1_2", np.array([1, 2], np.int64)))
        hidden = self._embed()
        for layer in range(self.shape.layers):
            hidden = self._layer(f"encoder.layer.{layer}", hidden, mask)
        graph.name(hidden, "last_hidden_state")
        size = ("batch", "tokens")
        return graph.model(
            {"input_ids": (INT64, size), "attention_mask": (INT64, size)},
            {"last_hidden_state": (FLOAT, (*size, width))},
        )

    def _mask(self) -> str:
        graph = self.graph
        kept = graph.op("Cast", "attention_mask", to=FLOAT)
        left_out = graph.op("Sub", self._number("one", 1), kept)
        return graph.op("Mul", left_out, self._number("far_below", FAR_BELOW))

    def _embed(self) -> str:
        """Words, and the places of words; all text is of one kind (token type 0)."""
        graph, width = self.graph, self.shape.width
        words = self._words(self.weight("embeddings.word_embeddings.weight", -1, width))
        places = self.weight("embeddings.position_embeddings.weight", -1, width)
        places = places + self.weight("embeddings.token_type_embeddings.weight", -1, width)[0]
        length = graph.op("Shape", "input_ids", start=1, end=2)
        zero = graph.constant("zero", np.array([0], np.int64))
        used = graph.op("Slice", graph.constant("places", places), zero, length, zero)
        return self._norm("embeddings.LayerNorm", graph.op("Add", words, used))

    def _words(self, table: Array) -> str:
        graph = self.graph
        if not self.is_int8:
            return graph.op("Gather", graph.constant("words", table), "input_ids")
        small, scales = rounded_rows(table, 127)
        rows = graph.op("Cast", graph.op("Gather", graph.constant("words", small), "input_ids"), to=FLOAT)
        return graph.op("Mul", rows, graph.op("Gather", graph.constant("words.scales", scales[:, None]), "input_ids"))

    def _layer(self, name: str, hidden: str, mask: str) -> str:
        graph, width = self.graph, self.shape.width
        attended = self._dense(f"{name}.attention.output.dense", self._attend(name, hidden, mask), width, width)
        hidden = self._norm(f"{name}.attention.output.LayerNorm", graph.op("Add", attended, hidden))
        inner = self.weight(f"{name}.intermediate.dense.bias", -1).shape[0]
        grown = self._gelu(self._dense(f"{name}.intermediate.dense", hidden, inner, width))
        shrunk = self._dense(f"{name}.output.dense", grown, width, inner)
        return self._norm(f"{name}.output.LayerNorm", graph.op("Add", shrunk, hidden))

    def _attend(self, name: str, hidden: str, mask: str) -> str:
        graph, (heads, width) = self.graph, (self.shape.heads, self.shape.width)
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        weight = np.concatenate([self.weight(f"{part}.weight", width, width) for part in parts])
        bias = np.concatenate([self.weight(f"{part}.bias", width) for part in parts])
        weight[:width] /= np.sqrt(width / heads)
        bias[:width] /= np.sqrt(width / heads)
        shape = graph.constant("by_head", np.array([0, 0, 3, heads, width // heads], np.int64))
        # (batch, tokens, 3, heads, size) to three times (batch, heads, tokens, size)
        split = graph.op(
            "Transpose", graph.op("Reshape", self.linear(name, hidden, weight, bias), shape), perm=[2, 0, 3, 1, 4]
        )
        query, key, value = (
            graph.op("Gather", split, graph.constant(f"part_{n}", np.array(n, np.int64)), axis=0) for n in range(3)
        )
        scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
        shares = graph.op("Softmax", graph.op("Add", scores, mask), axis=-1)
        mixed = graph.op("Transpose", graph.op("MatMul", shares, value), perm=[0, 2, 1, 3])
        return graph.op("Reshape", mixed, graph.constant("flat", np.array([0, 0, width], np.int64)))

    def _dense(self, name: str, given: str, rows: int, columns: int) -> str:
        return self.linear(name, given, self.weight(f"{name}.weight", rows, columns), self.weight(f"{name}.bias", rows))

    def _linear_float(self, name: str, given: str, weight: Array, bias: Array) -> str:
        product = self.graph.op("MatMul", given, self.graph.constant(f"{name}.weight", weight.T))
        return self.graph.op("Add", product, self.graph.constant(f"{name}.bias", bias))

    def _linear_int8(self, name: str, given: str, weight: Array, bias: Array) -> str:
        """What goes in is rounded to 8 bits on the spot, with a scale for each token.

        One scale for everything, as the usual operator has it, would be a tenth faster; but then a text's vector
        would depend on the texts beside it, and be less exact (cosine with float32 0.991 instead of 0.995).
        """
        graph = self.graph
        small, scales = rounded_rows(weight, MOST_QUANTIZED)
        largest = graph.op("ReduceMax", graph.op("Abs", given), axes=[-1], keepdims=1)
        step = graph.op("Mul", graph.op("Max", largest, self._number("tiny", 1e-12)), self._number("step", 1 / 127))
        moved = graph.op("Add", graph.op("Round", graph.op("Div", given, step)), self._number("middle", 128))
        middle = graph.constant("middle_of_bytes", np.array(128, np.uint8))
        factors = graph.op("Cast", moved, to=UINT8)
        summed = graph.op("MatMulInteger", factors, graph.constant(f"{name}.weight", small.T), middle)
        product = graph.op("Mul", graph.op("Cast", summed, to=FLOAT), step)
        scaled = graph.op("Mul", product, graph.constant(f"{name}.scales", scales))
        return graph.op("Add", scaled, graph.constant(f"{name}.bias", bias))

    def _number(self, name: str, value: float) -> str:
        return self.graph.constant(name, np.array(value, np.float32))

    def _norm(self, name: str, given: str) -> str:
        scale = self.graph.constant(f"{name}.weight", self.weight(f"{name}.weight", self.shape.width))
        bias = self.graph.constant(f"{name}.bias", self.weight(f"{name}.bias", self.shape.width))
        return self.graph.op("LayerNormalization", given, scale, bias, axis=-1, epsilon=self.shape.epsilon)

    def _gelu(self, given: str) -> str:
        """Multiply each x by Phi(x), in the words that the runtime recognizes and computes at once."""
        graph = self.graph
        root = self._number("root_of_2", 2**0.5)
        grown = graph.op("Add", graph.op("Erf", graph.op("Div", given, root)), self._number("one", 1))
        return graph.op("Mul", graph.op("Mul", given, grown), self._number("half", 0.5))


def rounded_rows(table: Array, most: int) -> tuple[npt.NDArray[np.int8], Array]:
    """Each row as whole numbers up to ``most`` in size, and what it is multiplied with to be itself again, nearly."""
    scales = np.maximum(np.abs(table).max(axis=1), 1e-30) / most
    return np.rint(table / scales[:, None]).astype(np.int8), scales.astype(np.float32)
