"""``--off`` on a disk that is full holds at once, and what was said before it is kept when there is room."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal.hook.statusline import line_for
from tests.support.capture_machine import line
from tests.support.command import crystal
from tests.support.homes import live_in
from tests.support.small_disk import small_disk

SESSION = "aaaaaaaa-1111-4111-8111-111111111111"
OTHER = "bbbbbbbb-1111-4111-8111-111111111111"
pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A memory on a small disk; the transcripts are on another."""
    with small_disk(tmp_path, "2m") as disk:
        live_in(tmp_path / "home", monkeypatch)
        monkeypatch.setenv("LDM_HOME", str(disk / ".ldm"))
        _transcript(SESSION).parent.mkdir(parents=True)
        assert crystal("init", "--yes", "--no-import").code == 0
        yield disk


def _transcript(session: str) -> Path:
    return Path.home() / ".claude" / "projects" / "p" / f"{session}.jsonl"


def _say(session: str, text: str) -> None:
    with _transcript(session).open("ab") as file:
        file.write(line(text, sessionId=session, at=time.time_ns() // 1_000_000))


def _fill(disk: Path) -> Path:
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass
    return disk / "filler"


def _kept() -> set[str]:
    shown = [json.loads(crystal("show", session, "--json").out or "{}") for session in (SESSION, OTHER)]
    return {turn["text"] for one in shown for turn in one.get("turns", [])}


@pytest.mark.parametrize("session", [None, SESSION])
def test_off_holds_from_the_first_command_on(disk: Path, session: str | None) -> None:
    _say(SESSION, "before")
    filler = _fill(disk)
    done = crystal("--off", *(() if session is None else ("--session", session)))
    assert (done.code, "full; capture is off" in done.err) == (0, True), done.err
    assert ("capture is off since" if session is None else SESSION) in done.out
    assert "paused" in line_for({"session_id": SESSION}, dict(os.environ), time.time_ns())
    _say(SESSION, "off the record")
    _say(OTHER, "elsewhere")
    filler.unlink()
    assert crystal("sync").code == 0
    assert not list((disk / ".ldm" / "memory").glob("off-*"))
    assert (b"paused since" in (disk / ".ldm" / "memory" / "notice.json").read_bytes()) is (session is None)
    assert _kept() == ({"before"} if session is None else {"before", "elsewhere"})
    assert crystal("--on", *(() if session is None else ("--session", session))).code == 0
    _say(SESSION, "after")
    assert crystal("sync").code == 0
    assert _kept() == {"before", "after", *(() if session is None else ("elsewhere",))}
    assert crystal("verify").code == 0
