"""Pairing by one string or one shared root, and what home gives besides keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from crystal.app import relay_links
from crystal.app.import_past import import_sessions, plan_import
from crystal.app.sync import pair_device, pair_home
from crystal.app.sync.device import deliver_relay
from crystal.app.sync.home import poll_relay
from crystal.errors import UsageError
from crystal.store.sync import outbox
from crystal.store.sync.relay_peers import all_peers, home_peer
from crystal.sync.client import RelayClient
from crystal.sync.keys.forms import parse_key
from crystal.sync.keys.places import RelayToken
from tests.support.docs_sample import write_sample
from tests.support.over_httpx import OverHttpx
from tests.support.pairing_boxes import ROOT, URL, Pairs
from tests.support.pairing_state import device_state, invited, is_joined, nothing_left
from tests.support.table import each_row


@pytest.mark.slow
def test_an_offline_string_makes_the_device_once_and_again(pairs: Pairs) -> None:
    with pairs.home.open() as machine, pairs.client() as client:
        paired = pair_home.pair_offline(machine, client, name="barn")
    assert paired.peer.name == "barn"
    assert "crystal1" not in repr(paired)
    secret = str(paired.secret)
    wrapped = "\n".join(secret.upper()[at : at + 60] for at in range(0, len(secret), 60))
    for _ in range(2):
        invited = pair_device.read_invitation(wrapped)
        assert invited.bundle is not None
        with pairs.device.open() as machine:
            joined = pair_device.join_offline(machine, invited.bundle)
        assert joined.words == paired.words
        assert is_joined(pairs)
    with pairs.home.open() as machine, pairs.client() as client:
        assert pair_home.pair_offline(machine, client, name="barn").peer.name == "barn-2"
        assert pair_home.pair_offline(machine, client, name=None).peer.name == "device"


@pytest.mark.slow
def test_machines_that_share_the_root_find_each_other_by_name(pairs: Pairs) -> None:
    with pairs.home.open() as machine, pairs.client() as client:
        paired = pair_home.pair_shared(machine, client, "laptop")
    key, token = parse_key(ROOT.hex()), RelayToken(str(paired.secret))
    with pairs.device.open() as machine:
        joined = pair_device.join_shared(machine, URL, "laptop", key=key, token=token)
        assert joined.words == paired.words
        peer = home_peer(machine.store)
        assert peer is not None
        theirs = relay_links.relay_keys(machine).secret(peer.device_id, 1)
    with pairs.home.open() as machine:
        (own,) = all_peers(machine.store)
        assert (own.device_id, own.up_prefix, own.down_prefix) == (peer.device_id, peer.up_prefix, peer.down_prefix)
        assert relay_links.relay_keys(machine).secret(own.device_id, 1) == theirs
        with pairs.client() as client:
            again = pair_home.pair_shared(machine, client, "laptop")
    assert again.peer.id == own.id
    assert len(pairs.valid_tokens()) == 1
    assert pair_home.shared_ids(ROOT, "lapdog") != pair_home.shared_ids(ROOT, "laptop")


@pytest.mark.slow
def test_a_shared_root_from_the_environment_is_not_written_down(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    with pairs.home.open() as machine, pairs.client() as client:
        paired = pair_home.pair_shared(machine, client, "laptop")
    monkeypatch.setenv("CRYSTAL_RELAY_KEY", ROOT.hex())
    monkeypatch.setenv("CRYSTAL_RELAY_TOKEN", str(paired.secret))
    with pairs.device.open() as machine:
        pair_device.join_shared(machine, URL, "laptop", key=None, token=None)
        assert not list(machine.places.data_dir.glob("relay.*key*"))
        assert home_peer(machine.store) is not None


PEM = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"


@pytest.mark.slow
def test_a_private_authority_goes_to_the_device_without_what_stands_around_it(pairs: Pairs) -> None:
    file = pairs.home.home / "ca.pem"
    file.write_text(f"Ünser eigenes\n{PEM}\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "utf-8")
    pairs.home.set("relay.ca_file", str(file))
    bundle = invited(pairs)
    assert bundle.ca == PEM
    with pairs.device.open() as machine:
        assert pair_device.join_offline(machine, bundle).notes
        kept = machine.places.data_dir / "relay-ca.pem"
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == (PEM, 0o600)
    with pairs.device.open() as machine:
        assert machine.config.relay_ca_file == str(kept)
    (pairs.home.home / "config.toml").write_text(
        "".join(
            line for line in (pairs.home.home / "config.toml").read_text().splitlines(True) if "ca_file" not in line
        )
    )
    with pairs.device.open() as machine:
        pair_device.join_offline(machine, invited(pairs), over=True)
    with pairs.device.open() as machine:
        assert machine.config.relay_ca_file is None  # the next relay has a certificate that everybody trusts


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "no certificate", PEM * 400])
def test_an_authority_that_cannot_be_handed_over_is_told_before_anything_is_made(pairs: Pairs, text: str) -> None:
    file = pairs.home.home / "ca.pem"
    file.write_text(text)
    pairs.home.set("relay.ca_file", str(file))
    with pytest.raises(UsageError, match=r"ca\.pem"):
        invited(pairs)
    nothing_left(pairs)


@pytest.mark.slow
def test_plain_http_to_another_machine_is_refused_before_anything_is_kept(pairs: Pairs) -> None:
    bundle = replace(invited(pairs), url="http://192.0.2.7:8600")
    with pairs.device.open() as machine, pytest.raises(UsageError, match="not encrypted"):
        pair_device.join_offline(machine, bundle)
    assert device_state(pairs.device)["key"] is None


def test_what_waits_for_a_former_home_goes_to_the_new_one(pairs: Pairs) -> None:
    with pairs.device.open() as machine:
        pair_device.join_offline(machine, invited(pairs))
    pairs.device.set("relay.local_memory", False)
    write_sample(pairs.device.home, datetime.now(timezone.utc))
    with pairs.device.open() as machine:
        import_sessions(machine, plan_import(machine, [], None), lambda _: None)
        assert outbox.backlog(machine.store).blobs
        assert machine.store.value("SELECT count(*) FROM turns") == 0
        pair_device.join_offline(machine, invited(pairs), over=True)
        assert len(all_peers(machine.store, "home")) == 1
        here = machine.store.rows("SELECT uuid FROM turns ORDER BY uuid")
    token = device_state(pairs.device)["token"].reveal()
    with pairs.device.open() as machine, RelayClient(URL, token, transport=OverHttpx(pairs.device_way)) as client:
        assert deliver_relay(machine, client, skip_delay=True).problem is None
    with pairs.home.open() as machine, pairs.client() as client:
        poll_relay(machine, client)
        arrived = machine.store.rows("SELECT uuid FROM turns ORDER BY uuid")
    assert len(arrived) > 5
    assert arrived == here


@each_row(
    ("url", "shown"),
    [
        ("https://relay.example.org", "CRYSTAL-JOIN:7-APPLE-RIVER-STORY:HTTPS://RELAY.EXAMPLE.ORG"),
        ("https://relay.example.org:8443/", "CRYSTAL-JOIN:7-APPLE-RIVER-STORY:HTTPS://RELAY.EXAMPLE.ORG:8443"),
        ("https://[2001:db8::1]:8443", "CRYSTAL-JOIN:7-APPLE-RIVER-STORY:HTTPS://[2001:DB8::1]:8443"),
        ("https://example.org/Our/relay", "crystal-join:7-apple-river-story:https://example.org/Our/relay"),
    ],
)
def test_the_string_of_the_qr_code_holds_code_and_address(url: str, shown: str) -> None:
    text = pair_home.joined_string("7-apple-river-story", url)
    assert text == shown
    invited = pair_device.read_invitation(f" {text[:20]}\n{text[20:]} ")
    assert invited.code is not None
    assert (invited.code.text, invited.url) == ("7-apple-river-story", url.rstrip("/"))


@each_row("text", ["", "7", "7-apple-river", "crystal-join:", "crystal-join:7-apple-river-story", "crystal1:"])
def test_what_is_no_invitation_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        pair_device.read_invitation(text)


@pytest.mark.slow
def test_the_address_that_home_gives_counts_unless_it_means_home_itself(pairs: Pairs) -> None:
    with pairs.home.open() as machine, pairs.client() as client:
        bundle = pair_device.read_invitation(str(pair_home.pair_offline(machine, client, name=None).secret)).bundle
    assert bundle is not None
    with pairs.device.open() as machine:
        assert (
            pair_device._as_seen_from_here(machine, bundle, "https://relay.example.org").url
            == "https://relay.example.org"
        )
        assert pair_device._as_seen_from_here(machine, bundle, "http://localhost:1").url == URL
