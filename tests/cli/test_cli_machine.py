"""The commands that set up, switch, import, prove and take out: what they do, print, and exit with."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from crystal.app.context import open_machine
from crystal.search import candidates
from crystal.store.problems import record_problem
from tests.support.capture_machine import line
from tests.support.command import crystal
from tests.support.table import each_row


@pytest.fixture
def projects(home: Path) -> Path:
    folder = home / ".claude" / "projects" / "-home-dev-quartz"
    folder.mkdir(parents=True)
    return folder


def say(projects: Path, session: str, *texts: str) -> Path:
    path = projects / f"{session}.jsonl"
    with path.open("ab") as file:
        for text in texts:
            file.write(line(text))
    return path


def found(query: str) -> list[str]:
    done = crystal("search", query, "--all", "--json")
    assert done.code == 0, done.err
    return [hit["text"] for hit in json.loads(done.out)["hits"] if query.split(maxsplit=1)[0] in hit["text"]]


def test_status_before_init_says_once_what_is_missing(home: Path) -> None:
    done = crystal("status")
    assert (done.code, done.out) == (3, "")
    assert done.err.count("there is no memory at") == 1


def test_a_problem_names_the_part_that_fails(home: Path) -> None:
    assert crystal("remember", "we deploy on Fridays").code == 0
    with open_machine() as machine:
        record_problem(machine.store, "summary", "the model does not answer", now=1)
    assert json.loads(crystal("status", "--json").out)["problems"][0]["part"] == "summary"
    assert "summary: the model does not answer" in crystal("status").out


def test_an_import_ends_when_the_index_has_every_word(home, projects, monkeypatch):
    monkeypatch.setattr(candidates, "FEW", 1)
    monkeypatch.setattr(candidates, "MAX_READ", 2)
    for number, text in enumerate(("the zeppelin is amber", "rain", "wind", "snow", "hail")):
        os.utime(say(projects, f"session-{number}", text), (1_000 + number, 1_000 + number))
    assert crystal("backfill", "--no-embed").code == 0
    done = crystal("search", "zeppelin", "--all")
    assert "the zeppelin is amber" in done.out
    assert "not ready" not in done.err


def test_a_proof_without_transcripts_says_that_nothing_was_captured_yet(home: Path) -> None:
    assert crystal("remember", "we deploy on Fridays").code == 0
    done = crystal("verify")
    assert done.code == 0
    assert "nothing has been captured yet" in done.out
    assert "100 %" not in done.out


@pytest.mark.slow
def test_init_makes_everything_and_a_second_time_changes_nothing(home: Path) -> None:
    first = crystal("init", "--yes", "--agent-id", "cc-desk")
    assert first.code == 0, first.err
    assert json.loads((home / ".ldm/config.json").read_text())["agents"] == ["cc-desk"]
    for name in ("transcripts", "sessions", "daily", "journals"):
        assert (home / ".ldm/agents/cc-desk/memory" / name).is_dir()
    before = {path: path.read_bytes() for path in (home / ".claude/settings.json", home / ".ldm/config.json")}
    second = crystal("init", "--yes")
    assert second.code == 0
    assert "agent: cc-desk" in second.out
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_everything_under_the_home_is_private(home: Path) -> None:
    say(home, "not-a-transcript")
    crystal("init", "--yes")
    for folder, _, files in os.walk(home / ".ldm"):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700, folder
        for name in files:
            assert stat.S_IMODE(Path(folder, name).stat().st_mode) == 0o600, name


def test_a_dry_run_makes_nothing(home: Path) -> None:
    done = crystal("init", "--dry-run")
    assert done.code == 0
    assert "would make" in done.out
    assert sorted(path.name for path in home.iterdir()) == []


def test_settings_that_do_not_parse_stop_init_before_anything_is_made(home: Path) -> None:
    (home / ".claude").mkdir()
    settings = home / ".claude" / "settings.json"
    settings.write_text('{"hooks": ')
    done = crystal("init", "--yes")
    assert done.code == 2
    assert "settings.json" in done.err
    assert settings.read_text() == '{"hooks": '
    assert not (home / ".ldm").exists()


@pytest.mark.slow
def test_yes_alone_does_not_replay_the_past_and_backfill_does(projects: Path) -> None:
    say(projects, "s", "feldspar is old")
    done = crystal("init", "--yes")
    assert "found 1 session" in done.out
    assert found("feldspar") == []
    listed = crystal("backfill", "--dry-run")
    assert "would import 1 session" in listed.out
    assert found("feldspar") == []
    assert crystal("backfill").code == 0
    assert found("feldspar") == ["feldspar is old"]
    assert "nothing new" in crystal("backfill").out


def test_sync_says_what_it_made_when_there_is_nothing_to_capture(projects: Path) -> None:
    say(projects, "s", "feldspar is old")
    crystal("backfill", "--no-embed")
    assert crystal("sync").out == "nothing new to capture; made 1 vector, wrote 1 summary\n"
    assert crystal("sync").out == "nothing new\n"
    with open_machine() as machine, machine.store.transaction():
        machine.store.execute("UPDATE index_state SET format = 0")
    made = json.loads(crystal("sync", "--json").out)["made"]
    assert made == {"vectors": 0, "summaries": 0, "search_index": True}


def test_a_line_that_was_never_finished_is_not_offered_for_import(projects: Path) -> None:
    with say(projects, "s", "feldspar is old").open("ab") as file:
        file.write(b'{"type": "user", "mess')
    assert crystal("backfill").code == 0
    assert crystal("backfill", "--dry-run").out == "nothing to import\n"


@pytest.mark.slow
def test_init_imports_when_asked_to(projects: Path) -> None:
    say(projects, "s", "feldspar is old")
    assert crystal("init", "--yes", "--import").code == 0
    assert found("feldspar") == ["feldspar is old"]


@pytest.mark.slow
def test_backfill_takes_files_from_anywhere(tmp_path: Path) -> None:
    say(tmp_path, "elsewhere", "gneiss from another disk")
    assert crystal("backfill", str(tmp_path / "elsewhere.jsonl")).code == 0
    assert found("gneiss") == ["gneiss from another disk"]


def test_backfill_of_what_is_not_there_says_so() -> None:
    done = crystal("backfill", "/no/such/place")
    assert done.code == 1
    assert "/no/such/place" in done.err


@pytest.mark.slow
def test_what_is_said_while_off_stays_out_for_good(projects: Path) -> None:
    crystal("init", "--yes")
    path = say(projects, "s", "onyx before")
    assert "capture is off" in crystal("--off").out
    assert "capture is off" in crystal("--status").out
    with path.open("ab") as file:
        file.write(line("onyx hidden", at=None))
    say(projects, "t", "onyx hidden too")
    assert "capture is on" in crystal("--on").out
    with path.open("ab") as file:
        file.write(line("onyx after", at=None))
    crystal("sync")
    crystal("backfill")
    crystal("backfill", str(projects))
    assert sorted(found("onyx")) == ["onyx after", "onyx before"]
    proof = json.loads(crystal("verify", "--json").out)
    assert proof["ok"]
    assert proof["bytes"]["private"] > 0


@pytest.mark.slow
def test_verify_says_by_its_exit_code_what_is_wrong(projects: Path, home: Path) -> None:
    crystal("init", "--yes")
    path = say(projects, "s", "schist")
    assert crystal("verify").code == 1
    crystal("sync")
    assert crystal("verify").code == 0
    next((home / ".ldm/agents").rglob("s.jsonl.zst")).write_bytes(b"garbage")
    assert crystal("verify").code == 6
    assert crystal("verify", "--repair").code == 0
    path.unlink()
    assert crystal("verify").code == 0
    assert crystal("restore", "s").code == 0
    assert b"schist" in path.read_bytes()


@pytest.mark.slow
def test_uninstall_gives_the_settings_back_and_keeps_the_memory(home: Path, projects: Path) -> None:
    settings = home / ".claude" / "settings.json"
    settings.write_text('{"model": "opus",\n "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}}')
    before = settings.read_bytes()
    crystal("init", "--yes")
    assert settings.read_bytes() != before
    done = crystal("uninstall")
    assert done.code == 0, done.err
    assert settings.read_bytes() == before
    assert (home / ".ldm/memory/crystal.db").exists()
    assert crystal("uninstall", "--purge").code == 2
    for name in ("sources.lock", "sources-watch.lock", "vault.lock", "watch.lock"):
        (home / ".ldm/memory" / name).touch()
    (home / ".ldm/memory/imports").mkdir()
    assert crystal("uninstall", "--purge", "--yes").code == 0
    assert not (home / ".ldm").exists()


@pytest.mark.slow
def test_purge_deletes_all_that_crystal_made_and_nothing_else(home, projects, monkeypatch):
    mine = home / "Documents"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    (home / ".ldm/agents/cc-rock").mkdir(parents=True)
    (home / ".ldm/agents/cc-rock/SOUL.md").write_text("of another program")
    monkeypatch.setenv("CRYSTAL_DATA_DIR", str(mine))
    crystal("init", "--yes", "--agent-id", "cc-rock", "--import")
    monkeypatch.setenv("CRYSTAL_AGENT_ID", "cc-never-registered")
    say(projects, "0b7d2a4e-6d0a-4c55-9e5f-0d1c2b3a4f50", "by another agent")
    crystal("sync")
    for name, file in (("minilm", "crystal.json"), ("of-another-program", "weights.bin")):
        (home / ".ldm/models" / name).mkdir(parents=True)
        (home / ".ldm/models" / name / file).write_text("{}")
    assert list(home.rglob("cc-never-registered/memory/transcripts/*.zst"))
    for name in ("access.json", "access.log", "access.log.1", "access-requests.json"):
        (mine / name).write_text("[]")
    done = crystal("uninstall", "--purge", "--yes")
    assert done.code == 0, done.err
    left = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    assert {path for path in left if not path.startswith(".claude/")} == {
        "Documents/thesis.txt",
        ".ldm/agents/cc-rock/SOUL.md",
        ".ldm/models/of-another-program/weights.bin",
    }


@each_row(
    "words", [("search", "x"), ("sessions",), ("status",), ("show", "x"), ("--status",), ("verify",), ("restore", "x")]
)
def test_without_a_memory_the_commands_say_init(words: tuple[str, ...]) -> None:
    done = crystal(*words)
    assert done.code == 3
    assert "crystal init" in done.err
    assert not (Path.home() / ".ldm").exists()


@each_row("words", [("--on", "--off"), ("--session", "x"), ("nonsense",), ("search",), ("init", "--agent-id", "a/b")])
def test_wrong_words_are_a_usage_problem(words: tuple[str, ...]) -> None:
    done = crystal(*words)
    assert done.code == 2, done.out


@pytest.mark.slow
def test_status_and_doctor_speak_json(projects: Path) -> None:
    crystal("init", "--yes")
    say(projects, "s", "gabbro")
    crystal("sync")
    status = json.loads(crystal("status", "--json").out)
    assert status["schema"] == 1
    assert status["counts"]["turns"] == 1
    assert status["transcripts"]["lag"] == 0
    doctor = json.loads(crystal("doctor", "--json").out)
    assert doctor["ok"], doctor
    assert crystal("status").code == 0


def test_a_foreign_database_is_left_alone(home: Path) -> None:
    place = home / ".ldm" / "memory"
    place.mkdir(parents=True)
    (place / "crystal.db").write_bytes(b"SQLite format 3\x00" + b"\x01" * 200)
    before = (place / "crystal.db").read_bytes()
    done = crystal("search", "x")
    assert done.code == 6
    assert "not a crystal store" in done.err
    assert (place / "crystal.db").read_bytes() == before
    assert sorted(path.name for path in place.iterdir()) == ["crystal.db"]


def test_a_legacy_folder_with_the_old_programs_database_does_not_stop_init(home: Path) -> None:
    legacy = home / ".openclaw" / "memory-crystal"
    legacy.mkdir(parents=True)
    (legacy / "crystal.db").write_bytes(b"SQLite format 3\x00" + b"\x01" * 200)
    done = crystal("init", "--yes")
    assert done.code == 0, done.err
    assert (home / ".ldm/memory/crystal.db").exists()
    assert (legacy / "crystal.db").read_bytes() == b"SQLite format 3\x00" + b"\x01" * 200


@pytest.mark.slow
def test_the_python_door_does_what_the_commands_do(projects: Path) -> None:
    from crystal import Crystal

    crystal("init", "--yes")
    say(projects, "s", "basalt", "said by the human")
    with Crystal() as memory:
        assert memory.sync().turns == 2
        assert [hit.text for hit in memory.search("basalt", before="2020-01-01").hits] == []
        assert memory.search("basalt").hits[0].text == "basalt"
        assert [session.id for session in memory.sessions()] == ["s"]
        assert memory.show("s").turns[0].text == "basalt"
        assert memory.verify().percent == 100.0
        assert memory.status()["counts"]["sessions"] == 1


@pytest.mark.slow
def test_a_data_folder_named_on_the_command_line_wins(projects: Path, tmp_path: Path) -> None:
    say(projects, "s", "feldspar")
    elsewhere = tmp_path / "elsewhere"
    assert crystal("--data-dir", str(elsewhere), "backfill").code == 0
    assert (elsewhere / "crystal.db").exists()
    assert json.loads(crystal("--data-dir", str(elsewhere), "search", "feldspar", "--json").out)["hits"]
    assert crystal("--data-dir", " ", "status").code == 2


@pytest.mark.skipif(sys.platform == "win32", reason="the shell there has another form")
def test_the_installed_hook_ends_well_after_its_script_is_gone(home: Path, ready: None) -> None:
    hooks = json.loads((home / ".claude" / "settings.json").read_text("utf-8"))["hooks"]
    for [group] in hooks.values():
        command = group["hooks"][0]["command"].replace("main.py", "gone.py")
        assert subprocess.run(["sh", "-c", command], input=b"{}", capture_output=True, check=False).returncode == 0
