"""The embedded default embedder. A few short texts are embedded without NumPy, whose import takes longer than that.

Both ways read the same table and differ in the last bits of a float32 only.
"""

from __future__ import annotations

import ast
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
from crystal.errors import Damaged

if TYPE_CHECKING:
    from crystal.embedding.embedder import TokenRows
    from crystal.embedding.static import StaticModel

DATA = Path(__file__).with_name("data")
UNKNOWN = "[UNK]"

FEW_CHARACTERS = 20_000
"""Up to so many characters Python alone is faster than importing NumPy and using it."""


_RAISED = bytes((byte + 128) % 256 for byte in range(256))
"""Bytes that stand for -128 to 127, raised by 128."""


class SmallStaticModel:
    """The table of ``StaticModel``, read with the standard library alone.

    Args:
        folder: Where ``vectors.npy``, ``scales.npy`` and ``vocabulary.txt`` are.

    Raises:
        Damaged: They are not there, or not what they should be.
    """

    def __init__(self, folder: Path = DATA) -> None:
        try:
            with (folder / "vectors.npy").open("rb") as file:
                mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            at, (rows, self._dimension) = _npy_header(mapped, "|i1")
            self._vectors = mapped[at:]
            scales = (folder / "scales.npy").read_bytes()
            self._scales = array("f", scales[_npy_header(memoryview(scales), "<f4")[0] :])
            tokens = (folder / "vocabulary.txt").read_text("utf-8").rstrip("\n").split("\n")
            self._unknown = tokens.index(UNKNOWN)
        except (OSError, ValueError) as error:
            raise damaged(folder) from error
        if not len(tokens) == rows == len(self._scales) or len(self._vectors) != rows * self._dimension:
            raise damaged(folder)
        self._words = WordPiece(tokens, self._unknown)

    def vector(self, text: str) -> bytes:
        """Return the text's vector as ``StaticModel.vector`` does: little-endian float32, of length 1."""
        known = [token for token in self._words.encode(text) if token != self._unknown] or [self._unknown]
        counts = {token: count * self._scales[token] for token, count in Counter(known).items()}
        total = self._sum(counts)
        if not any(total):  # opposite tokens may cancel out
            total = self._sum({self._unknown: 1.0})
        length = math.sqrt(sum(value * value for value in total))
        return array("f", [value / length for value in total]).tobytes()

    def _sum(self, weights: Mapping[int, float]) -> list[int]:
        """Return the sum of rows times weights, times a constant.

        A row is one large integer with 64 bits for each number, so that Python multiplies and adds all of them at
        once: four times as fast as one by one. Numbers are raised by 128 so that none is negative, and weights are
        rounded to integers of 54 bits together, so that no sum needs more than 64.
        """
        unit = 2.0**54 / sum(weights.values())
        lanes, total, offset = bytearray(8 * self._dimension), 0, 0
        for token, weight in weights.items():
            whole = round(weight * unit)
            row = bytes(self._vectors[token * self._dimension : (token + 1) * self._dimension])
            lanes[::8] = row.translate(_RAISED)
            total += whole * int.from_bytes(lanes, "little")
            offset += 128 * whole
        return [value - offset for value in array("Q", total.to_bytes(len(lanes), "little"))]


def _npy_header(data: memoryview, kind: str) -> tuple[int, tuple[int, ...]]:
    """Return where the numbers of an ``.npy`` file begin, and its shape.

    Raises:
        ValueError: It is no such file, or holds other numbers.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, format 1.0.
    """
    if bytes(data[:8]) != b"\x93NUMPY\x01\x00":
        raise ValueError("no .npy file of format 1.0")
    end = 10 + int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(bytes(data[10:end]).decode("latin-1"))
    if header["descr"] != kind or header["fortran_order"]:
        raise ValueError(f"other numbers than {kind}")
    return end, tuple(header["shape"])


@functools.cache
def small_static_model(folder: Path = DATA) -> SmallStaticModel:
    """Return the table of a folder, once for a process."""
    return SmallStaticModel(folder)


class StaticEmbedder:
    """The default embedder, see ``Embedder``."""

    def __init__(self, folder: Path = DATA) -> None:
        self._folder = folder

    @property
    def model(self) -> StaticModel:
        """Return the table, mapped when it is first needed."""
        from crystal.embedding.static import static_model

        return static_model(self._folder)

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """Embed documents, see ``Embedder``."""
        if "numpy" not in sys.modules and sys.byteorder == "little" and sum(map(len, texts)) <= FEW_CHARACTERS:
            return [small_static_model(self._folder).vector(text) for text in texts]
        return [self.model.vector(text).astype("<f4").tobytes() for text in texts]

    def embed_query(self, text: str) -> bytes:
        """Embed a question, see ``Embedder``."""
        return self.model.vector(text).astype("<f4").tobytes() if self.model.tokens(text) else b""

    def token_vectors(self, texts: Sequence[str]) -> list[TokenRows]:
        """Return token vectors, see ``TokenVectors``."""
        return [self.model.token_vectors(text) for text in texts]

    def take_tokens(self) -> int:
        """Return 0: nothing is paid."""
        return 0


def damaged(folder: Path) -> Damaged:
    """Return the error for a table that cannot be read."""
    return Damaged(f"the embedded model in {folder} is damaged", hint="install crystal again: docs/how-to/upgrade.md")
