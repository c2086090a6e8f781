"""Types of arrays, by what their numbers are."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Ordinals = Ints
"""Places of documents: through all parts, or in one."""
