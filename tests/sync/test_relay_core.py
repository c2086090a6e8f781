"""The relay's core: whatever happens on the way, home has what the devices said, once, and says exactly what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
import pytest

from crystal.errors import Unavailable
from crystal.store import Store, problems
from crystal.store.capture import ledger
from crystal.store.health import checks
from crystal.store.sync import inbox, outbox, past, relay_peers
from crystal.store.sync.quarantine import quarantined, refusals
from crystal.sync import delivery, poller
from crystal.sync.envelope import Channel
from tests.support.capture_machine import line
from tests.support.relay_fate import (
    DAY,
    Crash,
    archived,
    assert_settled,
    backfill,
    backup,
    clone,
    everything,
    faults,
    reopen,
    restore,
    revoke,
    rotate,
    texts,
    waiting,
)
from tests.support.relay_world import World, said


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    for machine in (world.home.machine, *(device.machine for device in world.devices if device.local_memory)):
        machine.assert_sound()
    assert faults(world) == []
    world.close()


# -- ordinary days ----------------------------------------------------------------------------------------------------


def test_what_devices_say_is_at_home_row_for_row(world: World) -> None:
    one, two = world.device("laptop"), world.device("tower")
    one.say("a", line("first"), line("second", role="assistant"))
    two.say("b", line("third"))
    one.say("a", line("fourth"))
    world.settle(2)
    assert_settled(world)
    assert len(said(world.home.store)) == 4
    assert {row[11] for row in said(world.home.store)} == {"laptop", "tower"}


def test_the_archive_at_home_is_the_devices_archive_byte_for_byte(world: World) -> None:
    device = world.device("laptop")
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    device.say("a", line("plain"), b"\n", line(f"my token {secret} here"), b"  \n", line("after it"))
    device.say("a", b"{broken json\n", line("more \u00e9\u4e2d"))
    device.say("b", line("another"))
    world.settle(2)
    assert_settled(world)
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")
    assert (world.home.machine.home / "agents/cc-laptop/memory/transcripts/a.jsonl.zst").read_bytes() == (
        device.machine.home / "agents/cc-laptop/memory/transcripts/a.jsonl.zst"
    ).read_bytes()


def test_a_line_of_many_parts_arrives_as_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal.sync.envelope.blob.PART_BYTES", 3000)
    device = world.device("laptop")
    device.say("a", line("small"), line("x" * 40_000), line("small again"))
    assert waiting(device) > 10
    world.settle(2)
    assert_settled(world)
    assert world.home.store.value("SELECT count(*) FROM relay_fragments") == 0


@pytest.mark.slow
def test_a_line_of_a_hundred_megabytes_arrives(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("y" * (100 << 20)))
    assert waiting(device) > 14
    world.settle(2)
    assert_settled(world)


def test_a_receipt_lets_go_of_exactly_what_home_has(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    device.deliver()
    device.say("a", line("two"))
    world.home.poll()
    assert waiting(device) == 2
    device.deliver()
    assert waiting(device) == 1
    assert device.store.value("SELECT count(*) FROM outbox") == 2, "kept for a home that may be restored"
    device.deliver()
    world.home.poll()
    world.pass_time(15 * DAY)
    device.deliver()
    assert device.store.value("SELECT count(*) FROM outbox") == 1, "the receipt of the last one is fresh"
    world.pass_time(15 * DAY)
    device.deliver()
    assert device.store.value("SELECT count(*) FROM outbox") == 0


def test_a_device_without_a_memory_of_its_own_sends_all_the_same(world: World) -> None:
    device = world.device("laptop", local_memory=False)
    device.say("a", line("one"), line("two"))
    world.settle(2)
    assert texts(world.home.store) == ["one", "two"]
    assert texts(device.store) == []
    assert waiting(device) == 0


def test_an_ended_session_ends_at_home_and_only_its_devices_can_end_it(world: World) -> None:
    from crystal.sync.sink import tell_ended

    device, other = world.device("laptop"), world.device("tower")
    device.say("a", line("one"))
    world.settle(1)
    tell_ended(other.store, other.link(), "a", 5, other.machine.now)
    world.settle(1)
    assert world.home.store.value("SELECT ended_at FROM sessions") is None
    tell_ended(device.store, device.link(), "a", 7, device.machine.now)
    world.settle(1)
    assert world.home.store.value("SELECT ended_at FROM sessions") == 7
    device.say("a", line("it goes on"))
    world.settle(1)
    assert world.home.store.value("SELECT ended_at FROM sessions") is None


def test_private_segments_leave_no_word_and_no_hole(world: World) -> None:
    device = world.device("laptop")
    device.machine.private_sessions = ("hush*",)
    device.say("hush-1", line("nobody hears"), line("this"))
    device.say("open", line("heard"))
    world.settle(2)
    assert texts(world.home.store) == ["heard"]
    state = ledger.state_of(world.home.store, "laptop", "hush-1")
    assert state is not None
    assert {row.state for row in checks.ledger_rows(world.home.store, state.id)} == {"private"}


# -- the past, and orders ---------------------------------------------------------------------------------------------


def test_the_past_comes_behind_the_present_and_fills_its_hole(world: World) -> None:
    device = world.device("laptop")
    path = device.machine.transcript("a")
    path.write_bytes(b"".join(line(f"old {number}") for number in range(5)))
    device.store.execute("DELETE FROM capture_roots")
    device.sweep()
    device.say("a", line("new"))
    world.settle(1)
    assert texts(world.home.store) == ["new"]
    backfill(device)
    world.settle(2)
    assert_settled(world)
    assert len(texts(world.home.store)) == 6
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")


def test_live_and_past_may_come_in_any_order(world: World) -> None:
    device = world.device("laptop")
    path = device.machine.transcript("a")
    path.write_bytes(b"".join(line(f"old {number}") for number in range(5)))
    device.store.execute("DELETE FROM capture_roots")
    device.sweep()
    device.say("a", line("new"))
    backfill(device)
    live = next(one for one in outbox.streams(device.store) if one.lane == "live")

    def held_back(request: httpx.Request) -> None:
        if live.stream.hex() in request.url.path:
            raise httpx.ConnectError("held back")

    world.home.weather.before = held_back
    device.deliver()
    world.home.poll()
    assert "new" not in texts(world.home.store)
    world.home.machine.assert_sound()
    world.home.weather.before = lambda request: None
    world.settle(2)
    assert_settled(world)


def test_a_replaced_file_is_a_generation_of_its_own(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"), line("two"))
    path = device.machine.transcript("a")
    path.write_bytes(line("other one") + line("two more"))
    device.sweep()
    world.settle(2)
    assert_settled(world)
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")


def test_everything_sent_again_from_the_archive_is_what_was_sent_live(world: World) -> None:
    device = world.device("laptop")
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    device.machine.private_projects = ("/home/dev/secret",)
    device.say(
        "a",
        line("plain", ident=None),
        line(f"token {secret} and {secret}"),
        line("hidden", cwd="/home/dev/secret"),
        line("no id, after a secret", uuid=None),
        b"\n",
        line(f"{secret}", uuid=None),
        b'{"type":"summary","summary":"x"}\n',
        line("no id at the end", uuid=None),
    )
    direct = said(device.store)
    device.store.execute("DELETE FROM outbox")
    device.store.execute("DELETE FROM relay_out")
    device.send_all()
    world.settle(3)
    assert said(world.home.store) == direct
    assert_settled(world)
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")


def test_the_past_waits_in_small_numbers_and_says_private_lines_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal.sync.past.MAX_WAITING", 3)
    device = world.device("laptop")
    device.machine.private_projects = ("/home/dev/secret",)
    device.say("a", line("hidden", cwd="/home/dev/secret"), line("hidden too", cwd="/home/dev/secret"))
    for number in range(8):
        device.say("a", line(f"n {number}"))
    world.settle(2)
    device.send_all()
    for _ in range(5):
        device.deliver()  # home does not answer
    lane = [one for one in outbox.streams(device.store) if one.lane == "past"]
    assert sum(one.last_seq for one in lane) <= 4
    world.settle(10)
    assert past.read_place(device.store) is None
    assert_settled(world)


# -- outages ----------------------------------------------------------------------------------------------------------


def test_an_outage_costs_nothing_but_time(world: World) -> None:
    device = world.device("laptop")
    asked: list[int] = []

    def down(request: httpx.Request) -> None:
        asked.append(1)
        raise httpx.ConnectError("down")

    device.weather.before = down
    for number in range(5):
        device.say("a", line(f"n {number}"))
        device.deliver(insist=False)
    assert len(asked) == 1, "the hooks of an outage do not ask again"
    problem = problems.find_problem(device.store, delivery.ROOM)
    assert problem is not None
    assert problem.retry_at is not None
    waits = []
    for _ in range(12):
        problem = problems.find_problem(device.store, delivery.ROOM)
        assert problem is not None
        assert problem.retry_at is not None
        waits.append(problem.retry_at - device.machine.now)
        world.pass_time(waits[-1] + 1)
        device.deliver(insist=False)
    assert waits[-1] >= 1_000_000
    assert max(waits) <= 1.5 * delivery.MAX_WAIT_MS
    assert len(set(waits)) > 3, "jitter"
    device.weather.before = lambda request: None
    world.settle(2)
    assert_settled(world)
    assert problems.find_problem(device.store, delivery.ROOM) is None


def test_a_relay_that_names_a_time_is_asked_then(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    device.weather.after = lambda request, response: httpx.Response(429, headers={"Retry-After": "1800"})
    assert device.deliver().problem
    problem = problems.find_problem(device.store, delivery.ROOM)
    assert problem is not None
    assert (problem.retry_at or 0) - device.machine.now == 1_800_000
    device.weather.after = lambda request, response: response
    world.settle(2)
    assert_settled(world)


def test_a_wait_written_by_a_wrong_clock_ends(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    device.machine.now += 3650 * DAY
    device.weather.before = lambda request: (_ for _ in ()).throw(httpx.ConnectError("down"))
    device.deliver()
    device.weather.before = lambda request: None
    device.machine.now -= 3650 * DAY
    assert device.deliver(insist=False).sent == 1


def test_a_full_relay_does_not_keep_a_device_from_hearing_home(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    device.deliver()
    world.home.poll()
    device.say("a", line("two"))

    def full(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.method == "PUT":
            return httpx.Response(
                507, json={"code": "account-full"}, headers={"content-type": "application/problem+json"}
            )
        return response

    device.weather.after = full
    report = device.deliver()
    assert report.problem
    assert report.heard
    device.weather.after = lambda request, response: response
    world.settle(2)
    assert_settled(world)


@pytest.mark.parametrize("when", ["before the poll", "after the poll", "after the receipt"])
def test_a_relay_that_loses_everything_loses_nothing(world: World, when: str) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    device.say("a", line("two"))
    device.deliver()
    if when != "before the poll":
        world.home.poll()
    if when == "after the receipt":
        device.deliver()
    world.relay.wipe()
    device.say("a", line("three"))
    world.settle(4)
    assert_settled(world)


def test_a_blob_that_expired_unread_is_sent_again(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    device.say("a", line("two"))
    device.deliver()
    stream = outbox.streams(device.store)[0].stream
    world.pass_time(40 * DAY)
    world.relay.expire()
    assert device.client.stream(stream).expired_upto == 2
    world.home.poll()
    assert world.home.missing()[stream] == [1, 2]
    world.settle(2)
    assert_settled(world)


def test_a_home_token_in_wrong_hands_deletes_nothing_for_good(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    device.say("a", line("two"))
    device.deliver()
    stream = outbox.streams(device.store)[0].stream
    world.home.client.ack(stream, 2)
    world.home.poll()
    assert world.home.missing() == {stream: [1, 2]}
    world.settle(2)
    assert_settled(world)


# -- backups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_wiped", [False, True])
def test_a_home_from_a_backup_gets_what_it_lost(world: World, tmp_path: Path, is_wiped: bool) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(world.home, tmp_path / "home.db")
    device.say("a", line("two"))
    device.say("b", line("three"))
    world.settle(2)
    assert waiting(device) == 0
    restore(world.home, copy)
    assert texts(world.home.store) == ["one"]
    if is_wiped:
        world.relay.wipe()
    world.settle(4)
    assert_settled(world)
    assert device.store.value("SELECT count(*) FROM relay_out WHERE lane = 'past'") == 0, "the outbox still had it"


@pytest.mark.parametrize("is_wiped", [False, True])
def test_what_the_outbox_has_no_more_comes_from_the_archive_once(world: World, tmp_path: Path, is_wiped: bool) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(world.home, tmp_path / "home.db")
    for number in range(4):
        device.say("a", line(f"n {number}"))
    world.settle(2)
    world.pass_time(20 * DAY)
    device.say("b", line("late"))
    world.settle(2)
    assert device.store.value("SELECT count(*) FROM outbox") < 4
    restore(world.home, copy)
    if is_wiped:
        world.relay.wipe()
    world.settle(4)
    assert_settled(world)
    before = device.store.value("SELECT sum(last_seq) FROM relay_out WHERE lane = 'past'")
    assert before
    device.say("b", line("later"))
    world.settle(4)
    assert device.store.value("SELECT sum(last_seq) FROM relay_out WHERE lane = 'past'") == before, (
        "not again and again"
    )
    assert_settled(world)


def test_a_home_from_a_backup_whose_clock_went_back_is_heard(world: World, tmp_path: Path) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(world.home, tmp_path / "home.db")
    world.home.machine.now += 3650 * DAY
    device.say("a", line("two"))
    world.settle(2)
    restore(world.home, copy)
    world.home.machine.now -= 3650 * DAY
    device.say("a", line("three"))
    world.settle(4)
    assert_settled(world)


@pytest.mark.parametrize("is_wiped", [False, True])
def test_a_device_from_a_backup_goes_on_in_another_stream(world: World, tmp_path: Path, is_wiped: bool) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(device, tmp_path / "device.db")
    device.say("a", line("two"))
    device.say("a", line("three"))
    world.settle(2)
    restore(device, copy)
    if is_wiped:
        world.relay.wipe()
    device.say("a", line("four"))
    world.settle(4)
    assert_settled(world)
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")


def test_two_copies_of_a_device_in_one_file_lose_and_double_nothing(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("shared"))
    world.settle(1)
    device.say("a", line("shared, not sent"))
    other = clone(world, device, "laptop-copy")
    device.say("a", line("of the first"))
    other.say("a", line("of the second, longer than the other's"))
    device.say("b", line("b of the first"))
    other.say("a", line("of the second again", uuid=None))
    device.say("a", line("of the first again", uuid=None))
    world.settle(5)
    assert_settled(world)
    assert relay_peers.all_peers(world.home.store)[0].forked_at is not None
    for round_ in range(3):
        device.say("a", line(f"first {round_}"))
        other.say("a", line(f"second {round_}"))
        world.settle(2)
    assert_settled(world)
    stuck = [one for one in inbox.all_streams(world.home.store) if one.state not in ("ok", "left")]
    assert stuck == []


@pytest.mark.parametrize("first", [0, 1])
def test_two_copies_over_a_relay_that_forgot_lose_nothing(world: World, first: int) -> None:
    device = world.device("laptop")
    device.say("a", line("shared"))
    world.settle(1)
    other = clone(world, device, "laptop-copy")
    pair = (device, other) if first == 0 else (other, device)
    pair[0].say("a", line("x1"))
    pair[0].deliver()
    world.relay.wipe()
    pair[1].say("a", line("y1"))
    pair[1].say("a", line("y2"))
    pair[1].deliver()
    world.home.poll()
    pair[0].say("a", line("x2"))
    world.settle(6)
    assert_settled(world)
    assert [one.state for one in inbox.all_streams(world.home.store) if one.state not in ("ok", "left")] == []


# -- keys -------------------------------------------------------------------------------------------------------------


def test_a_revoked_device_is_refused_and_named_and_nobody_else_notices(world: World) -> None:
    device, other = world.device("laptop"), world.device("tower")
    device.say("a", line("before"))
    other.say("b", line("one"))
    world.settle(1)
    revoke(world, "laptop")
    device.say("a", line("after"))
    other.say("b", line("two"))
    device.deliver()
    other.deliver()
    report = world.home.poll()
    assert texts(world.home.store) == ["before", "one", "two"]
    assert report.stuck == 0, "nothing of it is fetched"
    (refused,) = refusals(world.home.store)
    assert (refused.code, refused.streams) == ("revoked", 2), "what it says, and that it lives"
    assert quarantined(world.home.store) == []
    world.settle(2)
    assert waiting(other) == 0
    assert waiting(device) == 1


def test_after_a_rotation_the_old_keys_open_nothing(world: World) -> None:
    device, other = world.device("laptop"), world.device("tower")
    device.say("a", line("one"))
    world.settle(1)
    thief = clone(world, device, "thief")
    world.devices.remove(thief)
    rotate(world, "laptop")
    device.say("a", line("two"))
    device.deliver()
    world.home.poll()
    assert "two" in texts(world.home.store), "both are accepted until the first word under the new ones"
    device.deliver()
    world.home.poll()
    peer = relay_peers.find_peer(world.home.store, "laptop")
    assert peer.accepted_from == peer.generation == 2, "also when nothing new is said"
    thief.say("z", line("stolen words"))
    thief.deliver()
    world.home.poll()
    assert "stolen words" not in texts(world.home.store)
    device.say("a", line("three"))
    other.say("b", line("four"))
    world.settle(2)
    thief.machine.store.close()
    assert said(world.home.store) == everything(world)
    assert waiting(device) == waiting(other) == 0
    assert {one.generation for one in outbox.streams(device.store) if one.closed_at is None} == {2}
    assert {one.generation for one in outbox.streams(world.home.store) if one.closed_at is None} >= {2}


@pytest.mark.parametrize("step", [11, pytest.param(3, marks=pytest.mark.slow)])
def test_a_crash_anywhere_in_a_rotation_loses_nothing(tmp_path: Path, step: int) -> None:
    crash_at, done = 1, False
    while not done:
        world = World(tmp_path / f"w{crash_at}")
        device = world.device("laptop")
        device.say("a", line("one"))
        world.settle(1)
        rotate(world, "laptop")
        device.say("a", line("two"))
        world.home.poll()
        left = crash_at

        def die(*_: object) -> bool:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash
            return True

        device.store.db.exec_trace = die
        try:
            device.deliver()
            done = True
        except Crash:
            pass
        device.store.db.exec_trace = None
        reopen(device)
        world.settle(3)
        assert_settled(world)
        assert relay_peers.find_peer(world.home.store, "laptop").accepted_from == 2
        world.home.machine.assert_sound()
        world.close()
        crash_at += step
    assert crash_at > 20


def test_a_wrong_key_blocks_that_device_only_and_loses_nothing(world: World) -> None:
    device, other = world.device("laptop"), world.device("tower")
    right = device.secrets[1]
    device.secrets[1] = bytes(32)
    device.say("a", line("sealed wrongly"))
    other.say("b", line("fine"))
    device.deliver()
    other.deliver()
    assert world.home.poll().stuck == 2
    assert texts(world.home.store) == ["fine"]
    wrong = [one.code for one in inbox.all_streams(world.home.store) if one.state == "wrong-key"]
    assert wrong == ["key", "key"], "the conversation, and the heartbeat"
    prefix = device.peer().up_prefix
    assert sum(one.count for one in world.home.client.streams().streams if one.stream[:8] == prefix) > 0
    device.secrets[1] = right
    assert waiting(device) == 1


def test_a_key_that_is_gone_is_named_and_what_is_said_is_kept_and_sent_when_it_is_back(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("sealed"))
    secrets = dict(device.secrets)
    device.secrets.clear()
    device.say("a", line("said without a key"))
    device.say("b", line("a new session without a key"))
    assert waiting(device) == 1
    assert texts(device.store) == ["a new session without a key", "said without a key", "sealed"]
    assert [one.room for one in problems.list_problems(device.store)] == ["relay"]
    device.secrets.update(secrets)
    device.say("a", line("sealed again"))
    world.settle(2)
    assert_settled(world)
    assert texts(world.home.store) == ["a new session without a key", "said without a key", "sealed", "sealed again"]
    assert problems.list_problems(device.store) == []


def test_a_key_that_is_gone_is_named_and_nothing_moves_where_nothing_is_kept_here(world: World) -> None:
    from crystal.errors import NotConfigured

    device = world.device("laptop", local_memory=False)
    secrets = dict(device.secrets)
    device.secrets.clear()
    path = device.machine.transcript("a")
    path.write_bytes(line("waits"))
    with pytest.raises((NotConfigured, AssertionError)):
        device.sweep()
    assert waiting(device) == 0
    device.secrets.update(secrets)
    device.sweep()
    world.settle(2)
    assert texts(world.home.store) == ["waits"]
    assert waiting(device) == 0


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [31, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("side", ["home", "device"])
def test_a_crash_at_any_statement_loses_and_doubles_nothing(
    tmp_path: Path, side: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal.sync.envelope.blob.PART_BYTES", 900)
    crash_at, ends = 1, 0
    while not ends:
        world = World(tmp_path / f"{side}{crash_at}")
        device = world.device("laptop")
        device.say("a", line("one"), line("two"))
        device.say("b", line("x" * 3000))
        device.say("a", line("three"))
        hands = world.home if side == "home" else device
        left = crash_at

        def die(*_: object) -> bool:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash
            return True

        if side == "home":
            device.deliver()
        hands.machine.store.db.exec_trace = die
        try:
            if side == "device":
                device.say("c", line("four"))
                device.deliver()
                device.deliver()
            else:
                world.home.poll()
            ends = 1
        except (Crash, AssertionError):
            pass
        hands.machine.store.db.exec_trace = None
        reopen(hands)
        device.sweep()
        world.settle(3)
        assert_settled(world)
        world.home.machine.assert_sound()
        assert faults(world) == []
        world.close()
        crash_at += step


def test_committed_but_not_acknowledged_is_not_taken_twice(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    device.deliver()

    def no_ack(request: httpx.Request) -> None:
        if request.url.path.endswith("/ack"):
            raise httpx.ConnectError("gone")

    world.home.weather.before = no_ack
    with pytest.raises(Unavailable):
        world.home.poll()
    assert texts(world.home.store) == ["one"]
    world.home.weather.before = lambda request: None
    world.settle(2)
    assert_settled(world)


def test_a_full_disk_at_home_stops_nothing_for_good(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from crystal.errors import StoreFull

    device = world.device("laptop")
    device.say("a", line("one"))
    device.deliver()

    def full(*_: object, **__: object) -> object:
        raise StoreFull("no space")

    with monkeypatch.context() as patch:
        patch.setattr("crystal.ingest.ingest.archive.append", full)
        with pytest.raises(StoreFull):
            world.home.poll()
    assert texts(world.home.store) == []
    assert [one.last_seq for one in inbox.all_streams(world.home.store) if one.channel != Channel.HEARTBEAT] == [0]
    world.settle(2)
    assert_settled(world)


def test_a_full_disk_on_the_device_moves_no_watermark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from crystal.errors import StoreFull

    device = world.device("laptop")
    device.machine.transcript("a").write_bytes(line("one"))

    def full(*_: object, **__: object) -> None:
        raise StoreFull("no space")

    with monkeypatch.context() as patch:
        patch.setattr("crystal.sync.sending.outbox.put_blob", full)
        with pytest.raises(StoreFull):
            device.sweep()
    assert ledger.all_states(device.store) == []
    device.sweep()
    world.settle(2)
    assert_settled(world)


def test_two_pollers_at_once_are_harmless(world: World) -> None:
    import threading

    device, other = world.device("laptop"), world.device("tower")
    for number in range(30):
        device.say(f"s{number % 3}", line(f"n {number}"))
        other.say("t", line(f"m {number}"))
    device.deliver()
    other.deliver()
    problems_met: list[BaseException] = []

    def poll() -> None:
        from dataclasses import replace

        store = Store.open(world.home.store.path)
        try:
            home = world.home
            machine = replace(home.machine, store=store)
            second = type(home).__new__(type(home))
            second.machine, second.relay, second.at_once = machine, home.relay, 4
            second.weather, second.client = home.weather, home.client
            second.poller().poll()
        except BaseException as error:  # noqa: BLE001
            problems_met.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=poll) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems_met == []
    known = inbox.all_streams(world.home.store)
    assert [(one.state, one.detail) for one in known if one.state != "ok"] == []
    assert sorted(one.last_seq for one in known if one.channel == 1) == [30, 30]
    world.settle(2)
    assert_settled(world)


# -- what lies on the way ---------------------------------------------------------------------------------------------


def damage_bodies(how: object) -> object:
    def after(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        body = response.read()
        if request.method == "GET" and response.headers.get("content-type") == "application/octet-stream":
            body = how(request, body)  # type: ignore[operator]
            kept = ("content-type", "crystal-relay-version")
            return httpx.Response(200, content=body, headers={name: response.headers[name] for name in kept})
        return httpx.Response(response.status_code, content=body, headers=response.headers)

    return after


@pytest.mark.parametrize("kind", ["flip", "cut", "swap", "replay"])
def test_a_damaged_blob_is_set_aside_named_and_comes_right(world: World, kind: str) -> None:
    device, other = world.device("laptop"), world.device("tower")
    device.say("a", line("one"))
    device.say("a", line("two"))
    other.say("b", line("fine"))
    device.deliver()
    other.deliver()
    old = [outbox.sealed_blob(device.store, 1, 1), outbox.sealed_blob(other.store, 1, 1)]
    stream = outbox.streams(device.store)[0].stream.hex()

    def how(request: httpx.Request, body: bytes) -> bytes:
        if f"{stream}/blobs/2" not in request.url.path:
            return body
        flipped = bytearray(body)
        flipped[300] ^= 1
        return {"flip": bytes(flipped), "cut": body[:-40], "swap": old[1] or b"", "replay": old[0] or b""}[kind]

    world.home.weather.after = damage_bodies(how)  # type: ignore[assignment]
    report = world.home.poll()
    assert texts(world.home.store) == ["fine", "one"]
    assert report.stuck == 1
    if kind == "swap":  # sealed with the key of another device: not kept
        assert [one.code for one in refusals(world.home.store)] == ["key"]
    else:
        assert [one.seq for one in quarantined(world.home.store)] == [2]
    assert world.home.missing() == {bytes.fromhex(stream): [2]}
    world.home.weather.after = lambda request, response: response
    world.settle(3)
    assert_settled(world)


def test_a_blob_that_rots_at_the_relay_is_sent_again(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    device.deliver()
    world.relay.rot()
    world.home.poll()
    assert texts(world.home.store) == []
    world.settle(4)
    assert_settled(world)


def test_a_withheld_tail_is_known_at_both_ends(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    world.settle(1)
    device.say("a", line("two"))
    device.say("a", line("three"))
    device.deliver()
    conversation = outbox.streams(device.store)[0].stream

    def withhold(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        body = response.read()
        if request.method == "GET" and response.headers.get("content-type") == "application/json":
            fields = orjson.loads(body)
            for one in fields.get("streams", []):
                if one["stream"] == conversation.hex():
                    one.update(head=1, count=0, bytes=0, acked=1)
            if "blobs" in fields and conversation.hex() in request.url.path:
                fields["blobs"] = []
                fields["head"] = 1
            return httpx.Response(200, json=fields, headers={"crystal-relay-version": "1"})
        return httpx.Response(response.status_code, content=body, headers=response.headers)

    world.home.weather.after = withhold
    world.home.poll()
    assert world.home.missing() == {conversation: [2, 3]}
    device.deliver()
    assert waiting(device) == 2
    world.home.weather.after = lambda request, response: response
    world.settle(2)
    assert_settled(world)


def test_a_relay_that_contradicts_everywhere_is_not_fed_for_ever(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))

    def conflict(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.method == "PUT":
            return httpx.Response(
                409, json={"code": "blob-conflict"}, headers={"content-type": "application/problem+json"}
            )
        return response

    device.weather.after = conflict
    assert device.deliver().problem
    assert len(outbox.streams(device.store)) < 12
    device.weather.after = lambda request, response: response
    world.settle(4)
    assert_settled(world)


def test_a_segment_is_taken_again_without_a_trace(world: World) -> None:
    """The same lines over another stream: nothing is added, nothing is refused."""
    device = world.device("laptop")
    device.say("a", line("one"), b"\n", line("two"))
    world.settle(1)
    device.send_all()
    world.settle(3)
    assert_settled(world)
    state = ledger.all_states(world.home.store, "laptop")[0]
    assert {row.generation for row in checks.ledger_rows(world.home.store, state.id)} == {0}


def test_cuts_may_fall_on_blank_lines(world: World, tmp_path: Path) -> None:
    device = world.device("laptop")
    device.say("a", line("one"), b"\n")
    copy = backup(device, tmp_path / "early.db")
    device.say("a", b"  \n", line("two"))
    device.say("a", line("three"))
    world.settle(1)
    restore(device, copy)
    device.say("a", line("four"))
    world.settle(3)
    assert_settled(world)
    state = ledger.all_states(world.home.store, "laptop")[0]
    assert {row.generation for row in checks.ledger_rows(world.home.store, state.id)} == {0}
    assert archived(world.home.machine, "laptop") == archived(device.machine, "laptop")


def test_the_turn_of_a_long_past_does_not_hold_up_live_words(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "PAST_TURN", 3)
    device, other = world.device("laptop"), world.device("tower")
    for number in range(12):
        device.say("a", line(f"n {number}"))
    world.settle(1)
    device.store.execute("DELETE FROM outbox")
    device.send_all()
    device.deliver()
    other.say("b", line("live"))
    other.deliver()
    seen: list[str] = []
    real = world.home.client.get

    def get(stream: bytes, seq: int) -> bytes:
        seen.append("live" if stream[:8] == other.peer().up_prefix else "past")
        return real(stream, seq)

    monkeypatch.setattr(world.home.client, "get", get)
    world.home.poll()
    assert seen.index("live") <= 9
    world.settle(2)
    assert_settled(world)


def test_nothing_is_acknowledged_before_it_is_durable(world: World) -> None:
    device = world.device("laptop")
    for number in range(5):
        device.say("a", line(f"n {number}"))
    device.deliver()
    seen: list[int] = []

    def at_ack(request: httpx.Request) -> None:
        if request.url.path.endswith("/ack"):
            other = Store.open(world.home.store.path)
            seen.append(len(texts(other)))
            other.close()

    world.home.weather.before = at_ack
    world.home.poll()
    assert seen[-1] == 5
    assert world.home.store.value("PRAGMA synchronous") == 2
    assert device.store.value("PRAGMA synchronous") == 2


def test_a_stream_that_failed_is_tried_again_though_nothing_changes(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    device.deliver()
    name = outbox.streams(device.store)[0].stream.hex()

    def fails(request: httpx.Request) -> None:
        if f"{name}/blobs" in request.url.path:
            raise httpx.ReadTimeout("slow")

    world.home.weather.before = fails
    report = world.home.poller().poll()
    assert report.waiting == 1
    world.home.weather.before = lambda request: None
    world.home.poller().poll(after=report.change)
    assert texts(world.home.store) == ["one"]


def test_a_removed_device_leaves_what_it_said(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    world.settle(2)
    peer = relay_peers.find_peer(world.home.store, "laptop")
    with world.home.store.transaction():
        relay_peers.remove_peer(world.home.store, peer.id)
    assert texts(world.home.store) == ["one"]
    assert relay_peers.all_peers(world.home.store) == []


def test_a_device_from_before_a_rotation_uses_the_keys_that_it_has(world: World, tmp_path: Path) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(device, tmp_path / "device.db")
    rotate(world, "laptop")
    world.settle(2)
    restore(device, copy)
    device.say("a", line("two"))
    world.settle(4)
    assert_settled(world)
    assert device.peer().generation == 2


def test_a_home_from_before_a_rotation_knows_its_own_keys(world: World, tmp_path: Path) -> None:
    device = world.device("laptop")
    device.say("a", line("one"))
    world.settle(1)
    copy = backup(world.home, tmp_path / "home.db")
    rotate(world, "laptop")
    device.say("a", line("two"))
    world.settle(3)
    restore(world.home, copy)
    device.say("a", line("three"))
    world.settle(4)
    assert_settled(world)
    assert relay_peers.find_peer(world.home.store, "laptop").accepted_from == 2


def test_a_device_whose_lines_only_home_keeps_gives_them_to_the_next_home(world: World) -> None:
    """What a device sent without keeping it comes back with its lines when it is home itself."""
    device = world.device("laptop", local_memory=False)
    device.say("a", line("one"), line("two"))
    world.settle(2)
    from crystal.model.capture import Piece, Segment, Watermark
    from crystal.sync.arrival import Arrivals, arrive
    from crystal.sync.wire import Sent

    home, store = world.home, device.store
    state = ledger.all_states(home.store, "laptop")[0]
    clean = archived(home.machine, "laptop")["a", 0]
    size = len(clean)
    first = clean.index(b"\n")
    lines = ((0, clean[:first]), (first + 1, clean[first + 1 : -1]))
    piece = Piece(0, size, "captured", None, clean, bytes(32), lines)
    mark = Watermark("a", size)
    sent = Sent(Segment(state.origin, state.path, Watermark("a"), mark, (piece,)), {}, "past")
    from crystal.ingest.ingest import prepare

    arrivals = Arrivals(store, device.machine.home, lambda agent: device.machine.home / "agents" / agent / "memory")
    before = ledger.all_states(store)[0].mark
    for _ in range(2):
        with store.transaction():
            arrive(arrivals, sent, prepare(sent.segment), b"s" * 16, now=1, written={})
    assert texts(store) == ["one", "two"]
    assert ledger.all_states(store)[0].mark == before
    device.machine.assert_sound()


def test_a_clock_that_goes_back_delays_no_check_of_the_relay(world: World) -> None:
    device = world.device("laptop")
    device.machine.now += 3650 * DAY
    device.say("a", line("one"))
    device.deliver()
    device.machine.now -= 3650 * DAY
    stream = outbox.streams(device.store)[0].stream
    world.relay.wipe()
    device.deliver()
    assert device.client.stream(stream).count == 1
    world.settle(2)
    assert_settled(world)


def test_what_a_copy_says_where_another_was_private_is_kept(world: World) -> None:
    device = world.device("laptop")
    device.say("a", line("shared"))
    world.settle(1)
    other = clone(world, device, "laptop-copy")
    device.machine.private_projects = ("/hush",)
    device.say("a", line("of the first, private", cwd="/hush"))
    device.deliver()
    world.home.poll()
    other.say("a", line("of the second, open", cwd="/open"))
    device.say("a", line("later", cwd="/code"))
    world.settle(4)
    assert_settled(world)
    assert texts(world.home.store) == ["later", "of the second, open", "shared"]


def test_what_is_private_here_stays_so_when_a_restored_device_sends_it_openly(world: World, tmp_path: Path) -> None:
    device = world.device("laptop")
    device.say("a", line("shared"))
    copy = backup(device, tmp_path / "device.db")
    device.machine.private_projects = ("/hush",)
    device.say("a", line("private words", cwd="/hush"), line("open words"))
    world.settle(2)
    device.machine.private_projects = ()
    restore(device, copy)
    device.sweep()
    world.settle(4)
    assert texts(world.home.store) == ["open words", "shared"]
    assert waiting(device) == 0
