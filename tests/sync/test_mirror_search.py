"""This machine's own memory and the mirror of home's, asked as one."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from crystal import Crystal
from crystal.app.context import Machine, default_paths
from crystal.app.mirror import STALE_MS, mirror_notes, open_mirror
from crystal.errors import NotFoundError, UsageError
from crystal.model.capture import MIRROR_IDS
from crystal.model.recall import Filters
from crystal.search.request import MemorySource
from crystal.sessions.reading import find_target, read, sessions
from crystal.store import Store
from tests.support.command import crystal as run
from tests.support.examples import examples
from tests.support.ranked_by import each_way, prepare, search, search_home_first  # noqa: F401 - a fixture
from tests.support.store_factory import DAY, HOUR, NOW, Meaning, add_turn, chunk_id, embed_all, open_store

pytestmark = pytest.mark.usefixtures("ranked_by")

PHONE = "33333333-cccc-4000-8000-000000000003"


@pytest.fixture
def stores(tmp_path):
    folders = [tmp_path / "device", tmp_path / "server"]
    for folder in folders:
        folder.mkdir()
    with open_store(folders[0]) as own, open_store(folders[1]) as theirs:
        yield own, theirs


def side(store, embedder=None, why_not="no embedding model is configured", notes=()):
    return MemorySource(store, "mirror", embedder, why_not, notes)


def ask(stores, query="needle", embedder=None, limit=10, **filters):
    own, theirs = stores
    return search(own, embedder, query, filters=Filters(**filters), now=NOW, limit=limit, mirror=side(theirs, embedder))


def found(result):
    return [(hit.uuid, hit.memory) for hit in result.hits]


def in_both(stores, text, **more):
    uuid = add_turn(stores[0], text, **more)
    assert add_turn(stores[1], text, **{**more, "uuid": uuid}) == uuid
    return uuid


# ---------------------------------------------------------------------------------------------------------- search


def test_hits_of_both_stand_in_one_list(stores):
    add_turn(stores[0], "needle here", uuid="own")
    add_turn(stores[1], "other", uuid="x", session=PHONE)
    add_turn(stores[1], "a needle there", uuid="theirs", device="phone")
    result = ask(stores)
    assert sorted(found(result)) == [("own", "local"), ("theirs", "mirror")]
    theirs = next(hit for hit in result.hits if hit.memory == "mirror")
    assert theirs.id == MIRROR_IDS + chunk_id(stores[1], "theirs")
    assert theirs.device == "phone"


def test_a_turn_in_both_is_one_answer_and_the_machines_own(stores):
    add_turn(stores[1], "something else first", uuid="shift")
    uuid = in_both(stores, "needle in both")
    for embedder in (None, Meaning()):
        if embedder:
            embed_all(stores[0], embedder)
            embed_all(stores[1], embedder)
        result = ask(stores, embedder=embedder)
        assert [hit for hit in found(result) if hit[0] == uuid] == [(uuid, "local")]
        assert result.hits[0].id == chunk_id(stores[0], uuid)
        assert result.hits[0].copies == 1


def test_a_turn_that_only_the_mirror_has_vectors_of_is_still_the_machines_own(stores):
    uuid = in_both(stores, "the automobile")
    embed_all(stores[1], Meaning())
    assert found(ask(stores, "car", Meaning())) == [(uuid, "local")]


def test_copies_are_counted_over_both_and_those_in_both_once(stores):
    in_both(stores, "needle", uuid="a")
    add_turn(stores[0], "needle", uuid="b")
    add_turn(stores[1], "needle", uuid="c")
    assert {hit.copies for hit in ask(stores).hits} == {3}


def test_filters_act_in_both(stores):
    for number, store in enumerate(stores):
        for project in ("/code/shop", "/code/engine"):
            for device in ("desk", "phone"):
                for ts in (NOW - HOUR, NOW - 9 * DAY):
                    name = f"{number}{project}{device}{ts}"
                    add_turn(store, f"needle {name}", uuid=name, project=project, device=device, ts=ts)
    assert len(ask(stores).hits) == 10
    assert len(ask(stores, limit=100).hits) == 16
    for filters in ({"project": "shop"}, {"device": "phone"}, {"since": NOW - DAY}, {"before": NOW - DAY}):
        result = ask(stores, limit=100, **filters)
        assert len(result.hits) == 8
        assert {hit.memory for hit in result.hits} == {"local", "mirror"}
    assert {hit.device for hit in ask(stores, device="phone").hits} == {"phone"}


def test_a_name_that_one_memory_knows_needs_no_note(stores):
    add_turn(stores[0], "needle", project="/code/shop")
    add_turn(stores[1], "needle", project="/code/engine")
    result = ask(stores, project="engine")
    assert [hit.memory for hit in result.hits] == ["mirror"]
    assert result.notes == ("mirror: searched by keywords alone: no embedding model is configured",)
    nothing = ask(stores, project="nowhere")
    assert not nothing.hits
    assert nothing.notes == ("no project 'nowhere'; known: shop", "mirror: no project 'nowhere'; known: engine")


def test_a_phrase_that_one_memory_has_is_a_condition_in_both(stores):
    add_turn(stores[0], "word for that word", uuid="own")
    add_turn(stores[1], "word for word", uuid="theirs")
    assert found(ask(stores, '"word for word"')) == [("theirs", "mirror")]
    assert len(ask(stores, '"word that was"').hits) == 2


def test_all_words_come_before_some_whichever_memory_has_them(stores):
    for at in range(20):
        add_turn(stores[0], f"alpha alpha alpha {at}", uuid=f"own{at}")
    add_turn(stores[1], "a long text about alpha that much later says beta as well " + "filler " * 50, uuid="theirs")
    assert found(ask(stores, "alpha beta"))[0] == ("theirs", "mirror")


def test_an_identifier_itself_comes_first_whichever_memory_has_it(stores):
    add_turn(stores[0], "foo bar baz", uuid="own")
    add_turn(stores[1], "call foo_bar.baz() now", uuid="theirs")
    result = ask(stores, "foo_bar.baz()")
    assert found(result)[0] == ("theirs", "mirror")
    assert not [note for note in result.notes if "itself" in note]


@pytest.mark.slow
def test_a_small_memory_is_not_drowned_by_a_large_one(stores):
    add_turn(stores[0], "needle", uuid="own", ts=NOW)
    for at in range(300):
        text = f"hay {at}" + (" needle" if at < 30 else "")
        add_turn(stores[1], text, uuid=f"theirs{at}", ts=NOW - DAY, session=PHONE)
    assert ("own", "local") in found(ask(stores))[:4]  # three hits of a session that has much of it, then another


def test_cosines_of_both_compare(stores):
    add_turn(stores[0], "vehicle payment storm", uuid="own")
    add_turn(stores[1], "vehicle", uuid="theirs")
    for store in stores:
        embed_all(store, Meaning())
    assert found(ask(stores, "automobile", Meaning())) == [("theirs", "mirror"), ("own", "local")]


def test_the_question_is_embedded_once(stores):
    asked = []

    class Counting(Meaning):
        def embed_query(self, text):
            asked.append(text)
            return super().embed_query(text)

    for number, store in enumerate(stores):
        add_turn(store, "car", uuid=f"{number}")
        embed_all(store, Meaning())
    ask(stores, "car", Counting())
    assert asked == ["car"]


def test_a_mirror_of_another_model_is_asked_by_keywords_and_says_so(stores):
    add_turn(stores[0], "a car", uuid="own")
    add_turn(stores[1], "my car", uuid="theirs")
    embed_all(stores[0], Meaning())
    result = search(
        stores[0], Meaning(), "car", now=NOW, mirror=side(stores[1], None, "its vectors come from elsewhere")
    )
    assert sorted(found(result)) == [("own", "local"), ("theirs", "mirror")]
    assert result.mode == "hybrid"
    assert result.notes == ("mirror: searched by keywords alone: its vectors come from elsewhere",)


def test_an_empty_store_of_its_own_leaves_the_mirror(stores):
    add_turn(stores[1], "needle", uuid="theirs")
    embed_all(stores[1], Meaning())
    result = ask(stores, "needle", Meaning())
    assert found(result) == [("theirs", "mirror")]
    assert "vectors" in result.hits[0].ranks


def test_the_project_of_the_folder_is_looked_for_in_both(stores):
    add_turn(stores[1], "needle", uuid="theirs", project="/code/engine")
    result, inside = search_home_first(stores[0], None, "needle", home="/code/engine", now=NOW, mirror=side(stores[1]))
    assert inside
    assert found(result) == [("theirs", "mirror")]


def test_notes_of_the_mirror_are_shown_whatever_is_found(stores):
    notes = ("mirror of home: as of 9 hours ago",)
    for query in ("nothing", ""):
        assert search(stores[0], None, query, now=NOW, mirror=side(stores[1], notes=notes)).notes[-1:] == notes


WORDS = ["car", "auto", "kitten", "rain", "x_y.z()", "数据库", "money"]
TURNS = st.lists(st.tuples(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), st.integers(1, 3)), max_size=12)


@pytest.mark.slow
@examples(12, suppress_health_check=list(HealthCheck))
@given(turns=TURNS, query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), vectors=st.booleans())
def test_no_turn_is_lost_or_shown_twice(tmp_path_factory, ranked_by, turns, query, vectors):
    folders = [tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("all")]
    with open_store(folders[0]) as own, open_store(folders[1]) as theirs, open_store(folders[2]) as whole:
        for number, (words, where) in enumerate(turns):
            for store in (*{1: [own], 2: [theirs], 3: [own, theirs]}[where], whole):
                add_turn(store, " ".join(words), uuid=f"u{number}")
        embedder = Meaning() if vectors else None
        if embedder:
            for store in (own, theirs, whole):
                embed_all(store, embedder)
        both = ask((own, theirs), " ".join(query), embedder, limit=100)
        one = search(whole, embedder, " ".join(query), now=NOW, limit=100)
        if ranked_by != "late":  # which one stands for its copies, and who has neighbours, may differ
            says = lambda result: {hit.text: hit.copies for hit in result.hits if "keywords" in hit.ranks}  # noqa: E731
            assert says(both) == says(one)
        assert len({hit.uuid for hit in both.hits}) == len(both.hits)
        for hit in both.hits:
            assert (hit.memory == "local") == (turns[int(hit.uuid[1:])][1] != 2)
        assert ask((own, theirs), " ".join(query), embedder, limit=100) == both


# --------------------------------------------------------------------------------------------------------- reading


def test_sessions_of_both_stand_in_one_list_and_each_once(stores):
    own, theirs = stores
    add_turn(own, "one", session="s-own", ts=NOW - 3 * HOUR)
    in_both(stores, "two", session="s-both", ts=NOW - 2 * HOUR)
    add_turn(theirs, "three", session="s-theirs", ts=NOW - HOUR, uuid="three")
    listed, notes = sessions([own, theirs])
    assert [(one.id, one.memory) for one in listed] == [("s-theirs", "mirror"), ("s-both", "local"), ("s-own", "local")]
    assert notes == ()
    add_turn(theirs, "went on elsewhere", session="s-both", ts=NOW, uuid="on")
    listed, _ = sessions([own, theirs], limit=1)
    assert [(one.id, one.memory, one.turns) for one in listed] == [("s-both", "mirror", 2)]


def test_a_project_that_no_memory_knows_is_explained(stores):
    add_turn(stores[0], "one")
    assert sessions(stores, project="nowhere")[1] == ("no project 'nowhere'; known: shop",)
    add_turn(stores[1], "two", project="/code/engine")
    listed, notes = sessions(stores, project="engine")
    assert len(listed) == 1
    assert notes == ()


def test_show_finds_in_both(stores):
    own, theirs = stores
    add_turn(own, "own words", uuid="own", session="s-own")
    add_turn(theirs, "their words", uuid="theirs", session=PHONE)
    number = chunk_id(theirs, "theirs")
    for wanted in ("theirs", f"m{number}", str(MIRROR_IDS + number), PHONE, PHONE[:6]):
        target = find_target([own, theirs], wanted)
        shown = read([own, theirs], target)
        assert target.memory == "mirror"
        assert [turn.text for turn in shown.turns] == ["their words"]
        assert shown.session.memory == "mirror"
        assert shown.turns[0].hit == MIRROR_IDS + number
    for wanted in ("own", str(chunk_id(own, "own")), "s-own"):
        assert find_target([own, theirs], wanted).memory == "local"
    for wanted in ("m99", str(MIRROR_IDS + 99), "99", "nothing"):
        with pytest.raises(NotFoundError, match="no session or hit"):
            find_target([own, theirs], wanted)


def test_a_beginning_that_several_sessions_of_both_have_is_asked_about(stores):
    add_turn(stores[0], "one", session="abc-1")
    add_turn(stores[1], "two", session="abc-2")
    with pytest.raises(UsageError, match="several sessions: abc-1, abc-2"):
        find_target(stores, "abc")
    in_both(stores, "three", session="xyz-1")
    assert find_target(stores, "xyz").memory == "local"


# -------------------------------------------------------------------------------------------------- on the machine


@pytest.fixture
def machine(home, monkeypatch):
    """A device's data folder: a store, and a mirror that has one turn more."""
    monkeypatch.setattr(Machine, "embedder", lambda _: None)
    monkeypatch.chdir(home)
    folder = default_paths().data_dir
    folder.mkdir(parents=True)
    now = time.time_ns() // 1_000_000
    with open_store(folder) as store:
        add_turn(store, "needle of my own", uuid="own", session="own-session", ts=now)
        prepare(store)
    with Store.open(folder / "mirror.db") as store:
        add_turn(store, "an earlier word", uuid="w", session=PHONE, ts=now - DAY)
        add_turn(store, "needle of the phone", uuid="theirs", session=PHONE, device="phone", ts=now)
        store.execute("INSERT INTO mirror_applied VALUES (1, 5, x'00', ?)", (now,))
        prepare(store)
    return folder


