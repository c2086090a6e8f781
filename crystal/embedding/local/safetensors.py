"""Reading safetensors: a header of JSON, then plain numbers. Hostile files are refused, nothing in them is run.

Source: https://huggingface.co/docs/safetensors, section Format.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crystal.errors import Damaged

Weights: TypeAlias = "dict[str, npt.NDArray[np.float32]]"

LARGEST_HEADER = 100_000_000
_KINDS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


def read_safetensors(path: Path) -> Weights:
    """The tensors of floating-point numbers in a file, each as float32 and its own copy; others are left out.

    Raises:
        Damaged: It is no such file, or what its header says does not fit into it.
        OSError: It cannot be read.
    """
    mapped = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    length = int.from_bytes(mapped[:8].tobytes(), "little")
    if len(mapped) < 8 or not 2 <= length <= min(LARGEST_HEADER, len(mapped) - 8):
        raise _damaged(path)
    data = mapped[8 + length :]
    try:
        header = json.loads(mapped[8 : 8 + length].tobytes())
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: _tensor(data, entry) for name, entry in entries.items() if entry["dtype"] in _KINDS}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path) from error


def _tensor(data: npt.NDArray[np.uint8], entry: dict[str, Any]) -> npt.NDArray[np.float32]:
    kind, shape, (start, stop) = _KINDS[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if not (0 <= start <= stop <= len(data) and math.prod(shape) * kind.itemsize == stop - start):
        raise ValueError(shape)
    held = np.frombuffer(data[start:stop].tobytes(), kind).reshape(shape)
    if entry["dtype"] == "BF16":
        return np.asarray((held.astype(np.uint32) << 16).view(np.float32))
    return np.asarray(held.astype(np.float32))


def _damaged(path: Path) -> Damaged:
    return Damaged(f"{path} is no sound safetensors file", hint="fetch the model again")
