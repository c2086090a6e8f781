"""The work index: the same from any pieces, gone with its turns, hidden with them, and made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.store import Store, notes
from crystal.store.health.checks import drop_turns, mend_orphans
from crystal.store.hidden import Hidden
from crystal.store.isolation import hide
from crystal.store.notes import count_unindexed
from crystal.store.work import index
from crystal.transcript.parts import call_text
from tests.support.store_factory import NOW, add_turn, open_store

Rows = list[list[tuple[Any, ...]]]
KINDS = ("edit", "command", "edit result", "command result", "failure", "edit failure", "answer", "user")


def rows_of(store: Store) -> Rows:
    return [sorted(store.rows(f"SELECT * FROM {table}"), key=repr) for table in index.TABLES]


def add_work(
    store: Store, kind: str, at: int, thread: int = 0, message: str = "m1", harness: str = "claude-code"
) -> None:
    text, role, tool = {
        "edit": (call_text("Edit", {"file_path": f"/a{at % 3}.py", "old_string": "x", "new_string": f"line = {at}()"}),
                 "tool_call", "Edit"),
        "command": (call_text("Bash", {"command": f"make t{at % 4} 2>&1"}), "tool_call", "Bash"),
        "edit result": ("updated", "tool_result", "Edit"),
        "command result": ("3 passed", "tool_result", "Bash"),
        "failure": (f"Exit code 1\na.py:{at}: TypeError: not a number", "tool_result", "Bash"),
        "edit failure": ("<tool_use_error>String not found</tool_use_error>", "tool_result", "Edit"),
        "answer": ("Done.", "assistant", None),
        "user": ("Go on.", "user", None),
    }[kind]  # fmt: skip
    session = f"{thread}0000000-aaaa-4000-8000-000000000001"
    ident = message if role in ("tool_call", "assistant") else None
    add_turn(store, text, role=role, tool=tool, ts=NOW + at, message_id=ident, session=session, harness=harness)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


@given(
    said=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1), st.sampled_from("123")), max_size=25),
    data=st.data(),
)
def test_in_any_pieces_it_is_the_same(tmp_path_factory, said, data):
    with open_store(tmp_path_factory.mktemp("store")) as store:
        hash_of = index.hash_for(store)
        for at, (kind, thread, message) in enumerate(said):
            add_work(store, kind, at, thread, f"m{message}")
            if data.draw(st.booleans()):
                index.advance(store, hash_of)
        index.advance(store, hash_of)
        assert count_unindexed(store) == 0
        assert index.count_faults(store) == 0
        piecewise = rows_of(store)
        index.make_again(store)
        assert rows_of(store) == piecewise


def test_it_holds_what_was_done_and_how_it_ended(store: Store) -> None:
    for at, kind in enumerate(["user", "edit", "edit result", "command", "failure", "command", "answer"]):
        add_work(store, kind, at, message=f"m{at}")
    index.make_again(store)
    calls = store.rows("SELECT turn, is_edit, what, result, exit, added, removed FROM work_calls ORDER BY turn")
    assert calls == [
        (2, 1, "/a1.py", 3, 0, 1, 1), (4, 0, "make t3 2>&1", 5, 1, 0, 0), (6, 0, "make t1 2>&1", None, 0, 0, 0),
    ]  # fmt: skip
    assert store.value("SELECT count(*) FROM work_lines") == 1
    assert store.rows("SELECT turn FROM work_errors") == [(4,)]


def test_what_failed_was_not_edited(store: Store) -> None:
    add_work(store, "edit", 0)
    add_work(store, "edit failure", 1)
    index.make_again(store)
    assert rows_of(store) == [[], [], []]


def test_forgetting_any_turn_leaves_no_fault(store: Store) -> None:
    for at, kind in enumerate(["user", "command", "failure", "command", "command", "command result", "edit", "answer"]):
        add_work(store, kind, at, message=f"m{at // 3}")
    index.make_again(store)
    for turn in (3, 1, 6, 8, 2):
        with store.transaction():
            drop_turns(store, [turn])
        assert index.count_faults(store) == 0


def test_it_goes_with_its_turns(store: Store) -> None:
    for at, kind in enumerate(["edit", "edit result", "command", "failure"]):
        add_work(store, kind, at)
    index.make_again(store)
    with store.transaction():
        drop_turns(store, [1, 4])
    assert store.rows("SELECT turn, result, exit, passed FROM work_calls") == [(3, None, None, None)]
    assert rows_of(store)[:2] == [[], []]
    assert not store.rows("PRAGMA foreign_key_check")


def test_another_form_makes_it_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add_work(store, "command", 0)
    index.make_again(store)
    store.execute("UPDATE work_calls SET what = 'as it was'")
    assert index.count_faults(store) == 1
    monkeypatch.setattr(notes, "WORK_FORM", notes.WORK_FORM + 1)
    assert (count_unindexed(store), index.count_faults(store)) == (1, 0)
    index.advance(store, index.hash_for(store))
    assert store.value("SELECT what FROM work_calls") == "make t0 2>&1"


def test_rows_of_turns_that_are_gone_are_mended(store: Store) -> None:
    add_work(store, "command", 0)
    add_work(store, "failure", 1)
    index.make_again(store)
    store.execute("PRAGMA foreign_keys = 0")
    store.execute("INSERT INTO work_lines VALUES (5, 99, 0)")
    store.execute("UPDATE work_calls SET result = 98")
    store.execute("PRAGMA foreign_keys = 1")
    assert mend_orphans(store)
    assert store.rows("SELECT result, exit FROM work_calls") == [(None, None)]
    assert not store.rows("PRAGMA foreign_key_check")


def test_what_an_isolated_agent_did_is_hidden(store: Store) -> None:
    for at, kind in enumerate(["edit", "edit result", "command", "failure"]):
        add_work(store, kind, at, thread=at // 4, harness="codex")
    add_work(store, "command", 9, thread=1)
    index.make_again(store)
    hide(store, Hidden(("codex",)))
    assert [len(rows) for rows in rows_of(store)] == [0, 0, 1]
