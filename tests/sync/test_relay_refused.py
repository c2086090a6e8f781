"""``crystal relay purge``, ``crystal devices revoke`` and ``crystal relay key --paper`` ask; streams can be told apart."""

from __future__ import annotations

import pytest

from crystal.app.sync.device_registry import read_registry
from crystal.app.sync.relay_state import short_ids
from crystal.store.sync import inbox, relay_peers
from crystal.store.sync.quarantine import DEFAULT_BUDGET, RefusedBlob, amount_kept, count_refusal, quarantine
from crystal.sync.handover import known_devices
from tests.cli.test_cli_relay import forge
from tests.support.pairing_boxes import ROOT, Pairs
from tests.support.relay_commands import On, check_json, deliver, in_stream, joined, on, pairs, poll, say, site

__all__ = ["on", "pairs", "site"]


def set_aside(pairs: Pairs, count: int, size: int = 50_000) -> None:
    """Let home keep refused blobs of the laptop."""
    with pairs.home.open() as machine:
        (peer,) = relay_peers.all_peers(machine.store)
        for seq in range(1, count + 1):
            blob = RefusedBlob(peer.id, peer.up_prefix + bytes(8), seq, bytes([seq]) * size, "record", "?", True)
            assert quarantine(machine.store, blob, DEFAULT_BUDGET, seq)


def kept(pairs: Pairs) -> int:
    with pairs.home.open() as machine:
        return amount_kept(machine.store).blobs


@pytest.mark.slow
def test_a_purge_shows_what_it_deletes_and_asks(pairs: Pairs, on: On) -> None:
    joined(pairs)
    assert on(pairs.home, "relay", "purge").out == "no refused blobs are kept\n"
    set_aside(pairs, 3)
    status = on(pairs.home, "relay", "status")
    assert "laptop: 3 refused blobs kept, 150.0 kB; delete with: crystal relay purge" in status.out
    refused = on(pairs.home, "relay", "purge")
    assert (refused.code, "--yes" in refused.err, "laptop: 3 refused blobs" in refused.err) == (2, True, True)
    no = on(pairs.home, "relay", "purge", typed="n\n", terminal=True)
    assert (no.code, "still wait at the relay or on their device" in no.err, kept(pairs)) == (130, True, 3)
    unknown = on(pairs.home, "relay", "purge", "--device", "desk", "--yes")
    assert (unknown.code, kept(pairs)) == (1, 3)
    done = on(pairs.home, "relay", "purge", "--device", "laptop", "--yes")
    assert (done.code, "deleted: laptop: 3 refused blobs" in done.out, kept(pairs)) == (0, True, 0)
    check_json("crystal relay status", on(pairs.home, "relay", "status", "--json"))


@pytest.mark.slow
def test_what_was_deleted_gives_its_space_back(pairs: Pairs, on: On) -> None:
    joined(pairs)
    set_aside(pairs, 200)
    with pairs.home.open() as machine:
        path = machine.store.path
        machine.store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = path.stat().st_size
    assert on(pairs.home, "relay", "purge", "--yes").code == 0
    with pairs.home.open() as machine:
        machine.store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.stat().st_size < before - 200 * 50_000


@pytest.mark.slow
def test_revoking_asks_and_deletes_what_is_kept(pairs: Pairs, on: On) -> None:
    joined(pairs)
    set_aside(pairs, 2)
    refused = on(pairs.home, "devices", "revoke", "laptop")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert on(pairs.home, "devices", "revoke", "laptop", typed="n\n", terminal=True).code == 130
    assert (kept(pairs), "REVOKED" in on(pairs.home, "devices").out) == (2, False)
    done = on(pairs.home, "devices", "revoke", "laptop", typed="y\n", terminal=True)
    assert (done.code, kept(pairs)) == (0, 0)
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


@pytest.mark.slow
def test_status_names_what_is_over_the_limit(pairs: Pairs, on: On) -> None:
    joined(pairs)
    pairs.home.set("relay.quarantine_device_blobs", 1)
    say(pairs, "of a kind that nobody knows")
    deliver(pairs)
    poll(pairs)
    assert kept(pairs) == 1
    with pairs.home.open() as machine:
        (peer,) = relay_peers.all_peers(machine.store)
        count_refusal(machine.store, peer.id, "budget", 1)
    status = on(pairs.home, "status")
    assert "refused" in status.out
    assert "1 blob kept, 1 not kept: over the limit (see: crystal relay status)" in " ".join(status.out.split())
    shown = on(pairs.home, "relay", "status").out
    assert "laptop: refused 1 time, over the limit of relay.quarantine_*" in shown
    check_json("crystal status", on(pairs.home, "status", "--json"))
