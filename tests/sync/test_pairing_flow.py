"""Pairing as a whole: two machines with two homes and a real relay in this process, and what may go wrong between."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest

from crystal.app import relay_links
from crystal.app.import_past import import_sessions, plan_import
from crystal.app.sync import devices, install_keys, pair_device, pair_home, pair_mailbox
from crystal.app.sync.device import deliver_relay
from crystal.app.sync.home import poll_relay
from crystal.errors import NotConfigured, Unavailable, UsageProblem
from crystal.store.sync import outbox, past
from crystal.store.sync.relay_peers import NewLink, add_peer, all_peers, heard, home_peer
from crystal.sync.client import RelayClient
from crystal.sync.errors import MailboxTaken, NotAtRelay, RelayDenied, RelayUnavailable
from crystal.sync.keys.bundle import Bundle, encode_bundle
from crystal.sync.keys.codes import parse_code
from crystal.sync.keys.forms import RelayKey, parse_key
from crystal.sync.keys.pairing import Pairing, PairingFailed
from crystal.sync.keys.places import KeyMissing, RelayToken, read_key, read_token, write_key
from tests.support.docs_sample import write_sample
from tests.support.over_httpx import OverHttpx
from tests.support.pairing_boxes import ROOT, URL, Box, Pairs, two_machines
from tests.support.relay_world import RelaySite


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_mailbox, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(pair_mailbox, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(pair_mailbox, "ASK_SECONDS", 5.0)
    monkeypatch.setattr(pair_device, "DONE_SECONDS", 5.0)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RelaySite]:
    site = RelaySite(tmp_path / "relay")
    yield site
    site.stop()


@pytest.fixture
def pairs(tmp_path: Path, site: RelaySite) -> Pairs:
    return two_machines(tmp_path, site)


def device_state(box: Box) -> dict[str, Any]:
    """Everything that joining writes."""
    with box.open() as machine:
        places = relay_links.key_places(machine)
        peer = home_peer(machine.store)
        try:
            key: Any = read_key(places).key
            token: Any = read_token(places).token
        except KeyMissing:
            key, token = None, None
        return {
            "role": machine.config.role,
            "url": machine.config.relay_url,
            "key": key,
            "token": token,
            "peer": peer,
            "past": past.read_place(machine.store),
        }


def is_joined(pairs: Pairs) -> bool:
    """Whether the device has a link to home that home knows, with the same keys on both sides and a valid token."""
    state = device_state(pairs.device)
    if state["peer"] is None or state["key"] is None:
        return False
    with pairs.home.open() as machine:
        peers = {peer.device_id: peer for peer in all_peers(machine.store, "device") if peer.revoked_at is None}
        peer = peers.get(state["peer"].device_id)
        if peer is None:
            return False
        secret = relay_links.relay_keys(machine).secret(peer.device_id, 1)
    with RelayClient(URL, state["token"].reveal(), transport=OverHttpx(pairs.device_way)) as client:
        assert client.streams().streams == ()
    same = (peer.up_prefix, peer.down_prefix) == (state["peer"].up_prefix, state["peer"].down_prefix)
    return same and state["key"].secret == secret and state["role"] == "device" and state["url"] == URL


# ------------------------------------------------------------------------------------------------------ as it should be


def test_both_sides_show_the_same_words_and_have_the_same_link(pairs: Pairs) -> None:
    paired, joined = pairs.run()
    assert paired.words == joined.words
    assert len(set(paired.words)) >= 3
    assert (paired.peer.name, paired.peer.agent, joined.home, joined.confirmed) == ("laptop", "cc-laptop", "mini", True)
    assert is_joined(pairs)
    assert (paired.notes, joined.notes, joined.past) == ((), (), 0)
    assert pairs.open_mailboxes() == 0


def test_the_token_may_do_what_a_device_does_and_nothing_else(pairs: Pairs) -> None:
    paired, _ = pairs.run()
    up, down = paired.peer.up_prefix.hex(), paired.peer.down_prefix.hex()
    assert pairs.valid_tokens() == [(f"write:{up}", f"read:{down}", f"ack:{down}", "objects:read")]


def test_the_relay_learns_no_name(pairs: Pairs) -> None:
    pairs.run()
    pairs.site.stop()
    kept = b"".join(path.read_bytes() for path in pairs.site.folder.rglob("*") if path.is_file())
    assert b"laptop" not in kept
    assert b"mini" not in kept
    pairs.site.start()


def test_a_home_without_a_key_makes_its_root(pairs: Pairs) -> None:
    (pairs.home.home / ".ldm" / "memory" / "relay.key").unlink()
    pairs.run()
    assert is_joined(pairs)
    with pairs.home.open() as machine:
        assert read_key(relay_links.key_places(machine)).key.kind == "root"


def test_a_home_whose_root_is_gone_makes_no_other(pairs: Pairs) -> None:
    pairs.run()
    (pairs.home.home / ".ldm" / "memory" / "relay.key").unlink()
    with pairs.home.open() as machine, pairs.client() as client, pytest.raises(NotConfigured, match="root key is gone"):
        pair_home.pair(machine, client, show=pytest.fail, tell=pytest.fail)


def test_a_name_that_home_chose_is_the_devices(pairs: Pairs) -> None:
    paired, _ = pairs.run(name="kitchen")
    assert paired.peer.name == "kitchen"


def test_names_and_agents_that_are_taken_get_a_number(pairs: Pairs) -> None:
    pairs.device.set("device", "mini")
    pairs.device.set("agent_id", "cc-mini")
    first, joined = pairs.run()
    assert (first.peer.name, first.peer.agent) == ("mini-2", "cc-mini-mini-2")
    assert [words.partition(" is ")[0] for words in first.notes] == ["another machine", "agent id cc-mini"]
    assert joined.home == "mini-2"  # on that device, which is called mini itself
    second, _ = pairs.run()
    assert (second.peer.name, second.peer.agent) == ("mini-3", "cc-mini-mini-3")


def test_a_name_of_full_length_still_gets_its_number(pairs: Pairs) -> None:
    pairs.device.set("device", "ü" * 32)
    pairs.run()
    paired, _ = pairs.run()
    assert paired.peer.name == "ü" * 31 + "-2"


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
        assert deliver_relay(machine, client, insist=True).problem is None
    with pairs.home.open() as machine, pairs.client() as client:
        poll_relay(machine, client)
        assert machine.store.rows("SELECT uuid FROM turns ORDER BY uuid") == here


def test_joining_twice_takes_the_place_of_a_pairing_over_which_home_was_never_heard(pairs: Pairs) -> None:
    pairs.run()
    _, again = pairs.run(claim=b"d" * 32)
    assert is_joined(pairs)
    assert any("relay.key.bak" in words for words in again.notes)
    with pairs.device.open() as machine:
        assert len(all_peers(machine.store, "home")) == 1


def test_a_pairing_that_is_in_use_is_not_replaced_unless_asked(pairs: Pairs) -> None:
    pairs.run()
    with pairs.device.open() as machine:
        before = home_peer(machine.store)
        assert before is not None
        heard(machine.store, before.id, 5)
    with pairs.device.open() as machine, pairs.joining() as client, pytest.raises(UsageProblem, match="in use") as told:
        pair_device.join(machine, client, parse_code("7-apple-river-story"), url=URL, tell=pytest.fail)
    assert "--replace" in (told.value.hint or "")
    _, joined = pairs.run(over=True, claim=b"e" * 32)
    assert is_joined(pairs)
    assert any("relay.key.bak" in words for words in joined.notes)


def test_a_home_with_devices_joins_nobody(pairs: Pairs) -> None:
    pairs.run()
    with pairs.home.open() as machine, pytest.raises(UsageProblem, match="home of others") as told:
        pair_device.check_free(machine, over=True)
    assert "crystal demote" in (told.value.hint or "")


def test_a_root_key_is_not_replaced_unless_asked(pairs: Pairs) -> None:
    with pairs.device.open() as machine:
        write_key(relay_links.key_places(machine), RelayKey("root", ROOT[::-1]))
        with pytest.raises(UsageProblem, match="a root key already"):
            pair_device.check_free(machine, over=False)
        pair_device.check_free(machine, over=True)


@pytest.mark.parametrize("variable", ["CRYSTAL_RELAY_KEY", "CRYSTAL_KEY_FILE", "CRYSTAL_RELAY_TOKEN"])
def test_a_place_that_is_only_read_is_told_before_the_code_is_spent(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "/somewhere/else")
    with pairs.device.open() as machine, pytest.raises(NotConfigured, match=variable):
        pair_device.check_free(machine, over=True)


def test_only_a_home_pairs(pairs: Pairs) -> None:
    with pairs.device.open() as machine, pairs.client() as client, pytest.raises(NotConfigured, match="standalone"):
        pair_home.pair(machine, client, show=pytest.fail, tell=pytest.fail)


# ------------------------------------------------------------------------------------------------------ hostile, unlucky


def nothing_left(pairs: Pairs) -> None:
    """No token, no device, no mailbox, and a device that is as it was."""
    assert pairs.valid_tokens() == []
    assert pairs.open_mailboxes() == 0
    with pairs.home.open() as machine:
        assert all_peers(machine.store) == []
    assert device_state(pairs.device)["role"] == "standalone"
    assert device_state(pairs.device)["peer"] is None


def test_a_wrong_code_ends_it_on_both_sides_at_once(pairs: Pairs) -> None:
    failed, refused = pairs.run(
        type_code=lambda code: code.rpartition("-")[0] + ("-zoo" if "zoo" not in code else "-able")
    )
    assert isinstance(failed, PairingFailed)
    assert isinstance(refused, PairingFailed)
    assert (failed.code, refused.code, failed.exit_code) == ("gave-up", "wrong-code", 5)
    nothing_left(pairs)


def test_a_code_is_good_for_one_attempt(pairs: Pairs) -> None:
    codes: list[str] = []

    def wrong(code: str) -> str:
        codes.append(code)
        return code.rpartition("-")[0] + ("-zoo" if "zoo" not in code else "-able")

    pairs.run(type_code=wrong)
    with pairs.device.open() as machine, pairs.joining() as client, pytest.raises(NotAtRelay):
        pair_device.join(machine, client, parse_code(codes[0]), url=URL, tell=pytest.fail)
    nothing_left(pairs)


def test_a_second_machine_with_the_code_is_refused(pairs: Pairs) -> None:
    def claimed_by_another(code: str) -> str:
        with pairs.joining(b"x" * 32) as client:
            client.claim_mailbox(parse_code(code).nameplate)
        return code

    def writes_nonsense(code: str) -> None:  # home waits until then, and so keeps the mailbox
        with pairs.joining(b"x" * 32) as client:
            client.put_mail(parse_code(code).nameplate, "b", "hello", b"nonsense")

    failed, refused = pairs.run(type_code=claimed_by_another, afterwards=writes_nonsense)
    assert isinstance(refused, MailboxTaken)
    assert isinstance(failed, PairingFailed)
    assert failed.code == "version"  # what it read was nonsense, from the first byte on
    nothing_left(pairs)


ORDER = [("a", "hello"), ("b", "hello"), ("a", "confirm"), ("b", "confirm"), ("a", "bundle"), ("b", "answer")]
PLACES = [("a", "hello"), ("a", "confirm"), ("a", "bundle"), ("b", "hello"), ("b", "confirm"), ("b", "answer")]


@pytest.mark.parametrize(("side", "phase"), PLACES)
def test_a_relay_that_changes_a_message_is_found_out(pairs: Pairs, side: str, phase: str) -> None:
    reader = pairs.device_way if side == "a" else pairs.home_way

    def change(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        body = response.read()
        if request.method != "GET" or not request.url.path.endswith(f"/{side}/{phase}") or not body:
            return httpx.Response(response.status_code, headers=response.headers, content=body)
        forged = body[:-1] + bytes([body[-1] ^ 1])
        headers = {"content-type": "application/octet-stream", "crystal-relay-version": "1"}
        return httpx.Response(200, headers=headers, content=forged)

    reader.after = change
    failed, refused = pairs.run()
    assert isinstance(failed, PairingFailed), failed
    assert isinstance(refused, PairingFailed), refused
    reader.after = lambda request, response: response
    nothing_left(pairs)


@pytest.mark.parametrize(("side", "phase"), PLACES)
def test_a_relay_that_swaps_in_a_message_of_its_own_pairing_is_found_out(pairs: Pairs, side: str, phase: str) -> None:
    """It plays both sides with a code of its own, and gives one message of that pairing instead of the real one."""
    code = parse_code("1-zoo-zoo-zoo")
    one, other = Pairing(code, os.urandom, is_home=True), Pairing(code, os.urandom, is_home=False)
    bundle = Bundle(URL, "crt_x", b"i" * 16, 1, ROOT, b"u" * 8, b"d" * 8, "evil")
    forged: dict[tuple[str, str], bytes] = {}
    for (writer, name), plain in zip(ORDER, (b"", b"", b"", b"", encode_bundle(bundle), b"x"), strict=True):
        sender, taker = (one, other) if writer == "a" else (other, one)
        forged[writer, name] = sender.send(plain)
        taker.take(forged[writer, name])
    reader = pairs.device_way if side == "a" else pairs.home_way

    def swap(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.method != "GET" or not request.url.path.endswith(f"/{side}/{phase}"):
            return response
        response.close()
        headers = {"content-type": "application/octet-stream", "crystal-relay-version": "1"}
        return httpx.Response(200, headers=headers, content=forged[side, phase])

    reader.after = swap
    failed, refused = pairs.run()
    assert isinstance(failed, PairingFailed), failed
    assert isinstance(refused, PairingFailed), refused
    reader.after = lambda request, response: response
    nothing_left(pairs)


def test_a_mailbox_that_is_gone_ends_it(pairs: Pairs) -> None:
    def expire(code: str) -> str:
        pairs.site.now += 11 * 60_000
        with pairs.joining(b"x" * 32) as client, contextlib.suppress(NotAtRelay):
            client.claim_mailbox(parse_code(code).nameplate)
        with pairs.client() as client:  # what waits is woken by nothing: it looks again when its time is over
            client.close_mailbox(parse_code(code).nameplate)
        return code

    pair_mailbox.ASK_SECONDS = 0.3
    failed, refused = pairs.run(type_code=expire)
    assert isinstance(failed, PairingFailed)
    assert failed.code == "gone"
    assert isinstance(refused, NotAtRelay)
    nothing_left(pairs)


def test_a_relay_that_is_down_is_told_as_such(pairs: Pairs) -> None:
    def down(request: httpx.Request) -> None:
        raise httpx.ConnectError("refused", request=request)

    pairs.home_way.before = down
    failed, _ = pairs.run()
    assert isinstance(failed, RelayUnavailable)
    assert failed.exit_code == 4
    pairs.home_way.before = lambda request: None
    nothing_left(pairs)


def test_short_outages_on_the_way_do_no_harm(pairs: Pairs) -> None:
    seen: set[tuple[str, str]] = set()

    def flaky(request: httpx.Request) -> None:
        place = (request.method, request.url.path)
        if ("/a/" in place[1] or "/b/" in place[1]) and place not in seen:
            seen.add(place)
            raise httpx.ConnectError("refused", request=request)

    pairs.home_way.before = pairs.device_way.before = flaky
    paired, joined = pairs.run()
    assert paired.words == joined.words
    assert is_joined(pairs)


def test_answers_that_are_lost_on_the_way_do_no_harm(pairs: Pairs) -> None:
    seen: set[str] = set()

    def lost(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.method == "PUT" and request.url.path not in seen and "/claim" not in request.url.path:
            seen.add(request.url.path)
            response.close()
            raise httpx.ReadError("reset", request=request)
        return response

    pairs.home_way.after = pairs.device_way.after = lost
    paired, joined = pairs.run()
    assert paired.words == joined.words
    assert is_joined(pairs)


@pytest.mark.parametrize("phase", ["hello", "confirm", "answer"])
def test_ctrl_c_on_the_device_lets_home_know_at_once(pairs: Pairs, phase: str) -> None:
    def interrupt(request: httpx.Request) -> None:
        if request.method == "PUT" and request.url.path.endswith(f"/b/{phase}") and not interrupted:
            interrupted.append(phase)
            raise KeyboardInterrupt

    interrupted: list[str] = []
    pairs.device_way.before = interrupt
    failed, refused = pairs.run()
    assert isinstance(refused, KeyboardInterrupt)
    assert isinstance(failed, PairingFailed)
    assert failed.code == "gave-up"
    nothing_left(pairs)


@pytest.mark.parametrize("phase", ["hello", "confirm", "answer"])
def test_ctrl_c_at_home_leaves_nothing_and_ends_the_device(pairs: Pairs, phase: str) -> None:
    def interrupt(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.method == "GET" and request.url.path.endswith(f"/b/{phase}"):
            response.close()
            raise KeyboardInterrupt
        return response

    pairs.home_way.after = interrupt
    failed, refused = pairs.run()
    assert isinstance(failed, KeyboardInterrupt)
    assert isinstance(refused, (PairingFailed, NotAtRelay))
    pairs.home_way.after = lambda request, response: response
    nothing_left(pairs)


def test_a_token_that_could_not_be_taken_back_is_taken_back_later(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down_after_bundle(request: httpx.Request) -> None:
        if request.url.path.endswith("/a/bundle") or request.method == "DELETE":
            raise httpx.ConnectError("refused", request=request)

    pairs.home_way.before = down_after_bundle
    monkeypatch.setattr(pair_mailbox, "MAILBOX_SECONDS", 1.0)
    failed, late = pairs.run()
    assert isinstance(failed, Unavailable)
    assert isinstance(late, PairingFailed)
    assert late.code == "late"
    pairs.home_way.before = lambda request: None
    assert len(pairs.valid_tokens()) == 1
    with pairs.home.open() as machine:
        (left,) = all_peers(machine.store)
        assert left.revoked_at is not None
        assert left.name.startswith("unfinished-")
        with pairs.client() as client:
            assert devices.retry_revocations(machine, client) == [left.name]
            assert devices.retry_revocations(machine, client) == []
    assert pairs.valid_tokens() == []
    with pairs.home.open() as machine:
        assert all_peers(machine.store) == []


# -------------------------------------------------------------------------------------------------- crashes while joining


class Crash(BaseException):
    """The power is gone."""


STEPS = ["key", "token", "relay.url", "role", "peer", "committed"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("before", [pytest.param(True, marks=pytest.mark.slow), False])
def test_after_a_crash_at_any_step_joining_again_works(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch, step: str, before: bool
) -> None:
    def crashing(real: Callable[..., Any], is_it: Callable[..., bool]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if not is_it(*args):
                return real(*args, **more)
            if before:
                raise Crash
            real(*args, **more)
            raise Crash

        return call

    with monkeypatch.context() as patch:
        if step == "key":
            patch.setattr(install_keys, "write_key", crashing(install_keys.write_key, lambda *_: True))
        elif step == "token":
            patch.setattr(install_keys, "write_token", crashing(install_keys.write_token, lambda *_: True))
        elif step in ("relay.url", "role"):
            real = install_keys.set_value
            patch.setattr(install_keys, "set_value", crashing(real, lambda file, key, value: key == step))
        elif step == "peer":
            patch.setattr("crystal.store.sync.past.begin", crashing(past.begin, lambda *_: True))
        else:
            patch.setattr(install_keys, "_write_home", crashing(install_keys._write_home, lambda *_: True))
        patch.setattr(pair_device, "take_back", lambda *_: None)  # a crash takes nothing back
        patch.setattr(pair_mailbox.Mailbox, "give_up", lambda *_: None)

        def stop_home(request: httpx.Request, response: httpx.Response) -> httpx.Response:
            if request.method == "GET" and request.url.path.endswith("/b/answer"):
                response.close()
                raise KeyboardInterrupt
            return response

        patch.setattr(pair_mailbox, "ASK_SECONDS", 0.1)
        pairs.home_way.after = stop_home
        _, crashed = pairs.run()
        assert isinstance(crashed, Crash)
    pairs.home_way.after = lambda request, response: response
    state = device_state(pairs.device)
    if state["peer"] is not None:  # all of it or nothing: without the row this machine captures as before
        assert state["key"].device_id == state["peer"].device_id
        assert (state["token"] is None, state["role"], state["url"]) == (False, "device", URL)
    paired, joined = pairs.run(claim=b"d" * 32)
    assert not isinstance(joined, BaseException), joined
    assert paired.words == joined.words
    assert is_joined(pairs)
    with pairs.device.open() as machine:
        assert len([peer for peer in all_peers(machine.store) if peer.revoked_at is None]) == 1


# ------------------------------------------------------------------------------------------------------ offline, shared


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


def test_a_shared_root_from_the_environment_is_not_written_down(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    with pairs.home.open() as machine, pairs.client() as client:
        paired = pair_home.pair_shared(machine, client, "laptop")
    monkeypatch.setenv("CRYSTAL_RELAY_KEY", ROOT.hex())
    monkeypatch.setenv("CRYSTAL_RELAY_TOKEN", str(paired.secret))
    with pairs.device.open() as machine:
        pair_device.join_shared(machine, URL, "laptop", key=None, token=None)
        assert not list(machine.places.data_dir.glob("relay.*key*"))
        assert home_peer(machine.store) is not None


# ------------------------------------------------------------------------------------------------- a private authority

PEM = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"


def invited(pairs: Pairs) -> Bundle:
    with pairs.home.open() as machine, pairs.client() as client:
        bundle = pair_device.read_invitation(str(pair_home.pair_offline(machine, client, name=None).secret)).bundle
    assert bundle is not None
    return bundle


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


@pytest.mark.parametrize("text", ["", "no certificate", PEM * 400])
def test_an_authority_that_cannot_be_handed_over_is_told_before_anything_is_made(pairs: Pairs, text: str) -> None:
    file = pairs.home.home / "ca.pem"
    file.write_text(text)
    pairs.home.set("relay.ca_file", str(file))
    with pytest.raises(UsageProblem, match=r"ca\.pem"):
        invited(pairs)
    nothing_left(pairs)


def test_plain_http_to_another_machine_is_refused_before_anything_is_kept(pairs: Pairs) -> None:
    bundle = replace(invited(pairs), url="http://192.0.2.7:8600")
    with pairs.device.open() as machine, pytest.raises(UsageProblem, match="not encrypted"):
        pair_device.join_offline(machine, bundle)
    assert device_state(pairs.device)["key"] is None


# ------------------------------------------------------------------------------------------------- a home that changes


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
        assert deliver_relay(machine, client, insist=True).problem is None
    with pairs.home.open() as machine, pairs.client() as client:
        poll_relay(machine, client)
        arrived = machine.store.rows("SELECT uuid FROM turns ORDER BY uuid")
    assert len(arrived) > 5
    assert arrived == here


# ------------------------------------------------------------------------------------------------------ strings


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "text", ["", "7", "7-apple-river", "crystal-join:", "crystal-join:7-apple-river-story", "crystal1:"]
)
def test_what_is_no_invitation_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem):
        pair_device.read_invitation(text)


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


# ------------------------------------------------------------------------------------------------------ revoking


def test_revoking_ends_one_device_and_no_other(pairs: Pairs, tmp_path: Path) -> None:
    rolled: list[int] = []
    pairs.run()
    first, pairs.device = pairs.device, Box(tmp_path, "desk", "cc-desk")
    pairs.run(claim=b"d" * 32)
    with pairs.home.open() as machine, pairs.client() as client:
        peer, problem = devices.revoke(
            machine, "laptop", roll_key=lambda store, random, now: rolled.append(now), client=client
        )
    assert (peer.revoked_at is not None, peer.token_id, problem, len(rolled)) == (True, None, None, 1)
    lost = device_state(first)["token"].reveal()
    with RelayClient(URL, lost, transport=OverHttpx(pairs.device_way)) as client, pytest.raises(RelayDenied):
        client.streams()
    assert is_joined(pairs)
    with pairs.home.open() as machine, pytest.raises(UsageProblem, match="revoked"):
        devices.rotate(machine, "laptop")


def test_revoking_holds_here_while_the_relay_is_down(pairs: Pairs) -> None:
    pairs.run()

    def down(request: httpx.Request) -> None:
        raise httpx.ConnectError("refused", request=request)

    pairs.home_way.before = down
    with pairs.home.open() as machine, pairs.client() as client:
        peer, problem = devices.revoke(machine, "laptop", roll_key=lambda *_: None, client=client)
        assert peer.revoked_at is not None
        assert problem is not None
        assert devices.retry_revocations(machine, client) == []
        pairs.home_way.before = lambda request: None
        assert devices.retry_revocations(machine, client) == ["laptop"]
    assert pairs.valid_tokens() == []


def test_a_rotation_is_not_begun_twice(pairs: Pairs) -> None:
    pairs.run()
    with pairs.home.open() as machine:
        assert devices.rotate(machine, "laptop").generation == 2
        with pytest.raises(UsageProblem, match="last rotation"):
            devices.rotate(machine, "laptop")


def test_a_device_of_a_home_cannot_be_named_like_home(pairs: Pairs) -> None:
    pairs.run()
    with pairs.home.open() as machine:
        for name in ("mini", "", "-x", "a\nb", "unfinished-1", "x" * 65):
            with pytest.raises(UsageProblem):
                devices.rename(machine, "laptop", name)
        assert devices.rename(machine, "laptop", "Küche 2").name == "Küche 2"


def test_the_home_of_a_device_is_no_device_of_it(pairs: Pairs) -> None:
    with pairs.device.open() as machine:
        with machine.store.transaction():
            add_peer(machine.store, NewLink(b"i" * 16, "home", "mini", None, 1, b"u" * 8, b"d" * 8), 1)
        with pytest.raises(UsageProblem, match="this machine's home"):
            devices.revoke(machine, "mini", roll_key=lambda *_: None)
