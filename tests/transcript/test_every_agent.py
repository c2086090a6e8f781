"""Claims about every reader: its samples give exactly their turns, and nothing makes it fail."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import apsw
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.transcript.line_context import Context, complete, parse_completed, without_context
from crystal.transcript.messages import SnapshotReader
from crystal.transcript.reader import completed, reader_of
from crystal.transcript.snapshot import Snapshot, SourceError
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import examples, part_of
from tests.support.table import each_row
from tests.support.transcript_lines import json_values

every_agent = pytest.mark.parametrize("harness", samples.sampled())
every_agent_if_slow = pytest.mark.parametrize(
    "harness",
    [
        pytest.param(name, marks=[] if name in part_of(samples.ONE_OF_EACH) else pytest.mark.slow)
        for name in samples.sampled()
    ],
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
        readme = samples.AGENTS / harness / "README.md"
        assert "icence" in readme.read_text("utf-8"), f"{readme} must say under which licence the samples are"


def read_samples(home: Path, harnesses: list[str], *command: str) -> None:
    """Read samples, prove that all is there, and read the same files again."""
    for harness in harnesses:
        samples.lay_out(harness, home)
    start()
    done = crystal(*command)
    assert done.code == 0, done.err
    sessions, turns = samples.captured()
    for harness in harnesses:
        told = samples.expected(harness)
        own = {fact["session"] for fact in told[0]}
        assert tuple([fact for fact in facts if fact["session"] in own] for facts in (sessions, turns)) == told
    assert len(turns) == sum(len(samples.expected(harness)[1]) for harness in harnesses)
    proved = proof()
    assert (proved["ok"], proved["percent"], proved["faults"]) == (True, 100.0, [])
    assert crystal("sync").code == 0
    assert samples.captured() == (sessions, turns), "the same files read again"


def test_the_samples_of_all_agents_give_exactly_their_turns(home: Path) -> None:
    read_samples(home, [name for name in samples.sampled() if not HARNESSES[name].is_export], "backfill", "--wait")


MOVED = {
    "codex": ("CODEX_HOME", ".codex"), "copilot-cli": ("COPILOT_HOME", ".copilot"), "cursor": ("CURSOR_DATA_DIR", ".cursor"),
    "droid": ("FACTORY_HOME_OVERRIDE", ""), "gemini-cli": ("GEMINI_CLI_HOME", ""), "kiro": ("KIRO_HOME", ".kiro"),
    "opencode": ("XDG_DATA_HOME", ".local/share"), "openclaw": ("OPENCLAW_STATE_DIR", ".openclaw"),
    "pi": ("PI_CODING_AGENT_DIR", ".pi/agent"), "qwen-code": ("QWEN_HOME", ".qwen"),
}  # fmt: skip
"""The variable that moves an agent's home, and that home in its samples."""


@pytest.mark.slow
def test_what_was_read_where_a_variable_says_stays_proved_without_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for harness, (variable, folder) in MOVED.items():
        samples.lay_out(harness, home / "moved")
        monkeypatch.setenv(variable, str(home / "moved" / folder))
    start()
    assert crystal("backfill", "--wait").code == 0
    sessions = {fact["session"] for fact in samples.captured()[0]}
    for harness in MOVED.keys() - {"cursor", "kiro", "openclaw"}:  # some of their samples lie elsewhere
        assert {fact["session"] for fact in samples.expected(harness)[0]} <= sessions
    for variable, _ in MOVED.values():
        monkeypatch.delenv(variable)
    assert (proof()["percent"], proof()["faults"]) == (100.0, [])


@pytest.mark.parametrize("harness", part_of(name for name in samples.sampled() if HARNESSES[name].is_export))
def test_the_samples_of_an_export_give_exactly_their_turns(harness: str, home: Path) -> None:
    read_samples(home, [harness], *samples.import_command(harness, home))


@every_agent_if_slow
def test_a_lost_database_is_rebuilt_and_nothing_is_captured_again(harness: str, home: Path) -> None:
    samples.lay_out(harness, home)
    start()
    assert crystal(*samples.import_command(harness, home)).code == 0
    assert crystal("sync", "--wait").code == 0  # a summary gives its session a title
    sessions, turns = samples.captured()
    archives = contents(home / ".ldm" / "agents", "*.zst")
    for file in (home / ".ldm" / "memory").glob("crystal.db*"):
        file.unlink()
    done = crystal("verify", "--repair")
    assert done.code == 0, done.err
    assert crystal("sync", "--wait").code == 0
    assert contents(home / ".ldm" / "agents", "*.zst") == archives
    again = samples.captured()
    assert again[0] == sessions
    assert sorted(map(json.dumps, again[1])) == sorted(map(json.dumps, turns))
    assert (proof()["percent"], proof()["faults"]) == (100.0, [])


