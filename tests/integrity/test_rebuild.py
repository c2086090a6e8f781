"""A rebuilt database: what a transcript says and the archive lacks is named, and ``backfill`` brings it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.ingest.archive import placed_frames
from tests.support.archive_frames import frames_in
from tests.support.capture_machine import NOW, line
from tests.support.command import crystal
from tests.support.examples import examples
from tests.support.homes import live_in
from tests.support.unreadable import refuse_to_open
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


def _damage(memory: Memory, *changed: bytes) -> None:
    """Flip a bit of the schema, and replace other bytes."""
    database = memory.data / "crystal.db"
    with closing(apsw.Connection(str(database))) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = database.read_bytes()
    assert all(data.count(before) == 1 for before in changed[::2])
    database.write_bytes(data.replace(*changed or (b"", b""), 1).replace(b"CHECK (kind IN (", b"CHECK (kind IN$(", 1))


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


@pytest.mark.parametrize("size", [None, 0, 200, -20])
def test_what_an_archive_loses_after_a_repair_comes_from_the_transcript(memory: Memory, size: int | None) -> None:
    """The archive is deleted, or cut to a size, when the ledger places its lines no more in the transcript."""
    _lose(memory)
    assert crystal("verify", "--repair").code == 0
    with next(memory.home.rglob(f"{SESSION}.jsonl")).open("ab") as file:
        file.write(_said("new four, of which the ledger knows the place"))
    assert crystal("sync").code == 0
    archive = next(memory.home.rglob(f"{SESSION}.jsonl.zst"))
    if size is None:
        archive.unlink()
    else:
        archive.write_bytes(archive.read_bytes()[:size])
    done = crystal("verify", "--repair")
    assert (done.code, " again" in done.out) == (0, True), done.out + done.err
    assert crystal("backfill").code == 0
    assert _said_in(memory) == ["new four", "new one", "new three", "new two", "old one", "old two"]
    archived = b"".join(frames_in(archive))
    assert [archived.count(b"new %s" % word) for word in (b"one", b"two", b"three", b"four")] == [1, 1, 1, 1]
    assert "hunter2" not in " ".join(memory.texts("user"))
    assert crystal("verify").code == 0
    _say_nothing_is_lost(memory)


def _say_nothing_is_lost(memory: Memory) -> None:
    """Lose the database of an archive that was mended: what was damaged in it is elsewhere in it now."""
    before = _said_in(memory)
    _lose(memory)
    done = crystal("verify", "--repair")
    assert (done.code, "cannot be read" in done.out) == (0, False), done.out + done.err
    assert _said_in(memory) == before


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_damaged_frame_is_archived_again_from_the_transcript(home: Path, end: bytes, *, is_cut: bool) -> None:
    """The last line of a transcript may lack its newline."""
    transcript = home / ".claude" / "projects" / "p" / f"{SESSION}.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_bytes(_said("new one") + _said("new two").rstrip(b"\n") + end)
    assert crystal("init", "--yes", "--import").code == 0
    archive = next(home.rglob(f"{SESSION}.jsonl.zst"))
    data = archive.read_bytes()
    archive.write_bytes(data[:-9] if is_cut else data[:-9] + bytes(9))
    done = crystal("verify", "--repair")
    assert (done.code, "archived bytes 0 to" in done.out) == (0, True), done.out + done.err
    assert [(text or b"").count(b"new ") for _, text in placed_frames(archive)] == [2]
    _say_nothing_is_lost(Memory(home, os.environ))


@examples(30)
@given(told=st.lists(st.sampled_from(["n1", "n2", "said"]), max_size=8), old=st.integers(0, 8), cuts=st.integers(1, 3))
def test_each_line_without_an_id_is_archived_once(
    told: list[str], old: int, cuts: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Lines of which many are equal, the first of them older than crystal, through several losses of the database."""
    home = tmp_path_factory.mktemp("home")
    transcript = home / ".claude" / "projects" / "p" / f"{SESSION}.jsonl"
    transcript.parent.mkdir(parents=True)
    lines = [_said(str(n)) if one == "said" else b'{"type":"%s"}\n' % one.encode() for n, one in enumerate(told)]
    lines.append(_said("the end"))
    with pytest.MonkeyPatch.context() as patch:
        live_in(home, patch)
        memory = Memory(home, os.environ)
        transcript.write_bytes(b"".join(lines[:old]))
        assert crystal("init", "--yes", "--no-import").code == 0
        for start in range(old, len(lines), cuts):
            with transcript.open("ab") as file:
                file.writelines(lines[start : start + cuts])
            assert crystal("sync").code == 0
            _lose(memory)
            assert crystal("verify", "--repair").code in (0, 1)
        for _ in range(2):
            assert crystal("backfill").code == 0
            _lose(memory)
            assert crystal("verify", "--repair").code in (0, 1)
    archived = b"".join(b"".join(frames_in(archive)) for archive in home.rglob("*.jsonl.zst"))
    assert Counter(archived.splitlines(keepends=True)) == Counter(lines)


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


