"""Claims of transcript/specstory.py: of a file that is half written, no message has more than it will have."""

from __future__ import annotations

import time
from pathlib import Path, PurePath

from crystal.transcript.line import parse_line
from crystal.transcript.snapshot import Snapshot, SourceError
from crystal.transcript.specstory import READER

SAMPLES = Path(__file__).parents[1] / "data/agents/specstory/home"


def texts(data: bytes) -> dict[str, str]:
    one = Snapshot(PurePath("history/one.md"), data, lambda *_: iter(()), {})
    try:
        talks = list(READER.conversations(one))
    except SourceError:
        return {}  # its first line is half written
    records = [record for talk in talks for record in READER.records(one, talk)]
    return {record.id: str((parse_line(record.line) or {})["text"]) for record in records}


def test_wherever_a_file_is_cut_each_message_is_the_beginning_of_what_it_becomes() -> None:
    for path in SAMPLES.rglob("*.md"):
        data = path.read_bytes()
        whole = texts(data)
        assert whole
        for end in range(len(data)):
            for name, text in texts(data[:end]).items():
                assert whole[name].startswith(text.rstrip("\ufffd").rstrip()), (path.name, end)


def test_empty_lines_after_a_rule_take_no_time() -> None:
    head, message = "<!-- Claude Code Session 0a (2026-01-01 10:00Z) -->", "_**User (2026-01-01 10:00Z)**_"
    start, empty = time.process_time(), " \n" * 20_000
    (said,) = texts(f"{head}\n\n{message}\n\n---{empty}end\n\n---\n\n".encode()).values()
    assert (said[:3], said[-3:]) == ("---", "end")
    assert time.process_time() - start < 1
