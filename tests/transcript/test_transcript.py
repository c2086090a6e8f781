"""Parsing: what is a turn, what never is, and that no line makes it fail."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.model.capture import Turn
from crystal.transcript import parts
from crystal.transcript.claude_code.reader import READER
from crystal.transcript.line_context import set_apart
from tests.support.table import each_row
from tests.support.transcript_lines import WHEN, json_values, line_of, said, turns

DATA = Path(__file__).parent.parent / "data" / "transcripts"
EXPECTED: dict[str, list[list[Any]]] = json.loads((DATA / "turns.json").read_text("utf-8"))


def lines_of(name: str) -> list[tuple[int, bytes]]:
    lines, at = [], 0
    for line in (DATA / name).read_bytes().split(b"\n")[:-1]:
        lines.append((at, line))
        at += len(line) + 1
    return lines


def in_file(name: str) -> list[Turn]:
    return list(READER.turns(lines_of(name), name, subagent="__agent" in name))


# -- the real client -----------------------------------------------------------------------------------------------


@each_row("name", sorted(EXPECTED))
def test_a_real_transcript_gives_exactly_its_turns(name: str) -> None:
    assert [[turn.role, turn.tool, turn.full_length, turn.text[:72]] for turn in in_file(name)] == EXPECTED[name]


def test_every_fixture_is_checked() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in DATA.glob("*.jsonl"))


def test_a_turn_carries_what_its_line_says() -> None:
    name = "print_thinking_tool.jsonl"
    call = next(turn for turn in in_file(name) if turn.role == "tool_call")
    line = next(line for offset, line in lines_of(name) if offset == call.offset)
    fields = json.loads(line)
    assert call.uuid == fields["uuid"]
    assert call.parent_uuid == fields["parentUuid"]
    assert call.message_id == fields["message"]["id"]
    assert (call.part, call.cwd, call.branch, call.model) == (0, "/home/user/work/wd1", "main", "claude-opus-5-5")
    assert call.timestamp == READER.facts(line).timestamp_ms


def test_a_fork_gives_the_turns_of_its_origin_the_same_identities() -> None:
    origin = {(turn.uuid, turn.part): turn.text for turn in in_file("print_resume_3turns.jsonl")}
    fork = {(turn.uuid, turn.part): turn.text for turn in in_file("print_fork_of_resume.jsonl")}
    assert origin.items() <= fork.items()
    assert sorted(text for key, text in fork.items() if key not in origin) == [
        "Mock reply to: fourth question (forked)",
        "fourth question (forked)",
    ]


# -- what is a turn ------------------------------------------------------------------------------------------------


@each_row("text", ["y", "1", "👍", "  y\n", "\u200b", "\u2028a\u0085b", "[", "<", "/exit?"])
def test_no_message_is_too_short_to_keep_and_its_text_is_exact(text: str) -> None:
    assert said(line_of("user", text)) == [("user", text)]
    assert said(line_of("user", [{"type": "text", "text": text}])) == [("user", text)]
    assert said(line_of("assistant", [{"type": "text", "text": text}])) == [("assistant", text)]


@each_row("text", ["", " ", "\n\t\u2003", "\u2028", "\0", " \0\0\n"])
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


@each_row(
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


def strings_in(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from strings_in(inner)


@pytest.mark.slow
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


@each_row(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ({"type": "text", "text": "alone"}, "alone"),
        (["bare", {"type": "text", "text": 5}], "bare"),
        ([{"type": "document", "title": "T", "source": {"type": "text", "data": "body"}}], "T\nbody"),
        ([{"type": "web_search_result", "title": "T", "url": "https://x", "encrypted_content": "zz"}], "T\nhttps://x"),
        ([{"type": "knowledge", "title": "T", "url": "https://x", "text": "body"}], "T\nhttps://x\nbody"),
        ([{"type": "text", "text": "a"}, {"type": "resource", "resource": {"uri": "x", "text": "b"}}], "a\nb"),
    ],
)
def test_a_tool_result_is_its_texts(content: object, text: str) -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content}
    assert said(line_of("user", [block])) == [("tool_result", text)]


@each_row(
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


@each_row("length", [8000, 8001, 60_000])
def test_the_text_of_a_long_result_is_never_longer_than_head_tail_and_marker(length: int) -> None:
    [turn] = turns(line_of("user", [{"type": "tool_result", "tool_use_id": "t", "content": "x" * length}]))
    assert turn.full_length == length
    assert len(turn.text) <= 8000 + len("\n[... 100000 characters left out ...]\n")
    assert ("left out" in turn.text) == (length > 8000)


def test_a_text_that_nobody_can_have_typed_keeps_head_and_tail_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "TEXT_HEAD", 900)
    monkeypatch.setattr(parts, "TEXT_TAIL", 100)
    for length, is_whole in ((1000, True), (1001, False)):
        line = line_of("user", "y" * length)
        [turn] = turns(line)
        assert (turn.full_length, turn.text == "y" * length, "left out" in turn.text) == (
            length,
            is_whole,
            not is_whole,
        )
        with parts.whole_results():
            assert [one.text for one in turns(line)] == ["y" * length]


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


@each_row(
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


@each_row("text", MACHINERY)
@each_row("before", ["", "\n ", "<system-reminder>\nx\n</system-reminder>\n"])
def test_what_the_client_writes_in_the_users_name_is_no_turn(text: str, before: str) -> None:
    assert said(line_of("user", before + text), line_of("user", [{"type": "text", "text": before + text}])) == []


@each_row(
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


@each_row("tag", ["system-reminder", "ide_opened_file", "ide_selection", "user-prompt-submit-hook"])
@each_row("role", ["user", "tool_result"])
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


def test_what_remains_of_a_line_that_was_set_apart_has_its_own_id() -> None:
    line = set_apart(
        b'{"type":"user","uuid":"first","message":{"role":"user","content":"a secret of some length"}}', "own"
    )
    shell = READER.shell_of(line)
    assert (READER.facts(line).uuid, READER.facts(shell).uuid) == ("own", "own")
    assert b"secret" not in shell
    assert len(shell) >= len(line)
