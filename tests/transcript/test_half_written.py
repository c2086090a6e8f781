"""Claims about every reader of lines: a half-written line is kept and named once, and costs no other record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.config.harnesses import HARNESSES
from crystal.transcript.damaged import last_record_at
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import part_of
from tests.support.transcript_lines import json_values

LINES = ("codex", "copilot-cli", "droid", "pi", "qwen-code", "gemini-cli", "kiro", "openclaw", "vscode-chat")


@given(
    st.dictionaries(st.text(), json_values, min_size=1), st.dictionaries(st.text(), json_values, min_size=1), st.data()
)
def test_the_record_behind_a_half_written_one_is_found(half: object, record: object, data: st.DataObject) -> None:
    line, whole = json.dumps(half).encode(), json.dumps(record).encode()
    cut = data.draw(st.integers(1, len(line) - 1))
    assert last_record_at(line[:cut] + whole) == cut
    assert last_record_at(whole) == 0


def largest_file(harness: str) -> tuple[str, list[bytes]]:
    """Return the name and the lines of the largest file of lines that an agent appends to."""
    files = [
        (path.stat().st_size, name, path) for path, name in samples.sample_files(harness) if name.endswith(".jsonl")
    ]
    _, name, path = max(one for one in files if not one[1].endswith("session_index.jsonl"))
    return name, path.read_bytes().splitlines(keepends=True)


@pytest.mark.slow
@pytest.mark.parametrize("turn", part_of(range(6)))
def test_what_follows_a_half_written_line_is_read_and_the_half_is_kept_and_counted(turn: int, home: Path) -> None:
    for number, harness in enumerate(LINES, turn):
        samples.lay_out(harness, home)
        name, lines = largest_file(harness)
        at = len(lines) // 2 if number // 3 % 2 else 0
        half = lines[at][: len(lines[at]) * 2 // 3] + (b"\n", b"\r\n", b"")[number % 3]
        (home / name).write_bytes(b"".join([*lines[:at], half, *lines[at:]]))
    assert crystal("init", "--yes", "--no-import").code == 0
    assert crystal("backfill").code == 0
    told = {harness: samples.expected(harness)[1] for harness in LINES}
    found = samples.captured()[1]
    for harness, turns in told.items():
        sessions = {one["session"] for one in turns}
        assert [one for one in found if one["session"] in sessions] == turns, harness
    words = " ".join(crystal("doctor").out.split())
    assert [one for one in LINES if f"1 line of {HARNESSES[one].title} cannot be parsed" not in words] == []
    assert json.loads(crystal("verify", "--json").out)["faults"] == []
