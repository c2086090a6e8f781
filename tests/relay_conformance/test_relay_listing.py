"""Claims about the listing of streams: changes are counted, waited for, and seen by who may see them."""

from __future__ import annotations

import threading
import time

import pytest

from tests.relay_conformance.targets import new_stream, refused
from tests.support.table import each_row


def streams(relay, **more):
    answer = relay.ask("GET", "/v1/streams", **more)
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == {"change", "streams"}
    return body["change"], {one["stream"]: one for one in body["streams"]}


def test_every_stream_of_the_account_is_listed_as_it_stands(relay):
    one, two = new_stream(), new_stream()
    relay.put(one, 1)
    relay.put(one, 5)
    relay.put(two, 3)
    relay.ack(one, 1)
    _, found = streams(relay)
    assert found[one.hex()] == relay.state(one)
    assert found[two.hex()] == relay.state(two)
    assert (found[one.hex()]["head"], found[one.hex()]["acked"], found[one.hex()]["count"]) == (5, 1, 1)


def test_a_device_sees_its_own_streams_only(relay):
    stream, other = new_stream(), new_stream()
    relay.put(stream, 1)
    relay.put(other, 1)
    for verb in ("read", "write", "ack"):
        _, found = streams(relay, token=relay.make_token(f"{verb}:{stream[:8].hex()}"))
        assert list(found) == [stream.hex()]
    both = relay.make_token(f"read:{stream[:8].hex()}", f"write:{other[:8].hex()}")
    assert set(streams(relay, token=both)[1]) == {stream.hex(), other.hex()}
    for scope in ("pair", "objects:read", "objects:write"):
        refused(relay.ask("GET", "/v1/streams", token=relay.make_token(scope)), 403, "forbidden")


def own(relay):
    """A prefix with a token for it alone, so that other tests' changes are not seen."""
    prefix = new_stream()[:8]
    return prefix, relay.make_token(f"read:{prefix.hex()}", f"write:{prefix.hex()}", f"ack:{prefix.hex()}")


def test_only_what_changed_since_is_listed(relay):
    prefix, token = own(relay)
    one, two = new_stream(prefix), new_stream(prefix)
    relay.put(one, 1, token=token)
    before, found = streams(relay, token=token)
    assert set(found) == {one.hex()}
    assert streams(relay, token=token, changed_after=before) == (before, {})
    relay.put(two, 1, token=token)
    after, found = streams(relay, token=token, changed_after=before)
    assert after > before
    assert set(found) == {two.hex()}
    assert streams(relay, token=token, changed_after=after) == (after, {})


def test_what_is_no_news_is_no_change(relay):
    prefix, token = own(relay)
    stream = new_stream(prefix)
    relay.put(stream, 1, token=token)
    blob = relay.get(stream, 1, token=token).content
    change, _ = streams(relay, token=token)
    assert relay.put(stream, 1, blob, token=token).status_code == 200
    assert relay.put(stream, 1, token=token).status_code == 409
    assert relay.ack(stream, 1, token=token).status_code == 204
    assert relay.put(stream, 1, blob, token=token).status_code == 200
    assert streams(relay, token=token, changed_after=change)[1] == {}
    assert relay.put(stream, 1, blob, token=token, resend=1).status_code == 201
    assert set(streams(relay, token=token, changed_after=change)[1]) == {stream.hex()}


def test_a_change_wakes_who_waits_for_it(relay):
    prefix, token = own(relay)
    stream = new_stream(prefix)
    change, _ = streams(relay, token=token)
    got: list = []
    asking = threading.Event()

    def wait():
        asking.set()
        began = time.monotonic()
        got.append((streams(relay, token=token, changed_after=change, wait=20), time.monotonic() - began))

    waiting = threading.Thread(target=wait)
    waiting.start()
    asking.wait(5)
    # Somebody else's stream wakes nobody for good.
    relay.put(new_stream(), 1)
    relay.put(stream, 1, token=token)
    waiting.join(15)
    ((after, found), seconds) = got[0]
    assert set(found) == {stream.hex()}
    assert after > change
    assert seconds < 10


