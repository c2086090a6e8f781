"""What a ranking is worth: metrics of one question, and means over questions with 95 % bootstrap intervals.

A ranking comes as the ranks (from 1) at which gold was found, and the number of gold there is: everything else follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

METRICS = ("hit@1", "hit@5", "hit@10", "all@5", "all@10", "share@1", "share@5", "share@10", "MRR", "nDCG@10")
"""``hit@k`` is recall_any@k, ``all@k`` recall_all@k, ``share@k`` the part of the gold among the first k."""

RESAMPLES = 2000
SEED = 20261121


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % percentile bootstrap interval over questions."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f}–{self.high:.3f})"  # noqa: RUF001


def ranks_of(found: Iterable[str], gold: frozenset[str]) -> list[int]:
    """The ranks at which gold stands; what comes again keeps its first place and takes no other."""
    return [rank for rank, one in enumerate(dict.fromkeys(found), 1) if one in gold]


def values_of(ranks: Sequence[int], gold: int) -> list[float]:
    """The metrics of one question, in the order of ``METRICS``. ``gold`` is at least 1."""
    within = {k: sum(rank <= k for rank in ranks) for k in (1, 5, 10)}
    gain = sum(1 / math.log2(rank + 1) for rank in ranks if rank <= 10)
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(gold, 10) + 1))
    return [
        *(float(within[k] > 0) for k in (1, 5, 10)),
        *(float(within[k] == gold) for k in (5, 10)),
        *(within[k] / gold for k in (1, 5, 10)),
        1 / min(ranks) if ranks else 0.0,
        gain / ideal,
    ]


Values = npt.NDArray[np.float64]


def estimates(values: Values) -> list[Estimate]:
    """The mean of each column, with its interval. Rows are questions."""
    count = len(values)
    if not count:
        return [Estimate(math.nan, math.nan, math.nan, 0)] * values.shape[1]
    low, high = np.percentile(_resampled(values), [2.5, 97.5], axis=0)
    means = values.mean(axis=0)
    return [Estimate(float(m), float(a), float(b), count) for m, a, b in zip(means, low, high, strict=True)]


def _resampled(values: Values) -> Values:
    """The means of resamples, ``(RESAMPLES, columns)``."""
    return np.asarray(_times_drawn(len(values)).astype(np.float64) @ values / len(values))


@lru_cache(maxsize=4)
def _times_drawn(count: int) -> npt.NDArray[np.float32]:
    """How often each row is in each resample: the same for all systems, so that they are compared on the same ones."""
    draws = np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count), dtype=np.int32)
    return np.stack([np.bincount(draw, minlength=count).astype(np.float32) for draw in draws])
