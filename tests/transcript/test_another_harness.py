"""Claims of docs/how-to/add-a-transcript-reader.md: its reader and its row are all that another harness needs."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crystal import worker
from crystal.config import harnesses
from crystal.config.harness import Harness, Place
from crystal.hook import event as hook
from crystal.transcript.reader import reader_of
from tests.support.command import crystal

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-transcript-reader.md"
BLOCKS = [block.partition("\n")[2] for block in PAGE.read_text("utf-8").split("```")[1::2]]
LINES, CODE, ROW, HOOK_INPUT = BLOCKS


@pytest.fixture
def notes(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine with crystal on which Notebook has held a conversation; gives its file."""
    module = types.ModuleType("crystal.transcript.notebook")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(CODE, str(PAGE), "exec"), vars(module))
    [row] = eval(f"[{ROW}]", {"Harness": Harness, "Place": Place})
    monkeypatch.setitem(harnesses.HARNESSES, row.name, row)
    assert crystal("init", "--yes", "--no-import").code == 0
    path = home / ".notebook" / "log" / "shop" / "s1.notes"
    path.parent.mkdir(parents=True)
    path.write_text(LINES, "utf-8")
    yield path
    reader_of.cache_clear()


def shown(*words: str) -> dict[str, Any]:
    done = crystal(*words, "--json")
    assert done.code == 0, done.err
    answer: dict[str, Any] = json.loads(done.out)
    return answer


def assert_complete() -> None:
    """The conversation is there, once, with the harness that held it, and nothing is missing."""
    found = shown("show", "s1")
    assert [(turn["role"], turn["text"]) for turn in found["turns"]] == [
        ("user", "Which port?"),
        ("assistant", "4711."),
    ]
    assert (found["session"]["harness"], found["session"]["cwd"]) == ("notebook", "/home/me/shop")
    [hit, *_] = shown("search", "port", "--all")["hits"]
    assert (hit["harness"], hit["uuid"]) == ("notebook", "notebook:n1")
    proof = shown("verify")
    assert (proof["ok"], proof["percent"], proof["faults"]) == (True, 100.0, [])


def test_its_hook_captures_a_turn(notes: Path, home: Path) -> None:
    told = json.loads(HOOK_INPUT) | {"transcript_path": str(notes)}
    env = hook.with_baked({"HOME": str(home)}, ["--env", f"CRYSTAL_TRANSCRIPTS={notes.parents[1]}"])
    note = hook.make_note(told, env, 1_795_000_000_000_000_000)
    assert note["size"] == len(LINES)
    spool = home / ".ldm" / "memory" / "spool"
    spool.mkdir(parents=True, exist_ok=True)
    (spool / "01795000000000000000-1-a.json").write_text(json.dumps(note))
    worker.main()
    assert list(spool.glob("*.json")) == []
    assert_complete()


def test_the_past_is_imported_and_what_is_new_is_swept(notes: Path) -> None:
    first, second = LINES.splitlines(keepends=True)
    notes.write_text(first, "utf-8")
    assert crystal("backfill").code == 0
    with notes.open("a", encoding="utf-8") as file:
        file.write(second[:20])
    assert crystal("sync").code == 0
    with notes.open("a", encoding="utf-8") as file:
        file.write(second[20:])
    assert crystal("sync").code == 0
    assert_complete()


def test_a_file_that_a_person_names_is_read_by_its_reader(notes: Path, home: Path) -> None:
    elsewhere = home / "saved"
    elsewhere.mkdir()
    notes.rename(elsewhere / notes.name)
    assert crystal("backfill", str(elsewhere)).code == 0
    assert_complete()


def test_a_lost_database_is_rebuilt_from_its_archive(notes: Path, home: Path) -> None:
    assert crystal("backfill").code == 0
    for file in (home / ".ldm" / "memory").glob("crystal.db*"):
        file.unlink()
    assert crystal("verify", "--repair").code == 0
    assert_complete()


def test_what_is_forgotten_is_gone_and_stays_gone(notes: Path) -> None:
    assert crystal("backfill").code == 0
    assert crystal("forget", "--session", "s1", "--yes").code == 0
    assert crystal("sync").code == 0
    assert shown("search", "port", "--all")["hits"] == []


def test_a_session_that_nothing_resumes_is_not_restored(notes: Path) -> None:
    assert crystal("backfill").code == 0
    notes.unlink()
    done = crystal("restore", "s1")
    assert done.code == 2
    assert "cannot be restored" in done.err


def test_the_beginning_of_a_known_id_closes_that_session_where_ids_may_have_any_form(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(reader_of("notebook")), "is_session_id", lambda *_: True)
    notes.rename(notes.with_name("session-one.notes"))
    assert crystal("backfill").code == 0
    assert "session-one" in crystal("--off", "--session", "session-o").out
