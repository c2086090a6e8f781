"""Parsing: what is a turn, what never is, and that no line makes it fail."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.model.capture import Turn
from crystal.transcript import (
    NO_FACTS,
    LineFacts,
    line_facts,
    parse_line,
    parse_turns,
    read_segment,
    split_lines,
    titles,
)

DATA = Path(__file__).parent.parent / "data" / "transcripts"
EXPECTED: dict[str, list[list[Any]]] = json.loads((DATA / "turns.json").read_text("utf-8"))
WHEN = "2026-11-20T23:51:53.936Z"


def line_of(kind: str, content: object, **fields: object) -> dict[str, Any]:
    line = {"type": kind, "uuid": "u1", "parentUuid": "u0", "timestamp": WHEN, "cwd": "/w", "gitBranch": "main"}
    return {**line, "message": {"role": kind, "content": content}, **fields}


def turns(*lines: object, subagent: bool = False) -> list[Turn]:
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return list(parse_turns(enumerate(raw), "session", subagent=subagent))


def said(*lines: object, subagent: bool = False) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in turns(*lines, subagent=subagent)]


def in_file(name: str) -> list[Turn]:
    with (DATA / name).open("rb") as file:
        lines = list(split_lines(read_segment(file, 0)))
    return list(parse_turns(lines, name, subagent="__agent" in name))


# -- the real client -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_real_transcript_gives_exactly_its_turns(name: str) -> None:
    assert [[turn.role, turn.tool, turn.full_length, turn.text[:72]] for turn in in_file(name)] == EXPECTED[name]


def test_every_fixture_is_checked() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in DATA.glob("*.jsonl"))


def test_a_turn_carries_what_its_line_says() -> None:
    name = "print_thinking_tool.jsonl"
    call = next(turn for turn in in_file(name) if turn.role == "tool_call")
    with (DATA / name).open("rb") as file:
        line = next(line for offset, line in split_lines(read_segment(file, 0)) if offset == call.offset)
    fields = json.loads(line)
    assert call.uuid == fields["uuid"]
    assert call.parent_uuid == fields["parentUuid"]
    assert call.message_id == fields["message"]["id"]
    assert (call.part, call.cwd, call.branch, call.model) == (0, "/home/user/work/wd1", "main", "claude-opus-5-5")
    assert call.timestamp == line_facts(line).timestamp_ms


def test_a_fork_gives_the_turns_of_its_origin_the_same_identities() -> None:
    origin = {(turn.uuid, turn.part): turn.text for turn in in_file("print_resume_3turns.jsonl")}
    fork = {(turn.uuid, turn.part): turn.text for turn in in_file("print_fork_of_resume.jsonl")}
    assert origin.items() <= fork.items()
    assert sorted(text for key, text in fork.items() if key not in origin) == [
        "Mock reply to: fourth question (forked)",
        "fourth question (forked)",
    ]


# -- what is a turn ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["y", "1", "👍", "  y\n", "\u200b", "\u2028a\u0085b", "[", "<", "/exit?"])
def test_no_message_is_too_short_to_keep_and_its_text_is_exact(text: str) -> None:
    assert said(line_of("user", text)) == [("user", text)]
    assert said(line_of("user", [{"type": "text", "text": text}])) == [("user", text)]
    assert said(line_of("assistant", [{"type": "text", "text": text}])) == [("assistant", text)]


@pytest.mark.parametrize("text", ["", " ", "\n\t\u2003", "\u2028", "\0", " \0\0\n"])
def test_a_text_with_nothing_in_it_is_no_turn(text: str) -> None:
    assert said(line_of("user", text), line_of("assistant", [{"type": "text", "text": text}])) == []
    assert said(line_of("assistant", [{"type": "thinking", "thinking": text, "signature": "c2ln"}])) == []
    assert said(line_of("user", [{"type": "tool_result", "tool_use_id": "t", "content": text}])) == []


def test_each_block_of_a_line_is_a_turn_and_its_part_is_its_index() -> None:
    blocks = [
        {"type": "image", "source": {"type": "base64", "data": "iVBO"}},
        {"type": "text", "text": "one"},
        "two",
        {"type": "text", "text": "three"},
    ]
    assert [(turn.part, turn.text) for turn in turns(line_of("user", blocks))] == [(1, "one"), (2, "two"), (3, "three")]


def test_thinking_is_a_turn_and_its_signature_is_not() -> None:
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "redacted_thinking", "data": "x"}]
    assert said(line_of("assistant", blocks)) == [("thinking", "hm")]


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("Bash", {"description": "say hi", "command": "echo hi"}, "Bash: echo hi\ndescription: say hi"),
        ("Grep", {"path": "/w", "pattern": "a.*b", "-n": True}, "Grep: a.*b\npath: /w\n-n: true"),
        ("Read", {"file_path": "/w/a.py", "limit": 5}, "Read: /w/a.py\nlimit: 5"),
        ("mcp__x__go", {"points": [1, 2.5, 3]}, "mcp__x__go\npoints: 1, 2.5, 3"),
        ("TodoRead", {}, "TodoRead"),
        ("TodoRead", None, "TodoRead"),
        ("Odd", "just a text", "Odd\njust a text"),
        (None, {"command": "ls"}, "ls"),
        ("Edit", {"file_path": "a", "old_string": "x\ny", "new_string": ""}, "Edit: a\nold_string: x\ny"),
        (
            "TodoWrite",
            {"todos": [{"content": "fix it", "status": "done"}, {"content": "test it"}], "tags": ["a", "b"]},
            "TodoWrite\ncontent: fix it\nstatus: done\ncontent: test it\ntags: a\ntags: b",
        ),
    ],
)
def test_a_tool_call_reads_as_its_name_its_main_argument_and_the_rest(
    tool: str | None, arguments: object, text: str
) -> None:
    block = {"type": "tool_use", "id": "t1", "name": tool, "input": arguments}
    [turn] = turns(line_of("assistant", [block]))
    assert (turn.role, turn.tool, turn.text) == ("tool_call", tool, text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def strings_in(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from strings_in(inner)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=5))
def test_every_string_of_a_tool_call_can_be_found_in_its_text(arguments: dict[str, object]) -> None:
    [turn] = turns(line_of("assistant", [{"type": "tool_use", "id": "t1", "name": "T", "input": arguments}]))
    for text in strings_in(arguments):
        assert text.replace("\0", "\ufffd") in turn.text


def test_a_tool_result_names_its_tool_when_the_call_was_seen() -> None:
    call = line_of("assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}])
    result = line_of("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "a.py"}], toolUseResult={"a": 1})
    assert [(turn.role, turn.tool) for turn in turns(call, result)] == [("tool_call", "Bash"), ("tool_result", "Bash")]
    assert [(turn.role, turn.tool) for turn in turns(result)] == [("tool_result", None)]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ({"type": "text", "text": "alone"}, "alone"),
        (["bare", {"type": "text", "text": 5}], "bare"),
        ([{"type": "document", "title": "T", "source": {"type": "text", "data": "body"}}], "T\nbody"),
        ([{"type": "web_search_result", "title": "T", "url": "https://x", "encrypted_content": "zz"}], "T\nhttps://x"),
    ],
)
def test_a_tool_result_is_its_texts(content: object, text: str) -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content}
    assert said(line_of("user", [block])) == [("tool_result", text)]


@pytest.mark.parametrize(
    "content",
    [
        None,
        7,
        [],
        [{"type": "image", "source": {"data": "iVBO"}}],
        [{"type": "tool_reference", "tool_name": "X"}],
        [[]],
    ],
)
def test_a_tool_result_without_text_is_no_turn(content: object) -> None:
    assert said(line_of("user", [{"type": "tool_result", "tool_use_id": "t1", "content": content}])) == []


def test_tools_that_run_at_the_models_side_are_calls_and_results_too() -> None:
    call = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "crystal growth"}}
    found = [{"type": "web_search_result", "title": "Growing", "url": "https://x"}]
    result = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": found}
    assert [(turn.role, turn.tool, turn.text) for turn in turns(line_of("assistant", [call, result]))] == [
        ("tool_call", "web_search", "web_search: crystal growth"),
        ("tool_result", "web_search", "Growing\nhttps://x"),
    ]


def test_a_long_tool_result_keeps_head_and_tail_and_tells_its_length() -> None:
    whole = "".join(f"line {number}\n" for number in range(5000))
    [turn] = turns(line_of("user", [{"type": "tool_result", "tool_use_id": "t1", "content": whole}]))
    head, marker, tail = turn.text.partition("\n[... ")
    left_out, _, tail = tail.partition(" characters left out ...]\n")
    assert turn.full_length == len(whole)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + int(left_out) + len(tail) == len(whole)
    assert 5500 < len(head) <= 6000
    assert 1900 < len(tail) <= 2000 + len(marker)


@pytest.mark.parametrize("length", [8000, 8001, 60_000])
def test_the_text_of_a_long_result_is_never_longer_than_head_tail_and_marker(length: int) -> None:
    [turn] = turns(line_of("user", [{"type": "tool_result", "tool_use_id": "t", "content": "x" * length}]))
    assert turn.full_length == length
    assert len(turn.text) <= 8000 + len("\n[... 100000 characters left out ...]\n")
    assert ("left out" in turn.text) == (length > 8000)


def test_what_is_said_in_a_subagent_has_that_role_and_what_is_done_keeps_its_own() -> None:
    lines = [
        line_of("user", "find it"),
        line_of("assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "found"}]),
        line_of("assistant", [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]),
        line_of("user", [{"type": "tool_result", "tool_use_id": "t", "content": "a.py"}]),
    ]
    roles = ["subagent", "thinking", "subagent", "tool_call", "tool_result"]
    assert [turn.role for turn in turns(*lines, subagent=True)] == roles
    assert [turn.role for turn in turns(*({**line, "isSidechain": True} for line in lines))] == roles


def test_a_compaction_summary_is_a_summary_without_its_reminders() -> None:
    text = "This session is being continued.\n\n<system-reminder>\n<x>Bash</x>\n</system-reminder>\nThey fixed it."
    assert said(line_of("user", text, isCompactSummary=True, isVisibleInTranscriptOnly=True)) == [
        ("summary", "This session is being continued.\n\n\nThey fixed it.")
    ]


def test_what_a_person_sends_while_the_agent_works_is_a_turn_and_only_once() -> None:
    queued = {
        "type": "attachment",
        "uuid": "a1",
        "timestamp": WHEN,
        "attachment": {
            "type": "queued_command",
            "commandMode": "prompt",
            "origin": {"kind": "human"},
            "source_uuid": "s1",
            "prompt": [{"type": "text", "text": "also check the icons"}],
        },
    }
    again = {**queued, "uuid": "a2"}
    bare = {"type": "attachment", "uuid": "a3", "attachment": {"type": "queued_command", "prompt": "and the logs"}}
    assert [(turn.uuid, turn.role, turn.text) for turn in turns(queued, again, bare)] == [
        ("s1", "user", "also check the icons"),
        ("s1", "user", "also check the icons"),
        ("a3", "user", "and the logs"),
    ]


def test_the_words_given_to_a_prompt_command_are_a_turn() -> None:
    text = (
        "<command-message>fix is running…</command-message>\n<command-name>/fix</command-name>\n"
        "<command-args>the login\ntimeout</command-args>"
    )
    assert said(line_of("user", text)) == [("user", "/fix the login\ntimeout")]


# -- what never is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        {"type": "api-request-blob", "message": {"role": "user", "content": "hi"}},
        {"type": "queue-operation", "operation": "enqueue", "content": "hi", "message": {"role": "user"}},
        {"type": "last-prompt", "lastPrompt": "hi", "role": "user"},
        {"type": "system", "subtype": "local_command", "content": "hi"},
        {"type": "progress", "message": {"type": "user", "content": "hi"}, "data": {"type": "assistant"}},
        {"type": "summary", "summary": "hi", "leafUuid": "user"},
        {"type": "never-seen-before", "message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}},
        {"type": "attachment", "attachment": {"type": "skill_listing", "prompt": "hi"}, "role": "user"},
        {"type": "attachment", "attachment": {"type": "queued_command", "commandMode": "bash", "prompt": "ls"}},
        {
            "type": "attachment",
            "attachment": {
                "type": "queued_command",
                "prompt": "<task-notification>\nx</task-notification>",
                "commandMode": "task-notification",
            },
        },
        {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "hi", "origin": {"kind": "peer"}}},
        {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "hi"}, "isMeta": True},
        line_of("user", "hi", isMeta=True),
        line_of("user", [{"type": "text", "text": "Base directory for this skill"}], isMeta=True, sourceToolUseID="t"),
        line_of("user", "hi", origin={"kind": "task-notification"}),
        line_of("user", "hi", promptSource="system"),
        line_of("user", "hi", toolUseResult={"stdout": "hi"}),
        line_of("assistant", [{"type": "text", "text": "API Error: 400"}], isApiErrorMessage=True),
        {"type": "assistant", "message": {"model": "<synthetic>", "content": [{"type": "text", "text": "No."}]}},
    ],
)
def test_bookkeeping_and_the_clients_own_lines_are_never_turns(line: dict[str, Any]) -> None:
    assert said(line) == []


MACHINERY = [
    "<command-name>/clear</command-name>\n            <command-message>clear</command-message>",
    "<command-message>init</command-message>\n<command-name>/init</command-name>",
    "<command-message>x</command-message>\n<command-name>/x</command-name>\n<command-args> </command-args>",
    "<local-command-stdout>\x1b[2mCompacted\x1b[22m</local-command-stdout>",
    "<local-command-stderr>no</local-command-stderr>",
    "<local-command-caveat>The command below</local-command-caveat>",
    "<bash-input>echo hi</bash-input>",
    "<bash-stdout>hi</bash-stdout><bash-stderr></bash-stderr>",
    "<task-notification>\n<task-id>a</task-id></task-notification>",
    "[Request interrupted by user]",
    "[Request interrupted by user for tool use]",
    "Caveat: The messages below were generated by the user while running local commands. DO NOT respond",
]


@pytest.mark.parametrize("text", MACHINERY)
@pytest.mark.parametrize("before", ["", "\n ", "<system-reminder>\nx\n</system-reminder>\n"])
def test_what_the_client_writes_in_the_users_name_is_no_turn(text: str, before: str) -> None:
    assert said(line_of("user", before + text), line_of("user", [{"type": "text", "text": before + text}])) == []


@pytest.mark.parametrize(
    "text",
    [
        "why does <command-name>/clear</command-name> appear in the transcript?",
        "see `<bash-input>ls</bash-input>`",
        "[Request interrupted by user] is shown twice, why?",
        "[Request interrupted] that was me",
        "<command-name> is which tag?",
        "the tag <system-reminder> is never closed here",
        "what is `<system-reminder>x</system-reminder>`?",
        "<div>html</div>",
        "Caveat: the messages below are mine",
    ],
)
def test_a_person_may_write_about_the_clients_tags(text: str) -> None:
    assert said(line_of("user", text)) == [("user", text)]


@pytest.mark.parametrize("tag", ["system-reminder", "ide_opened_file", "ide_selection", "user-prompt-submit-hook"])
@pytest.mark.parametrize("role", ["user", "tool_result"])
def test_injected_context_is_taken_out_and_the_rest_stays(tag: str, role: str) -> None:
    block = f"<{tag}>\nAs you answer, <b>remember</b>\n</{tag}>"
    for text, left in {
        f"{block}\nreal question": "real question",
        f"real question\n\n{block}\n": "real question",
        f"{block}{block}real question": "real question",
        f"one {block} two": "one  two",
        f'<{tag} kind="x">y</{tag}>real': "real",
        block: "",
    }.items():
        content: object = text if role == "user" else [{"type": "tool_result", "tool_use_id": "t", "content": text}]
        assert said(line_of("user", content)) == ([(role, left)] if left else [])


def test_an_assistant_may_quote_a_reminder() -> None:
    text = "<system-reminder>x</system-reminder>"
    assert said(line_of("assistant", text)) == [("assistant", text)]


def test_a_text_full_of_unclosed_tags_costs_no_more_than_another() -> None:
    text = "<system-reminder>" * 50_000 + "</ide_selection>"
    assert said(line_of("user", text)) == [("user", text)]


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
        line_facts(json.dumps(line).encode())
    titles(enumerate(json.dumps(line).encode() for line in lines))


@given(st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b'{"type":"user"')
@example(b"\xff\xfe")
@example(b'"user"')
@example(b'["user"]')
def test_any_bytes_are_taken_in_silence(line: bytes) -> None:
    assert list(parse_turns([(0, line), (1, b'"user"' + line)], "s", subagent=False)) == []
    assert isinstance(line_facts(line), LineFacts)
    titles([(0, line)])


@pytest.mark.parametrize("depth", [500, 1100, 100_000])
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_read_or_skipped_and_what_follows_is_kept(depth: int, brackets: tuple[str, str]) -> None:
    nested = brackets[0] * depth + '"leaf"' + brackets[1] * depth
    call = (
        f'{{"type":"assistant","uuid":"d","message":{{"content":[{{"type":"tool_use","name":"T","input":{nested}}}]}}}}'
    )
    found = said(call.encode(), line_of("user", "after"))
    assert found[-1] == ("user", "after")
    if depth == 500:
        assert found[0][1].endswith("leaf")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("extra", [b'"x":NaN', b'"x":-Infinity', b'"x":1e999', b'"x":' + b"9" * 6000, b'"x":1,"x":2'])
def test_odd_numbers_do_not_cost_the_line(extra: bytes) -> None:
    assert said(b'{"type":"user","message":{"content":"hi"},' + extra + b"}") == [("user", "hi")]


def test_a_byte_order_mark_and_a_carriage_return_do_not_cost_the_line() -> None:
    line = json.dumps(line_of("user", "hi")).encode()
    assert said(b"\xef\xbb\xbf" + line, line + b"\r") == [("user", "hi"), ("user", "hi")]


def test_a_line_without_uuid_gets_one_from_its_place_and_bytes() -> None:
    line = json.dumps({"type": "user", "message": {"content": "y"}}).encode()
    [one] = parse_turns([(0, line)], "s", subagent=False)
    [again] = parse_turns([(0, line)], "s", subagent=False)
    others = [
        *parse_turns([(9, line)], "s", subagent=False),
        *parse_turns([(0, line)], "t", subagent=False),
        *parse_turns([(0, line + b" ")], "s", subagent=False),
    ]
    assert one.uuid == again.uuid
    assert len({one.uuid, *(turn.uuid for turn in others)}) == 4
    for odd in (5, "", " ", None, ["u"], "x" * 1000):
        assert turns({**line_of("user", "y"), "uuid": odd})[0].uuid.startswith("line-")


# -- facts, times, titles ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
    assert line_facts(json.dumps({"timestamp": value}).encode()).timestamp_ms == expected


def test_facts_are_what_the_line_says_of_itself_and_not_what_is_inside_it() -> None:
    line = {"type": "user", "uuid": "u", "sessionId": "s", "cwd": "/w", "timestamp": WHEN, "message": {"uuid": "no"}}
    assert line_facts(json.dumps(line).encode()) == LineFacts("u", 1795218713936, "/w", "s", "user")
    assert line_facts(b'{"session_id":"old","message":{"cwd":"/no","type":"no"}}') == LineFacts(session_id="old")
    assert line_facts(b'{"type":5,"uuid":[],"cwd":"","sessionId":{},"timestamp":"x"}') == NO_FACTS
    assert line_facts(b"not json") == NO_FACTS
    assert parse_line(b"[1]") is None


def test_the_users_title_wins_then_the_latest_of_the_client() -> None:
    def title(*lines: dict[str, object]) -> str | None:
        return titles(enumerate(json.dumps(line).encode() for line in lines))

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
