"""Parsing never fails, whatever a line holds; times, facts, ids and titles of lines."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.transcript.claude_code.reader import READER
from crystal.transcript.line import _Parser, parse_line
from crystal.transcript.reader import LineFacts
from tests.support.table import each_row
from tests.support.transcript_lines import WHEN, json_values, line_of, said, turns

# -- no line makes it fail -----------------------------------------------------------------------------------------

odd_values = (
    json_values
    | st.sampled_from(["user", "assistant", "attachment", "text", "tool_use", "tool_result", "thinking", "prompt"])
    | st.sampled_from(["queued_command", WHEN, "2026-13-45T99:99:99Z", "\ud83d", "\0", "<system-reminder>", "human"])
)
KEYS = "type uuid parentUuid timestamp cwd gitBranch sessionId isMeta isSidechain isCompactSummary origin promptSource"
BLOCK_KEYS = "type text thinking id name input tool_use_id content source title url kind prompt source_uuid commandMode"
odd_blocks = st.dictionaries(st.sampled_from(BLOCK_KEYS.split()), odd_values, max_size=6)
odd_messages = st.fixed_dictionaries(
    {"content": odd_values | st.lists(odd_blocks | odd_values, max_size=4)},
    optional={"id": odd_values, "model": odd_values},
)
odd_lines = st.builds(
    lambda fields, kind, message, attachment: {**fields, "type": kind, "message": message, "attachment": attachment},
    st.dictionaries(st.sampled_from(KEYS.split()), odd_values, max_size=8),
    st.sampled_from(["user", "assistant", "attachment"]) | odd_values,
    odd_messages | odd_values,
    odd_blocks | odd_values,
)


@pytest.mark.slow
@given(st.lists(odd_lines, max_size=3), st.booleans())
def test_any_json_with_the_right_keys_gives_storable_turns_or_none(lines: list[dict[str, Any]], subagent: bool) -> None:
    first = turns(*lines, subagent=subagent)
    for turn in first:
        texts = [turn.uuid, turn.text, turn.role, turn.parent_uuid, turn.cwd, turn.branch, turn.tool]
        for text in filter(None, [*texts, turn.message_id, turn.model]):
            assert "\0" not in text.encode().decode()
        assert turn.text.strip()
        assert turn.uuid
        assert turn.full_length >= 1
    assert turns(*lines, subagent=subagent) == first
    for line in lines:
        READER.facts(json.dumps(line).encode())
    READER.title(enumerate(json.dumps(line).encode() for line in lines))


@given(st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b'{"type":"user"')
@example(b"\xff\xfe")
@example(b'"user"')
@example(b'["user"]')
def test_any_bytes_are_taken_in_silence(line: bytes) -> None:
    assert list(READER.turns([(0, line), (1, b'"user"' + line)], "s", subagent=False)) == []
    assert isinstance(READER.facts(line), LineFacts)
    READER.title([(0, line)])


@each_row("depth", [500, 1100, 100_000])
@each_row("brackets", [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_read_or_skipped_and_what_follows_is_kept(depth: int, brackets: tuple[str, str]) -> None:
    nested = brackets[0] * depth + '"leaf"' + brackets[1] * depth
    call = (
        f'{{"type":"assistant","uuid":"d","message":{{"content":[{{"type":"tool_use","name":"T","input":{nested}}}]}}}}'
    )
    found = said(call.encode(), line_of("user", "after"))
    assert found[-1] == ("user", "after")
    if depth == 500:
        assert found[0][1].endswith("leaf")


@each_row(
    ("raw", "text"),
    [
        (b'"lone \\ud83d end \\ud83d\\ude00"', "lone \ufffd end 😀"),
        (b'"a\\u0000b"', "a\ufffdb"),
        (b'"broken \xff utf-8"', "broken \ufffd utf-8"),
        (b'"raw \xe2\x80\xa8 and \xc2\x85"', "raw \u2028 and \u0085"),
    ],
)
def test_what_sqlite_would_refuse_is_replaced_and_the_rest_stays(raw: bytes, text: str) -> None:
    line = b'{"type":"user","uuid":"u","message":{"role":"user","content":' + raw + b"}}"
    assert said(line) == [("user", text)]


@each_row("extra", [b'"x":NaN', b'"x":-Infinity', b'"x":1e999', b'"x":' + b"9" * 6000, b'"x":1,"x":2'])
def test_odd_numbers_do_not_cost_the_line(extra: bytes) -> None:
    assert said(b'{"type":"user","message":{"content":"hi"},' + extra + b"}") == [("user", "hi")]


def test_a_byte_order_mark_and_a_carriage_return_do_not_cost_the_line() -> None:
    line = json.dumps(line_of("user", "hi")).encode()
    assert said(b"\xef\xbb\xbf" + line, line + b"\r") == [("user", "hi"), ("user", "hi")]


def test_a_line_without_uuid_gets_one_from_its_place_and_bytes() -> None:
    line = json.dumps({"type": "user", "message": {"content": "y"}}).encode()
    [one] = READER.turns([(0, line)], "s", subagent=False)
    [again] = READER.turns([(0, line)], "s", subagent=False)
    others = [
        *READER.turns([(9, line)], "s", subagent=False),
        *READER.turns([(0, line)], "t", subagent=False),
        *READER.turns([(0, line + b" ")], "s", subagent=False),
    ]
    assert one.uuid == again.uuid
    assert len({one.uuid, *(turn.uuid for turn in others)}) == 4
    for odd in (5, "", " ", None, ["u"], "x" * 1000):
        assert turns({**line_of("user", "y"), "uuid": odd})[0].uuid.startswith("line-")


# -- facts, times, titles ------------------------------------------------------------------------------------------


@each_row(
    ("value", "expected"),
    [
        (WHEN, 1795218713936),
        ("2026-11-20T23:51:53Z", 1795218713000),
        ("2026-11-20T23:51Z", 1795218660000),
        ("2026-11-20T23:51:53.9Z", 1795218713900),
        ("2026-11-20T23:51:53.936999999Z", 1795218713936),
        ("2026-11-20 23:51:53,936", 1795218713936),
        ("2026-11-21T01:51:53.936+02:00", 1795218713936),
        ("2026-11-20T18:21:53.936-0530", 1795218713936),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2026-02-30T00:00:00Z", None),
        ("2026-11-20T25:00:00Z", None),
        ("0000-01-01T00:00:00Z", None),
        ("٢٠٢٦-11-20T23:51:53Z", None),
        ("2026-11-20", None),
        ("soon", None),
        ("", None),
        (1795218713936, None),
        (None, None),
        ({}, None),
    ],
)
def test_a_time_is_milliseconds_or_none(value: object, expected: int | None) -> None:
    assert READER.facts(json.dumps({"timestamp": value}).encode()).timestamp_ms == expected


def test_facts_are_what_the_line_says_of_itself_and_not_what_is_inside_it() -> None:
    line = {"type": "user", "uuid": "u", "sessionId": "s", "cwd": "/w", "timestamp": WHEN, "message": {"uuid": "no"}}
    assert READER.facts(json.dumps(line).encode()) == LineFacts("u", 1795218713936, "/w", "s", is_conversation=True)
    assert READER.facts(b'{"session_id":"old","message":{"cwd":"/no","type":"no"}}') == LineFacts(session_id="old")
    assert READER.facts(b'{"type":5,"uuid":[],"cwd":"","sessionId":{},"timestamp":"x"}') == LineFacts()
    assert READER.facts(b"not json") == LineFacts()
    assert parse_line(b"[1]") is None


NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,400})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
TEXTS = st.text(st.characters(), max_size=8).map(json.dumps) | st.binary(max_size=8).map(lambda one: b'"%s"' % one)
VALUES = st.recursive(
    NUMBERS | TEXTS | st.sampled_from(["null", "true", "NaN", "-Infinity", "01", "1.", "", "\ufeff", "\x0b"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda of: b"[%s]" % b",".join(map(encoded, of)))
        | st.lists(st.tuples(TEXTS, inner), max_size=3).map(
            lambda of: b"{%s}" % b", ".join(encoded(name) + b":" + encoded(value) for name, value in of)
        )
    ),
    max_leaves=8,
)


def encoded(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


@given(VALUES.map(encoded), st.sampled_from([b"%s", b" %s\r\n", b"\xef\xbb\xbf%s", b"%s\0"]))
def test_a_line_is_parsed_the_same_among_few_and_among_many(value: bytes, around: bytes) -> None:
    line = around % value
    assert repr(_Parser().leniently(line)) == repr(_Parser().quickly(line))


def test_the_users_title_wins_then_the_latest_of_the_client() -> None:
    def title(*lines: dict[str, object]) -> str | None:
        return READER.title(enumerate(json.dumps(line).encode() for line in lines))

    custom = {"type": "custom-title", "customTitle": "Mine"}
    client = {"type": "ai-title", "aiTitle": "Fix\n the  parser"}
    foreign = {"type": "summary", "summary": "Another session", "leafUuid": "far"}
    assert title(custom, client, foreign) == "Mine"
    assert title({"type": "ai-title", "aiTitle": "Old"}, client) == "Fix the parser"
    assert title(custom, {"type": "custom-title", "customTitle": "Newer"}) == "Newer"
    assert title({"type": "custom-title", "customTitle": " "}, {"type": "ai-title", "aiTitle": 5}) is None
    assert title(foreign) is None
    assert title(foreign, {"type": "user", "uuid": "far"}) == "Another session"
    assert title({"type": "summary", "summary": "Nobody's leaf"}) == "Nobody's leaf"
    assert title(line_of("user", 'say "custom-title"')) is None


def test_the_time_for_a_title_grows_with_the_lines_however_many_summaries_are_among_them() -> None:
    summaries = [{"type": "summary", "summary": "S", "leafUuid": f"elsewhere-{number}"} for number in range(600)]
    lines = [json.dumps(one).encode() for one in summaries] + [b'{"uuid":"a","message":"' + b"x" * 4000 + b'"}'] * 5000
    start = time.process_time()
    assert READER.title(enumerate(lines)) is None
    assert time.process_time() - start < 5
