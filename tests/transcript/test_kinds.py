"""Claims about kinds of records: the samples have no unknown ones, and renamed ones are noticed, for every reader."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import PurePath
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.transcript.reader import TranscriptReader, reader_of
from crystal.transcript.record_kinds import MAX_KINDS, NOT_JSON, OTHER, RecordCounts, count_records, unread_calls
from crystal.transcript.snapshot import Snapshot
from crystal.work.calls import is_work
from tests.support import agent_samples as samples
from tests.support.capture_machine import line
from tests.support.examples import examples, part_of
from tests.support.table import each_row
from tests.support.transcript_lines import json_values

TYPE = re.compile(rb'("(?:type|role|kind)":\s*")([a-zA-Z_.]+)"')
RENAMED = rb'\1later_\2"'
WITH_KINDS = [name for name in HARNESSES if reader_of(name).silent_kinds not in ((), ("*",))]
ADDED_TO_THE_SAMPLE = {"codex": {"a_later_kind"}, "vscode-chat": {"response:someNewKind"}}


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
    turns = list(reader.turns(placed, "k", subagent=False))
    return count_records(reader, placed, {turn.offset for turn in turns}, unread_calls(turns))


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
    unknown = sum(number for kind, number in counts.unknown if "later_" in kind)
    assert 0 < lost <= unknown + counts.silent
    assert unknown


@each_row(
    "harness",
    [name for name in WITH_KINDS if reader_of(name).kinds_are_named and name not in ("vscode-chat", "zed")],
)
def test_records_whose_kind_has_another_name_are_counted(harness: str) -> None:
    lines = [re.sub(rb'"(type|role|kind|sender)":', rb'"later_\1":', one) for one in samples.stored_lines(harness)]
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


TEXT, CALL = '{"type":"text","text":"quartz"}', '{"type":"tool_use","name":"Bash","input":{}}'


@each_row(
    ("harness", "record", "kind"),
    [
        ("claude-code", '"type":"user","message":{"role":"user","content":[%s,{"type":"later","words":"mica"}]}', "user:later"),
        ("claude-code", '"type":"assistant","message":{"role":"assistant","content":[{"type":"text","words":"mica"}]}', "assistant:text-without-text"),
        ("claude-code", '"type":"user","message":{"role":"user","words":"mica and quartz"}', "user:without-content"),
        ("claude-code", '"type":"user","message":{"role":"user","content":[%s,{"type":"tool_result","content":[{"type":"later"}]}]}', "user:later"),
        ("claude-code", '"type":"user","message":{"role":"user","content":[%s,{"type":"what somebody said"}]}', "other"),
        ("pi", '"type":"message","message":{"role":"assistant","content":[{"type":"words","words":"mica"}]}', "message:words"),
        ("opencode", '"id":"m","info":{"role":"assistant"},"parts":[%s,{"type":"later","words":"mica"}]', "assistant:later"),
        ("qwen-code", '"type":"assistant","message":{"role":"model","parts":[{"words":"mica"}]}', "assistant:without-kind"),
        ("zed", '"Agent":{"content":[{"Text":"quartz"},{"Later":{"words":"mica"}}]}', "Agent:without-kind"),
        ("kiro", '"version":"v1","kind":"AssistantMessage","data":{"content":[{"kind":"later","data":"mica"}]}', "AssistantMessage:later"),
        ("kiro", '"version":"v1","kind":"AssistantMessage","data":{"words":"mica and quartz"}', "AssistantMessage:without-content"),
    ],
)  # fmt: skip
def test_what_no_reader_knows_of_a_message_is_counted(harness: str, record: str, kind: str) -> None:
    said = f"{{{record.replace('%s', TEXT)}}}".encode()
    assert [dict(count_records(reader_of(harness), [(0, said)], at).unknown) for at in ((), (0,))] == [{kind: 1}] * 2


def test_results_and_arguments_may_have_any_form() -> None:
    blocks = [
        TEXT,
        CALL.replace("{}", '{"content":[{"type":"heading"}]}'),
        '{"type":"tool_result","content":[{"port":1}]}',
    ]
    record = f'{{"type":"user","message":{{"role":"user","content":[{",".join(blocks)}]}}}}'.encode()
    assert counted(reader_of(CLAUDE_CODE), [record]).unknown == ()


@each_row("harness", [name for name in samples.sampled() if not HARNESSES[name].is_export and name != "aider"])
def test_calls_whose_arguments_have_other_names_are_counted(harness: str) -> None:
    lines = samples.stored_lines(harness)
    names = rb"commands?|cmd|path|(?:absolute_|target_)?file(?:_?[pP]ath)?|content|instructions?"
    later = [re.sub(rb'(?<=")(%s)(?=\\*"\s*:)' % names, rb"later_\1", line) for line in lines]
    calls = [turn for turn in reader_of(harness).turns(enumerate(lines), "k", subagent=False) if is_work(turn.tool)]
    unknown = sum(number for _, number in counted(reader_of(harness), later).unknown)
    assert unknown >= len({turn.offset for turn in calls}) - sum("*** Begin" in turn.text for turn in calls)


@each_row(
    ("block", "kind"),
    [
        ('"name":"Bash","input":{"later":"make\\nall"}', "assistant:Bash-with-other-arguments"),
        ('"name":"Read","input":{"later":"/a/b.py"}', "assistant:Read-with-other-arguments"),
        ('"name":"Rewrite","input":{"path":"a.py","old_string":"x"}', "assistant:Rewrite-edits-files"),
        ('"name":"Bash","later":{"command":"make"}', "assistant:tool_use-without-input"),
    ],
)
def test_a_call_that_crystal_reads_only_as_text_is_counted(block: str, kind: str) -> None:
    said = f'{{"type":"assistant","message":{{"role":"assistant","content":[{{"type":"tool_use",{block}}}]}}}}'
    assert counted(reader_of(CLAUDE_CODE), [said.encode()]).unknown == ((kind, 1),)


@each_row("harness", [name for name in samples.sampled() if name not in ("aider", "specstory")])
def test_words_that_a_new_name_of_a_kind_hides_are_counted(harness: str) -> None:
    reader, lines = reader_of(harness), samples.stored_lines(harness)
    kinds = {found[0] for line in lines for found in TYPE.finditer(line)}
    for kind in part_of(sorted(kinds), 4):
        later = [line.replace(kind, TYPE.sub(RENAMED, kind)) for line in lines]
        before, after = (words_of(reader, each) for each in (lines, later))
        lost = [text for text in before - after if text not in "\n".join(after)]
        counts = (counted(reader, each) for each in (lines, later))
        known, unknown = (sum(number for _, number in each.unknown) for each in counts)
        assert not lost or unknown > known, (kind, lost)


def words_of(reader: TranscriptReader, lines: list[bytes]) -> Counter[str]:
    told = reader.turns(enumerate(lines), "k", subagent=False)
    return Counter(turn.text for turn in told if turn.role in ("user", "assistant"))
