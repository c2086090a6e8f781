"""Watching sources: what changes is read, and a folder that is away ends nothing."""

from __future__ import annotations

import contextlib
import shutil
import threading
from pathlib import Path

import pytest

from crystal import Crystal
from crystal.app.context import default_paths, open_machine
from crystal.app.watch import watch_sources
from crystal.capture.lock import try_lock
from crystal.sources import watch
from tests.support.command import crystal
from tests.support.whole_memory import wait_until


@pytest.fixture
def _soon(monkeypatch):
    """Look for folders often, and do not wait for more changes: the default is a person's patience."""
    for name, value in (("LOOK_MS", 200), ("DEBOUNCE_MS", 50)):
        monkeypatch.setattr(watch, name, value)


@contextlib.contextmanager
def watching():
    stop, told = threading.Event(), []
    thread = threading.Thread(
        target=lambda: watch_sources(lambda reports, problems: told.append((reports, problems)), stop)
    )
    thread.start()
    try:
        wait_until(lambda: told, "the first sync")
        yield told
    finally:
        stop.set()
        thread.join(30)


@pytest.mark.usefixtures("_soon")
def test_watch_follows_atomic_renames_and_deletions(added: Path) -> None:
    with watching():
        with try_lock(default_paths().data_dir / "sources-watch.lock") as held:
            assert held is None, "one process watches"
        temporary = added / ".a.md.tmp"
        temporary.write_text("# New\n\nthe numbat note")
        temporary.replace(added / "a.md")
        (added / "sub" / "b.py").unlink()
        wait_until(lambda: _texts() == ["New\n# New\n\nthe numbat note"], lambda: str(_texts()))


@pytest.mark.usefixtures("_soon")
def test_watch_goes_on_while_its_only_folder_is_away_and_made_anew(added):
    with watching() as told:
        away = added.rename(added.with_name("away"))
        wait_until(lambda: any("is not there" in one for _, problems in told for one in problems), lambda: str(told))
        added.mkdir()
        (added / "a.md").write_text("a numbat")
        wait_until(lambda: _texts() == ["a numbat"], lambda: str(_texts()))
        shutil.rmtree(added)
        away.rename(added)
        wait_until(lambda: len(_texts()) == 3, lambda: str(_texts()))
        (added / "a.md").write_text("a quoll")
        wait_until(lambda: "a quoll" in _texts(), lambda: str(_texts()))


def test_a_folder_that_goes_away_before_it_is_watched_ends_nothing(tmp_path: Path) -> None:
    assert list(watch.changed_paths([tmp_path, tmp_path / "gone"], threading.Event())) == [set()]


def _texts() -> list[str]:
    with open_machine() as machine:
        return [text for (text,) in machine.store.rows("SELECT text FROM chunks WHERE source = 'file' ORDER BY id")]


def test_watch_without_sources_says_what_to_do(home: Path) -> None:
    Crystal(create=True).close()
    done = crystal("sources", "watch")
    assert (done.code, "crystal sources add PATH" in done.err) == (1, True)
