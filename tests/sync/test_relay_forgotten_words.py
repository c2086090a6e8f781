"""A tombstone is the same on every machine, and what is none is refused."""

from __future__ import annotations

import json

import pytest

from crystal.store.forget.forgetting import parts
from crystal.sync.taking import Forget, read_words
from crystal.sync.tombstones import messages, read_tombstones, words_of
from crystal.sync.wire import InvalidRecordError
from tests.support.capture_machine import NOW, line
from tests.support.relay_tombstones import tombstone
from tests.support.relay_world import Device, World
from tests.support.table import each_row


def test_a_tombstone_is_the_same_after_travelling() -> None:
    ones = [
        tombstone(1, "a", "b", sessions=["s"]),
        tombstone(2, "a", kind="session", session="s", until_at=NOW),
        tombstone(3, kind="project", folders=["/home/dev/é"], until_at=NOW),
        tombstone(4, "x", kind="before", until_at=NOW),
        tombstone(5, kind="memory", memories=["mem-0123456789ab"], sessions=[]),
    ]
    (payload,) = messages(ones)
    assert json.loads(payload)["v"] == 1
    message = read_words(payload)
    assert isinstance(message, Forget)
    read = read_tombstones(message.tombstones, "laptop")
    assert [words_of(one) for one in read] == [words_of(one) for one in ones]


def test_one_with_many_names_travels_in_parts_that_are_the_same_wherever_they_are_made() -> None:
    lines = [f"line-{number}" for number in range(2_500)]
    whole = tombstone(7, *lines, kind="session", session="s", until_at=NOW)
    cut = parts(whole)
    assert cut == parts(whole)
    assert sum(len(one.lines) for one in cut) == 2_500
    assert [one.kind for one in cut] == ["session", "lines", "lines"]
    assert [one.until_at for one in cut] == [NOW, None, None]
    assert cut[0].value["session"] == "s"
    assert [name for one in cut for name in one.lines] == lines
    assert len({one.uid for one in cut} | {whole.uid}) == 4
    assert all(parts(one) == [one] for one in cut), "a part is not cut again"


def test_folders_and_memories_of_many_keep_their_scope() -> None:
    folders = [f"/home/{number}" for number in range(1_500)]
    cut = parts(tombstone(8, "a", kind="project", folders=folders, until_at=NOW))
    assert [(one.kind, one.until_at) for one in cut] == [("project", NOW), ("project", NOW)]
    memories = [f"mem-{number:012x}" for number in range(1_200)]
    assert {one.kind for one in parts(tombstone(9, kind="memory", memories=memories))} == {"memory"}


def test_a_message_names_at_most_a_thousand_things() -> None:
    ones = [tombstone(number, *(f"{number}-{at}" for at in range(400))) for number in range(1, 12)]
    packed = list(messages(ones))
    assert len(packed) == 6
    assert all(isinstance(read_words(payload), Forget) for payload in packed)
    too_many = {"v": 1, "kind": "forget", "tombstones": [words_of(one) for one in ones[:3]]}
    with pytest.raises(InvalidRecordError, match="more than 1,000"):
        read_words(json.dumps(too_many).encode())


@each_row(
    "row",
    [
        None,
        [],
        "x",
        {},
        {"uid": "0" * 31},
        {"uid": "G" * 32},
        {"uid": 7},
        {"kind": "all"},
        {"kind": ["lines"]},
        {"value": []},
        {"value": {"lines": "a"}},
        {"value": {"lines": [1]}},
        {"value": {"lines": [""]}},
        {"value": {"lines": ["a\0b"]}},
        {"value": {"lines": ["\ud800"]}},
        {"value": {"lines": ["x" * 8_193]}},
        {"value": {"session": 4}},
        {"kind": "session"},
        {"until_at": -1},
        {"until_at": 1 << 60},
        {"until_at": True},
        {"until_at": "now"},
        {"made_at": None},
        {"made_at": 1.5},
    ],
)
def test_what_is_no_tombstone_is_refused(row: object) -> None:
    good = words_of(tombstone(1, "a"))
    bad = {**good, **row} if isinstance(row, dict) and row else row
    with pytest.raises(InvalidRecordError):
        read_tombstones([good, bad], "laptop")
    with pytest.raises(InvalidRecordError):
        read_tombstones(bad if not isinstance(bad, list) else {}, "laptop")


def test_a_tombstone_says_nothing_of_the_words(world: World, device: Device) -> None:
    device.say("a", line("the velvet aardvark", ident="u-1"))
    device.forget(tombstone(1, "u-1"))
    (payload,) = messages([tombstone(1, "u-1")])
    assert b"aardvark" not in payload
