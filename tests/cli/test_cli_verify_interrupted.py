"""A repair that is interrupted after the new database took its place: the next one says what did not come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from crystal.app import integrity
from crystal.cli import verify
from tests.support.command import crystal

LOST = "lost: memories that were only in the old database, if any"


def test_what_an_interrupted_repair_could_not_bring_back_is_told_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript = home / ".claude" / "projects" / "-w" / "s.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_text('{"type":"user","uuid":"u1","sessionId":"s","message":{"role":"user","content":"hello"}}\n')
    assert crystal("init", "--yes", "--import").code == 0
    for file in (home / ".ldm" / "memory").glob("crystal.db*"):
        file.unlink()

    def end(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for module, step in ((integrity, "_mend_in_place"), (verify, "answer")):
        with monkeypatch.context() as patched:
            patched.setattr(module, step, end)
            assert crystal("verify", "--repair").code == 130
    for expected in (True, False):
        done = crystal("verify", "--repair")
        assert (done.code, LOST in done.out) == (0, expected)
