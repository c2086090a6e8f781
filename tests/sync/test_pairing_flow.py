"""Pairing as a whole: two machines with two homes and a real relay in this process."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from crystal.app import relay_links
from crystal.app.import_past import import_sessions, plan_import
from crystal.app.sync import pair_device, pair_home
from crystal.app.sync.device import deliver_relay
from crystal.app.sync.home import poll_relay
from crystal.errors import NotConfiguredError, UsageError
from crystal.store.sync.relay_peers import all_peers, heard, home_peer
from crystal.sync.client import RelayClient
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.word_codes import parse_code
from tests.support.docs_sample import write_sample
from tests.support.over_httpx import OverHttpx
from tests.support.pairing_boxes import ROOT, URL, Pairs
from tests.support.pairing_state import device_state, is_joined


@pytest.mark.slow
def test_both_sides_show_the_same_words_and_have_the_same_link(pairs: Pairs) -> None:
    paired, joined = pairs.run()
    assert paired.words == joined.words
    assert len(set(paired.words)) >= 3
    assert (paired.peer.name, paired.peer.agent, joined.home, joined.confirmed) == ("laptop", "cc-laptop", "mini", True)
    assert is_joined(pairs)
    assert (paired.notes, joined.notes, joined.past) == ((), (), 0)
    assert pairs.open_mailboxes() == 0


@pytest.mark.slow
def test_the_token_may_do_what_a_device_does_and_nothing_else(pairs: Pairs) -> None:
    paired, _ = pairs.run()
    up, down = paired.peer.up_prefix.hex(), paired.peer.down_prefix.hex()
    assert pairs.valid_tokens() == [(f"write:{up}", f"read:{down}", f"ack:{down}", "objects:read")]


@pytest.mark.slow
def test_the_relay_learns_no_name(pairs: Pairs) -> None:
    pairs.run()
    pairs.site.stop()
    kept = b"".join(path.read_bytes() for path in pairs.site.folder.rglob("*") if path.is_file())
    assert b"laptop" not in kept
    assert b"mini" not in kept
    pairs.site.start()


@pytest.mark.slow
def test_a_home_without_a_key_makes_its_root(pairs: Pairs) -> None:
    (pairs.home.home / ".ldm" / "memory" / "relay.key").unlink()
    pairs.run()
    assert is_joined(pairs)
    with pairs.home.open() as machine:
        assert relay_links.key_places(machine).read_key().key.kind == "root"


@pytest.mark.slow
def test_a_home_whose_root_is_gone_makes_no_other(pairs: Pairs) -> None:
    pairs.run()
    (pairs.home.home / ".ldm" / "memory" / "relay.key").unlink()
    with (
        pairs.home.open() as machine,
        pairs.client() as client,
        pytest.raises(NotConfiguredError, match="root key is gone"),
    ):
        pair_home.pair(machine, client, show=pytest.fail, tell=pytest.fail)


@pytest.mark.slow
def test_a_name_that_home_chose_is_the_devices(pairs: Pairs) -> None:
    paired, _ = pairs.run(name="kitchen")
    assert paired.peer.name == "kitchen"


@pytest.mark.slow
def test_names_and_agents_that_are_taken_get_a_number(pairs: Pairs) -> None:
    pairs.device.set("device", "mini")
    pairs.device.set("agent_id", "cc-mini")
    first, joined = pairs.run()
    assert (first.peer.name, first.peer.agent) == ("mini-2", "cc-mini-mini-2")
    assert first.notes[0].startswith("the name mini is taken")
    assert first.notes[1].startswith("agent id cc-mini belongs to another machine")
    assert joined.home == "mini-2"  # on that device, which is called mini itself
    second, _ = pairs.run()
    assert (second.peer.name, second.peer.agent) == ("mini-3", "cc-mini-mini-3")


@pytest.mark.slow
def test_a_name_of_full_length_still_gets_its_number(pairs: Pairs) -> None:
    pairs.device.set("device", "ü" * 32)
    pairs.run()
    paired, _ = pairs.run()
    assert paired.peer.name == "ü" * 31 + "-2"


@pytest.mark.slow
def test_what_is_remembered_here_is_sent_and_arrives(pairs: Pairs) -> None:
    write_sample(pairs.device.home, datetime.now(timezone.utc))
    with pairs.device.open() as machine:
        import_sessions(machine, plan_import(machine, [], None), lambda _: None)
        here = machine.store.rows("SELECT uuid FROM turns ORDER BY uuid")
    assert len(here) > 5
    _, joined = pairs.run()
    assert joined.past > 0
    state = device_state(pairs.device)
    assert state["past"].row == 0
    with (
        pairs.device.open() as machine,
        RelayClient(URL, state["token"].reveal(), transport=OverHttpx(pairs.device_way)) as client,
    ):
        assert deliver_relay(machine, client, skip_delay=True).problem is None
    with pairs.home.open() as machine, pairs.client() as client:
        poll_relay(machine, client)
        assert machine.store.rows("SELECT uuid FROM turns ORDER BY uuid") == here


@pytest.mark.slow
def test_joining_twice_takes_the_place_of_a_pairing_over_which_home_was_never_heard(pairs: Pairs) -> None:
    pairs.run()
    _, again = pairs.run(claim=b"d" * 32)
    assert is_joined(pairs)
    assert any("relay.key.bak" in words for words in again.notes)
    with pairs.device.open() as machine:
        assert len(all_peers(machine.store, "home")) == 1


@pytest.mark.slow
def test_a_pairing_that_is_in_use_is_not_replaced_unless_asked(pairs: Pairs) -> None:
    pairs.run()
    with pairs.device.open() as machine:
        before = home_peer(machine.store)
        assert before is not None
        heard(machine.store, before.id, 5)
    with pairs.device.open() as machine, pairs.joining() as client, pytest.raises(UsageError, match="in use") as told:
        pair_device.join(machine, client, parse_code("7-apple-river-story"), url=URL, tell=pytest.fail)
    assert "--replace" in (told.value.hint or "")
    _, joined = pairs.run(over=True, claim=b"e" * 32)
    assert is_joined(pairs)
    assert any("relay.key.bak" in words for words in joined.notes)


@pytest.mark.slow
def test_a_home_with_devices_joins_nobody(pairs: Pairs) -> None:
    pairs.run()
    with pairs.home.open() as machine, pytest.raises(UsageError, match="home of others") as told:
        pair_device.check_free(machine, over=True)
    assert "crystal demote" in (told.value.hint or "")


def test_a_root_key_is_not_replaced_unless_asked(pairs: Pairs) -> None:
    with pairs.device.open() as machine:
        relay_links.key_places(machine).write_key(RelayKey("root", ROOT[::-1]))
        with pytest.raises(UsageError, match="a root key already"):
            pair_device.check_free(machine, over=False)
        pair_device.check_free(machine, over=True)


@pytest.mark.parametrize("variable", ["CRYSTAL_RELAY_KEY", "CRYSTAL_KEY_FILE", "CRYSTAL_RELAY_TOKEN"])
def test_a_place_that_is_only_read_is_told_before_the_code_is_spent(pairs, monkeypatch, variable):
    monkeypatch.setenv(variable, "/somewhere/else")
    with pairs.device.open() as machine, pytest.raises(NotConfiguredError, match=variable):
        pair_device.check_free(machine, over=True)


def test_only_a_home_pairs(pairs: Pairs) -> None:
    with (
        pairs.device.open() as machine,
        pairs.client() as client,
        pytest.raises(NotConfiguredError, match="standalone"),
    ):
        pair_home.pair(machine, client, show=pytest.fail, tell=pytest.fail)
