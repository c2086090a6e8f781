"""Claims about kinds of records: the samples have no unknown ones, and renamed ones are noticed, for every reader."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.transcript.reader import TranscriptReader, reader_of
from crystal.transcript.record_kinds import MAX_KINDS, NOT_JSON, OTHER, RecordCounts, count_records
from crystal.transcript.snapshot import Snapshot
from tests.support import agent_samples as samples
from tests.support.capture_machine import line
from tests.support.examples import examples
from tests.support.table import each_row
from tests.support.transcript_lines import json_values

TYPE = re.compile(rb'("(?:type|role|kind)":\s*")([a-zA-Z_.]+)"')
RENAMED = rb'\1later_\2"'
WITH_KINDS = [name for name in HARNESSES if reader_of(name).silent_kinds not in ((), ("*",))]
ADDED_TO_THE_SAMPLE = {"codex": {"a_later_kind"}}


def test_a_chat_of_gemini_in_another_form_is_kept_and_counted() -> None:
    reader: Any = reader_of("gemini-cli")
    data = b'{"sessionId":"s","schema":9,"entries":[{"id":"1","who":"user","say":"quartz"}]}'
    for whole in (data, data + b"\n" + data.replace(b"quartz", b"mica")):
        source = Snapshot(
            PurePath("chats/session-1.json" if whole is data else "chats/session-1.jsonl"), whole, dict, {}
        )
        lines = [one.line for talk in reader.conversations(source) for one in reader.records(source, talk)]
        assert b"".join(lines).count(b'"say":"') == whole.count(b'"say":"')
        assert counted(reader, lines).unknown == ((OTHER, len(lines)),)


def counted(reader: TranscriptReader, lines: list[bytes]) -> RecordCounts:
    placed = list(enumerate(lines))
    return count_records(reader, placed, {turn.offset for turn in reader.turns(placed, "k", subagent=False)})


@each_row("harness", samples.sampled())
def test_every_kind_in_the_samples_is_known(harness: str) -> None:
    lines = samples.stored_lines(harness)
    counts = counted(reader_of(harness), lines)
    assert {kind for kind, _ in counts.unknown} == ADDED_TO_THE_SAMPLE.get(harness, set())
    assert counts.said + counts.silent + sum(number for _, number in counts.unknown) == len(lines)


@each_row("harness", WITH_KINDS)
def test_renamed_kinds_say_nothing_and_are_counted(harness: str) -> None:
    lines = samples.stored_lines(harness) if harness != CLAUDE_CODE else [line("quartz"), line("x", role="assistant")]
    before, counts = (counted(reader_of(harness), each) for each in (lines, [TYPE.sub(RENAMED, one) for one in lines]))
    lost = before.said - counts.said
    unknown = sum(number for kind, number in counts.unknown if kind.startswith("later_"))
    assert 0 < lost <= unknown + counts.silent
    assert unknown


@each_row("harness", [name for name in WITH_KINDS if reader_of(name).kinds_are_named])
def test_records_whose_kind_has_another_name_are_counted(harness: str) -> None:
    lines = [re.sub(rb'"(type|role|kind)":', rb'"later_\1":', one) for one in samples.stored_lines(harness)]
    counts = counted(reader_of(harness), lines)
    assert dict(counts.unknown).get(OTHER, 0) > counts.said + counts.silent


def test_the_kinds_of_unknown_records_are_names_and_few() -> None:
    lines = [b'{"type":"kind-%d"}' % number for number in range(MAX_KINDS + 5)]
    lines += [b'{"type":"what somebody said"}', b"{half", b"[]", b"", b'{"type":"user"}', b'{"none":1}']
    counts = counted(reader_of(CLAUDE_CODE), lines)
    unknown = dict(counts.unknown)
    assert unknown[NOT_JSON] == 2
    assert len(unknown) <= MAX_KINDS + 2
    assert sum(unknown.values()) == MAX_KINDS + 5 + 1 + 2
    assert OTHER in unknown
    assert "what somebody said" not in unknown
    assert (counts.said, counts.silent) == (0, 3)


@examples(40)
@given(st.sampled_from(sorted(HARNESSES)), json_values)
def test_no_record_makes_counting_fail(harness: str, value: object) -> None:
    counts = count_records(reader_of(harness), [(0, json.dumps({"type": value, "payload": value}).encode())], ())
    assert counts.said + counts.silent + sum(number for _, number in counts.unknown) == 1