def contents(folder: Path, pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob(pattern)}


@examples(230)
@given(st.sampled_from(samples.sampled()), st.data())
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


@examples(180)
@given(st.sampled_from([name for name in samples.sampled() if isinstance(reader_of(name), SnapshotReader)]), st.data())
def test_a_file_that_is_cut_or_garbled_is_read_or_refused(harness: str, data: st.DataObject) -> None:
    reader = reader_of(harness)
    assert isinstance(reader, SnapshotReader)
    path, name = data.draw(st.sampled_from(samples.sample_files(harness)))
    content = path.read_bytes()
    cut = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else changed(content, data)
    source = Snapshot(PurePath("/home/me", name), cut, samples.no_such_table, {})
    read_or_refused(reader, source)


def is_sql(sample: tuple[Path, str]) -> bool:
    return sample[0].suffix == samples.DATABASE_SUFFIX


DATABASES = sorted({name for name in samples.sampled() if any(map(is_sql, samples.sample_files(name)))})
ODD_COLUMNS = st.sampled_from(
    [
        None,
        -1,
        2**63 - 1,
        1.5,
        "",
        "later",
        b"\xff\xfe",
        "[1]",
        '{"a":',
        "[" * 3000,
        '"\\ud800"',
        '[5,null,{"type":{}}]',
    ]
)


