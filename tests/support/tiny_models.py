"""Transformers small enough for tests: random weights as an ONNX graph, and computed anew with NumPy alone."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

import numpy as np

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"), "the", "deploy", "failed", "retry"]  # fmt: skip
LAYERS, HEADS, WIDTH, INNER, PLACES = 2, 4, 32, 64, 64


def tiny_weights(seed: int = 7, words: int = len(WORDS)) -> dict[str, np.ndarray]:
    """Random weights that let the words of a text matter."""
    draw = np.random.default_rng(seed)

    def some(*size: int, spread: float = 0.2) -> np.ndarray:
        return draw.normal(0, spread, size).astype(np.float32)

    held = {
        "embeddings.word_embeddings.weight": some(words, WIDTH, spread=1.0),
        "embeddings.position_embeddings.weight": some(PLACES, WIDTH),
        "embeddings.token_type_embeddings.weight": some(2, WIDTH),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            held[f"{name}.attention.self.{part}.weight"] = some(WIDTH, WIDTH)
            held[f"{name}.attention.self.{part}.bias"] = some(WIDTH)
        for part, size in (
            ("attention.output", (WIDTH, WIDTH)),
            ("intermediate", (INNER, WIDTH)),
            ("output", (WIDTH, INNER)),
        ):
            held[f"{name}.{part}.dense.weight"] = some(*size)
            held[f"{name}.{part}.dense.bias"] = some(size[0])
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
    for name in norms:
        held[f"{name}.weight"], held[f"{name}.bias"] = 1 + some(WIDTH), some(WIDTH)
    return held


CONFIG = {
    "model_type": "bert",
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "hidden_size": WIDTH,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": PLACES,
}


def write_tiny(folder: Path, *, seed: int = 7) -> Path:
    """A folder as Optimum exports it: graph, tokenizer and settings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(tiny_graph(seed))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(tiny_tokenizer())
    return folder


@functools.cache
def tiny_graph(seed: int = 7) -> bytes:
    from benchmarks.minilm_onnx import BertGraph

    return BertGraph(tiny_weights(seed), CONFIG).build().SerializeToString()


def safetensors(held: dict[str, np.ndarray]) -> bytes:
    header, data = {}, b""
    for name, values in held.items():
        offsets = [len(data), len(data) + values.nbytes]
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": offsets}
        data += values.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tiny_tokenizer() -> str:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordPiece({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    made.add_special_tokens(["[CLS]", "[SEP]"])
    made.enable_padding(length=20)
    return made.to_str()


def forward(held: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """The last hidden states of one text: what the graph must give, by the definition."""

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ held[f"{name}.weight"].T + held[f"{name}.bias"]

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return (
            centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * held[f"{name}.weight"]
            + held[f"{name}.bias"]
        )

    def gelu(x: np.ndarray) -> np.ndarray:
        return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2

    x = held["embeddings.word_embeddings.weight"][ids].astype(np.float64)
    x = (
        x
        + held["embeddings.position_embeddings.weight"][: len(ids)]
        + held["embeddings.token_type_embeddings.weight"][0]
    )
    x = norm("embeddings.LayerNorm", x)
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        query, key, value = (
            linear(f"{name}.attention.self.{part}", x).reshape(len(ids), HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = np.exp(query @ key.transpose(0, 2, 1) / math.sqrt(WIDTH / HEADS))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ value
        attended = linear(f"{name}.attention.output.dense", mixed.transpose(1, 0, 2).reshape(len(ids), WIDTH))
        x = norm(f"{name}.attention.output.LayerNorm", x + attended)
        inner = gelu(linear(f"{name}.intermediate.dense", x))
        x = norm(f"{name}.output.LayerNorm", x + linear(f"{name}.output.dense", inner))
    return x
