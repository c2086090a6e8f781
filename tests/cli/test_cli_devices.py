"""``crystal devices`` from outside, and what renaming, revoking and rotating do to what comes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from crystal.app import relay_links
from crystal.app.sync.pair_device import read_invitation
from crystal.store.sync import inbox
from crystal.store.sync.relay_peers import all_peers, home_peer
from crystal.sync.client import RelayClient
from crystal.sync.errors import RelayDeniedError
from tests.support.command import Done
from tests.support.over_httpx import OverHttpx, down
from tests.support.pairing_boxes import URL, Pairs
from tests.support.relay_commands import check_json, deliver, in_stream, joined, on, pairs, poll, say, site, waiting
from tests.support.web_client import Client

pytestmark = pytest.mark.slow

__all__ = ["on", "pairs", "site"]
On = Callable[..., Done]


def test_no_devices_yet_says_how_to_get_one(pairs: Pairs, on: On) -> None:
    done = on(pairs.home, "devices")
    assert (done.code, "crystal relay pair" in done.out) == (0, True)
    assert check_json("crystal devices", on(pairs.home, "devices", "--json")) == {
        "schema": 1,
        "role": "home",
        "devices": [],
    }


def test_a_device_is_listed_with_how_it_stands(pairs: Pairs, on: On) -> None:
    joined(pairs)
    assert on(pairs.home, "devices").out == "laptop  never heard\n"
    say(pairs, "note", "note")
    deliver(pairs)
    poll(pairs)
    assert on(pairs.home, "devices").out.startswith("laptop  heard just now")
    (one,) = check_json("crystal devices", on(pairs.home, "devices", "--json"))["devices"]
    shown = [one[name] for name in ("name", "side", "state", "missing", "revoked")]
    assert shown == ["laptop", "device", "ok", 0, None]
    assert re.search(r"<td>laptop</td><td>just now</td><td[^>]*>0</td><td>ok</td>", Client().get("/health").text)
    with pairs.home.open() as machine:
        machine.store.execute("UPDATE relay_in SET head = last_seq + 7, state = 'waiting', detail = 'x'")
    page = Client().get("/health").text
    assert re.search(r"<td[^>]*>7</td><td><b class=\"bad\">waiting</b> <code>crystal relay status</code>", page)
    assert re.search(r"<td>\w+ [0-9a-f]{8}</td><td>\d+ taken</td><td[^>]*>7</td><td[^>]*>x</td>", page), "its stream"
    assert "Something is wrong." not in page
    assert "7 on the way, waiting (run: crystal relay status)" in on(pairs.home, "status").out
    with pairs.home.open() as machine:
        machine.store.execute("UPDATE relay_in SET state = 'damaged'")
    assert "Something is wrong." in Client().get("/health").text
    (home,) = check_json("crystal devices", on(pairs.device, "devices", "--json"))["devices"]
    page = Client().get("/health").text
    assert re.search(r"device of mini, heard \w+", page), "a device is told of its home, not of devices"
    assert re.search(r"\d+ messages?, [^,]+, not confirmed by home since .*; \d+ not sent yet", page)
    assert (home["name"], home["side"], home["id"]) == ("mini", "home", one["id"])
    assert "home of this machine" in on(pairs.device, "devices").out


def test_a_name_that_would_do_something_on_a_terminal_is_shown_as_text(pairs: Pairs, on: On) -> None:
    joined(pairs)
    with pairs.home.open() as machine:
        machine.store.execute("UPDATE relay_peers SET name = ?", ("a\x1b[2Jb\u202e",))
    done = on(pairs.home, "devices")
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    page = Client().get("/health").text
    assert not {"\x1b", "\u202e"} & {*page}


def test_renaming(pairs: Pairs, on: On) -> None:
    joined(pairs)
    done = on(pairs.home, "devices", "rename", "laptop", "desk")
    assert (done.code, done.out) == (0, "laptop is desk now\n")
    assert on(pairs.home, "devices", "rename", "laptop", "x").code == 1
    assert on(pairs.home, "devices", "rename", "desk", "mini").code == 2  # this machine itself
    joined_again = on(pairs.home, "relay", "pair", "--offline", "--name", "barn")
    assert joined_again.code == 0
    assert on(pairs.home, "devices", "rename", "desk", "barn").code == 2
    say(pairs, "note")
    deliver(pairs)
    poll(pairs)
    assert in_stream(pairs).last_seq == 1  # its blobs are taken as before


def test_revoking_refuses_what_comes_later_and_keeps_what_came(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note")
    deliver(pairs)
    poll(pairs)
    done = on(pairs.home, "devices", "revoke", "laptop", "--yes")
    assert (done.code, done.out) == (0, "laptop is revoked: home refuses what it sends from now on\n")
    assert "REVOKED" in on(pairs.home, "devices").out
    again = on(pairs.home, "devices", "revoke", "laptop", "--yes")
    assert again.code == 0
    say(pairs, "note")
    with pytest.raises(AssertionError):
        deliver(pairs)
    assert waiting(pairs) == 2  # neither was confirmed; both stay on the device
    assert in_stream(pairs).last_seq == 1
    done = on(pairs.device, "relay", "sync")
    assert done.code in {4, 5}


def test_revoking_while_the_relay_is_down_is_made_up_for_by_a_poll(pairs: Pairs, on: On) -> None:
    joined(pairs)

    pairs.home_way.before = down
    done = on(pairs.home, "devices", "revoke", "laptop", "--yes")
    assert (done.code, "still lets it in" in done.err) == (0, True)
    (one,) = check_json("crystal devices", on(pairs.home, "devices", "--json"))["devices"]
    assert (one["token_waits"], one["revoked"] is None) == (True, False)
    assert "the relay still lets it in" in on(pairs.home, "devices").out
    pairs.home_way.before = lambda request: None
    on(pairs.home, "relay", "poll")
    (one,) = check_json("crystal devices", on(pairs.home, "devices", "--json"))["devices"]
    assert one["token_waits"] is False
    assert pairs.valid_tokens() == []


def test_rotating_reaches_the_device_and_ends_the_old_keys(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note")
    deliver(pairs)
    poll(pairs)
    done = on(pairs.home, "devices", "rotate", "laptop")
    assert (done.code, "generation 2" in done.out) == (0, True)
    assert "new keys are on their way" in on(pairs.home, "devices").out
    assert on(pairs.home, "devices", "rotate", "laptop").code == 2
    poll(pairs)
    deliver(pairs)
    say(pairs, "note")
    deliver(pairs)
    poll(pairs)
    (one,) = check_json("crystal devices", on(pairs.home, "devices", "--json"))["devices"]
    assert (one["generation"], one["rotating"], one["state"]) == (2, False, "ok")
    with pairs.device.open() as machine:
        peer = home_peer(machine.store)
        assert peer is not None
        assert (peer.generation, relay_links.relay_keys(machine).keys[0].generation) == (2, 2)
    with pairs.home.open() as machine:
        streams = [one for one in inbox.all_streams(machine.store) if one.channel == 1]
        assert sum(one.last_seq for one in streams) >= 2
        assert {one.state for one in streams} <= {"ok", "left"}


def test_a_device_says_where_its_commands_belong(pairs: Pairs, on: On) -> None:
    joined(pairs)
    for words in (("revoke", "mini"), ("rotate", "mini")):
        done = on(pairs.device, "devices", *words)
        assert (done.code, "home machine" in done.err) == (2, True)


def test_another_device_is_left_alone(pairs: Pairs, on: On) -> None:
    joined(pairs)
    secret = on(pairs.home, "relay", "pair", "--offline", "--name", "barn").out
    assert on(pairs.home, "devices", "revoke", "barn", "--yes").code == 0
    with pairs.home.open() as machine:
        by_name = {peer.name: peer for peer in all_peers(machine.store)}
    assert by_name["laptop"].revoked_at is None
    say(pairs, "note")
    deliver(pairs)
    poll(pairs)
    assert in_stream(pairs).last_seq == 1
    assert secret.startswith("crystal1:")
    bundle = read_invitation(secret).bundle
    assert bundle is not None
    with (
        RelayClient(URL, bundle.token, transport=OverHttpx(pairs.device_way)) as client,
        pytest.raises(RelayDeniedError),
    ):
        client.streams()
