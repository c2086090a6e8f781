"""Files of another user, as ``sudo crystal`` leaves them, are named with their owner and a command that works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broken_places import assert_doctor_fails, keep_memory, leave_a_log, run
from tests.support.capture_machine import keep_transcript, line

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs another user"),
]
NOBODY = 65534


@pytest.fixture
def kept(home: Path) -> Path:
    """A home folder with a memory in it."""
    return keep_memory(home)


OTHERS = {
    "the database": ".ldm/memory/crystal.db",
    "its log": ".ldm/memory/crystal.db-wal",
    "the folder": ".ldm/memory",
    "everything": ".ldm",
    "the archive": ".ldm/agents/*/memory/transcripts",
    "the hook's notes": ".ldm/memory/spool",
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_belongs_to_another_user_is_told_with_its_owner_and_a_command_that_works(kept: Path, what: str) -> None:
    """Files that ``sudo crystal`` has left, for example: a mode is no use to somebody who may not change it."""
    leave_a_log(kept / ".ldm" / "memory")
    keep_transcript(kept, "another", line("a marble quarry"))
    (kept / ".ldm" / "memory" / "spool").mkdir(exist_ok=True)
    (path,) = kept.glob(OTHERS[what])
    path.chmod(0o700 if path.is_dir() else 0o600)
    os.chown(path, NOBODY, NOBODY)
    for words in (["status"], ["doctor"], ["search", "basalt"], ["sync"]):
        done = run(*words, powerless=True)
        assert "chmod" not in done.stdout + done.stderr, done
        assert "belongs to nobody" in done.stdout + done.stderr, (words, done)
    assert run("status", powerless=True).stdout.startswith("NOT capturing: ")
    subprocess.run(printed_fix("doctor"), shell=True, check=True)
    assert run("sync", powerless=True).returncode == 0
    assert "the basalt quarry" in run("search", "basalt", powerless=True).stdout
    assert "a marble quarry" in run("search", "marble", powerless=True).stdout


def printed_fix(*words: str) -> str:
    """Return the command after ``sudo``, as it is printed, up to the end of its line."""
    found = re.search(r"fix: sudo (chown .+)", run(*words, powerless=True).stdout)
    assert found
    return found[1]


def test_a_session_whose_archive_belongs_to_another_user_is_told_while_others_go_on(kept: Path) -> None:
    (archive,) = (kept / ".ldm").rglob("s.jsonl.zst")
    archive.chmod(0o600)
    os.chown(archive, NOBODY, NOBODY)
    keep_transcript(kept, "s", line("a granite quarry"))
    keep_transcript(kept, "another", line("a marble quarry"))
    swept = run("sync", powerless=True)
    assert "permission denied (it belongs to nobody) (fix: sudo chown" in swept.stderr, swept
    assert "a marble quarry" in run("search", "marble", powerless=True).stdout
    assert_doctor_fails(run, f"{archive} cannot be read and written (it belongs to nobody)", powerless=True)
    subprocess.run(printed_fix("doctor"), shell=True, check=True)
    assert run("sync", powerless=True).stderr == ""
    assert "a granite quarry" in run("search", "granite", powerless=True).stdout


@pytest.mark.parametrize(
    "what", ["agents", "agents/*", "agents/*/memory/transcripts", "agents/*/memory/transcripts/s*"]
)
def test_an_archive_that_cannot_be_seen_is_not_taken_for_none(kept: Path, what: str) -> None:
    """Where the database is lost, too: an empty one would be in the way of the archive."""
    (path,) = (kept / ".ldm").glob(what)
    path.chmod(0o700 if path.is_dir() else 0o600)
    os.chown(path, NOBODY, NOBODY)
    database = kept / ".ldm" / "memory" / "crystal.db"
    for file in database.parent.glob("crystal.db*"):
        file.unlink()
    for words in (["init", "--yes"], ["verify", "--repair"]):
        done = run(*words, powerless=True)
        assert done.returncode in (4, 6), done
        assert "belongs to nobody" in done.stderr or "verify --repair" in done.stderr, done
        assert not database.exists()
    found = re.search(r"hint: sudo (chown .+)", done.stderr)
    assert found, done
    subprocess.run(found[1], shell=True, check=True)
    assert run("verify", "--repair", powerless=True).returncode == 0
    assert "the basalt quarry" in run("search", "basalt", powerless=True).stdout


@pytest.mark.parametrize(
    ("name", "words"), [("memories.jsonl", ["remember", "the marble is white"]), ("private.jsonl", ["--off"])]
)
def test_a_record_that_belongs_to_another_user_is_told(kept: Path, name: str, words: list[str]) -> None:
    assert run("remember", "the basalt is grey").returncode == 0
    (record,) = (kept / ".ldm").rglob(name)
    os.chown(record, NOBODY, NOBODY)
    assert "belongs to nobody" in run(*words, powerless=True).stderr
    assert_doctor_fails(run, f"{record} cannot be read and written (it belongs to nobody)", powerless=True)
    subprocess.run(printed_fix("doctor"), shell=True, check=True)
    done = run(*words, powerless=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_outside_of_the_home_is_given_away(home: Path, tmp_path: Path) -> None:
    """``sudo chown -R me /`` would break the machine."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    os.chown(theirs, NOBODY, NOBODY)
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.symlink_to(theirs / "missing" / "settings.json")
    done = run("init", "--yes", powerless=True)
    assert done.returncode == 4, done
    assert f"({theirs} belongs to nobody)" in done.stderr
    assert f"choose another place, or ask for access to {theirs}" in done.stderr
    assert "chown" not in done.stderr
    note = theirs / "AGENTS.md"
    note.write_text("theirs")
    note.chmod(0o644)
    os.chown(note, NOBODY, NOBODY)
    assert run("remember", "the basalt is grey").returncode == 0
    done = run("files", "sync", str(note), "--yes", powerless=True)
    assert done.returncode == 4, done
    assert "belongs to nobody" in done.stderr
    assert "chown" not in done.stderr
