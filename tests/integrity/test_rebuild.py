"""A rebuilt database: what a transcript says and the archive lacks is named, and ``backfill`` brings it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from crystal.ingest.archive import placed_frames
from tests.support.archive_frames import frames_in
from tests.support.capture_machine import NOW, line
from tests.support.command import crystal
from tests.support.whole_memory import Memory

SESSION = "aaaaaaaa-1111-4111-8111-111111111111"


@pytest.fixture
def memory(home: Path) -> Memory:
    """A memory that met a session after two of its lines, and has three that came later, a frame each."""
    transcript = home / ".claude" / "projects" / "p" / f"{SESSION}.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_bytes(b'{"type":"summary"}\n' + _said("old one") + _said("old two"))
    assert crystal("init", "--yes", "--no-import").code == 0
    for text in ("new one", f"new two, password={'hunter2' * 2}", "new three"):
        with transcript.open("ab") as file:
            file.write(_said(text))
        assert crystal("sync").code == 0
    return Memory(home, os.environ)


def _said(text: str) -> bytes:
    return line(text, sessionId=SESSION)


def _lose(memory: Memory) -> None:
    for path in memory.data.glob("crystal.db*"):
        path.unlink()


def _said_in(memory: Memory) -> list[str]:
    return sorted(text.partition(",")[0] for text in memory.texts("user"))


def test_what_is_older_than_the_archive_is_named_and_imported_when_asked_for(memory: Memory) -> None:
    _lose(memory)
    done = crystal("verify", "--repair")
    assert (done.code, "crystal backfill" in done.out) == (0, True), done.out + done.err
    assert _said_in(memory) == ["new one", "new three", "new two"]
    assert crystal("backfill").code == 0
    assert _said_in(memory) == ["new one", "new three", "new two", "old one", "old two"]
    assert crystal("verify").code == 0
    assert crystal("backfill").out.strip() == "nothing new"


def test_what_a_damaged_archive_lost_comes_from_the_transcript(memory: Memory) -> None:
    archive = next(memory.home.rglob(f"{SESSION}.jsonl.zst"))
    data, frames = bytearray(archive.read_bytes()), [frame for frame, _ in placed_frames(archive)]
    data[frames[1].offset + 12] ^= 0xFF
    archive.write_bytes(data)
    _lose(memory)
    done = crystal("verify", "--repair")
    assert "cannot be read" in done.out, done.out + done.err
    assert _said_in(memory) == ["new one", "new three"]
    assert crystal("backfill").code == 0
    assert _said_in(memory) == ["new one", "new three", "new two", "old one", "old two"]
    assert "hunter2" not in " ".join(memory.texts("user"))


def test_a_line_without_an_id_at_the_end_is_archived_once(memory: Memory) -> None:
    transcript = next(memory.home.rglob(f"{SESSION}.jsonl"))
    for text in ('{"type":"file-history-snapshot","n":1}', '{"type":"file-history-snapshot","n":2}'):
        with transcript.open("a") as file:
            file.write(text + "\n")
        assert crystal("sync").code == 0
    _lose(memory)
    with transcript.open("a") as file:
        file.write('{"type":"file-history-snapshot","n":3}\n')
    assert crystal("verify", "--repair").code == 0
    archive = next(memory.home.rglob(f"{SESSION}.jsonl.zst"))
    assert [b"".join(frames_in(archive)).count(b'"n":%d' % number) for number in (1, 2, 3)] == [1, 1, 1]


def test_a_session_that_a_hook_named_is_not_older_than_crystal(memory: Memory) -> None:
    _lose(memory)
    for archive in memory.home.rglob("*.jsonl.zst"):
        archive.unlink()
    (spool := memory.data / "spool").mkdir(exist_ok=True)
    (spool / "0-1-a.json").write_text(json.dumps({"v": 1, "at": NOW, "event": "Stop", "session_id": SESSION}))
    assert crystal("verify", "--repair").code == 0
    assert "new three" in memory.texts("user")


def test_nothing_private_or_forgotten_is_among_it(memory: Memory) -> None:
    transcript = next(memory.home.rglob(f"{SESSION}.jsonl"))
    assert crystal("forget", "--query", "two", "--yes").code == 0
    assert crystal("--off").code == 0
    with transcript.open("ab") as file:
        file.write(_said("off the record"))
    assert crystal("--on").code == 0
    with transcript.open("ab") as file:
        file.write(_said("new four"))
    assert crystal("sync").code == 0
    _lose(memory)
    assert crystal("verify", "--repair").code == 0
    assert crystal("backfill").code == 0
    assert _said_in(memory) == ["new four", "new one", "new three", "old one", "old two"]
    assert not memory.files_with("off the record")
