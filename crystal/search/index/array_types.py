"""Define types of arrays, by the meaning of their numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Ordinals = Ints
"""Numbers of documents, counted through all parts or within one part."""
