"""Claims about every reader: its samples give exactly their turns, and nothing makes it fail."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.transcript import (
    Context,
    SnapshotReader,
    Source,
    SourceError,
    complete,
    completed,
    parse_completed,
    reader_of,
    without_context,
)
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.transcript_lines import json_values

every_agent = pytest.mark.parametrize("harness", samples.sampled())
every_agent_if_slow = pytest.mark.parametrize(
    "harness",
    [pytest.param(name, marks=[] if name in samples.ONE_OF_EACH else pytest.mark.slow) for name in samples.sampled()],
)


def start() -> None:
    done = crystal("init", "--yes", "--no-import")
    assert done.code == 0, done.err


def proof() -> dict[str, Any]:
    done = crystal("verify", "--json")
    assert done.code == 0, done.out + done.err
    proved: dict[str, Any] = json.loads(done.out)
    return proved


def test_every_agent_has_samples_that_say_where_they_are_from() -> None:
    agents = {name for name, row in HARNESSES.items() if not row.is_store}
    assert samples.sampled() == sorted(agents - {CLAUDE_CODE})
    for harness in samples.sampled():
        assert "icence" in (samples.AGENTS / harness / "README.md").read_text("utf-8")


@every_agent
def test_the_samples_give_exactly_their_turns(harness: str, home: Path) -> None:
    samples.lay_out(harness, home)
    start()
    done = crystal(*samples.import_command(harness, home))
    assert done.code == 0, done.err
    sessions, turns = samples.captured()
    assert (sessions, turns) == samples.expected(harness)
    proved = proof()
    assert (proved["ok"], proved["percent"], proved["faults"]) == (True, 100.0, [])
    assert crystal("sync").code == 0
    assert samples.captured() == (sessions, turns), "the same files read again"


@every_agent_if_slow
def test_a_lost_database_is_rebuilt_and_nothing_is_captured_again(harness: str, home: Path) -> None:
    samples.lay_out(harness, home)
    start()
    assert crystal(*samples.import_command(harness, home)).code == 0
    sessions, turns = samples.captured()
    archives = contents(home / ".ldm" / "agents", "*.zst")
    for file in (home / ".ldm" / "memory").glob("crystal.db*"):
        file.unlink()
    done = crystal("verify", "--repair")
    assert done.code == 0, done.err
    assert crystal("sync").code == 0
    assert contents(home / ".ldm" / "agents", "*.zst") == archives
    again = samples.captured()
    assert again[0] == sessions
    assert sorted(map(json.dumps, again[1])) == sorted(map(json.dumps, turns))
    assert (proof()["percent"], proof()["faults"]) == (100.0, [])


def contents(folder: Path, pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob(pattern)}


@every_agent
@settings(max_examples=30)
@given(data=st.data())
def test_nothing_makes_a_reader_fail(harness: str, data: st.DataObject) -> None:
    reader = reader_of(harness)
    lines = data.draw(st.lists(st.sampled_from(samples.stored_lines(harness)), max_size=6))
    odd = [changed(line, data) for line in lines] + [b"", b"null", b"[1]", b'{"crystal":3}', b'"\\ud800"']
    said = list(completed(reader, odd, Context(session="s", cwd="/w", id=None), lambda _: "made-up"))
    for line in said:
        facts = reader.facts(line)
        assert facts.uuid is None or facts.uuid.startswith((f"{harness}:", "made-up")), facts.uuid
    turns = list(reader.turns(enumerate(said), "key", subagent=False))
    assert all(turn.text.strip() for turn in turns)
    assert len({(turn.uuid, turn.part) for turn in turns}) <= len(turns)
    reader.owner(said, Context())
    reader.title(list(enumerate(said)))


@every_agent
@settings(max_examples=30)
@given(data=st.data())
def test_a_file_that_is_cut_or_garbled_is_read_or_refused(harness: str, data: st.DataObject) -> None:
    reader = reader_of(harness)
    if not isinstance(reader, SnapshotReader):
        return
    path, name = data.draw(st.sampled_from(samples.sample_files(harness)))
    content = path.read_bytes()
    cut = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else changed(content, data)
    source = Source(PurePath("/home/me", name), cut, samples.no_such_table, {})
    try:
        for conversation in reader.conversations(source):
            for record in reader.records(source, conversation):
                assert b"\n" not in record.line
                list(reader.turns([(0, complete(record.line, record.context._replace(id="x")))], "k", subagent=False))
    except SourceError:
        pass


@pytest.mark.parametrize("name", ["crystal", "cryst\\u0061l"])
def test_a_line_that_names_a_context_itself_does_not_choose_its_folder(name: str) -> None:
    line = f'{{"a":1,"{name}":{{"cwd":"/open","id":"codex:other","revised":true}}}}'.encode()
    real = Context(session="s", cwd="/private")
    stored = complete(line, real)
    assert parse_completed(stored)[1] == real
    assert without_context(stored) == line


def changed(line: bytes, data: st.DataObject) -> bytes:
    """Return a line in which one value of the program's, somewhere, has become any other."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line
    inner = fields
    while isinstance(inner, (dict, list)) and inner:
        names = [name for name in inner if name != "crystal"] if isinstance(inner, dict) else list(range(len(inner)))
        if not names:
            break
        name = data.draw(st.sampled_from(names))
        if not isinstance(inner[name], (dict, list)) or data.draw(st.booleans()):
            inner[name] = data.draw(json_values | st.just("\ud800 lone"))
            break
        inner = inner[name]
    return json.dumps(fields).encode("utf-8", "surrogatepass")
