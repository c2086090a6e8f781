"""The benchmark of search says which kinds of questions fall behind their targets."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from search import TARGETS, print_targets


def test_a_kind_that_falls_behind_its_median_or_p95_is_named(capsys) -> None:
    kept = {kind: [median] * 19 + [most] for kind, (median, most) in TARGETS.items()}
    assert print_targets(kept, kept) == []
    slow = {**kept, "phrase": [12.0] * 20, "path": [9.0] * 17 + [16.0] * 3}
    assert print_targets(slow, kept) == ["path", "phrase"]
    assert "behind its target: phrase: 12.0 ms (target 10), p95 12.0 ms (15)\n" in capsys.readouterr().out
