"""Claims about readers of lines: what a line says is read, also if it does not say its id, its time or its blocks' kind."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import pytest

from crystal.transcript.line import parse_line
from crystal.transcript.line_context import Context, complete
from crystal.transcript.parts import block_text
from crystal.transcript.reader import completed, reader_of
from crystal.transcript.record_kinds import OTHER, count_records, is_known
from crystal.transcript.snapshot import Snapshot
from tests.support import agent_samples as samples
from tests.support.examples import part_of
from tests.transcript.test_half_written import largest_file


def texts_of(harness: str, lines: list[bytes]) -> Counter[str]:
    reader = reader_of(harness)
    named = completed(reader, lines, Context(session="s"), lambda line: hashlib.sha256(line).hexdigest())
    turns = reader.turns(enumerate(named), "s", subagent=False)
    return Counter(turn.text for turn in turns if turn.role != "summary")


def without(line: bytes, name: str) -> bytes:
    fields: Any = json.loads(line)
    return json.dumps({key: value for key, value in fields.items() if key != name}).encode()


@pytest.mark.parametrize("harness", ["codex", "copilot-cli", "droid", "pi", "qwen-code"])
@pytest.mark.parametrize("name", ["id", "uuid", "timestamp"])
def test_what_a_line_without_an_id_or_a_time_says_is_read_once(harness: str, name: str) -> None:
    _, lines = largest_file(harness)
    lines = [line.strip() for line in lines]
    before = texts_of(harness, lines)
    for number, line in part_of(enumerate(lines), 4):
        assert texts_of(harness, [*lines[:number], without(line, name), *lines[number + 1 :]]) == before, line[:200]


def test_a_record_of_codex_or_kiro_that_does_not_say_who_speaks_is_counted() -> None:
    message = b'{"type":"response_item","payload":{"type":"message","role":"narrator","content":[]}}'
    for harness, line in (("codex", message), ("kiro", b'{"version":"v1","data":{"content":[]}}')):
        counts = count_records(reader_of(harness), [(0, line)], ())
        assert counts.unknown == (("response_item/message.narrator" if harness == "codex" else OTHER, 1),)


@pytest.mark.parametrize("harness", ["droid", "openclaw", "pi"])
def test_a_message_of_an_unknown_role_is_counted(harness: str) -> None:
    reader, tried = reader_of(harness), 0
    for line in samples.stored_lines(harness):
        fields: Any = parse_line(line) or {}
        if isinstance(fields.get("message"), dict) and fields.get("type") == "message":
            assert is_known(reader, reader.kind(fields) or "")
            for role in ("narrator", None, [1]):
                other = json.dumps({**fields, "message": {**fields["message"], "role": role}}).encode()
                counts = count_records(reader, [(0, other)], ())
                assert dict(counts.unknown) == {f"message.{'narrator' if role == 'narrator' else 'none'}": 1}
                tried += 1
    assert tried


@pytest.mark.parametrize("harness", ["gemini-cli", "qwen-code"])
def test_a_message_without_an_id_in_a_document_is_read_once(harness: str) -> None:
    for path, name in samples.sample_files(harness):
        if not name.endswith(".json"):
            continue
        told = []
        for key in ("kept", "id"):
            document = json.loads(path.read_bytes())
            document["messages"][0].pop(key, None)
            lines = [json.dumps(one).encode() for one in (document, {"$set": document}, {"$set": document})]
            for data in (lines[0], b"\n".join(lines)):
                source = Snapshot(PurePath("chats/session-1.jsonl"), data, samples.no_such_table, {})
                told.append(Counter(said_in(harness, source)))
        assert told == told[:1] * 4


def said_in(harness: str, source: Snapshot) -> Iterator[str]:
    reader: Any = reader_of(harness)
    for talk in reader.conversations(source):
        names = {one.id: complete(one.line, one.context._replace(id=one.id)) for one in reader.records(source, talk)}
        yield from (turn.text for turn in reader.turns(enumerate(names.values()), "s", subagent=False))


def test_a_block_that_lost_its_kind_says_its_text() -> None:
    assert [block_text({**kind, "text": "quartz"}) for kind in ({}, {"type": None}, {"type": "text"})] == ["quartz"] * 3
