"""A device with a valid key and bad intentions, or a fault: it harms its own rows and its own stream, nothing else."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from crystal.store.capture import ledger, privacy
from crystal.store.sync import inbox, outbox
from crystal.store.sync.refusal_counts import refusals
from crystal.sync.envelope.blob import Channel
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.sending import open_another, put_message
from tests.support.capture_machine import line
from tests.support.relay_fate import archived, texts
from tests.support.relay_world import Device, World
from tests.support.said_rows import said

pytestmark = pytest.mark.slow


def head(text: bytes = b'{"type":"user"}\n', **changes: Any) -> bytes:
    """A segment's message with other fields than an honest device writes."""
    fields = {
        "v": 1,
        "kind": "segment",
        "lane": "live",
        "origin": ["cc-bad", "bad", "s", None, "claude-code"],
        "path": "/x/s.jsonl",
        "before": ["s", 0, 0, 0, 0, ""],
        "after": ["s", len(text), 0, 0, 0, ""],
        "pieces": [[0, len(text), "captured", None, None, len(text), []]],
        "findings": [],
        "private": [],
        "projects": [],
        **changes,
    }
    return json.dumps(fields).encode() + b"\n" + text


def send(device: Device, payload: bytes, kind: PayloadKind = PayloadKind.RECORDS) -> None:
    with device.store.transaction():
        put_message(device.store, device.link(), payload, kind=kind, lane="live", now=device.machine.now)
    device.deliver()


def outside(world: World) -> set[str]:
    """Every file that is not in the tree of agents or the store, with its contents."""
    base = world.folder
    found = set()
    for path in base.rglob("*"):
        parts = path.relative_to(base).parts
        if (
            path.is_file()
            and parts[0].split("-")[0] not in ("relay", "bad", "good")
            and parts[:2] != ("home", "memory")
        ):
            if parts[:2] == ("home", "agents"):
                continue
            found.add(str(path) + hashlib.sha256(path.read_bytes()).hexdigest())
    return found


DEEP = b"[" * 200_000 + b"]" * 200_000
BAD: dict[str, bytes] = {
    "agent climbs": head(origin=["../../..", "bad", "s", None, "claude-code"]),
    "agent absolute": head(origin=["/etc", "bad", "s", None, "claude-code"]),
    "agent runs": head(origin=[";touch x", "bad", "s", None, "claude-code"]),
    "agent null": head(origin=["a\0b", "bad", "s", None, "claude-code"]),
    "agent long": head(origin=["a" * 65, "bad", "s", None, "claude-code"]),
    "agent number": head(origin=[1, "bad", "s", None, "claude-code"]),
    "harness": head(origin=["a", "bad", "s", None, "no-such-agent"]),
    "origin short": head(origin=["a"]),
    "origin long": head(origin=["a", "bad", "s", None, "claude-code", "x"]),
    "origin word": head(origin="abcd"),
    "session null": head(origin=["a", "bad", "s\0", None, "claude-code"]),
    "session lone surrogate": head(origin=["a", "bad", "s\ud800", None, "claude-code"]),
    "session endless": head(origin=["a", "bad", "s" * 5000, None, "claude-code"]),
    "path surrogate": head(path="/x/\ud800"),
    "path null": head(path="/x/\0"),
    "path empty": head(path=""),
    "key surrogate": head(before=["\udcff", 0, 0, 0, 0, ""], after=["\udcff", 16, 0, 0, 0, ""]),
    "other keys": head(after=["t", 16, 0, 0, 0, ""]),
    "negative": head(pieces=[[-16, 0, "captured", None, None, 16, []]]),
    "huge": head(pieces=[[0, 10**300, "captured", None, None, 16, []]]),
    "many digits": b'{"v":1,"kind":"segment","lane":' + b"9" * 6000 + b"}\n",
    "float": head(pieces=[[0, 16.5, "captured", None, None, 16, []]]),
    "infinity": head(pieces=[[0, 1e999, "captured", None, None, 16, []]]),
    "true": head(pieces=[[False, True, "captured", None, None, 16, []]]),
    "backwards": head(pieces=[[16, 0, "captured", None, None, 16, []]]),
    "no pieces": head(pieces=[]),
    "pieces word": head(pieces="captured"),
    "more than there is": head(pieces=[[0, 16, "captured", None, None, 99, []]]),
    "less than there is": head(pieces=[[0, 16, "captured", None, None, 3, []]]),
    "hole": head(pieces=[[0, 8, "private", "x", None, 0, []], [9, 25, "captured", None, None, 16, []]]),
    "state": head(pieces=[[0, 16, "stolen", None, None, 16, []]]),
    "private with words": head(pieces=[[0, 16, "private", "x", None, 16, []]]),
    "shift out": head(pieces=[[0, 16, "captured", None, None, 16, [[0, 99]]]]),
    "shift odd": head(pieces=[[0, 16, "captured", None, None, 16, [["a", "b"]]]]),
    "hash odd": head(pieces=[[0, 16, "captured", None, "zz", 16, []]]),
    "hash short": head(pieces=[[0, 16, "captured", None, "00", 16, []]]),
    "no newline at the end": head(b'{"type":"user"}!'),
    "findings": head(findings=[["a", -1]]),
    "private number": head(private=[1]),
    "project": head(projects=[["/x", 1, 2, 3]]),
    "version": head(v=99),
    "lane": head(lane="middle"),
    "project remote empty": head(projects=[["/x", None, "", "x"]]),
    "shift numbers": head(pieces=[[0, 16, "captured", None, None, 16, [[0, 4, 4]]]]),
    "kind": head(kind="delta"),
    "empty": b"",
    "not json": b"\xff\xfe\n",
    "nan": b'{"v": NaN}\n',
    "list": b"[]\n",
    "deep": DEEP + b"\n",
    "deep inside": b'{"v":1,"kind":"segment","origin":' + DEEP + b"}\n",
}