@examples(72)
@given(st.sampled_from(DATABASES), st.data())
def test_a_database_of_another_form_is_read_or_refused(harness: str, data: st.DataObject) -> None:
    path, name = data.draw(st.sampled_from(list(filter(is_sql, samples.sample_files(harness)))))
    with contextlib.closing(samples.database_of(path)) as database:
        tables = [table for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = data.draw(st.sampled_from(tables))
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        column, value, nth = data.draw(st.sampled_from(columns)), data.draw(ODD_COLUMNS), data.draw(st.integers(1, 3))
        change = data.draw(
            st.sampled_from(
                [
                    (f'DROP TABLE "{table}"', ()),
                    (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO later', ()),
                    (f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE rowid % {nth} = 0', (value,)),
                ]
            )
        )
        read_changed(harness, database, name, *change)


@each_row(
    ("harness", "change"),
    [
        ("goose", "UPDATE messages SET role = x'fffe'"),
        ("openclaw", "UPDATE session_windows SET updated_at = 'later'"),
        ("opencode", "UPDATE message SET id = x'fffe' || id"),
        ("opencode", "UPDATE session_message SET seq = 'x' WHERE rowid % 2 = 0"),
        ("opencode", "DROP INDEX message_session_time_created_id_idx; ALTER TABLE message RENAME id TO later"),
        ("opencode", "ALTER TABLE session_message RENAME id TO later"),
    ],
)
def test_what_a_database_of_another_form_once_broke(harness: str, change: str) -> None:
    for path, name in filter(is_sql, samples.sample_files(harness)):
        with contextlib.closing(samples.database_of(path)) as database:
            read_changed(harness, database, name, change)


def read_changed(harness: str, database: apsw.Connection, name: str, change: str, values: tuple[Any, ...] = ()) -> None:
    """Read a database after a change to it, if it may be made: a key, for example, must not be null."""
    with contextlib.suppress(apsw.Error):
        database.execute(change, values).fetchall()

    def rows(sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            return iter(database.execute(sql, values).fetchall())  # type: ignore[arg-type]
        except (apsw.Error, UnicodeDecodeError) as error:
            raise SourceError(str(error)) from error

    reader = reader_of(harness)
    assert isinstance(reader, SnapshotReader)
    read_or_refused(reader, Snapshot(PurePath("/home/me", name), b"", rows, {}))


def read_or_refused(reader: SnapshotReader, source: Snapshot) -> None:
    """Read everything in a file. Records of one name have one content: the second would never be stored."""
    with contextlib.suppress(SourceError):
        for conversation in reader.conversations(source):
            lines: dict[str, bytes] = {}
            for record in reader.records(source, conversation):
                assert b"\n" not in record.line
                assert lines.setdefault(record.id, record.line) == record.line
                list(reader.turns([(0, complete(record.line, record.context._replace(id="x")))], "k", subagent=False))


@each_row("harness", ["specstory", "cline", "vscode-chat"])
def test_messages_that_a_file_gives_the_same_name_are_all_kept(harness: str) -> None:
    for path, name in samples.sample_files(harness):
        data = path.read_bytes()
        if harness == "specstory":
            data += data.replace(b"_\n\n", b"_\n\nAgain: ")
        elif name.endswith(".messages.json"):
            document = json.loads(data)
            document["messages"] += [{**one, "content": "another text"} for one in document["messages"]]
            data = json.dumps(document).encode()
        elif harness == "vscode-chat" and b'"requests"' in data and name.endswith(".json"):
            document = json.loads(data)
            document["requests"] += [{**one, "message": "another text"} for one in document["requests"]]
            data = json.dumps(document).encode()
        reader = reader_of(harness)
        assert isinstance(reader, SnapshotReader)
        read_or_refused(reader, Snapshot(PurePath("/home/me", name), data, samples.no_such_table, {}))


@pytest.mark.slow
def test_other_words_under_an_id_that_came_before_are_a_turn_of_their_own(home: Path) -> None:
    files = dict[Path, bytes]()
    for harness in part_of(["pi", "codex", "copilot-cli", "droid", "qwen-code"]):
        samples.lay_out(harness, home)
        said = [fact["text"].encode() for fact in samples.expected(harness)[1] if fact["role"] == "user"]
        for name in (name for _, name in samples.sample_files(harness) if name.endswith(".jsonl")):
            every = (home / name).read_bytes().splitlines()
            lines = [line for line in every if reader_of(harness).facts(line).is_conversation]
            again = ((line, text) for line in lines for text in said if b':"%b"' % text in line)
            for number, (line, text) in enumerate(again):
                changed = line.replace(text, f"wobblefish {number} of {name}".encode())
                files[home / name] = files.get(home / name, b"") + changed + b"\n"
    start()
    crystal("backfill", "--wait")
    before = samples.captured()[1]
    for path, lines in files.items():
        path.write_bytes(path.read_bytes() + lines)
    for step in ("sync", "the same files, replaced", "rebuilt"):
        if step.startswith("the same"):
            for path in files:
                path.write_bytes(b"\n" + path.read_bytes())
        if step == "rebuilt":
            next(home.rglob("crystal.db")).unlink()
            crystal("verify", "--repair")
        crystal("sync")
        found = samples.captured()[1]
        assert [one for one in before if one not in found] == [], step
        new = sorted(one["text"] for one in found if one not in before)
        assert new == sorted(set(new)), step
        assert len(new) == sum(lines.count(b"\n") for lines in files.values()) > 0, step
        assert proof()["percent"] == 100, step
    assert crystal("forget", "--query", new[0], "--yes", "--prove").code in (0, 6)  # the agent's own file has it
    for path in files:
        path.write_bytes(b"\n" + path.read_bytes())
    crystal("sync")
    assert sorted(one["text"] for one in samples.captured()[1] if one not in before) == new[1:]


def test_a_mistake_of_a_reader_is_named_and_stops_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    for harness in ("goose", "kiro", "zed"):
        samples.lay_out(harness, home)

    def mistake(*_: object) -> Iterator[object]:
        raise KeyError("what somebody said")

    monkeypatch.setattr(type(reader_of("kiro")), "conversations", mistake)
    assert "KeyError" in crystal("sync").err
    assert {found["session"] for found in samples.captured()[0]} >= {
        found["session"] for harness in ("goose", "zed") for found in samples.expected(harness)[0]
    }
    told = crystal("doctor").out
    assert "data.sqlite3" in told
    assert "what somebody said" not in told


@each_row("name", ["crystal", "cryst\\u0061l"])
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


@pytest.mark.slow
@every_agent
def test_columns_and_tables_of_a_newer_version_change_nothing(harness: str, home: Path) -> None:
    databases = [(path, name) for path, name in samples.sample_files(harness) if path.suffix == samples.DATABASE_SUFFIX]
    if not databases:
        return
    samples.lay_out(harness, home)
    for _, name in databases:
        database = apsw.Connection(str(home / name))
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name NOT LIKE 'sqlite%'"
        for (table,) in database.execute(tables).fetchall():
            with contextlib.suppress(apsw.SQLError):  # a table that belongs to an index of words
                database.execute(f"ALTER TABLE \"{table}\" ADD COLUMN newer TEXT DEFAULT 'quartz'")
        database.execute("CREATE TABLE newer (id TEXT); INSERT INTO newer VALUES ('quartz')").fetchall()
        database.close()
    start()
    assert crystal("backfill").code == 0
    assert samples.captured()[1] == samples.expected(harness)[1]
    proved = json.loads(crystal("verify", "--json").out)
    assert proved["percent"] > 99.9
    # Beside a column that nobody knows, one that is missing may have been renamed: it is named.
    assert all("which crystal reads" in one["message"] for one in proved["faults"]), proved["faults"]
    assert harness in ("cursor", "opencode") or proved["faults"] == []
