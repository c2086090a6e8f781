"""The mirror: what travels, what is forgotten, and what it costs."""

import os

import pytest

from crystal.store import Store
from crystal.store.capture.privacy import add_private_lines, is_private_line
from crystal.store.sync import mirror
from crystal.sync.mirror import publishing, upkeep
from tests.support.embedding_store import Dice
from tests.support.mirror_world import COMPARED, assert_equal, bytes_of, drop, embed, rows_of, world
from tests.support.ranked_by import search
from tests.support.store_factory import NOW, Meaning, add_turn, embed_all

__all__ = ["world"]

# ---------------------------------------------------------------------------------------------------- what travels


@pytest.mark.slow
def test_everything_travels_and_the_answers_are_homes(world):
    device = world.device()
    for at in range(30):
        add_turn(world.store, f"the car number {at} needs money", session=f"s{at % 3}", tool="Bash" if at % 2 else None)
    add_turn(world.store, "again", session="fork", uuid="u000003")
    embed_all(world.store, Meaning())
    world.store.execute(
        "INSERT INTO memories VALUES (1, 'mem-0123456789ab', 'tabs', 'preference', 'indent', NULL, 'active', 'cli',"
        " 'cc-test', 'desk', NULL, 1, 2)"
    )
    with world.store.transaction():
        add_private_lines(world.store, ["secret-uuid", "1e5"])
        world.store.insert("learned_from", "id, memory, line, session, kind, confidence, at",
                           1, "mem-0123456789ab", "u000001", "s1", "fact", 0.5, NOW)  # fmt: skip
    rows = rows_of(world.store)
    assert not [table for table in COMPARED if not rows[table]], "a new kind of KINDS needs a row here"
    assert world.both(device).is_whole
    assert_equal(world, device)
    with Store.open_existing(device.path) as there:
        for question in ("car", '"number 7"', "vehicle cash", "again"):
            home = search(world.store, Meaning(), question, now=NOW)
            copy = search(there, Meaning(), question, now=NOW)
            assert (copy.mode, copy.hits, copy.notes) == (home.mode, home.hits, home.notes)


def test_what_memories_were_learned_from_follows_if_publishing_began_without_it(world):
    device = world.device()
    add_turn(world.store, "always run make")
    with world.store.transaction():
        world.store.insert("learned_from", "id, memory, line, session, kind, confidence, at",
                           1, "mem-0123456789ab", "u000001", "s1", "fact", 0.5, NOW)  # fmt: skip
    mirror.begin(world.store, world.dice.randbytes, NOW)
    world.store.execute("DELETE FROM mirror_rows WHERE kind = 'learned'")  # as homes began before
    world.both(device)
    world.now += publishing.LOOK_EVERY_MS
    world.publish()
    world.both(device)
    assert_equal(world, device)


def test_nothing_new_means_no_manifest_and_no_upload(world):
    add_turn(world.store, "once")
    assert world.publish() is not None
    sent = world.relay.sent
    assert world.publish() is None
    assert world.relay.sent == sent


@pytest.mark.slow
def test_rows_do_not_wait_for_vectors(world):
    device, model = world.device(), Dice()
    embed(world.store, model)
    for at in range(5):
        add_turn(world.store, f"turn {at}")
    world.both(device)
    assert device.status().chunks == 5
    embed(world.store, model)
    world.both(device)
    assert_equal(world, device)


@pytest.mark.slow
def test_another_model_serves_only_when_all_its_vectors_are_there(world):
    device = world.device()
    for at in range(8):
        add_turn(world.store, f"turn {at}")
    embed(world.store, Dice("old"))
    world.both(device)
    embed(world.store, Dice("new", 600))
    world.both(device)
    assert_equal(world, device)
    with Store.open_existing(device.path) as there:
        assert there.rows("SELECT model FROM embedding_generations") == [("new",)]


@pytest.mark.slow
def test_vectors_travel_as_they_are_stored(world):
    device = world.device()
    add_turn(world.store, "one")
    embed(world.store, Dice("wide", 1536))
    world.both(device)
    assert world.relay.sent < 4_000
    with Store.open_existing(device.path) as there:
        (mine,) = there.rows("SELECT embedding FROM chunks_vec_1")
        (home,) = world.store.rows("SELECT embedding FROM chunks_vec_1")
        assert mine == home


