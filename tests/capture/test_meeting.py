"""Claims of capture/meeting.py: what is there when crystal is installed is not imported unasked, readable or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.test_snapshots import diary, said, sync, write
from tests.support.capture_machine import line
from tests.support.command import crystal
from tests.support.unreadable import refuse_to_list, refuse_to_open

__all__ = ["diary"]
SESSION = "aaaaaaaa-1111-4111-8111-111111111111"


@pytest.fixture
def transcript(home: Path) -> Path:
    path = home / ".claude" / "projects" / "p" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(line("said before", timestamp="2020-01-01T00:00:00Z"))
    return path


@pytest.mark.parametrize("what", ["file", "its folder", "all folders"])
def test_what_cannot_be_read_at_first_is_not_imported_when_it_can_be_read(
    transcript: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with monkeypatch.context() as patch:
        if what == "file":
            refuse_to_open(patch, transcript)
        else:
            refuse_to_list(patch, transcript.parents["file its all".split().index(what.split(maxsplit=1)[0]) - 1])
        assert crystal("init", "--yes", "--no-import").code == 0
        assert "Traceback" not in crystal("sync").err
    transcript.chmod(0o600)
    assert crystal("sync").code == 0
    assert "said before" not in crystal("search", "said").out
    with transcript.open("ab") as file:
        file.write(line("said after", timestamp="2999-01-01T00:00:00Z"))
    transcript.with_name("bbbbbbbb-1111-4111-8111-111111111111.jsonl").write_bytes(line("said elsewhere"))
    assert crystal("sync").code == 0
    found = crystal("search", "said").out
    assert [text in found for text in ("said before", "said after", "said elsewhere")] == [False, True, True]
    assert crystal("verify").code == 0
    assert crystal("backfill").code == 0
    assert "said before" in crystal("search", "said").out


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_file_of_records_that_cannot_be_read_at_first_is_met_when_it_can(
    diary: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_listed: bool,
) -> None:
    write(diary, "Which port?")
    with monkeypatch.context() as patch:
        if is_listed:
            refuse_to_open(patch, diary / "d1.json")
        else:
            refuse_to_list(patch, diary)
        assert crystal("init", "--yes", "--no-import").code == 0
        assert "Traceback" not in crystal("sync").err
    (diary / "d1.json").chmod(0o600)
    sync()
    write(diary, "Which port?", "4711.")
    sync()
    assert said() == [("assistant", "4711.")]
