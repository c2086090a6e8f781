"""Claims of ``crystal agents``: which agents are here, how much of them is captured, what they delete."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from crystal.app.context import open_reader
from crystal.app.transcript_formats import MANY, NEWEST_TURNS, WINDOW
from crystal.integrity.restore import archived_lines
from crystal.store.capture.ledger import all_states
from crystal.transcript.reader import reader_of
from tests.support import agent_samples as samples
from tests.support.command import crystal

SESSION = "9d3d8d59-5b0e-4d6e-9d19-1a3c1c1d1a11"
LINE = (
    '{"type":"user","uuid":"u%d","sessionId":"%s","cwd":"/w","timestamp":"2026-11-20T10:00:00Z",'
    '"message":{"role":"user","content":"Which port?"}}\n'
)


@pytest.fixture
def transcript(home: Path) -> Path:
    path = home / ".claude" / "projects" / "w" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(LINE % (1, SESSION))
    assert crystal("init", "--yes", "--no-import").code == 0
    return path


def claude_code() -> dict[str, Any]:
    agents = json.loads(crystal("agents", "--json").out)["agents"]
    [found] = [one for one in agents if one["name"] == "claude-code"]
    return dict(found)


def test_what_was_there_before_is_counted_and_how_to_import_it_is_said(transcript: Path) -> None:
    done = crystal("agents")
    assert "nothing captured yet" in done.out
    assert "from before crystal, not imported" in done.out
    assert "crystal backfill" in done.err
    assert claude_code()["before"] == transcript.stat().st_size


@pytest.mark.slow
def test_what_waits_and_what_is_captured_add_up(transcript: Path) -> None:
    assert crystal("backfill").code == 0
    assert claude_code()["percent"] == 100
    with transcript.open("a") as file:
        file.write(LINE % (2, SESSION))
    found = claude_code()
    assert (found["waiting"], found["sessions"]) == (transcript.stat().st_size // 2, 1)
    assert crystal("sync").code == 0
    assert (claude_code()["waiting"], claude_code()["percent"]) == (0, 100)


def test_an_agent_that_deletes_its_files_says_so(transcript: Path) -> None:
    assert "deletes transcripts after 30 days" in crystal("agents").out
    transcript.unlink()
    assert claude_code()["files"] == 0


def test_an_empty_machine_says_what_crystal_could_read(home: Path, ready: None) -> None:
    done = crystal("agents")
    assert "no agent has written a conversation on this machine yet" in done.out
    assert "not found here: Claude Code" in done.out


def formats() -> list[dict[str, Any]]:
    checks = json.loads(crystal("doctor", "--json").out)["checks"]
    return [check for check in checks if check["name"] == "formats"]


def test_agents_are_listed_before_crystal_is_set_up(home: Path) -> None:
    path = home / ".claude" / "projects" / "w" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(LINE % (1, SESSION))
    done = crystal("agents")
    assert (done.code, "Claude Code" in done.out, done.err.endswith(": crystal init\n")) == (0, True, True), done.err
    samples.lay_out("pi", home)
    assert crystal("agents").err.endswith(": crystal init --all\n")
    assert not (home / ".ldm").exists()


def test_a_format_that_changed_is_noticed_and_read_again_by_a_version_that_knows_it(transcript, monkeypatch):
    transcript.write_text("".join(LINE % (number, SESSION) for number in range(6)))
    assert crystal("backfill").code == 0
    assert (claude_code()["unknown_percent"], claude_code()["unknown_kinds"], formats()) == (0, [], [])
    assert "unknown kinds" not in crystal("agents").out
    with transcript.open("a") as file:
        file.writelines((LINE % (number, SESSION)).replace('"type":"user"', '"type":"human"') for number in (7, 8, 9))
    assert crystal("sync").code == 0
    assert (claude_code()["unknown_percent"], claude_code()["unknown_kinds"]) == (33.3, ["human"])
    assert "33 % of its newest records are of unknown kinds (human)" in crystal("agents").out
    [check] = formats()
    assert (check["verdict"], check["fix"]) == ("warning", "update crystal, which then reads them again by itself")
    assert str(transcript) in check["message"]
    assert crystal("verify").code == 0
    with open_reader() as machine:
        [state] = all_states(machine.store)
        kept = list(archived_lines(machine.store, state, machine.places.ldm_home))
    assert [b'"type":"human"' in line for line in kept] == [False] * 6 + [True] * 3

    reader = reader_of("claude-code")
    monkeypatch.setattr(type(reader), "silent_kinds", (*reader.silent_kinds, "human"))
    [check] = formats()
    assert (check["verdict"], check["fix"]) == ("note", "crystal verify --repair")
    assert crystal("verify", "--repair").code == 0
    assert formats() == []
    assert claude_code()["unknown_percent"] == 0


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"Which port?"', "[]", "none of Claude Code's 200 newest records"),
        ('"content"', '"words"', "100 % of Claude Code's newest records are of unknown kinds (user:without-content)"),
        ('"Which port?"', '[{"type":"note","note":"?"}]', "are of unknown kinds (user:note)"),
    ],
)
def test_a_format_in_which_nobody_says_anything_is_noticed(
    transcript: Path, before: str, after: str, words: str
) -> None:
    renamed = LINE.replace(before, after)
    transcript.write_text("".join(renamed % (number, SESSION) for number in range(MANY)))
    assert crystal("backfill").code == 0
    [check] = formats()
    assert check["verdict"] == "warning"
    assert words in check["message"]


def test_results_that_calls_of_tools_no_longer_have_are_noticed(transcript: Path) -> None:
    called = '[{"type":"tool_use","id":"t%s","name":"TodoRead","input":{}}]'
    given = '[{"type":"tool_result","tool_use_id":"t%s","content":"all is done"}]'
    calls, results = (LINE.replace('"Which port?"', one) for one in (called, given))
    calls = calls.replace('"user"', '"assistant"')
    lines = [calls % (1, SESSION, 1), results % (2, SESSION, 1)]
    lines += [calls % (number, SESSION, number) for number in range(3, 3 + NEWEST_TURNS)]
    transcript.write_text("".join(lines))
    assert crystal("backfill").code == 0
    [check] = formats()
    assert check["verdict"] == "warning"
    assert f"none of the {NEWEST_TURNS} newest calls of tools has a result" in check["message"]
    with transcript.open("a") as file:
        file.write(results % (9999, SESSION, 9))
    assert crystal("sync").code == 0
    assert formats() == []


def test_only_the_newest_files_tell_of_a_format(transcript: Path) -> None:
    transcript.write_text((LINE % (1, SESSION)).replace('"type":"user"', '"type":"human"') * 9)
    assert crystal("backfill").code == 0
    assert formats()
    newer = transcript.with_name("later.jsonl")
    newer.write_text("".join(LINE % (number, "later") for number in range(10, 10 + WINDOW)))
    assert crystal("sync").code == 0
    assert formats() == []


def test_damaged_and_unfinished_lines_are_named_with_what_is_kept(transcript: Path) -> None:
    whole = LINE % (1, SESSION) + '{"type":"user","mess\n' + LINE % (2, SESSION)
    transcript.write_text(whole + '{"type":"user","uuid":')
    assert crystal("backfill").code == 0
    [damaged] = formats()
    assert "1 line of Claude Code cannot be parsed" in damaged["message"]
    assert str(transcript) in damaged["message"]
    os.utime(transcript, (1_700_000_000, 1_700_000_000))
    _, unfinished = formats()
    assert f"{transcript} ends in an unfinished line of 22 bytes" in unfinished["message"]
    assert f"the {len(whole):,} bytes before it are read" in unfinished["message"]
    assert unfinished["verdict"] == "note"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_files_that_cannot_be_read_are_named_with_what_is_kept(transcript: Path) -> None:
    assert crystal("backfill").code == 0
    transcript.unlink()
    for path in (transcript, *(transcript.with_name(f"z{number}.jsonl") for number in range(6))):
        os.mkfifo(path)
    crystal("sync")
    checks = json.loads(crystal("doctor", "--json").out)["checks"]
    [found] = [check["message"] for check in checks if check["name"] == "sweep"]
    assert f"{transcript}: " in found
    assert found.count("what was read before is kept") == 1
    assert found.count("nothing of it is kept yet") == 4
    assert found.endswith("; and 2 more: crystal sync names them")