@pytest.mark.slow
def test_waiting_in_vain_ends_with_an_empty_list_in_time(relay):
    prefix, token = own(relay)
    change, _ = streams(relay, token=token)
    began = time.monotonic()
    after, found = streams(relay, token=token, changed_after=change, wait="0.4")
    assert (after, found) == (change, {}) or (after > change and not found)
    assert 0.3 < time.monotonic() - began < 10
    began = time.monotonic()
    relay.put(new_stream(prefix), 1, token=token)
    assert streams(relay, token=token, changed_after=change, wait=20)[1]
    assert time.monotonic() - began < 10


def test_many_wait_at_once_and_all_are_woken(relay):
    prefix, token = own(relay)
    change, _ = streams(relay, token=token)
    got: list = []
    waiting = [
        threading.Thread(target=lambda: got.append(streams(relay, token=token, changed_after=change, wait=20)))
        for _ in range(6)
    ]
    for thread in waiting:
        thread.start()
    relay.put(new_stream(prefix), 1, token=token)
    for thread in waiting:
        thread.join(15)
    assert len(got) == 6
    assert all(len(found) == 1 for _, found in got)


@each_row(
    "params",
    [
        {"wait": "56"},
        {"wait": "55.1"},
        {"wait": "-1"},
        {"wait": "x"},
        {"wait": "nan"},
        {"wait": "1e1"},
        {"wait": ""},
        {"changed_after": "-1"},
        {"changed_after": "1.0"},
        {"changed_after": str(2**53)},
    ],
)
def test_questions_without_sense_are_refused(relay, params):
    refused(relay.ask("GET", "/v1/streams", **params), 400, "bad-request")


def test_another_account_sees_nothing_of_ours(relay):
    if relay.stranger is None:
        pytest.skip("no token of another account is given")
    stream, thing = new_stream(), new_stream()
    blob = relay.put(stream, 1).json()
    relay.ask("PUT", f"/v1/objects/{thing.hex()}", content=b"ours")
    stranger = relay.stranger
    assert stream.hex() not in streams(relay, token=stranger)[1]
    assert relay.ask("GET", f"/v1/streams/{stream.hex()}", token=stranger).json()["head"] == 0
    refused(relay.get(stream, 1, token=stranger), 404, "no-blob")
    assert relay.ack(stream, 1, token=stranger).status_code == 204
    assert relay.seqs(stream) == [1]
    refused(relay.ask("GET", f"/v1/objects/{thing.hex()}", token=stranger), 404, "no-object")
    assert relay.ask("DELETE", f"/v1/objects/{thing.hex()}", token=stranger).status_code == 204
    assert relay.ask("GET", f"/v1/objects/{thing.hex()}").content == b"ours"
    # The same names are theirs too, with other content.
    assert relay.put(stream, 1, token=stranger).status_code == 201
    assert relay.listed(stream)["blobs"][0]["tag"] == blob["tag"]
    assert relay.ask("PUT", f"/v1/objects/{thing.hex()}", content=b"theirs", token=stranger).status_code == 201
    ids = [one["id"] for one in relay.ask("GET", "/v1/tokens").json()["tokens"]]
    refused(relay.ask("DELETE", f"/v1/tokens/{ids[0]}", token=stranger), 404, "no-token")
    assert not {one["id"] for one in relay.ask("GET", "/v1/tokens", token=stranger).json()["tokens"]} & set(ids)
    number = relay.ask("POST", "/v1/pair").json()["nameplate"]
    refused(relay.ask("GET", f"/v1/pair/{number}/a/x", token=stranger), 404, "no-mailbox")
    refused(relay.ask("PUT", f"/v1/pair/{number}/a/x", token=stranger, content=b"x"), 404, "no-mailbox")
    assert relay.ask("DELETE", f"/v1/pair/{number}", token=stranger).status_code == 204
    assert relay.ask("GET", f"/v1/pair/{number}/a/x").status_code == 204
    relay.ask("DELETE", f"/v1/pair/{number}")