def test_a_damaged_watermark_has_nothing_archived_twice(memory: Memory) -> None:
    """A bit flips in the hash before the watermark, and another where the damage is seen."""
    transcript = next(memory.home.rglob(f"{SESSION}.jsonl"))
    with closing(apsw.Connection(str(memory.data / "crystal.db"))) as db:
        ((mark,),) = db.execute("SELECT tail_hash FROM capture_state").fetchall()
    _damage(memory, mark, bytes([mark[0] ^ 1]) + mark[1:])
    with transcript.open("ab") as file:
        file.write(_said("new four"))
    assert crystal("verify", "--repair").code == 0
    assert _said_in(memory) == ["new four", "new one", "new three", "new two"]
    archived = b"".join(frames_in(next(memory.home.rglob(f"{SESSION}.jsonl.zst"))))
    assert [archived.count(b"new %s" % word) for word in (b"one", b"two", b"three", b"four")] == [1, 1, 1, 1]


@pytest.mark.parametrize("column", ["transcript", "device", "agent", "session_id"])
def test_a_damaged_name_has_nothing_archived_twice(memory: Memory, column: str) -> None:
    """A bit flips in what says whose archive it is, and another where the damage is seen."""
    with closing(apsw.Connection(str(memory.data / "crystal.db"))) as db:
        db.execute(f"UPDATE capture_state SET {column} = 'b' || substr({column}, 2)")
    _damage(memory)
    transcript = next(memory.home.rglob(f"{SESSION}.jsonl"))
    with transcript.open("ab") as file:
        file.write(_said("new four"))
    crystal("verify", "--repair")
    assert crystal("sync").code == 0
    assert _said_in(memory) == ["new four", "new one", "new three", "new two"]
    archived = b"".join(b"".join(frames_in(archive)) for archive in memory.home.rglob("*.jsonl.zst"))
    assert [archived.count(b"new %s" % word) for word in (b"one", b"two", b"three", b"four")] == [1, 1, 1, 1]
    sessions = json.loads(crystal("sessions", "--json").out)["sessions"]
    assert [one["id"] for one in sessions] == [SESSION]
    assert crystal("verify").code == 0


def _repair_unread(memory: Memory, monkeypatch: pytest.MonkeyPatch, transcript: Path) -> str:
    """Repair while the system refuses to open a transcript; return what was printed."""
    with monkeypatch.context() as patch:
        refuse_to_open(patch, transcript)
        done = crystal("verify", "--repair")
    assert (done.code, done.err.count("Traceback")) == (1, 0), done.out + done.err
    transcript.chmod(0o600)
    return done.out


@pytest.mark.parametrize("lose", [_damage, _lose])
def test_a_transcript_that_cannot_be_read_does_not_stop_the_repair(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, lose: Callable[[Memory], None]
) -> None:
    """Its further lines are captured when it can be read, each once."""
    transcript = next(memory.home.rglob(f"{SESSION}.jsonl"))
    lose(memory)
    told = " ".join(_repair_unread(memory, monkeypatch, transcript).split())
    assert f"unreadable: {transcript}" in told
    if lose is _lose:
        assert f"{transcript} cannot be read (permission denied): what it says" in told
    assert _said_in(memory) == ["new one", "new three", "new two"]
    with transcript.open("ab") as file:
        file.write(_said("new four"))
    assert crystal("sync").code == 0
    assert _said_in(memory) == ["new four", "new one", "new three", "new two"]
    assert crystal("verify").code == 0
    assert crystal("backfill").code == 0
    assert _said_in(memory) == ["new four", "new one", "new three", "new two", "old one", "old two"]
    archived = b"".join(frames_in(next(memory.home.rglob(f"{SESSION}.jsonl.zst"))))
    words = ("old one", "old two", "new one", "new two", "new three", "new four")
    assert [archived.count(word.encode()) for word in words] == [1] * 6


