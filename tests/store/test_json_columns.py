"""Claims of the columns that hold JSON: a text of another shape is named, ends no command with a traceback, and goes."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from crystal.app.context import open_machine
from crystal.errors import StoreDamagedError
from crystal.store import Store, texts, upgrade
from crystal.store.health.checks import damage
from crystal.store.json_columns import JSON_COLUMNS, JSON_NOTES, json_faults, read_json
from crystal.store.search import index_log
from crystal.store.sessions.contexts import Injection, add_injection
from tests.support.command import crystal
from tests.support.exports import remember
from tests.support.table import each_row
from tests.support.web_client import Client

REBUILT = {"index_state", "mirror_home", "mirror_keys", "mirror_objects", "mirror_applied"}
"""Tables that derive from others: a damaged text of theirs means that they are made again."""
OF_ANOTHER_SHAPE = ("1", '"x"', "true", "[[1]]", '{"a": [1]}', "{broken", "[null]", '{"a": null}', "5.5", "{}", "[]")
ROWS = (
    (
        "INSERT INTO relay_peers (device_id, side, name, generation, accepted_from, up_prefix, down_prefix, paired_at)"
        " VALUES (x'00', 'device', 'laptop', 1, 1, x'00', x'00', 1)"
    ),
    "INSERT INTO tombstones (uid, kind, value, made_at, device) VALUES ('00', 'memory', '{}', 1, 'd')",
    "INSERT INTO forget_work (kind, target, detail, made_at) VALUES ('of another version', 'x', 'null', 1)",
)
WAYS = (
    "usage",
    "usage --json",
    "context",
    "context --explain",
    "context --log",
    "status",
    "doctor",
    "verify",
    "search x",
)
PAGES = ("/", "/search?q=one", "/memories", "/usage", "/health", "/settings", "/forget")


@pytest.fixture
def database(home: Path) -> Path:
    """A memory with a row in every table that has such a column."""
    remember(home, ["one"])
    with open_machine() as machine:
        add_injection(machine.store, Injection(machine.now() - 1, "s1", "startup", 9, ("mem-1",), 5, 120, {"told": 1}))
        for sql in ROWS:
            machine.store.execute(sql)
        return machine.store.path


def write(database: Path, table: str, column: str, text: str | None) -> None:
    with apsw.Connection(str(database)) as db:
        db.execute(f"UPDATE {table} SET {column} = ?", (text,))


def test_every_such_column_of_the_schema_is_known():
    with closing(apsw.Connection(":memory:")) as db:
        texts.register(db)
        for _, sql in upgrade.steps():  # a store has no comments
            db.execute(sql)
        schema = list(db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
    named = {(table, found) for table, sql in schema for found in re.findall(r"^ *(\w+) .*-- JSON:", sql, re.MULTILINE)}
    assert {(one.table, one.name) for one in JSON_COLUMNS} == {one for one in named if one[0] not in REBUILT}


@pytest.mark.slow
@each_row("column", JSON_COLUMNS)
def test_a_text_of_another_shape_is_named_and_ends_no_command_with_a_traceback(database, column):
    page, named = Client(), 0
    with Store.open_existing(database) as store:
        sound = store.value(f"SELECT {column.name} FROM {column.table}")
    for text in OF_ANOTHER_SHAPE:
        write(database, column.table, column.name, text)
        with Store.open_existing(database) as store:
            faults = list(json_faults(store))
        assert (damage(database) is None) == (not faults), text
        for way in WAYS if faults else ():
            done = crystal(*way.split())
            said = done.out + done.err
            assert "Traceback" not in said, (way, text)
            assert way not in ("doctor", "verify") or re.search(rf"{column.name} .*is not as", said), (way, text)
        assert not faults or all(page.get(path).status_code < 500 for path in PAGES), text
        named += bool(faults)
    write(database, column.table, column.name, sound)
    assert damage(database) is None
    assert named > 5
    with pytest.raises(StoreDamagedError, match=f"table {column.table}: {column.name} is not"):
        read_json(column, "5")


@pytest.mark.slow
@each_row("column", JSON_COLUMNS)
def test_a_row_of_another_shape_is_gone_after_a_repair(database, column):
    write(database, column.table, column.name, "5")
    period = json.loads(crystal("usage", "--json").out)["periods"]["24h"]
    assert period["injections"] == 0, "the first of the columns is its list"
    assert crystal("verify", "--repair").code == 0
    done = crystal("verify")
    assert done.code == 0, done
    assert "one" in crystal("search", "one").out


@pytest.mark.slow
@each_row("note", JSON_NOTES)
def test_a_note_of_another_shape_is_named_and_gone_after_a_repair(database, note):
    key = note.name
    for text in ("5", '{"another": [1]}', '{"codex": 1,,'):
        with apsw.Connection(str(database)) as db:
            db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, text))
        done = crystal("status")
        is_free = text.startswith('{"a') and note.kind is dict and note.fields is None and note.items is object
        assert is_free or damage(database) == f"table meta: the note {key} is not as crystal writes it"
        assert "Traceback" not in done.out + done.err, text
    done = crystal("verify")
    assert (done.code, f"the note {key} is not as" in done.out) == (6, True), done
    assert "Traceback" not in crystal("sync").err
    assert crystal("verify", "--repair").code == 0
    assert crystal("verify").code == 0
    assert "one" in crystal("search", "one").out


def test_an_index_whose_notes_were_damaged_is_made_again(database):
    for text in ("[]", "1", "{broken", '{"a": 1}'):
        write(database, "index_state", "generations", text)
        with open_machine() as machine:
            assert index_log.read_state(machine.store).format == index_log.NO_FORMAT
            assert index_log.is_worth_while(machine.store)
        assert "one" in crystal("search", "one").out
