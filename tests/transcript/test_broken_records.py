"""Claims about every reader of whole files and databases: what is broken is kept as it is and counted, the rest read."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.transcript.damaged import MessageList, parse_beginning, parse_damaged
from crystal.transcript.line_context import complete
from crystal.transcript.messages import SnapshotReader
from crystal.transcript.reader import reader_of
from crystal.transcript.record_kinds import NOT_JSON, count_records
from crystal.transcript.snapshot import Snapshot
from tests.support import agent_samples as samples
from tests.support.archive_frames import frames_in
from tests.support.command import crystal
from tests.support.examples import examples, part_of
from tests.support.table import each_row

LINES = ("cursor", "gemini-cli", "kiro", "openclaw", "vscode-chat")
BROKEN = b'{"type":"user","content":"the wobblefish swims'
COLUMNS = {
    "opencode": ("message.data", "part.data", "session_message.data"),
    "goose": ("messages.content_json",),
    "cursor": ("cursorDiskKV.value", "blobs.data"),
    "kiro": ("conversations.value", "conversations_v2.value"),
    "openclaw": ("transcript_events.event_json",),
    "zed": ("threads.data",),
}
GEMINI = "580fb635"
ZED = "11111111-0000-4000-8000-000000000001"


def read(harness: str, source: Snapshot) -> tuple[list[bytes], list[bytes], int]:
    """Return the records of a file: their lines, what of it gives turns, and how many are no JSON."""
    reader = reader_of(harness)
    assert isinstance(reader, SnapshotReader)
    records = [one for talk in reader.conversations(source) for one in reader.records(source, talk)]
    lines = [complete(one.line, one.context._replace(id=one.id, session="s")) for one in records]
    said = {turn.offset for turn in reader.turns(enumerate(lines), "", subagent=False)}
    counts = count_records(reader, list(enumerate(lines)), said)
    return [one.line for one in records], [lines[at] for at in sorted(said)], dict(counts.unknown).get(NOT_JSON, 0)


def line_files(harness: str) -> list[tuple[str, bytes]]:
    files = [(name, path.read_bytes()) for path, name in samples.sample_files(harness) if name.endswith(".jsonl")]
    return [one for one in files if read_or_none(harness, *one)]


def read_or_none(harness: str, name: str, data: bytes) -> Any:
    try:
        return read(harness, Snapshot(PurePath("/home/me", name), data, samples.no_such_table, {}))[1]
    except Exception:  # noqa: BLE001 - no conversation of this reader
        return None


@each_row("harness", LINES)
def test_a_broken_line_is_kept_and_counted_and_costs_no_other(harness: str) -> None:
    tried = 0
    for name, data in line_files(harness):
        lines = data.split(b"\n")
        before = read(harness, Snapshot(PurePath("/home/me", name), data, samples.no_such_table, {}))
        for raw, at in itertools.product((BROKEN, b"[" * 100_000, b"\0\0"), (1, len(lines) // 2, len(lines) - 1)):
            broken = b"\n".join([*lines[:at], raw, *lines[at:]])
            after = read(harness, Snapshot(PurePath("/home/me", name), broken, samples.no_such_table, {}))
            assert (after[0].count(raw), after[1], after[2]) == (1, before[1], before[2] + 1), (name, at, raw[:9])
            tried += 1
    assert tried


@each_row("harness", LINES)
def test_a_half_written_end_waits_until_the_file_is_at_rest(harness: str) -> None:
    for (name, data), is_at_rest in itertools.product(line_files(harness), (False, True)):
        source = Snapshot(PurePath("/home/me", name), data.rstrip(b"\n") + b"\n" + BROKEN, samples.no_such_table, {})
        source.is_at_rest = is_at_rest
        assert (BROKEN in read(harness, source)[0], source.is_unfinished) == (is_at_rest, not is_at_rest)


def cut_rows(database: apsw.Connection, column: str) -> Iterator[str]:
    """Cut what a column of each row holds, one after the other; yield what is left."""
    table, _, name = column.partition(".")
    has = database.execute("SELECT count(*) FROM pragma_table_info(?) WHERE name = ?", (table, name)).fetchall()
    sql = f'SELECT rowid, "{name}" FROM "{table}" WHERE CAST("{name}" AS TEXT) GLOB ?'
    rows = database.execute(sql, ("[[{]*",)).fetchall() if has == [(1,)] else []
    for row, whole in part_of(rows, 4) if rows else []:
        text = whole.decode() if isinstance(whole, bytes) else str(whole)
        for kept in (text[:-1], whole):
            database.execute(f'UPDATE "{table}" SET "{name}" = ? WHERE rowid = ?', (kept, row))
            if kept is not whole:
                yield text[:-1]


@pytest.mark.slow
@each_row("harness", list(COLUMNS))
def test_a_row_with_broken_json_is_kept_as_it_is(harness: str) -> None:
    tried = 0
    for path, name in samples.sample_files(harness):
        for column in COLUMNS[harness] if path.suffix == samples.DATABASE_SUFFIX else ():
            database = samples.database_of(path)
            before = read(harness, samples.snapshot_of(database, name))[1]
            for raw in cut_rows(database, column):
                lines, said, broken = read(harness, samples.snapshot_of(database, name))
                assert broken == lines.count(raw.encode()), (column, raw[:40])
                assert broken or said == before, (column, raw[:40])
                tried += broken
    assert tried >= len(COLUMNS[harness])


def with_broken_rows(harness: str) -> Iterator[Snapshot]:
    for path, name in samples.sample_files(harness):
        for column in COLUMNS[harness] if path.suffix == samples.DATABASE_SUFFIX else ():
            database = samples.database_of(path)
            yield from (samples.snapshot_of(database, name) for _ in cut_rows(database, column))


@each_row("harness", list(COLUMNS))
def test_a_broken_row_has_the_time_of_the_one_before_or_of_the_file(harness: str) -> None:
    reader: Any = reader_of(harness)
    times = []
    for source in with_broken_rows(harness):
        source.modified = 1_799_999_999_999
        for talk in reader.conversations(source):
            lines = [complete(one.line, one.context) for one in reader.records(source, talk)]
            times += [reader.facts(line).timestamp_ms for line in lines if b'"crystalText"' in line]
    assert None not in times
    is_alone = harness in ("kiro", "zed")  # a whole conversation is one row
    assert is_alone or any(at != 1_799_999_999_999 for at in times)


# -- files that were cut ---------------------------------------------------------------------------------------------


@examples(60)
@given(st.lists(st.text() | st.dictionaries(st.text(), st.text())), st.booleans(), st.data())
def test_a_document_cut_anywhere_gives_the_messages_before(
    words: list[Any], is_list: bool, data: st.DataObject
) -> None:
    messages = [{"content": one, "more": [{"text": one}]} for one in words]
    whole = json.dumps(messages if is_list else {"id": "x", "none": [], "messages": messages, "last": {}}).encode()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    listed = None if is_list else MessageList("messages", ("content", "more"))
    found, left_out = parse_damaged(cut, listed)
    rest = b"".join(cut[one] for one in left_out)
    if found is None:
        assert rest == cut
    else:
        told = found if is_list else found["messages"]  # type: ignore[index, call-overload]
        assert told == messages[: len(told)]
        assert cut.endswith(rest)
        assert json.dumps(messages[len(told)]).encode() not in rest if len(told) < len(messages) else True


@each_row("harness", ["cline", "gemini-cli", "qwen-code", "roo-code", "vscode-chat"])
def test_what_follows_a_broken_first_record_is_read(harness: str) -> None:
    reader, tried = reader_of(harness), 0
    for path, name in samples.sample_files(harness):
        data = path.read_bytes()
        is_document = name.endswith(".json")
        at = data.find(b"{", max(0, data.find(b'"messages"'), data.find(b'"requests"')) if is_document else 0)
        source = Snapshot(PurePath("/home/me", name), data, samples.no_such_table, {})
        has_more = is_document or data.count(b"\n") > 1
        if isinstance(reader, SnapshotReader) and has_more and (before := read_or_none(harness, name, data)):
            broken = data[: at + 2] + b'\xff{"\0' + data[at + 7 :]
            lines, said, _ = read(harness, Snapshot(source.path, broken, samples.no_such_table, {}))
            in_one = (
                2 if harness == "vscode-chat" else 1
            )  # records of what the file has as one: a prompt and its answer
            assert len(said) >= len(before) - in_one, (name, len(lines))
            tried += len(said)
    assert tried


@examples(60)
@given(st.lists(st.dictionaries(st.text(), st.text()), min_size=1, max_size=5), st.booleans(), st.data())
def test_a_document_damaged_in_one_message_gives_the_others(
    messages: list[Any], is_list: bool, data: st.DataObject
) -> None:
    texts = [json.dumps({"content": one}) for one in messages]
    number = data.draw(st.integers(0, len(texts) - 1))
    texts[number] = texts[number][:2] + "\0 \xff, " + texts[number][2:]
    listed = f"[{', '.join(texts)}]"
    whole = listed if is_list else f'{{"id": "x", "tools": [{{}}], "messages": {listed}, "more": [{{}}]}}'
    found, left_out = parse_damaged(whole.encode(), None if is_list else MessageList("messages", ("content",)))
    rest = b"".join(whole.encode()[one] for one in left_out)
    others = [{"content": one} for one in [*messages[:number], *messages[number + 1 :]]]
    told = found if is_list else found["messages"] if isinstance(found, dict) else None
    assert told == others or (found is None and not others)
    around = {"id": "x", "tools": [{}], "messages": others, "more": [{}]}
    assert not isinstance(found, dict) or found == around or (found | around == around and number == len(others))
    assert texts[number].encode() in rest


@pytest.mark.slow
def test_a_cut_document_of_brackets_alone_costs_no_more_than_its_length() -> None:
    data = b"[" * 1_000_000
    begun = time.process_time()
    assert parse_damaged(data) == (None, [slice(0, len(data))])
    assert time.process_time() - begun < 10  # 0.3 s; with the square of it, half a minute


def test_a_file_that_was_cut_gives_its_whole_messages_and_is_named(home: Path) -> None:
    harnesses = ("cline", "gemini-cli", "roo-code")
    for harness in harnesses:
        samples.lay_out(harness, home)
    names = ("api_conversation_history.json", "*m5nrm.messages.json", "session-*.json")
    cut = {path: path.read_bytes() for name in names for path in home.rglob(name)}
    for path, whole in cut.items():
        path.write_bytes(whole[: len(whole) * 3 // 4])
        os.utime(path, (1_700_000_000, 1_700_000_000))
    expected = [turn for harness in harnesses for turn in samples.expected(harness)[1]]
    assert crystal("init", "--yes", "--no-import").code == 0
    told = crystal("backfill").err
    found = samples.captured()[1]
    assert [one for one in found if one not in expected] == []
    assert {one["session"] for one in found} == {one["session"] for one in expected}
    assert len(cut) == 4 < len(expected) - len(found) + 4
    crystal("sync")
    doctor = " ".join(crystal("doctor").out.split())
    for path in cut:
        assert f"{path}: is not complete JSON" in told
        assert re.search(
            re.escape(f"{path}: is not complete JSON: bytes ") + r"[\d,]+ to [\d,]+ cannot be read", doctor
        )
    assert "make it readable (chmod u+r)" in doctor
    assert "2 lines of Cline cannot be parsed" in doctor
    for path, whole in cut.items():
        path.write_bytes(whole)
    assert "complete JSON" not in crystal("backfill").err + crystal("sync").err
    assert crystal("verify").code == 0
    assert sorted(map(str, samples.captured()[1])) == sorted(map(str, expected))


# -- with the program ------------------------------------------------------------------------------------------------


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) * 7 // 8],
    "cut in its first conversation": lambda data: data[:2000],
    "begun broken": lambda data: b"\xff" + data[1:],
    "broken in a conversation": lambda data: data[:1000] + b"\0{" + data[1002:],
    "without its beginning": lambda data: data[1000:],
}


def test_a_damaged_export_gives_what_is_whole_and_the_whole_one_later_the_rest(home: Path) -> None:
    assert crystal("init", "--yes", "--no-import").code == 0
    archive = home / "export.zip"
    for harness, (name, damage) in itertools.product(("claude-ai", "chatgpt"), DAMAGE.items()):
        [(sample, _)] = [one for one in samples.sample_files(harness) if one[1].endswith("conversations.json")]
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr("conversations.json", damage(sample.read_bytes()))
        for _ in range(2):
            done = crystal("import", str(archive))
            assert "download the export again" in done.err, (harness, name, done.err)
    found = samples.captured()[1]
    expected = [turn for harness in ("claude-ai", "chatgpt") for turn in samples.expected(harness)[1]]
    texts = [one["text"] for one in expected]
    assert {*texts}.issuperset(one["text"] for one in found)
    assert len(found) > 6
    for harness in ("claude-ai", "chatgpt"):
        samples.lay_out(harness, home)
        assert crystal(*samples.import_command(harness, home)).code == 0
    assert crystal("verify").code == 0
    found = samples.captured()[1]
    assert {one["text"] for one in found} == {*texts}
    assert len({str(one) for one in found}) == len(found)  # a branch may go on in the session that it came from


def test_a_damaged_thread_of_zed_is_named_and_hides_no_other(home: Path) -> None:
    samples.lay_out("zed", home)
    path = home / ".local/share/zed/threads/threads.db"
    with apsw.Connection(str(path)) as database:
        database.execute("UPDATE threads SET data = x'28b52ffd00ff' WHERE id = ?", (ZED,))
    assert crystal("init", "--yes", "--no-import").code == 0
    done = crystal("backfill")
    assert f"{path}: thread {ZED}: a compressed record is damaged" in done.err
    others = [one for one in samples.expected("zed")[1] if one["subagent"] or one["session"] != ZED]
    assert samples.captured()[1] == others
    assert f"thread {ZED}: a compressed record is damaged" in " ".join(crystal("sync").err.split())
    assert "fix: crystal sync" not in crystal("doctor").out
    assert f"thread {ZED}: a compressed record is damaged" in " ".join(crystal("verify").out.split())


@pytest.mark.slow
def test_broken_lines_of_gemini_are_in_the_archive_and_doctor_counts_them(home: Path) -> None:
    samples.lay_out("gemini-cli", home)
    path = min(home.rglob("*compressed.jsonl"))
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], BROKEN, *lines[2:], BROKEN + b" on"]))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert crystal("init", "--yes", "--no-import").code == 0
    assert crystal("backfill").code == 0
    assert samples.captured()[1] == samples.expected("gemini-cli")[1]
    assert "2 lines of Gemini CLI cannot be parsed" in " ".join(crystal("doctor").out.split())
    assert crystal("verify").code == 0
    [archive] = home.rglob(f"{GEMINI}*.jsonl.zst")
    kept = [json.loads(line) for line in b"".join(frames_in(archive)).splitlines()]
    assert [one["crystalText"] for one in kept if "crystalText" in one] == [BROKEN.decode(), f"{BROKEN.decode()} on"]


def test_the_newest_text_of_a_gemini_message_is_the_message_and_the_earlier_one_is_kept() -> None:
    def line(number: int, text: str, **more: Any) -> bytes:
        return json.dumps(
            {"id": f"m{number}", "type": "gemini" if number % 2 else "user", "content": text, **more}
        ).encode()

    head = b'{"sessionId":"11111111-aaaa-4bbb-8ccc-000000000001","kind":"main"}'
    lines = [
        head,
        line(0, "asked"),
        line(1, "Half an"),
        line(1, "Half an answer"),
        line(1, "", toolCalls=[{"name": "ls"}]),
    ]
    lines += [b'{"$rewindTo":"m0"}', line(1, "Another answer"), line(2, "asked on"), line(3, "done")]
    source = Snapshot(PurePath("chats/session-x.jsonl"), b"\n".join(lines), samples.no_such_table, {})
    kept, said, broken = read("gemini-cli", source)
    answer = json.loads(said[1])
    assert (answer["content"], [one["name"] for one in answer["toolCalls"]]) == ("Another answer", ["ls"])
    assert (len(said), broken) == (4, 0)
    assert [one["content"] for one in map(json.loads, kept) if "crystalEarlier" in one] == ["Half an answer"]


def test_a_change_of_an_unknown_kind_is_kept_and_counted() -> None:
    [(name, data)] = [one for one in line_files("vscode-chat") if b'"kind": 1' in one[1]]
    later = [b'{"kind":7,"v":"quartz"}', b'{"kind":1,"k":["requests",99,"response"],"v":"lost"}', b'{"kind":2,"v":[]}']
    source = Snapshot(PurePath("/home/me", name), data + b"\n".join([*later, b""]), samples.no_such_table, {})
    before = read("vscode-chat", Snapshot(source.path, data, source.rows, {}))
    kept, said, broken = read("vscode-chat", source)
    assert (kept[-4:-1], said, broken) == (later, before[1], 0)
    reader = reader_of("vscode-chat")
    assert dict(count_records(reader, list(enumerate(kept)), range(len(said))).unknown)["7"] == 1


@pytest.mark.slow
def test_many_messages_behind_the_damage_cost_no_more_each() -> None:
    def spent(count: int) -> float:
        begun = time.process_time()
        found, *_ = parse_damaged(b"[{},x" + b",{}" * count + b"]")
        assert found == [{}] * (count + 1)
        return time.process_time() - begun

    assert spent(200_000) < 20 * spent(20_000)  # 10 times; 50 times with the square of it


def test_a_beginning_with_many_open_brackets_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        parse_beginning(b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b",")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