@pytest.mark.slow
def test_a_renamed_device_sends_no_texts_again(world):
    device = world.device()
    for at in range(60):
        add_turn(world.store, f"{at} " + os.urandom(400).hex())
    world.both(device)
    sent = world.relay.sent
    world.store.execute("UPDATE chunks SET device = 'laptop'")
    world.store.execute("UPDATE sessions SET device = 'laptop'")
    world.both(device)
    assert world.relay.sent - sent < 4_000 < 60 * 400
    assert_equal(world, device)


@pytest.mark.slow
def test_twenty_new_chunks_cost_less_than_100_kilobytes(world):
    device, model = world.device(), Dice("wide", 1536)
    for at in range(60):
        add_turn(
            world.store, f"{at} " + " ".join(f"{at * 7 % 97}word{n * at % 53}" for n in range(150)), session=f"s{at}"
        )
    embed(world.store, model)
    world.both(device)
    for run in range(12):
        sent, fetched = world.relay.sent, world.relay.fetched
        for at in range(20):
            add_turn(world.store, f"{run} {at} " + " ".join(f"{at}{n * 31 % 89}" for n in range(300)), session="now")
        embed(world.store, model)
        world.both(device)
        assert world.relay.fetched - fetched < 100_000
        assert world.relay.sent - sent < 100_000
    assert_equal(world, device)


@pytest.mark.slow
def test_small_objects_become_large_ones_and_the_list_stays_short(world, monkeypatch):
    monkeypatch.setattr(upkeep, "FAN", 3)
    monkeypatch.setattr(upkeep, "NEWEST", 3)
    near = world.device("near")
    for at in range(40):
        add_turn(world.store, f"turn {at}")
        body = world.publish()
        fetched = world.relay.fetched
        world.sync(near)
        assert world.relay.fetched - fetched < 3_000  # what is new, and nothing that was merged
    assert len(mirror.listed(world.store)) < 15
    assert len(body["objects"]) < 15
    assert_equal(world, near)
    device = world.device()
    assert world.sync(device).is_whole
    assert_equal(world, device)


# ------------------------------------------------------------------------------------------------------ forgetting


@pytest.mark.slow
def test_what_is_forgotten_is_gone_from_mirror_and_relay(world):
    device = world.device()
    secret = add_turn(world.store, "the launch code is plumtree zebra")
    for at in range(20):
        add_turn(world.store, f"turn {at}")
    embed(world.store, Dice("d", 64))
    vector = bytes(world.store.value("SELECT embedding FROM chunks_vec_1 WHERE rowid = 1"))
    world.both(device)
    with Store.open(device.path) as store:
        (body,) = store.db.execute("SELECT body FROM text_blocks WHERE texts > 1 ORDER BY id LIMIT 1").fetchall()[0]
        assert store.value("SELECT count(*) FROM chunks WHERE text LIKE '%plumtree%'") == 1
    assert body in bytes_of(device)
    assert vector in bytes_of(device)
    before = set(world.relay.kept)
    drop(world.store, secret)
    world.both(device)
    assert_equal(world, device)
    left = bytes_of(device)
    assert b"plumtree" not in left
    assert body not in left
    assert vector not in left
    assert not before & set(world.relay.kept)  # the object that had it was deleted at once
    late = world.device("late")
    assert world.sync(late).is_whole
    assert b"plumtree" not in bytes_of(late)


@pytest.mark.slow
def test_a_private_line_of_another_machine_is_known(world, monkeypatch):
    from crystal.app.context import default_paths
    from crystal.app.sync.device import take_private

    device = world.device()
    add_turn(world.store, "words")
    with world.store.transaction():
        add_private_lines(world.store, ["hidden"])
    monkeypatch.setenv("CRYSTAL_DATA_DIR", str(device.path.parent))
    with Store.open(default_paths().db) as own:
        take_private(own, default_paths())
        assert not is_private_line(own, "hidden")
        world.both(device)
        take_private(own, default_paths())
        assert is_private_line(own, "hidden")
        assert not is_private_line(own, "u000000")