@pytest.mark.slow
def test_the_commands_look_into_both(machine):
    done = run("search", "needle", "--json")
    assert {hit["from"]: hit["session_id"] for hit in json.loads(done.out)["hits"]} == {
        "local": "own-session",
        "mirror": PHONE,
    }
    shown = run("search", "needle").out
    assert "crystal show m2\n" in shown
    assert "from phone" in shown
    assert "needle of the phone" in run("show", "m2").out
    assert "from the mirror" in run("show", PHONE).out
    assert json.loads(run("show", "theirs", "--json").out)["session"]["from"] == "mirror"
    listed = json.loads(run("sessions", "--json").out)
    assert {one["id"]: one["from"] for one in listed["sessions"]} == {PHONE: "mirror", "own-session": "local"}
    raw = run("show", PHONE, "--raw")
    assert raw.code == 3
    assert "on the home machine" in raw.err


def test_the_python_door_looks_into_both_and_finds_a_mirror_that_comes_later(machine):
    mirror = machine / "mirror.db"
    mirror.rename(machine / "aside")
    with Crystal() as memory:
        assert [hit.memory for hit in memory.search("needle").hits] == ["local"]
        (machine / "aside").rename(mirror)
        hits = memory.search("needle").hits
        assert {hit.memory for hit in hits} == {"local", "mirror"}
        theirs = next(hit for hit in hits if hit.uuid == "theirs")
        assert memory.show(theirs.id, context=0).turns[0].text == "needle of the phone"
        assert {one.memory for one in memory.sessions()} == {"local", "mirror"}


