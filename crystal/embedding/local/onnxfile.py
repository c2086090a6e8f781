"""Writing ONNX files: the few messages of the format that a transformer's graph needs, and no protobuf library.

The package ``onnx`` would do it too; it brings 18 MB and protobuf for what is a screen of code here, and what comes out
is checked by the runtime that loads it. Nothing is read here: a file from elsewhere goes to the runtime as it is.

Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto (field numbers), and the encoding of protocol buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

IR_VERSION = 8
OPSET = 17
"""The first with LayerNormalization; every onnxruntime since 2022 knows it."""

Attribute: TypeAlias = "int | float | Sequence[int]"

FLOAT, UINT8, INT8, INT64 = 1, 2, 3, 7
_KINDS = {"float32": FLOAT, "uint8": UINT8, "int8": INT8, "int64": INT64}


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1  # negative numbers are written as 64 bits
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*made, number))


def _int(place: int, number: int) -> bytes:
    return _varint(place << 3) + _varint(number)


def _bytes(place: int, held: bytes) -> bytes:
    return _varint(place << 3 | 2) + _varint(len(held)) + held


def _text(place: int, text: str) -> bytes:
    return _bytes(place, text.encode())


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _int(20, 1)
    if isinstance(value, int):
        return _text(1, name) + _int(3, value) + _int(20, 2)
    return _text(1, name) + b"".join(_int(8, each) for each in value) + _int(20, 7)


def _tensor(name: str, values: npt.NDArray[np.generic]) -> bytes:
    dims = b"".join(_int(1, size) for size in values.shape)
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return dims + _int(2, _KINDS[values.dtype.name]) + _text(8, name) + _bytes(9, little.tobytes())


def _value(name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    dims = b"".join(_bytes(1, _text(2, size) if isinstance(size, str) else _int(1, size)) for size in shape)
    return _text(1, name) + _bytes(2, _bytes(1, _int(1, kind) + _bytes(2, dims)))


@dataclass(slots=True)
class Graph:
    """A graph in the making. Values are known by name; ``op`` gives the name of what it adds."""

    nodes: list[bytes] = field(default_factory=list)
    constants: dict[str, bytes] = field(default_factory=dict)

    def constant(self, name: str, values: npt.NDArray[np.generic]) -> str:
        """Add a constant, once for each name."""
        if name not in self.constants:
            self.constants[name] = _tensor(name, values)
        return name

    def ops(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Attribute) -> list[str]:
        """Add an operation with several outputs."""
        return self._add(kind, inputs, outputs, attributes)

    def _add(self, kind: str, inputs: Sequence[str], outputs: int, attributes: Mapping[str, Attribute]) -> list[str]:
        names = [f"{kind}_{len(self.nodes)}" + (f"_{n}" if n else "") for n in range(outputs)]
        node = b"".join(_text(1, name) for name in inputs) + b"".join(_text(2, name) for name in names)
        node += _text(3, names[0]) + _text(4, kind)
        self.nodes.append(node + b"".join(_bytes(5, _attribute(*pair)) for pair in attributes.items()))
        return names

    def op(self, kind: str, *inputs: str, **attributes: Attribute) -> str:
        """Add an operation with one output."""
        return self._add(kind, inputs, 1, attributes)[0]

    def name(self, value: str, name: str) -> str:
        """Give a value a name of its own."""
        self.nodes.append(_text(1, value) + _text(2, name) + _text(3, name) + _text(4, "Identity"))
        return name

    def model(
        self,
        inputs: Mapping[str, tuple[int, Sequence[str | int]]],
        outputs: Mapping[str, tuple[int, Sequence[str | int]]],
    ) -> list[bytes]:
        """The file, in pieces to be written one after the other: it may be as large as the model.

        Inputs and outputs come with their kinds and shapes, where a word stands for any size.
        """
        parts = [b"".join(_bytes(1, node) for node in self.nodes) + _text(2, "encoder")]
        for each in self.constants.values():
            parts += [_varint(5 << 3 | 2) + _varint(len(each)), each]
        parts += [_bytes(11, _value(name, *what)) for name, what in inputs.items()]
        parts += [_bytes(12, _value(name, *what)) for name, what in outputs.items()]
        head = _int(1, IR_VERSION) + _text(2, "crystal") + _varint(7 << 3 | 2) + _varint(sum(map(len, parts)))
        return [head, *parts, _bytes(8, _text(1, "") + _int(2, OPSET))]
