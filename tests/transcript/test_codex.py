"""Claims about Codex's rollouts that are rewritten, copied, moved or compressed: nothing is doubled, nothing lost."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from crystal.transcript.line_context import Context
from crystal.transcript.reader import completed, reader_of
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import part_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

READER = reader_of("codex")
CODEX = samples.AGENTS / "codex"
HOME = CODEX / "home" / ".codex"
LEGACY = next(HOME.rglob("rollout-*-01a20219-*.jsonl"))
PARENT = next(HOME.rglob("rollout-*-01a208d6-e418-*.jsonl"))
FORK = next(HOME.rglob("rollout-*-01a208d6-e59e-*.jsonl"))


def said(path: Path) -> list[tuple[str, int, str, str]]:
    """Return (id, part, role, text) of the turns in a rollout."""
    lines = completed(READER, path.read_bytes().split(b"\n"), Context(session="s"), lambda _: "codex:made-up")
    turns = READER.turns(enumerate(lines), "k", subagent=False)
    return [(turn.uuid, turn.part, turn.role, turn.text) for turn in turns]


def lay_out(home: Path, path: Path) -> Path:
    target = home / path.relative_to(CODEX / "home")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(path.read_bytes())
    return target


def sync() -> list[tuple[str, str]]:
    """Capture, prove, and return the role and the text of every turn."""
    assert crystal("sync").code == 0
    proved = json.loads(crystal("verify", "--json").out)
    assert (proved["ok"], proved["percent"]) == (True, 100.0)
    return [(turn["role"], turn["text"]) for turn in samples.captured()[1]]


@pytest.fixture
def started(home: Path, ready: None) -> Path:
    return home


def test_migration_rewrites_lines_and_doubles_nothing() -> None:
    before, after = said(LEGACY), said(CODEX / "migrated.jsonl")
    assert after[: len(before)] == before
    assert [text for _, _, _, text in after[len(before) :]] == [
        "A third question from the new client?",
        "Mock reply to: A third question from the new client?",
    ]


def test_a_fork_that_copies_lines_with_new_times_has_their_ids() -> None:
    parent, fork = said(PARENT), said(FORK)
    assert [turn for turn in fork if turn not in parent] == fork[-2:]
    assert [text for _, _, _, text in fork].count("Same words.") == 3
    assert len({turn[:2] for turn in parent + fork}) == len({*parent, *fork})


def test_a_fork_without_ids_of_turns_has_the_ids_of_its_parent(tmp_path: Path) -> None:
    for name, path in (("parent", PARENT), ("fork", FORK)):
        lines = [line for line in path.read_bytes().splitlines() if b'"task_started"' not in line]
        older = b"\n".join(re.sub(rb'"turn_id":"[^"]*",?', b"", line) for line in lines)
        (tmp_path / name).write_bytes(older)
    parent, fork = said(tmp_path / "parent"), said(tmp_path / "fork")
    assert [turn for turn in fork if turn not in parent] == fork[-2:]
    assert [text for _, _, _, text in parent] == [text for _, _, _, text in said(PARENT)]


@pytest.mark.slow
def test_a_session_that_is_named_after_its_last_line_has_the_newest_name(started: Path) -> None:
    rollout, index = started / ".codex" / PARENT.relative_to(HOME), started / ".codex" / "session_index.jsonl"
    rollout.parent.mkdir(parents=True)
    rollout.write_bytes(PARENT.read_bytes())
    assert crystal("sync").code == 0
    turns = samples.captured()[1]
    for name in ("Stones", "Stones of Rome"):
        with index.open("a", encoding="utf-8") as names:
            names.write(json.dumps({"id": PARENT.stem[-36:], "thread_name": name}) + "\n")
        assert crystal("sync").code == 0
        assert [one["title"] for one in json.loads(crystal("sessions", "--json").out)["sessions"]] == [name]
    assert samples.captured()[1] == turns
    assert json.loads(crystal("verify", "--json").out)["percent"] == 100.0


def test_a_picture_that_a_tool_gives_is_no_text() -> None:
    shown = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "high"}
    other = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    item = {"type": "function_call_output", "call_id": "call_0123456789abcdef", "output": [shown, other]}
    line = json.dumps({"type": "response_item", "payload": item}).encode()
    assert not any("iVBOR" in turn.text for turn in READER.turns([(0, line)], "k", subagent=False))


@pytest.mark.slow
def test_a_rollout_that_is_migrated_while_crystal_watches(started: Path) -> None:
    target = lay_out(started, LEGACY)
    before = sync()
    (target.parent / "new").write_bytes((CODEX / "migrated.jsonl").read_bytes())
    (target.parent / "new").replace(target)
    assert sync()[: len(before)] == before
    assert len(sync()) == len(before) + 2


@pytest.mark.parametrize("share", part_of([0, 3, 5, 8], 2))
def test_a_rollout_that_is_archived_and_compressed(share: int, started: Path) -> None:
    data, target = LEGACY.read_bytes(), lay_out(started, LEGACY)
    target.write_bytes(data[: len(data) * share // 8])
    sync()
    target.unlink()
    archived = started / ".codex" / "archived_sessions" / f"{target.name}.zst"
    archived.parent.mkdir(exist_ok=True)
    archived.write_bytes(zstd.compress(data))
    expected = [(role, text[: samples.SHOWN_LENGTH]) for _, _, role, text in said(LEGACY)]
    assert sync() == expected
    assert len(list((started / ".ldm").rglob("rollout-*.jsonl.zst"))) + len(
        list((started / ".ldm").rglob("01a20219-*.jsonl.zst"))
    ) == (1 if share in (0, 8) else 2), "what was read line by line is not archived again"
    kept = [path.stat().st_size for path in (started / ".ldm").rglob("*.jsonl.zst")]
    assert sync() == expected
    assert [path.stat().st_size for path in (started / ".ldm").rglob("*.jsonl.zst")] == kept


@pytest.mark.slow
def test_what_was_compressed_before_crystal_came_is_imported_when_asked(home: Path) -> None:
    plain = lay_out(home, LEGACY)
    assert crystal("init", "--yes", "--no-import").code == 0
    assert sync() == []
    plain.with_name(f"{plain.name}.zst").write_bytes(zstd.compress(plain.read_bytes()))
    plain.unlink()
    assert sync() == [], "nothing is replayed unasked"
    assert crystal("backfill").code == 0
    assert len(sync()) == len(said(LEGACY))
    assert crystal("backfill").code == 0
    assert len(sync()) == len(said(LEGACY))


def test_a_copy_in_the_archive_folder_is_no_second_session(started: Path) -> None:
    target = lay_out(started, LEGACY)
    copy = started / ".codex" / "archived_sessions" / target.name
    copy.parent.mkdir()
    copy.write_bytes(target.read_bytes())
    assert len(sync()) == len(said(LEGACY))
    target.unlink()
    assert len(sync()) == len(said(LEGACY))
