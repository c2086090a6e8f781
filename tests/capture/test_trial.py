"""All misfortunes together, on real processes: nothing is lost, nothing doubled, and the printed advice is enough."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.small_disk import small_disk
from tests.support.trial import Trial
from tests.support.trial_of_two import TwoMachines


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_doubled_whatever_happens_while_transcripts_grow(tmp_path: Path, seed: int) -> None:
    with small_disk(tmp_path, "64m") as disk:
        trial = Trial(disk / "home", seed)
        try:
            trial.run(steps=30)
            assert trial.differences(tmp_path / "clean") == {"lost": 0, "too many": 0}
        finally:
            trial.end_processes()
    assert trial.failures == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_nothing_is_lost_or_doubled_between_two_machines(tmp_path: Path) -> None:
    trial = TwoMachines(tmp_path / "home", seed=2)
    trial.run(steps=15)
    found = trial.differences(tmp_path / "clean")
    assert (trial.failures, found) == ([], dict.fromkeys(found, 0))