@pytest.mark.slow
def test_an_old_mirror_says_so(machine):
    with open_mirror(default_paths()) as mirrored:
        as_of = mirrored.store.value("SELECT published_at FROM mirror_applied")
        assert mirror_notes(mirrored, as_of + STALE_MS) == ()
        assert mirror_notes(mirrored, as_of + 9 * HOUR) == ("mirror of home: as of 9 hours ago",)
    with Store.open(machine / "mirror.db") as store:
        store.execute("UPDATE mirror_applied SET published_at = published_at - ?", (9 * HOUR,))
    for command in (("search", "needle"), ("sessions",)):
        assert "mirror of home: as of 9 hours ago" in run(*command).err
        assert json.loads(run(*command, "--json").out)["notes"][-1] == "mirror of home: as of 9 hours ago"


def test_a_home_machine_does_not_look_into_the_mirror_of_its_past(machine, monkeypatch):
    monkeypatch.setenv("CRYSTAL_ROLE", "home")
    assert {hit["from"] for hit in json.loads(run("search", "needle", "--json").out)["hits"]} == {"local"}
    with Crystal() as memory:
        assert {one.memory for one in memory.sessions()} == {"local"}


@pytest.mark.slow
def test_a_mirror_that_cannot_be_read_costs_a_note(machine):
    (machine / "mirror.db").write_bytes(b"not a database")
    done = run("search", "needle")
    assert done.code == 0
    assert "needle of my own" in done.out
    assert "the mirror of home's memory cannot be read" in done.err
    assert run("sessions").code == run("show", "own").code == 0


@pytest.mark.slow
def test_without_a_mirror_nothing_is_loaded_for_it(machine):
    (machine / "mirror.db").unlink()
    code = (
        "import sys\nfrom crystal.cli.app import main\nsys.argv = ['crystal', 'search', 'needle']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*(name for name in sys.modules if 'relay' in name or 'mirror_apply' in name), file=sys.stderr)"
    )
    root = str(Path(__file__).resolve().parent.parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": root, "CRYSTAL_EMBEDDING_PROVIDER": "none"},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "needle of my own" in done.stdout
    assert done.stderr.splitlines()[-1] == ""
