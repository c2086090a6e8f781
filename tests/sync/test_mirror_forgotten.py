"""What a device knows to be forgotten does not come with objects that home made before it knew."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from crystal.capture.lock import try_lock
from crystal.forgetting.execute.execute import Finisher
from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone, add_tombstones
from crystal.store.search.space import delete_chunks
from crystal.store.sync import relay_forgotten
from crystal.sync.mirror.device import Mirror
from crystal.sync.mirror.sifting import sift
from tests.support.capture_machine import CaptureMachine
from tests.support.forgetting_ground import Ground
from tests.support.mirror_world import World, world
from tests.support.store_factory import NOW, Meaning, add_turn, embed_all

pytestmark = pytest.mark.slow

__all__ = ["world"]

SESSION = "10000000-0000-4000-8000-000000000000"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Store]:
    """The device's own store."""
    with Store.open(tmp_path / "own" / "crystal.db") as store:
        yield store


def forget(store: Store, number: int = 1, *, kind: str = "lines", until: int | None = None, **value: object) -> None:
    with store.transaction():
        add_tombstones(store, [Tombstone(f"{number:032x}", kind, value, until, NOW, "here")], NOW)  # type: ignore[arg-type]


def fetch(world: World, mirror: Mirror, own: Store) -> None:
    mirror.take(world.manifest or {}, world.serial)
    report = mirror.fetch(world.relay, sift=partial(sift, own))
    assert report.is_whole, report.problem


def texts(mirror: Mirror) -> list[str]:
    with Store.open(mirror.path) as store:
        return sorted(text for (text,) in store.rows("SELECT text FROM chunks"))


def test_lines_with_their_vectors_are_left_out(world: World, own: Store) -> None:
    for word in ("pear", "plum", "fig"):
        add_turn(world.store, word, uuid=f"u-{word}")
    embed_all(world.store, Meaning())
    world.publish()
    forget(own, lines=["u-plum"])
    mirror = world.device()
    fetch(world, mirror, own)
    assert texts(mirror) == ["fig", "pear"]
    assert b"plum" not in mirror.path.read_bytes()
    with Store.open(mirror.path) as store:
        assert store.value("SELECT count(*) FROM turns") == 2
        assert store.value("SELECT count(*) FROM chunks_vec_1") == 2


def test_when_home_has_forgotten_too_nothing_is_missing(world: World, own: Store) -> None:
    for word in ("pear", "plum"):
        add_turn(world.store, word, uuid=f"u-{word}")
    world.publish()
    forget(own, lines=["u-plum"])
    mirror = world.device()
    fetch(world, mirror, own)
    with world.store.transaction():
        rows = world.store.rows("SELECT c.id, t.id FROM chunks c JOIN turns t ON t.id = c.turn WHERE t.uuid = 'u-plum'")
        delete_chunks(world.store, [chunk for chunk, _ in rows])
        world.store.execute_many("DELETE FROM turns WHERE id = ?", [(turn,) for _, turn in rows])
    add_turn(world.store, "fig", uuid="u-fig")
    world.publish()
    fetch(world, mirror, own)
    assert texts(mirror) == ["fig", "pear"]
    other = world.device("other")
    fetch(world, other, own)
    assert texts(other) == ["fig", "pear"]


@pytest.mark.parametrize("kind", ["session", "before", "project"])
def test_a_scope_is_left_out_by_session_time_and_folder(world: World, own: Store, kind: str) -> None:
    add_turn(world.store, "plum", uuid="u-1")
    session, folder = world.store.row(
        "SELECT s.session_id, p.cwd FROM sessions s JOIN projects p ON p.id = s.project"
    ) or ("", "")
    world.publish()
    value = {"session": {"session": session}, "before": {}, "project": {"folders": [folder]}}[kind]
    forget(own, kind=kind, until=NOW + 10**12, lines=[], **value)
    mirror = world.device()
    fetch(world, mirror, own)
    assert texts(mirror) == []


def test_a_title_that_tells_of_it_waits_for_homes_word(world: World, own: Store) -> None:
    add_turn(world.store, "plum", uuid="u-1")
    session = world.store.value("SELECT session_id FROM sessions")
    world.store.execute("UPDATE sessions SET title = 'All about plums'")
    world.publish()
    forget(own, lines=["u-1"], sessions=[session])
    mirror = world.device()
    fetch(world, mirror, own)
    assert title(mirror, session) is None
    with own.transaction():
        relay_forgotten.note_confirmed(own, [f"{1:032x}"], world.now + 500)
    world.store.execute("UPDATE sessions SET title = 'All about fruit'")
    world.publish()
    fetch(world, mirror, own)
    assert title(mirror, session) == "All about fruit"


def title(mirror: Mirror, session: str) -> object:
    with Store.open(mirror.path) as store:
        return store.value("SELECT title FROM sessions WHERE session_id = ?", (session,))


def test_a_mirror_that_is_being_built_is_begun_anew(world: World, own: Store, tmp_path: Path) -> None:
    add_turn(world.store, "plum", uuid="u-1")
    world.publish()
    mirror = world.device("memory")
    mirror.take(world.manifest or {}, world.serial)
    mirror.building.write_bytes(b"plum")
    grounds = dataclasses.replace(Ground(CaptureMachine(tmp_path, own)).grounds, data_dir=mirror.path.parent)
    with try_lock(mirror.lock):
        assert Finisher(grounds, None, NOW).run(None) == ["the mirror is being fetched"]
    assert mirror.building.exists()
    assert Finisher(grounds, None, NOW).run(None) == []
    assert not mirror.building.exists()
    fetch(world, mirror, own)
    assert texts(mirror) == ["plum"]