def refused(world: World, devices: dict[str, Device]) -> dict[str, list[str]]:
    """Return what home refused of each device, by its name."""
    peers = dict(world.home.store.rows("SELECT name, id FROM relay_peers"))
    counts = refusals(world.home.store)
    return {
        name: [one.code for one in counts if one.peer == peers[device.machine.device]]
        for name, device in devices.items()
    }


def test_a_bad_record_stops_its_own_stream_only(world: World) -> None:
    good = world.device("good")
    bad = {name: world.device(f"bad-{number}") for number, name in enumerate(BAD)}
    good.say("g", line("before"))
    world.settle(1)
    files = outside(world)
    for name, device in bad.items():
        send(device, BAD[name])
    good.say("g", line("after"))
    good.deliver()
    world.home.poll()
    assert texts(world.home.store) == ["after", "before"]
    assert refused(world, bad) == {name: ["record"] for name in BAD}
    stuck = [one for one in inbox.all_streams(world.home.store) if one.state != "ok"]
    assert [(one.state, one.code) for one in stuck] == [("damaged", "record")] * len(BAD)
    assert {one.resend for one in stuck} == {None}, "sending it again would not mend it"
    assert outside(world) == files
    world.settle(2)
    assert outbox.backlog(good.store).blobs == 0
    assert texts(world.home.store) == ["after", "before"]


WORDS: dict[str, bytes] = {
    "no version": b'{"kind":"ended"}',
    "unknown": b'{"v":1,"kind":"erase everything"}',
    "stream": b'{"v":1,"kind":"continues","stream":"zz","because":"fork"}',
    "stream short": b'{"v":1,"kind":"continues","stream":"00","because":"fork"}',
    "session": b'{"v":1,"kind":"ended","session":"\\u0000","at":1}',
    "surrogate": b'{"v":1,"kind":"ended","session":"\\ud800","at":1}',
    "time": b'{"v":1,"kind":"ended","session":"s","at":1e99}',
    "uuids": b'{"v":1,"kind":"private","uuids":{"a":1}}',
    "deep": DEEP,
    "list": b"[1]",
}


