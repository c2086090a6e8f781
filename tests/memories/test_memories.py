"""What somebody asks to remember, on one machine: texts, keys, versions that merge, search, commands."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from crystal.app import memories as remembering
from crystal.app import memory_changes, memory_queries
from crystal.app.context import Machine
from crystal.errors import NotFoundError, UsageError
from crystal.integrity.repair import repair
from crystal.integrity.verify import _index_faults
from crystal.memories.rules import MAX_KEY, MAX_TEXT, is_as_given
from crystal.model.capture import Project
from crystal.model.recall import Filters, Remembered
from crystal.search.request import MemorySource
from crystal.store import Store
from crystal.store.forget.forgetting import add_tombstones, make_tombstone
from crystal.store.health import checks
from crystal.store.memories import memories
from crystal.store.memories.learned import Evidence, add_evidence
from crystal.store.memories.memories import Version
from crystal.store.sync.adopt import adopt_evidence, adopt_memories
from tests.support.examples import examples
from tests.support.pairing_boxes import Box
from tests.support.ranked_by import search
from tests.support.store_factory import NOW, Meaning, add_turn, embed_all, open_store
from tests.support.table import each_row

SHOP = Project("/code/shop", "/code/shop", None, "shop")
SECRET = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Box(tmp_path, "laptop", "cc-laptop").open() as machine:
        yield machine


def by_key(store: Store, key: str) -> Remembered | None:
    return next(iter(memories.memories_by_key(store, key)), None)


def version(
    ident: int,
    text: str,
    at: int,
    *,
    key: str | None = None,
    status: str = "active",
    place: Project | None = None,
) -> Version:
    one = Remembered(
        id=f"mem-{ident:012x}", text=text, category="fact", key=key, project=place and place.name,
        cwd=place and place.cwd, status=status, source="cli", agent="cc-test", device="desk", session_id=None,  # type: ignore[arg-type]
        created_at=NOW, updated_at=NOW + at,
    )  # fmt: skip
    return Version(one, place)


def put(store: Store, *versions: Version) -> list[bool]:
    done = []
    for each in versions:
        with store.transaction():
            done.append(memories.put_version(store, each))
    return done


def forget(store: Store, uid: str) -> None:
    with store.transaction():
        memories.delete_memories(store, [uid])
        store.execute(
            "INSERT INTO tombstones (uid, kind, value, made_at, device) VALUES (?, 'memory', ?, 1, 'desk')",
            (uid, json.dumps({"memories": [uid]})),
        )


def state(store: Store) -> list[tuple[object, ...]]:
    """Everything of the memories but when they were first known, and what search has of them."""
    rows = store.rows("SELECT uid, text, category, key, status, updated_at FROM memories ORDER BY uid")
    said = "SELECT m.uid, c.text, c.role, c.source, c.ts FROM chunks c JOIN memories m ON m.id = c.memory"
    return [*rows, *store.rows(f"{said} ORDER BY m.uid, c.start")]


# ------------------------------------------------------------------------------------------------- texts and keys


@pytest.mark.slow
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(min_size=1, max_size=60), key=st.text(min_size=1, max_size=30))
def test_any_text_under_any_key_comes_back(machine: Machine, text: str, key: str) -> None:
    try:
        one = remembering.remember(machine, text, key=key)
    except UsageError:
        is_blank = not text.strip() or not key.strip()
        is_bad = any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in key.strip())
        assert is_blank or is_bad
        return
    assert one.text == text.encode("utf-8", "replace").decode().replace("\0", "\ufffd").strip()
    for name in (key, unicodedata.normalize("NFD", key), f" {key}"):
        if unicodedata.normalize("NFC", name).strip() == one.key:
            found = memory_queries.by_key(machine, name)
            assert found == one
    assert memory_queries.memory_of(machine, one.id) == one
    assert memories.memories_with_other_chunks(machine.store) == []


@each_row(
    ("text", "key", "words"),
    [
        ("", None, "the text is empty"),
        (" \n\t ", None, "the text is empty"),
        ("x" * (MAX_TEXT + 1), None, "8,001 characters, a memory has at most 8,000"),
        (SECRET, None, "not remembered: the text is nothing but "),
        (f" {SECRET}\n<private>x</private> -", None, "not remembered: the text is nothing but "),
        ("hunter2hunter2X9", "db_password", "is a secret"),
        ("x", "", "the key is empty"),
        ("x", "a\nb", "control character"),
        ("x", "a\ud800", "control character"),
        ("x", "k" * (MAX_KEY + 1), "201 characters"),
        ("x", SECRET, "the key holds a secret"),
    ],
)
def test_what_cannot_be_remembered_is_refused_and_nothing_is_stored(machine, text, key, words):
    with pytest.raises(UsageError, match=words) as caught:
        remembering.remember(machine, text, key=key)
    assert SECRET not in str(caught.value)
    assert machine.store.value("SELECT count(*) FROM memories") == 0


def test_secrets_are_taken_out_and_the_rest_is_kept(machine: Machine) -> None:
    one = remembering.remember(machine, f"push with {SECRET} to main")
    assert one.text.startswith("push with [redacted:github-token:")
    assert one.text.endswith("] to main")
    assert SECRET not in machine.places.db.read_bytes().decode("latin-1")


def test_the_longest_text_is_found_by_its_last_word_and_shown_whole(machine: Machine) -> None:
    text = " ".join(f"word{number}" for number in range(2000))[: MAX_TEXT - 12] + " xyzzyplugh"
    one = remembering.remember(machine, text)
    assert machine.store.value("SELECT count(*) FROM chunks") > 4
    hits = search(machine.store, None, "xyzzyplugh word3", now=NOW).hits
    assert [hit.uuid for hit in hits] == [one.id]
    assert memories.memory_of_chunk(machine.store, hits[0].id) == one


def test_a_known_key_gets_the_new_value_and_keeps_what_it_was(machine: Machine) -> None:
    first = remembering.remember(machine, "Alice", key="user_name", category="preference")
    second = remembering.remember(machine, "Bob", key="user_name")
    assert (second.id, second.text, second.created_at) == (first.id, "Bob", first.created_at)
    assert second.category == "preference"
    assert second.updated_at > first.updated_at
    (was,) = memory_queries.history(machine, first.id)
    assert (was.text, was.from_at, was.until_at) == ("Alice", first.created_at, second.updated_at)
    assert memory_queries.by_key(machine, "User_Name") is None


def test_the_same_words_are_one_memory_in_each_project(machine: Machine) -> None:
    here = remembering.remember(machine, "use tabs", project="shop")
    again = remembering.remember(machine, " use tabs\n", project="shop")
    everywhere = remembering.remember(machine, "use tabs")
    assert again.id == here.id != everywhere.id
    assert again.updated_at > here.updated_at
    assert memory_queries.history(machine, here.id) == []
    assert [one.id for one in memory_queries.list_memories(machine, project="SHOP")] == [here.id]
    assert {one.id for one in memory_queries.list_memories(machine)} == {here.id, everywhere.id}


def test_an_accent_may_be_a_character_of_its_own(machine: Machine) -> None:
    one = remembering.remember(machine, "caf\u00e9 on Fridays")
    again = remembering.remember(machine, "cafe\u0301 on Fridays")
    assert (again.id, again.text) == (one.id, "caf\u00e9 on Fridays")
    assert is_as_given(again.text, "cafe\u0301 on Fridays ")
    assert memory_queries.history(machine, one.id) == []


def test_a_folder_means_the_repository_that_it_is_in(machine: Machine, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "api").mkdir()
    one = remembering.remember(machine, "use tabs", project=".", cwd=str(root / "api"))
    assert (one.project, one.cwd) == ("shop", str(root))
    assert [found.id for found in memory_queries.list_memories(machine, project=str(root / "api"))] == [one.id]
    assert remembering.remember(machine, "deploy on Fridays", project="shop").cwd == str(root)


def test_editing_changes_what_is_given_and_takes_no_key_from_another(machine: Machine) -> None:
    one = remembering.remember(machine, "Alice", key="user_name", project="shop")
    other = remembering.remember(machine, "Bob")
    with pytest.raises(UsageError, match="belongs to"):
        memory_changes.edit(machine, other.id, key="user_name")
    with pytest.raises(UsageError, match="no change was given"):
        memory_changes.edit(machine, other.id)
    with pytest.raises(NotFoundError):
        memory_changes.edit(machine, "mem-000000000000", text="x")
    with pytest.raises(UsageError, match="is a secret"):
        memory_changes.edit(machine, one.id, key="db_password", text="hunter2hunter2X9")
    changed = memory_changes.edit(machine, one.id, key="", project="", category="opinion")
    assert (changed.text, changed.key, changed.project, changed.category) == ("Alice", None, None, "opinion")
    assert memory_changes.edit(machine, other.id[:9], key="user_name").key == "user_name"


def test_an_id_that_several_begin_with_is_refused(store: Store, machine: Machine) -> None:
    put(machine.store, version(0xABC000000001, "one", 1), version(0xABC000000002, "two", 2))
    with pytest.raises(UsageError, match="several"):
        memory_queries.memory_of(machine, "mem-abc")
    assert memory_queries.memory_of(machine, "MEM-ABC000000001").text == "one"
    for wanted in ("mem-", "mem-x", "nothing", "%", "mem-\ud800", "", "\0"):
        with pytest.raises(NotFoundError):
            memory_queries.memory_of(machine, wanted)


def test_deprecating_hides_and_restoring_brings_back(machine: Machine) -> None:
    one = remembering.remember(machine, "the xyzzyplugh is blue", key="colour")
    for _ in range(2):
        assert memory_changes.deprecate(machine, one.id).status == "deprecated"
    assert memory_queries.list_memories(machine) == []
    assert memory_queries.by_key(machine, "colour") is None
    assert search(machine.store, None, "xyzzyplugh", now=NOW).hits == ()
    assert [found.id for found in memory_queries.list_memories(machine, status="deprecated")] == [one.id]
    for _ in range(2):
        assert memory_changes.revive(machine, "colour").status == "active"
    assert len(search(machine.store, None, "xyzzyplugh", now=NOW).hits) == 1
    assert [was.status for was in memory_queries.history(machine, one.id)] == ["deprecated", "active"]
    memory_changes.deprecate(machine, one.id)
    assert remembering.remember(machine, "red", key="colour").id == one.id


# ----------------------------------------------------------------------------------------------------- merging


VERSIONS = st.tuples(
    st.fixed_dictionaries({ident: st.tuples(st.sampled_from([None, "name"]), st.booleans()) for ident in (1, 2, 3)}),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["Alice", "Bob", "Carol"]), st.integers(0, 4)), min_size=1),
)
"""Memories that keep their key and their status: what another one did with its key before depends on the order."""


@pytest.mark.slow
@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=VERSIONS, data=st.data())
def test_the_newest_version_wins_in_any_order_and_however_often_it_comes(tmp_path_factory, drawn, data):
    kinds, said = drawn
    states = {ident: "active" if is_active else "deprecated" for ident, (_, is_active) in kinds.items()}
    first = [version(ident, text, at, key=kinds[ident][0], status=states[ident]) for ident, text, at in said]
    with open_store(tmp_path_factory.mktemp("a")) as one, open_store(tmp_path_factory.mktemp("b")) as other:
        put(one, *first)
        put(other, *data.draw(st.permutations(first * 2)))
        assert state(one) == state(other)
        assert put(one, *first, *first) == [False] * (2 * len(first))
        assert memories.memories_with_other_chunks(one) == []


def test_a_key_that_two_machines_stored_has_the_later_value_and_the_other_one_is_kept(store: Store) -> None:
    early, late = version(1, "Alice", 1, key="name"), version(2, "Bob", 2, key="name")
    for order in itertools.permutations([early, late]):
        with store.transaction():
            memories.delete_memories(store, [early.memory.id, late.memory.id])
        put(store, *order)
        holder, other = by_key(store, "name"), memories.memory_of(store, early.memory.id)
        assert holder is not None
        assert other is not None
        assert (holder.text, other.text, other.status, other.key) == ("Bob", "Alice", "deprecated", None)


def test_of_two_versions_of_one_moment_a_device_takes_homes(store: Store) -> None:
    put(store, version(1, "Bob", 1, status="deprecated"))
    with store.transaction():
        assert memories.put_version(store, version(1, "Alice", 1, key="name"), from_home=True)
        assert not memories.put_version(store, version(1, "Alice", 1, key="name"), from_home=True)
        assert not memories.put_version(store, version(1, "Carol", 0), from_home=True)
    found = by_key(store, "name")
    assert found is not None
    assert (found.text, found.status) == ("Alice", "active")


def test_what_was_forgotten_never_comes_back(store: Store) -> None:
    one = version(1, "Alice", 1, key="name")
    put(store, one)
    forget(store, one.memory.id)
    assert put(store, version(1, "Alice", 9, key="name")) == [False]
    assert state(store) == []
    assert store.value("SELECT count(*) FROM memory_history") == 0
    assert put(store, version(2, "Bob", 1, key="name")) == [True]


def test_a_store_takes_over_the_memories_of_another(tmp_path: Path, store: Store) -> None:
    (tmp_path / "other").mkdir()
    with open_store(tmp_path / "other") as other:
        put(other, version(1, "Alice", 2, key="name", place=SHOP), version(2, "Bob", 1))
        put(store, version(1, "old", 1, key="name"))
        assert adopt_memories(store, other) == 2
        assert adopt_memories(store, other) == 0
        assert state(store) == state(other)
        taught = [Evidence("mem-1", line, "s1", "fact", 0.5, 7) for line in ("kept", "gone")]
        with other.transaction(), store.transaction():
            assert all(add_evidence(other, one) for one in taught)
            add_tombstones(store, [make_tombstone("lines", {"lines": ["gone"], "sessions": []}, None, 8, "laptop")], 8)
        for _ in range(2):
            adopt_evidence(store, other)
        assert store.select(Evidence, "learned_from") == taught[:1]
    found = by_key(store, "name")
    assert found is not None
    assert found.project == "shop"


# ------------------------------------------------------------------------------------------------------ search


def test_memories_are_found_by_word_by_key_and_by_meaning_and_filtered(store: Store) -> None:
    put(store, version(1, "Alice", 1, key="user_name"), version(2, "the automobile is red", 1, place=SHOP))
    add_turn(store, "the car is blue", role="user")
    embed_all(store, Meaning())
    (hit,) = search(store, None, "user_name", now=NOW).hits
    assert (hit.text, hit.key, hit.category, hit.role, hit.source, hit.uuid) == (
        "Alice", "user_name", "fact", "memory", "memory", "mem-000000000001",
    )  # fmt: skip
    found = search(store, Meaning(), "vehicle", now=NOW, filters=Filters(source="memory"))
    assert [one.text for one in found.hits][:1] == ["the automobile is red"]
    assert {one.role for one in found.hits} == {"memory"}
    assert all(one.role == "memory" for one in search(store, None, "red", now=NOW, filters=Filters(role="memory")).hits)
    by_project = search(store, None, "Alice automobile car", now=NOW, filters=Filters(project="shop")).hits
    assert {one.text for one in by_project} == {"the automobile is red", "the car is blue"}
    general = search(store, None, "Alice automobile car", now=NOW, filters=Filters(project="shop", general=True)).hits
    assert {one.text for one in general} == {"the automobile is red", "the car is blue", "Alice"}


def test_a_memory_in_both_memories_is_one_hit_and_its_newest_words_are_searched(tmp_path: Path, store: Store) -> None:
    (tmp_path / "mirror").mkdir()
    with open_store(tmp_path / "mirror") as mirror:
        put(mirror, version(1, "the xyzzyplugh is blue", 1), version(2, "home alone knows xyzzyplugh", 1))
        put(mirror, version(3, "forgotten xyzzyplugh", 1))
        put(store, version(1, "the xyzzyplugh is blue", 1))
        forget(store, "mem-000000000003")
        side = MemorySource(mirror, "mirror", None, "no model")

        def texts(question: str) -> Sequence[tuple[str, str]]:
            hits = search(store, None, question, now=NOW, mirror=side).hits
            return sorted((hit.text, hit.memory) for hit in hits)

        assert texts("xyzzyplugh") == [("home alone knows xyzzyplugh", "mirror"), ("the xyzzyplugh is blue", "local")]
        put(store, version(1, "it is red", 2))
        assert texts("xyzzyplugh") == [("home alone knows xyzzyplugh", "mirror")]
        put(store, version(2, "home alone knows xyzzyplugh", 2, status="deprecated"))
        assert texts("xyzzyplugh") == []


# ------------------------------------------------------------------------------------------- damage and repair


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM chunks WHERE memory IS NOT NULL AND start = 0",
        "UPDATE chunks SET body = 'other' WHERE memory IS NOT NULL AND start = 0",
        "UPDATE memories SET status = 'deprecated' WHERE uid = 'mem-000000000002'",
    ],
)
def test_chunks_of_memories_are_proved_and_made_again(tmp_path: Path, store: Store, damage: str) -> None:
    put(store, version(1, "Alice", 1, key="name"), version(2, "word " * 700, 1))
    assert list(_index_faults(store)) == []
    expected = [one for one in state(store) if "status = 'deprecated'" not in damage or one[0] != "mem-000000000002"]
    store.execute(damage)
    faults = list(_index_faults(store))
    assert [fault.what for fault in faults if fault.kind == "chunks" and fault.what == "memories"] == ["memories"]
    repair(store, faults, ldm_home=tmp_path, cleaner=None, find_project=lambda _: SHOP)  # type: ignore[arg-type]
    assert list(_index_faults(store)) == []
    assert [one for one in state(store) if one in expected] == expected


def test_memories_outlive_rows_that_point_at_rows_that_are_gone(store: Store) -> None:
    put(store, version(1, "Alice", 1, key="name", place=SHOP))
    before = state(store)
    store.execute("PRAGMA foreign_keys = 0")
    store.execute("DELETE FROM projects")
    store.execute("INSERT INTO memory_history VALUES (9, 99, 'x', 'fact', 'active', 1, 2)")
    store.execute("PRAGMA foreign_keys = 1")
    assert checks.mend_orphans(store)
    assert store.rows("PRAGMA foreign_key_check") == []
    assert state(store) == before
