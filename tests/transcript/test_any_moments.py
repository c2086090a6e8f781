"""Claims about every reader: reading a growing session at any moments gives the same as reading it once at the end."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crystal.app.capture import run_capture
from crystal.app.context import open_machine
from crystal.capture.engine import Capture
from crystal.config.harnesses import HARNESSES
from tests.support import agent_samples as samples
from tests.support.agent_samples import Fact
from tests.support.command import crystal
from tests.support.growing_files import growing_files, live, lives, losses
from tests.support.killed import killed_at

every_agent = pytest.mark.parametrize("harness", samples.sampled())
many = settings(max_examples=4, suppress_health_check=list(HealthCheck))


@pytest.fixture
def fresh(home: Path) -> Callable[[], Path]:
    """Give a function that makes the home as it was just after ``crystal init``."""
    done = crystal("init", "--yes", "--no-import")
    assert done.code == 0, done.err
    kept = home.with_name("kept")
    shutil.copytree(home, kept, symlinks=True)

    def make() -> Path:
        shutil.rmtree(home)
        shutil.copytree(kept, home, symlinks=True)
        return home

    return make


def read_all(harness: str, home: Path, *, dies_at: int = 0) -> None:
    """Let crystal read what is there: a sweep, or the import of an export.

    A sweep dies before the SQL statement of a number, if it comes so far.
    """
    if HARNESSES[harness].is_export:
        crystal("import", str(home))  # one that is cut short is refused
        return
    with open_machine({}) as machine, killed_at(machine.store, dies_at):
        run_capture(machine, Capture.sweep)


def counted(turns: list[Fact]) -> Counter[str]:
    return Counter(json.dumps(turn) for turn in turns)


def assert_as_read_once(harness: str, *, may_be_unreadable: bool = False) -> None:
    """Compare all that is stored with the samples; a file that its program left without a beginning may be named."""
    found, told = counted(samples.captured()[1]), counted(samples.expected(harness)[1])
    assert (sorted(told - found), sorted(found - told)) == ([], []), "lost, and more than once"
    done = crystal("verify", "--json")
    faults = [one for one in json.loads(done.out)["faults"] if not (may_be_unreadable and one["kind"] == "unreadable")]
    assert not faults, done.out + done.err
    assert done.code == 0 or may_be_unreadable, done.out + done.err


@pytest.mark.slow
@every_agent
@many
@given(data=st.data())
def test_any_moments_give_the_same_as_the_end(harness: str, fresh: Callable[[], Path], data: st.DataObject) -> None:
    home, files = fresh(), growing_files(harness)
    for _ in live(files, home, data.draw(lives(files))):
        read_all(harness, home)
    assert_as_read_once(harness)


OTHER_WORDS = ("vscode-chat",)
"""Cut short, its log of changes tells an earlier state in other words: that is an edit, and the newest words count."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "harness", [one for one in samples.sampled() if not HARNESSES[one].is_export and one not in OTHER_WORDS]
)
@settings(many, derandomize=True)
@given(data=st.data())
def test_what_an_agent_deletes_is_kept_and_comes_back_once(
    harness: str, fresh: Callable[[], Path], data: st.DataObject
) -> None:
    home, files = fresh(), growing_files(harness)
    for _ in live(files, home, data.draw(lives(files))):
        read_all(harness, home)
    for lost in data.draw(losses(files)):
        for number, loss in lost.items():
            if (home / files[number].name).exists():
                files[number].lose(home, loss)
        read_all(harness, home, dies_at=data.draw(st.integers(0, 300)))
        read_all(harness, home)
        assert_as_read_once(harness, may_be_unreadable=True)
    for file in files:  # as a backup brings it back
        file.write(home, file.length)
    read_all(harness, home)
    assert_as_read_once(harness)


@pytest.mark.slow
@pytest.mark.parametrize("harness", samples.ONE_OF_EACH)
@many
@given(data=st.data())
def test_a_process_that_dies_loses_and_doubles_nothing(
    harness: str, fresh: Callable[[], Path], data: st.DataObject
) -> None:
    home, files = fresh(), growing_files(harness)
    for _ in live(files, home, data.draw(lives(files))):
        read_all(harness, home, dies_at=data.draw(st.integers(0, 300)))
    read_all(harness, home)
    assert_as_read_once(harness)
