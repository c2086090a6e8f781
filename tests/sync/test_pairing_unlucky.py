"""What may go wrong between two machines that pair: hostile relays, outages, Ctrl-C, crashes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from crystal.app.sync import devices, pair_device, pair_mailbox
from crystal.errors import UnavailableError
from crystal.store.sync import past
from crystal.store.sync.relay_peers import all_peers
from crystal.sync.errors import MailboxTakenError, NotAtRelayError, RelayUnavailableError
from crystal.sync.keys.bundle import Bundle
from crystal.sync.keys.pairing import Pairing, PairingError
from crystal.sync.keys.places import KeyPlaces
from crystal.sync.keys.word_codes import parse_code
from tests.support.over_httpx import down
from tests.support.pairing_boxes import ROOT, URL, Pairs
from tests.support.pairing_state import device_state, is_joined, nothing_left
from tests.support.relay_weather import Weather


def assert_found_out(pairs: Pairs, reader: Weather, change: Callable[..., httpx.Response]) -> None:
    """Neither side takes what ``change`` makes of the relay's answers."""
    reader.after = change
    failed, refused = pairs.run()
    assert isinstance(failed, PairingError), failed
    assert isinstance(refused, PairingError), refused
    reader.after = lambda request, response: response
    nothing_left(pairs)


@pytest.mark.slow
def test_a_wrong_code_ends_it_on_both_sides_at_once(pairs: Pairs) -> None:
    failed, refused = pairs.run(
        type_code=lambda code: code.rpartition("-")[0] + ("-zoo" if "zoo" not in code else "-able")
    )
    assert isinstance(failed, PairingError)
    assert isinstance(refused, PairingError)
    assert (failed.code, refused.code, failed.exit_code) == ("gave-up", "wrong-code", 5)
    nothing_left(pairs)


@pytest.mark.slow
def test_a_code_is_good_for_one_attempt(pairs: Pairs) -> None:
    codes: list[str] = []

    def wrong(code: str) -> str:
        codes.append(code)
        return code.rpartition("-")[0] + ("-zoo" if "zoo" not in code else "-able")

    pairs.run(type_code=wrong)
    with pairs.device.open() as machine, pairs.joining() as client, pytest.raises(NotAtRelayError):
        pair_device.join(machine, client, parse_code(codes[0]), url=URL, tell=pytest.fail)
    nothing_left(pairs)


@pytest.mark.slow
def test_a_second_machine_with_the_code_is_refused(pairs: Pairs) -> None:
    def claimed_by_another(code: str) -> str:
        with pairs.joining(b"x" * 32) as client:
            client.claim_mailbox(parse_code(code).nameplate)
        return code

    def writes_nonsense(code: str) -> None:  # home waits until then, and so keeps the mailbox
        with pairs.joining(b"x" * 32) as client:
            client.put_mail(parse_code(code).nameplate, "b", "hello", b"nonsense")

    failed, refused = pairs.run(type_code=claimed_by_another, afterwards=writes_nonsense)
    assert isinstance(refused, MailboxTakenError)
    assert isinstance(failed, PairingError)
    assert failed.code == "version"  # what it read was nonsense, from the first byte on
    nothing_left(pairs)


ORDER = [("a", "hello"), ("b", "hello"), ("a", "confirm"), ("b", "confirm"), ("a", "bundle"), ("b", "answer")]
PLACES = [("a", "hello"), ("a", "confirm"), ("a", "bundle"), ("b", "hello"), ("b", "confirm"), ("b", "answer")]


@pytest.mark.slow
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

    assert_found_out(pairs, reader, change)


@pytest.mark.slow
@pytest.mark.parametrize(("side", "phase"), PLACES)
def test_a_relay_that_swaps_in_a_message_of_its_own_pairing_is_found_out(pairs: Pairs, side: str, phase: str) -> None:
    """It plays both sides with a code of its own, and gives one message of that pairing instead of the real one."""
    code = parse_code("1-zoo-zoo-zoo")
    one, other = Pairing(code, os.urandom, is_home=True), Pairing(code, os.urandom, is_home=False)
    bundle = Bundle(URL, "crt_x", b"i" * 16, 1, ROOT, b"u" * 8, b"d" * 8, "evil")
    forged: dict[tuple[str, str], bytes] = {}
    for (writer, name), plain in zip(ORDER, (b"", b"", b"", b"", bundle.encode(), b"x"), strict=True):
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

    assert_found_out(pairs, reader, swap)


