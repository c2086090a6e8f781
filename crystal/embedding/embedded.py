"""Run the embedded default embedder. A few short texts are embedded without NumPy, whose import takes longer.

Both ways read the same table, and their results differ only in the last bits of a float32.
"""

from __future__ import annotations

import functools
import math
import mmap
import sys
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.embedding.wordpiece import WordPiece
from crystal.errors import DamagedError
from crystal.model.named_tuple import NamedTuple

if TYPE_CHECKING:
    from crystal.embedding.static import StaticModel

DATA = Path(__file__).with_name("data")
UNKNOWN = "[UNK]"

FEW_CHARACTERS = 20_000
"""Up to this many characters, Python is faster than importing and using NumPy."""


_RAISED = bytes((byte + 128) % 256 for byte in range(256))
"""Bytes for -128 to 127, increased by 128."""


_LANE = 5
"""Bytes for each number of a sum."""


class TokenTable(NamedTuple):
    """The table of token vectors: int8 rows, a float32 scale for each (little-endian), and the vocabulary."""

    vectors: memoryview
    scales: bytes
    dimension: int
    words: WordPiece
    unknown: int

    def tokens(self, text: str) -> list[int]:
        """Return the known tokens of a text."""
        found = self.words.encode(text)
        return [token for token in found if token != self.unknown] if self.unknown in found else found


def read_table(folder: Path) -> TokenTable:
    """Map the table of a folder, which contains ``vectors.npy``, ``scales.npy`` and ``vocabulary.txt``.

    Raises:
        DamagedError: A file is missing or has other content.
    """
    try:
        with (folder / "vectors.npy").open("rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        at, (rows, dimension) = _npy_header(mapped, "|i1")
        scales = (folder / "scales.npy").read_bytes()
        scales = scales[_npy_header(memoryview(scales), "<f4")[0] :]
        tokens = (folder / "vocabulary.txt").read_bytes().decode().rstrip("\n").split("\n")
        unknown = tokens.index(UNKNOWN)
        if not len(tokens) == rows == len(scales) // 4 or len(mapped) - at != rows * dimension:
            raise ValueError(rows)
    except (OSError, ValueError) as error:
        hint = "install crystal again: docs/how-to/upgrade.md"
        raise DamagedError(f"the embedded model in {folder} is damaged", hint=hint) from error
    return TokenTable(mapped[at:], scales, dimension, WordPiece(tokens, unknown), unknown)


class SmallStaticModel:
    """Compute the vectors of ``StaticModel`` from the table with the standard library alone.

    Args:
        folder: See ``read_table``.
    """

    def __init__(self, folder: Path = DATA) -> None:
        self._table = read_table(folder)
        self._scales = array("f", self._table.scales)

    def vector(self, text: str) -> bytes:
        """Return the text's vector as ``StaticModel.vector`` does: little-endian float32, of length 1."""
        known = self._table.tokens(text) or [self._table.unknown]
        counts = {token: count * self._scales[token] for token, count in Counter(known).items()}
        total = self._sum(counts)
        if not any(total):  # opposite tokens may add up to zero
            total = self._sum({self._table.unknown: 1.0})
        length = math.sqrt(sum(value * value for value in total))
        return array("f", [value / length for value in total]).tobytes()

    def _sum(self, weights: Mapping[int, float]) -> list[int]:
        """Return the weighted sum of rows, multiplied by a constant.

        A row is one large integer with 40 bits for each number, so that Python multiplies and adds all of them at once,
        six times as fast as one by one. Numbers are increased by 128 so that none is negative, and weights are
        rounded to integers of 31 bits together, so that no sum needs more than 40.
        """
        unit = 2.0**31 / sum(weights.values())
        vectors, size = self._table.vectors, self._table.dimension
        lanes, wide, total, offset = bytearray(_LANE * size), bytearray(8 * size), 0, 0
        for token, weight in weights.items():
            whole = round(weight * unit)
            lanes[::_LANE] = bytes(vectors[token * size : (token + 1) * size]).translate(_RAISED)
            total += whole * int.from_bytes(lanes, "little")
            offset += 128 * whole
        lanes[:] = total.to_bytes(len(lanes), "little")
        for at in range(_LANE):
            wide[at::8] = lanes[at::_LANE]
        return [value - offset for value in array("Q", wide)]


def _npy_header(data: memoryview, kind: str) -> tuple[int, tuple[int, ...]]:
    """Return the offset of the numbers in an ``.npy`` file, and its shape.

    Raises:
        ValueError: It is no such file, or contains other numbers.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, format 1.0.
    """
    if bytes(data[:8]) != b"\x93NUMPY\x01\x00":
        raise ValueError("no .npy file of format 1.0")
    end = 10 + int.from_bytes(data[8:10], "little")
    start, _, shape = bytes(data[10:end]).decode("latin-1").rstrip().partition("'shape': (")
    if start != f"{{'descr': '{kind}', 'fortran_order': False, " or not shape.endswith("), }"):
        raise ValueError(f"other numbers than {kind}")
    return end, tuple(int(size) for size in shape.removesuffix("), }").split(",") if size)


@functools.cache
def small_static_model() -> SmallStaticModel:
    """Return the packaged table, loaded once per process."""
    return SmallStaticModel()


class StaticEmbedder:
    """The default embedder, see ``Embedder``."""

    @property
    def model(self) -> StaticModel:
        """Return the table, mapped at its first use."""
        from crystal.embedding.static import static_model

        return static_model()

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """Embed documents, see ``Embedder``."""
        if "numpy" not in sys.modules and sys.byteorder == "little" and sum(map(len, texts)) <= FEW_CHARACTERS:
            return [small_static_model().vector(text) for text in texts]
        return [self.model.vector(text).astype("<f4").tobytes() for text in texts]

    def embed_query(self, text: str) -> bytes:
        """Embed a question, see ``Embedder``."""
        return self.model.vector(text).astype("<f4").tobytes() if self.model.tokens(text) else b""