def test_a_transcript_that_comes_back_after_the_repair_has_nothing_archived_twice(memory: Memory) -> None:
    """Its disk was not mounted while the database was rebuilt."""
    transcript = next(memory.home.rglob(f"{SESSION}.jsonl"))
    away = transcript.rename(transcript.with_suffix(".away"))
    _lose(memory)
    assert crystal("verify", "--repair").code == 0
    away.rename(transcript)
    assert crystal("sync").code == 0
    assert _said_in(memory) == ["new one", "new three", "new two"]
    assert b"".join(frames_in(next(memory.home.rglob(f"{SESSION}.jsonl.zst")))).count(b"new two") == 1
    assert crystal("verify").code == 0


def test_what_may_have_been_private_in_a_transcript_that_comes_back_stays_left_out(memory: Memory) -> None:
    transcript = next(memory.home.rglob(f"{SESSION}.jsonl"))
    with transcript.open("ab") as file:
        file.write(_said("off the record"))
    away = transcript.rename(transcript.with_suffix(".away"))
    _lose(memory)
    (memory.data.parent / "private.jsonl").unlink()
    assert crystal("verify", "--repair").code == 0
    away.rename(transcript)
    assert crystal("sync").code == crystal("backfill").code == crystal("verify").code == 0
    assert not memory.files_with("off the record")
    assert crystal("backfill", "--privacy-lost").code == 0
    assert "off the record" in _said_in(memory)
    assert crystal("verify").code == 0


def test_what_may_have_been_private_in_an_unreadable_transcript_stays_left_out(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of private times is lost, too: neither of two unreadable transcripts is imported unasked."""
    transcript = next(memory.home.rglob(f"{SESSION}.jsonl"))
    with transcript.open("ab") as file:
        file.write(_said("off the record"))
    _lose(memory)
    (memory.data.parent / "private.jsonl").unlink()
    told = _repair_unread(memory, monkeypatch, transcript)
    assert "backfill --privacy-lost" in told
    with transcript.open("ab") as file:
        file.write(line("new four", sessionId=SESSION, timestamp="2999-01-01T00:00:00.000Z"))
    assert crystal("sync").code == 0
    assert _said_in(memory) == ["new four", "new one", "new three", "new two"]
    assert not memory.files_with("off the record")
    assert crystal("backfill", "--privacy-lost").code == 0
    assert "off the record" in _said_in(memory)
    assert crystal("verify").code == 0


def test_a_database_from_before_the_first_capture_takes_its_archive(home: Path) -> None:
    transcript = home / ".claude" / "projects" / "p" / f"{SESSION}.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_bytes(_said("old one"))
    memory = Memory(home, os.environ)
    assert crystal("init", "--yes", "--no-import").code == 0
    backup = {path: path.read_bytes() for path in memory.data.glob("crystal.db*")}
    with transcript.open("ab") as file:
        file.write(_said("new one"))
    assert crystal("sync").code == 0
    _lose(memory)
    for path, content in backup.items():
        path.write_bytes(content)
    done = crystal("verify", "--repair")
    assert (done.code, _said_in(memory)) == (0, ["new one"]), done.out + done.err
    assert crystal("backfill").code == 0
    assert _said_in(memory) == ["new one", "old one"]
    assert len(b"".join(b"".join(frames_in(one)) for one in home.rglob("*.jsonl.zst")).splitlines()) == 2


def test_what_this_machine_captured_as_another_agent_stays_its_own(memory: Memory) -> None:
    def devices() -> set[str]:
        return {one["device"] for one in json.loads(crystal("sessions", "--json").out)["sessions"]}

    before = devices()
    assert crystal("init", "--yes", "--no-import", "--agent-id", "second").code == 0
    (memory.home / ".claude" / "projects" / "p" / f"{SESSION}.jsonl").unlink()
    _lose(memory)
    assert crystal("verify", "--repair").code == 0
    assert devices() == before