@pytest.mark.slow
def test_a_mailbox_that_is_gone_ends_it(pairs: Pairs) -> None:
    def expire(code: str) -> str:
        pairs.site.now += 11 * 60_000
        with pairs.joining(b"x" * 32) as client, contextlib.suppress(NotAtRelayError):
            client.claim_mailbox(parse_code(code).nameplate)
        with pairs.client() as client:  # what waits is woken by nothing: it looks again when its time is over
            client.close_mailbox(parse_code(code).nameplate)
        return code

    pair_mailbox.ASK_SECONDS = 0.3
    failed, refused = pairs.run(type_code=expire)
    assert isinstance(failed, PairingError)
    assert failed.code == "gone"
    assert isinstance(refused, NotAtRelayError)
    nothing_left(pairs)


@pytest.mark.slow
def test_a_relay_that_is_down_is_told_as_such(pairs: Pairs) -> None:
    pairs.home_way.before = down
    failed, _ = pairs.run()
    assert isinstance(failed, RelayUnavailableError)
    assert failed.exit_code == 4
    pairs.home_way.before = lambda request: None
    nothing_left(pairs)


@pytest.mark.slow
def test_short_outages_on_the_way_do_no_harm(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_mailbox, "PATIENCE_SECONDS", 20.0)  # a busy machine needs more than the others wait
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


@pytest.mark.slow
def test_answers_that_are_lost_on_the_way_do_no_harm(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_mailbox, "PATIENCE_SECONDS", 20.0)  # a busy machine needs more than the others wait
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


@pytest.mark.slow
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
    assert isinstance(failed, PairingError)
    assert failed.code == "gave-up"
    nothing_left(pairs)


@pytest.mark.slow
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
    assert isinstance(refused, (PairingError, NotAtRelayError))
    pairs.home_way.after = lambda request, response: response
    nothing_left(pairs)


@pytest.mark.slow
def test_a_token_that_could_not_be_taken_back_is_taken_back_later(pairs, monkeypatch):
    def down_after_bundle(request: httpx.Request) -> None:
        if request.url.path.endswith("/a/bundle") or request.method == "DELETE":
            raise httpx.ConnectError("refused", request=request)

    pairs.home_way.before = down_after_bundle
    monkeypatch.setattr(pair_mailbox, "MAILBOX_SECONDS", 3.0)
    failed, late = pairs.run()
    assert isinstance(failed, UnavailableError)
    assert isinstance(late, PairingError)
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


class Crash(BaseException):
    """The power is gone."""


STEPS = [
    "role",
    "committed",
    *(pytest.param(step, marks=pytest.mark.slow) for step in ("key", "token", "relay.url", "peer")),
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("before", [pytest.param(True, marks=pytest.mark.slow), False])
def test_after_a_crash_at_any_step_joining_again_works(pairs, monkeypatch, step, before):
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
            patch.setattr(KeyPlaces, "write_key", crashing(KeyPlaces.write_key, lambda *_: True))
        elif step == "token":
            patch.setattr(KeyPlaces, "write_token", crashing(KeyPlaces.write_token, lambda *_: True))
        elif step in ("relay.url", "role"):
            real = pair_device.set_value
            patch.setattr(pair_device, "set_value", crashing(real, lambda file, key, value: key == step))
        elif step == "peer":
            patch.setattr("crystal.store.sync.past.begin", crashing(past.begin, lambda *_: True))
        else:
            patch.setattr(pair_device, "_write_home", crashing(pair_device._write_home, lambda *_: True))
        patch.setattr(pair_device, "undo_join", lambda *_: None)  # a crash takes nothing back
        patch.setattr(pair_mailbox.PairingMailbox, "give_up", lambda *_: None)

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