def test_bad_words_of_control_and_a_bomb_are_refused_as_a_whole(world: World) -> None:
    good = world.device("good")
    bad = {name: world.device(f"bad-{number}") for number, name in enumerate([*WORDS, "bomb"])}
    for name, words in WORDS.items():
        send(bad[name], words, PayloadKind.CONTROL)
    send(bad["bomb"], b"\0" * (64 << 20))
    good.say("g", line("words"))
    good.deliver()
    world.home.poll()
    assert texts(world.home.store) == ["words"]
    assert refused(world, bad) == {name: ["record"] for name in bad}


def test_numbers_that_no_store_holds_are_cut_or_refused(world: World) -> None:
    bad = world.device("bad")
    text = line("words")
    size = len(text)
    mark = ["s", size, (1 << 64) - 1, 1 << 63, 0, ""]
    send(bad, head(text, after=mark))
    world.home.poll()
    assert texts(world.home.store) == ["words"]


def test_names_that_look_like_paths_become_plain_files(world: World) -> None:
    bad = world.device("bad")
    text = line("words")
    size = len(text)
    files = outside(world)
    for key in ("../../../x", "/etc/passwd", "a/../../b", "..", "C:\\x", "x" * 4000):
        place = {"before": [key, 0, 0, 0, 0, ""], "after": [key, size, 0, 0, 0, ""]}
        send(bad, head(text, origin=["cc-bad", "bad", key, None, "claude-code"], **place))
    world.home.poll()
    assert len(ledger.all_states(world.home.store, "bad")) == 6
    assert outside(world) == files
    tree = world.home.machine.home / "agents" / "cc-bad" / "memory" / "transcripts"
    kept = [path for path in (world.home.machine.home / "agents").rglob("*") if path.is_file()]
    assert kept
    assert all(path.is_relative_to(tree) for path in kept)


def test_a_device_speaks_under_its_own_name_whatever_it_says(world: World) -> None:
    good, bad = world.device("good"), world.device("bad")
    good.say("g", line("good words"))
    world.settle(1)
    before = said(world.home.store)
    text = line("bad words")
    size = len(text)
    for agent in ("cc-home", "CC-HOME", "cc-good", "CC-Good"):
        place = {"before": [f"k{agent}", 0, 0, 0, 0, ""], "after": [f"k{agent}", size, 0, 0, 0, ""]}
        send(bad, head(text, origin=[agent, "good", "g", None, "claude-code"], **place))
    world.home.poll()
    rows = said(world.home.store)
    assert [row for row in rows if row in before] == before
    assert {row[11] for row in rows if row not in before} == {"bad"}
    agents = {state.origin.agent for state in ledger.all_states(world.home.store, "bad")}
    assert agents.isdisjoint({"cc-home", "CC-HOME", "cc-good", "CC-Good"})
    assert {path.name.lower() for path in (world.home.machine.home / "agents").iterdir()} >= {"cc-good"}
    assert archived(world.home.machine, "good") == archived(good.machine, "good")


def test_a_device_says_nothing_about_others_folders_and_sessions(world: World) -> None:
    good, bad = world.device("good"), world.device("bad")
    good.say("g", line("good words", cwd="/home/dev/quartz"))
    world.settle(1)
    world.home.store.execute("UPDATE projects SET git_root = '/home/dev', remote = 'git@x:y', name = 'quartz'")
    text = line("bad words", cwd="/home/dev/quartz")
    send(bad, head(text, projects=[["/home/dev/quartz", "/evil", "evil", "evil"]]))
    send(bad, b'{"v":1,"kind":"ended","session":"g","at":5}', PayloadKind.CONTROL)
    world.home.poll()
    assert "bad words" in texts(world.home.store)
    assert world.home.store.rows("SELECT git_root, remote, name FROM projects") == [("/home/dev", "git@x:y", "quartz")]
    assert world.home.store.value("SELECT ended_at FROM sessions WHERE session_id = 'g'") is None


def test_a_device_takes_no_stream_of_another(world: World) -> None:
    good, bad = world.device("good"), world.device("bad")
    good.say("g", line("good words"))
    world.settle(1)
    name = outbox.streams(good.store)[0].stream.hex()
    words = {"v": 1, "kind": "continues", "stream": name, "from": 1, "because": "rotated"}
    send(bad, json.dumps(words).encode(), PayloadKind.CONTROL)
    world.home.poll()
    known = inbox.find_stream(world.home.store, bytes.fromhex(name))
    assert known is not None
    assert known.state == "ok"
    good.say("g", line("more"))
    world.settle(2)
    assert "more" in texts(world.home.store)
    assert outbox.backlog(good.store).blobs == 0


