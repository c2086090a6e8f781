"""Transformers small enough for tests: random weights, written as safetensors, and computed anew with NumPy alone."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from crystal.embedding.static import DATA

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


def safetensors(held: dict[str, np.ndarray]) -> bytes:
    kinds = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64"}
    header, data = {}, b""
    for name, values in held.items():
        raw = values.tobytes()
        header[name] = {
            "dtype": kinds[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


CONFIG = {
    "model_type": "bert",
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "hidden_size": WIDTH,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": PLACES,
}


def write_tiny(folder: Path, *, seed: int = 7, **config: object) -> Path:
    """A folder as sentence-transformers has it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors(tiny_weights(seed)))
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return folder


def packaged_vocabulary() -> int:
    return len((DATA / "vocabulary.txt").read_text("utf-8").rstrip("\n").split("\n"))


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
