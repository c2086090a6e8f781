"""``crystal relay purge``, ``crystal devices revoke`` and ``crystal relay key --paper`` ask; streams can be told apart."""

from __future__ import annotations

import pytest

from crystal.app.sync.device_registry import read_registry
from crystal.app.sync.relay_state import short_ids
from crystal.store.sync import inbox, relay_peers
from crystal.store.sync.refusal_counts import count_refusal, refusals
from crystal.sync.handover import from_words, known_devices
from crystal.sync.wire import InvalidRecordError
from tests.cli.test_cli_relay import forge
from tests.support.pairing_boxes import ROOT, Pairs
from tests.support.relay_commands import On, check_json, deliver, in_stream, joined, on, pairs, poll, say, site

__all__ = ["on", "pairs", "site"]


def refuse(pairs: Pairs, count: int) -> None:
    """Let home count refused blobs of the laptop."""
    with pairs.home.open() as machine:
        (peer,) = relay_peers.all_peers(machine.store)
        for _ in range(count):
            count_refusal(machine.store, peer.id, "record", 1)


def counted(pairs: Pairs) -> int:
    with pairs.home.open() as machine:
        return sum(one.blobs for one in refusals(machine.store))


@pytest.mark.slow
def test_a_purge_shows_what_it_deletes_and_asks(pairs: Pairs, on: On) -> None:
    joined(pairs)
    assert on(pairs.home, "relay", "purge").out == "no blobs were refused\n"
    refuse(pairs, 3)
    assert "laptop: refused 3 times (record)" in on(pairs.home, "relay", "status").out
    assert "3 times (see: crystal relay status)" in on(pairs.home, "status").out
    refused = on(pairs.home, "relay", "purge")
    assert (refused.code, "--yes" in refused.err, "3 refused blobs" in refused.err) == (2, True, True)
    no = on(pairs.home, "relay", "purge", typed="n\n", terminal=True)
    assert (no.code, "still wait at the relay or on their device" in no.err, counted(pairs)) == (130, True, 3)
    unknown = on(pairs.home, "relay", "purge", "--device", "desk", "--yes")
    assert (unknown.code, counted(pairs)) == (1, 3)
    done = on(pairs.home, "relay", "purge", "--device", "laptop", "--yes")
    assert (done.code, "deleted: the count of 3 refused blobs" in done.out, counted(pairs)) == (0, True, 0)
    check_json("crystal relay status", on(pairs.home, "relay", "status", "--json"))
    check_json("crystal status", on(pairs.home, "status", "--json"))


@pytest.mark.slow
def test_revoking_asks_and_deletes_what_was_counted(pairs: Pairs, on: On) -> None:
    joined(pairs)
    refuse(pairs, 2)
    refused = on(pairs.home, "devices", "revoke", "laptop")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert on(pairs.home, "devices", "revoke", "laptop", typed="n\n", terminal=True).code == 130
    assert (counted(pairs), "REVOKED" in on(pairs.home, "devices").out) == (2, False)
    done = on(pairs.home, "devices", "revoke", "laptop", typed="y\n", terminal=True)
    assert (done.code, counted(pairs)) == (0, 0)
    assert "REVOKED" in on(pairs.home, "devices").out


@pytest.mark.slow
def test_parts_of_a_message_go_with_a_revoked_device(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note")
    deliver(pairs)
    poll(pairs)
    with pairs.home.open() as machine:
        inbox.add_fragment(machine.store, in_stream(pairs).id, 2, b"half of a message, in the clear")
    assert on(pairs.home, "devices", "revoke", "laptop", "--yes").code == 0
    with pairs.home.open() as machine:
        assert machine.store.value("SELECT count(*) FROM relay_fragments") == 0


@pytest.mark.slow
def test_the_paper_key_is_not_printed_into_a_pipe_by_accident(pairs: Pairs, on: On) -> None:
    refused = on(pairs.home, "relay", "key", "--paper")
    assert (refused.code, refused.out, "--yes" in refused.err) == (2, "", True)
    assert on(pairs.home, "relay", "key", "--paper", "--yes").code == 0


@pytest.mark.slow
def test_a_revocation_reaches_the_list_of_devices_at_once(pairs: Pairs, on: On) -> None:
    """Home may be lost before its next poll; who becomes home from the paper key must know of it."""
    joined(pairs)
    poll(pairs)
    assert on(pairs.home, "devices", "revoke", "laptop", "--yes").code == 0
    with pairs.client() as client:
        (one,) = read_registry(client, ROOT)
    assert one.link.revoked_at is not None
    with pairs.home.open() as machine:
        (here,) = known_devices(machine.store, but=b"")
        assert here.link.revoked_at == one.link.revoked_at


def test_a_handover_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRecordError):
        from_words({"v": 2, "root": "\ud800", "token": "", "name": "", "devices": []})


@pytest.mark.slow
def test_streams_are_told_apart(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note", "note", "note")
    deliver(pairs)
    forge(pairs, 2)
    poll(pairs)
    with pairs.home.open() as machine:
        (peer,) = relay_peers.all_peers(machine.store)
        for number in range(2):
            other = inbox.meet_stream(machine.store, peer.up_prefix + bytes([7, 7, 7, 7, number]) * 1 + bytes(3), 1)
            inbox.bind(machine.store, other.id, peer.id, 1, "live")
    out = on(pairs.home, "relay", "status").out
    shown = [line.split(": ")[0].split()[-1] for line in out.splitlines() if line.startswith("stream")]
    assert len(shown) == 3
    assert len(set(shown)) == 3
    assert all(len(one) >= 8 for one in shown)
    forged = in_stream_of(pairs, 3)
    name = next(one for one in shown if forged.hex()[16:].startswith(one))
    assert on(pairs.home, "relay", "skip", "laptop", "2", "--stream", name, "--yes").code == 0


def in_stream_of(pairs: Pairs, head: int) -> bytes:
    with pairs.home.open() as machine:
        return next(one.stream for one in inbox.all_streams(machine.store) if one.head == head)


def test_short_ids_are_as_long_as_they_must_be() -> None:
    prefix = bytes(8)
    assert short_ids([]) == {}
    ids = short_ids([prefix + b"abcdXefg", prefix + b"abcdYefg"])
    assert len(set(ids.values())) == 2
    same = short_ids([bytes(16), b"\1" + bytes(15)])
    assert len(set(same.values())) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "words"), [(1, "1 message is still on laptop; it comes"), (3, "3 messages are still on laptop; they come")]
)
def test_what_is_still_on_a_device_is_said_so(pairs: Pairs, on: On, left: int, words: str) -> None:
    joined(pairs)
    say(pairs, *["note"] * left)
    deliver(pairs)
    with pairs.client() as client:
        for info in client.streams().streams:
            client.ack(info.stream, info.head)  # home's token was stolen: all is deleted at the relay
    poll(pairs)
    assert f"laptop: {words} when it syncs" in " ".join(on(pairs.home, "relay", "status").out.split())
