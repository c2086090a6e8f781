"""Claims of the reader of Aider: headings of an answer are no prompts, and its files are found in known projects."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.capture.safe_open import Folders
from crystal.config.harnesses import Root
from crystal.transcript.line_context import complete
from crystal.transcript.reader import reader_of
from crystal.transcript.snapshot import Snapshot, SourceError
from tests.support.command import crystal
from tests.support.examples import examples

REAL = (Path(__file__).parents[1] / "data" / "agents" / "aider" / "home" / ".aider.chat.history.md").read_bytes()
FILE = ".aider.chat.history.md"
READER: Any = reader_of("aider")
UNMARKED = b"""
# aider chat started at 2026-06-09 14:01:00

#### add a retry
I'll add a backoff.

#### Step 1
Wrap it.

> Applied edit to src/webhook.py

#### and the timeout
--------------
\xe2\x96\xba **THINKING**

Which one?

------------
\xe2\x96\xba **ANSWER**

Done.

> Tokens: 2.5k sent, 7 received.
"""


def found(data: bytes) -> dict[str, list[tuple[str, str]]]:
    """Return what the reader finds in a file: (role, text) by the id of the record."""
    source = Snapshot(PurePath("/home/me/shop", FILE), data, lambda *_: iter(()), {})
    told: dict[str, list[tuple[str, str]]] = {}
    for session in READER.conversations(source):
        for record in READER.records(source, session):
            line = complete(record.line, record.context._replace(id=record.id))
            told[record.id] = [(one.role, one.text) for one in READER.turns([(0, line)], "", subagent=False)]
    return told


def test_headings_and_quotes_of_an_answer_belong_to_it() -> None:
    marked = UNMARKED.replace(b"#### add a retry\n", b"#### add a retry  \n#### to it  \n").replace(
        b"> Applied edit to src/webhook.py\n", b"> a quote\n> Applied edit to src/webhook.py  \n"
    )
    assert [part for parts in found(marked).values() for part in parts] == [
        ("user", "add a retry\nto it"),
        ("assistant", "I'll add a backoff.\n\n#### Step 1\nWrap it.\n\n> a quote"),
        ("tool_result", "Applied edit to src/webhook.py"),
        ("thinking", "Which one?"),
        ("assistant", "#### and the timeout\n\nDone.\n\n> Tokens: 2.5k sent, 7 received."),
    ]


def test_a_file_whose_lines_have_lost_their_ends_is_read_by_what_stands_before_a_heading() -> None:
    assert [part for parts in found(UNMARKED).values() for part in parts] == [
        ("user", "add a retry"),
        ("assistant", "I'll add a backoff.\n\n#### Step 1\nWrap it."),
        ("tool_result", "Applied edit to src/webhook.py"),
        ("user", "and the timeout"),
        ("thinking", "Which one?"),
        ("assistant", "Done."),
    ]


@given(st.integers(0, len(REAL)))
def test_a_file_cut_anywhere_has_no_record_that_the_whole_one_has_not(cut: int) -> None:
    whole = found(REAL)
    try:
        told = found(REAL[:cut])
    except SourceError:
        return
    for ident, parts in told.items():
        assert ident in whole
        assert all(any(text in other for _, other in whole[ident]) for _, text in parts)


@examples(30)
@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    found(b"# aider chat started at 9999-12-31 23:59:59\n#### x  \n" + text.encode("utf-8", "surrogatepass") + b"\n")
    found(b"# aider chat started at 0000-00-00 00:00:00\n#### x\n\n> y\n")


def texts() -> set[str]:
    done = crystal("sessions", "--json", "--limit", "100")
    sessions = [one["id"] for one in json.loads(done.out)["sessions"]]
    shown = [json.loads(crystal("show", one, "--json").out)["turns"] for one in sessions]
    return {turn["text"] for turns in shown for turn in turns}


def write(folder: Path, prompt: str, at: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(f"\n# aider chat started at {at}\n\n> Aider v0.86.2  \n\n#### {prompt}  \n\nYes.\n\n")


def test_it_is_found_in_a_project_that_another_agent_worked_in(home: Path, ready: None) -> None:
    shop, unknown = home / "code" / "shop", home / "code" / "unknown"
    write(unknown, "never seen", "2026-11-22 08:00:00")
    session = (
        home
        / ".pi"
        / "agent"
        / "sessions"
        / "--shop--"
        / "2026-11-22T08-00-00-000Z_0a1b2c3d-0000-4000-8000-000000000000.jsonl"
    )
    session.parent.mkdir(parents=True)
    lines = [
        {"type": "session", "version": 3, "id": "0a1b2c3d", "timestamp": "2026-11-22T08:00:00Z", "cwd": str(shop)},
        {
            "type": "message",
            "id": "a1",
            "timestamp": "2026-11-22T08:00:01Z",
            "message": {"role": "user", "content": "hi"},
        },
    ]
    session.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    assert crystal("sync").code == 0
    assert crystal("sync").code == 0  # meets the project, which has no history yet
    write(shop, "Which port?", "2026-11-22 08:10:31")
    assert crystal("sync").code == 0
    assert texts() == {"hi", "Which port?", "Yes."}
    write(shop, "And the other?", "2026-11-22 09:10:31")
    assert crystal("sync").code == 0
    assert "And the other?" in texts()
    assert crystal("backfill", str(unknown)).code == 0
    assert "never seen" in texts()
    write(unknown, "seen from now on", "2026-11-22 10:10:31")
    assert crystal("sync").code == 0
    assert "seen from now on" in texts()


def test_the_variable_tells_where_the_file_lies(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIDER_CHAT_HISTORY_FILE", str(home / "elsewhere" / FILE))
    assert crystal("init", "--yes", "--no-import").code == 0
    write(home / "elsewhere", "Which port?", "2026-11-22 08:10:31")
    assert crystal("sync").code == 0
    assert "Which port?" in texts()


def test_nothing_else_in_a_project_is_taken_for_a_transcript(tmp_path: Path) -> None:
    folders = Folders((Root(tmp_path, "aider"),))
    assert folders.contains(str(tmp_path / FILE))
    assert not folders.contains(str(tmp_path / "notes.md"))
    assert not folders.contains(str(tmp_path / "inner" / FILE))