@pytest.mark.parametrize("whose", ["its own key", "the other's key"])
def test_a_device_writes_under_no_prefix_of_another(world: World, whose: str) -> None:
    from dataclasses import replace

    good, bad = world.device("good"), world.device("bad")
    good.say("g", line("good words"))
    world.settle(1)
    link = bad.link()
    stolen = replace(link, prefix=good.peer().up_prefix)
    with bad.store.transaction():
        open_another(bad.store, stolen, Channel.CONVERSATIONS, "live", bad.machine.now, "fork")
    bad.token = good.token  # it has the other's token too
    bad.__post_init__()
    payload = head(line("stolen words"))
    bad.say("g2", line("x"))
    with bad.store.transaction():
        put_message(bad.store, stolen, payload, kind=PayloadKind.RECORDS, lane="live", now=bad.machine.now)
    bad.deliver()
    world.home.poll()
    assert texts(world.home.store) == ["good words"]
    assert {one.code for one in inbox.all_streams(world.home.store) if one.state == "wrong-key"} == {"key"}
    good.say("g", line("goes on"))
    good.deliver()
    world.home.poll()
    assert texts(world.home.store) == ["goes on", "good words"]


def test_a_device_with_a_thousand_claims_only_shames_itself(world: World) -> None:
    from crystal.sync.documents import put_document

    good, bad = world.device("good"), world.device("bad")
    good.say("g", line("words"))
    world.settle(1)
    stream = outbox.streams(good.store)[0].stream
    claims: dict[str, Any] = {
        stream.hex(): 10**6,
        "zz": 1,
        "": 1,
        (bad.peer().up_prefix + b"\1" * 8).hex(): -1,
        (bad.peer().up_prefix + b"\2" * 8).hex(): 1 << 60,
        (bad.peer().up_prefix + b"\3" * 8).hex(): "5",
    }
    for body in ({"streams": claims, "stale": {"5": "x", "6": 1 << 70}}, {"streams": [1]}, {"stale": []}):
        put_document(bad.store, bad.client, bad.link(), Channel.HEARTBEAT, body, bad.machine.now)
        world.home.poll()
    assert world.home.missing() == {}
    good.say("g", line("more"))
    world.settle(2)
    assert outbox.backlog(good.store).blobs == 0


def test_what_a_device_leaves_out_stays_private_and_is_no_weapon(world: World) -> None:
    good, bad = world.device("good"), world.device("bad")
    good.say("g", line("words", ident="11111111-1111-4111-8111-111111111111"))
    world.settle(1)
    words = {"v": 1, "kind": "private", "uuids": ["11111111-1111-4111-8111-111111111111", "\ud800", "", "a\0"]}
    send(bad, json.dumps(words).encode(), PayloadKind.CONTROL)
    world.home.poll()
    assert texts(world.home.store) == ["words"]
    assert privacy.is_private_line(world.home.store, "11111111-1111-4111-8111-111111111111")


def test_a_home_that_handed_over_speaks_for_all_and_others_do_not(world: World) -> None:
    old = world.device("old-home")
    world.home.store.execute("UPDATE relay_peers SET vouches = 1 WHERE name = 'old-home'")
    text = line("said on the third machine")
    size = len(text)
    third: dict[str, Any] = {"origin": ["cc-third", "third", "s", None, "claude-code"]}
    send(old, head(text, after=["s", size, 0, 0, 1_000_000, ""], **third))
    world.home.poll()
    assert {(row[10], row[11]) for row in said(world.home.store)} == {("cc-third", "third")}
    private = [[size, size + 9, "private", "x", None, 0, []]]
    message = head(text, after=["s", size + 9, 0, 0, 1_000_000, ""], pieces=private, **third)
    send(old, message.partition(b"\n")[0] + b"\n")
    world.home.poll()
    assert refusals(world.home.store) == []
