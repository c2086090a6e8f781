"""All misfortunes together, on real processes: nothing is lost, nothing doubled, and the printed advice is enough."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.small_disk import small_disk
from tests.support.trial import Trial


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_doubled_whatever_happens_while_transcripts_grow(tmp_path: Path, seed: int) -> None:
    with small_disk(tmp_path, "64m") as disk:
        trial = Trial(disk / "home", seed)
        try:
            trial.run(steps=30)
            assert trial.comparable(trial.archived()) == trial.comparable(trial.clean_import(tmp_path / "clean"))
        finally:
            trial.end_processes()
    assert trial.failures == []
