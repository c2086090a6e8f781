"""Claims about the mailbox: one claim, messages written once, nothing left when it is closed."""

from __future__ import annotations

import base64
import contextlib
import secrets
import threading
import time

import pytest

from tests.relay_conformance.targets import refused
from tests.support.threads import at_once


def claim(secret=None):
    secret = secrets.token_bytes(32) if secret is None else secret
    return {"Authorization": "Claim " + base64.urlsafe_b64encode(secret).decode().rstrip("=")}


@pytest.fixture
def box(relay):
    """A mailbox claimed by side b: its path and b's headers."""
    with opened(relay) as path:
        headers = claim()
        assert relay.ask("PUT", f"{path}/claim", token=None, headers=headers).status_code == 201
        yield path, headers


@contextlib.contextmanager
def opened(relay):
    answer = relay.ask("POST", "/v1/pair", body={})
    assert answer.status_code == 201
    assert set(answer.json()) == {"nameplate", "expires_at"}
    path = f"/v1/pair/{answer.json()['nameplate']}"
    try:
        yield path
    finally:
        assert relay.ask("DELETE", path).status_code == 204


def test_two_sides_exchange_messages(relay, box):
    path, b = box
    assert relay.ask("GET", f"{path}/b/pake").status_code == 204
    assert relay.ask("PUT", f"{path}/a/pake", content=b"from a").status_code == 201
    assert relay.ask("PUT", f"{path}/b/pake", token=None, headers=b, content=b"from b").status_code == 201
    for who in ({"token": None, "headers": b}, {}):
        for side in "ab":
            got = relay.ask("GET", f"{path}/{side}/pake", **who)
            assert got.content == b"from " + side.encode()
            assert got.headers["content-type"] == "application/octet-stream"
            assert got.headers["content-digest"].startswith("sha-256=:")


def test_a_message_is_written_once(relay, box):
    path, b = box
    for who, side in (({}, "a"), ({"token": None, "headers": b}, "b")):
        place = f"{path}/{side}/one"
        assert relay.ask("PUT", place, content=b"x", **who).status_code == 201
        assert relay.ask("PUT", place, content=b"x", **who).status_code == 200
        refused(relay.ask("PUT", place, content=b"y", **who), 409, "mail-conflict")
        assert relay.ask("GET", place).content == b"x"


def test_nobody_writes_the_other_sides_messages(relay, box):
    path, b = box
    refused(relay.ask("PUT", f"{path}/b/x", content=b"x"), 403, "forbidden")
    refused(relay.ask("PUT", f"{path}/a/x", token=None, headers=b, content=b"x"), 403, "forbidden")
    assert relay.ask("GET", f"{path}/a/x").status_code == 204
    assert relay.ask("GET", f"{path}/b/x").status_code == 204


def test_the_first_claim_binds(relay):
    with opened(relay) as path:
        one, two = claim(), claim()
        refused(relay.ask("GET", f"{path}/a/x", token=None, headers=one), 401, "unauthenticated")
        first = relay.ask("PUT", f"{path}/claim", token=None, headers=one)
        assert first.status_code == 201
        assert set(first.json()) == {"nameplate", "expires_at"}
        assert relay.ask("PUT", f"{path}/claim", token=None, headers=one).status_code == 200
        refused(relay.ask("PUT", f"{path}/claim", token=None, headers=two), 409, "mailbox-claimed")
        for method, place in (("GET", "a/x"), ("PUT", "b/x"), ("PUT", "a/x")):
            answer = relay.ask(
                method, f"{path}/{place}", token=None, headers=two, content=b"x" if method == "PUT" else None
            )
            refused(answer, 401, "unauthenticated")
        refused(relay.ask("DELETE", path, token=None, headers=two), 401, "unauthenticated")
        assert relay.ask("GET", f"{path}/a/x", token=None, headers=one).status_code == 204


def test_of_eight_claims_at_once_exactly_one_wins(relay):
    with opened(relay) as path:
        barrier, statuses = threading.Barrier(8), []

        def run():
            headers = claim()
            barrier.wait()
            statuses.append(relay.ask("PUT", f"{path}/claim", token=None, headers=headers).status_code)

        at_once(*[run] * 8)
        assert sorted(statuses) == [201] + [409] * 7


A_CLAIM_OF_ANOTHER = [
    "Claim",
    "Claim x",
    "Claim " + "A" * 42,
    "Claim " + "A" * 44,
    "Claim " + "A" * 42 + "!",
    "Claim " + "A" * 43 + "=",
    "Claim " + "A" * 30_000,
    "Bearer " + "A" * 43,
    "Basic " + "A" * 43,
    "A" * 43,
]


def test_a_claim_of_another_form_is_none(relay):
    for said in A_CLAIM_OF_ANOTHER:
        with opened(relay) as path:
            refused(
                relay.ask("PUT", f"{path}/claim", token=None, headers={"Authorization": said}), 401, "unauthenticated"
            )
            refused(relay.ask("PUT", f"{path}/claim", token=None), 401, "unauthenticated")


@pytest.mark.slow
def test_waiting_ends_with_the_message_or_in_time(relay, box):
    path, b = box
    got: list = []
    waiting = threading.Thread(
        target=lambda: got.append(relay.ask("GET", f"{path}/a/late", token=None, headers=b, wait=20).content)
    )
    began = time.monotonic()
    waiting.start()
    assert relay.ask("PUT", f"{path}/a/late", content=b"here").status_code == 201
    waiting.join(15)
    assert got == [b"here"]
    assert time.monotonic() - began < 10
    assert relay.ask("GET", f"{path}/a/never", wait="0.2").status_code == 204


def test_closing_ends_everything_also_for_who_waits(relay):
    with opened(relay) as path:
        headers = claim()
        relay.ask("PUT", f"{path}/claim", token=None, headers=headers)
        relay.ask("PUT", f"{path}/a/x", content=b"x")
        got: list = []
        waiting = threading.Thread(target=lambda: got.append(relay.ask("GET", f"{path}/a/y", wait=20)))
        waiting.start()
        assert relay.ask("DELETE", path, token=None, headers=headers).status_code == 204
        waiting.join(15)
        refused(got[0], 404, "no-mailbox")
        refused(relay.ask("GET", f"{path}/a/x"), 404, "no-mailbox")
        refused(relay.ask("GET", f"{path}/a/x", token=None, headers=headers), 404, "no-mailbox")
        refused(relay.ask("PUT", f"{path}/a/x", content=b"x"), 404, "no-mailbox")
        refused(relay.ask("PUT", f"{path}/claim", token=None, headers=headers), 404, "no-mailbox")
        assert relay.ask("DELETE", path, token=None, headers=headers).status_code == 204


def test_a_nameplate_that_is_not_in_use_is_no_mailbox(relay):
    refused(relay.ask("PUT", "/v1/pair/999999/claim", token=None, headers=claim()), 404, "no-mailbox")
    refused(relay.ask("GET", "/v1/pair/999999/a/x"), 404, "no-mailbox")
    refused(relay.ask("GET", "/v1/pair/999999/a/x", token=None, headers=claim()), 404, "no-mailbox")
    assert relay.ask("DELETE", "/v1/pair/999999").status_code == 204
    for number in ("0", "-1", "01", "x", "1.0", str(2**53), "9" * 30, "%31"):
        answer = relay.ask("GET", f"/v1/pair/{number}/a/x")
        assert (answer.status_code, answer.json()["code"]) in [(400, "bad-request"), (404, "no-mailbox")]


def test_messages_have_one_to_sixteen_thousand_bytes_and_sixteen_a_side(relay, box):
    path, _ = box
    refused(relay.ask("PUT", f"{path}/a/x", content=b""), 400, "bad-request")
    refused(relay.ask("PUT", f"{path}/a/x", content=bytes(16_385)), 413, "body-too-large")
    assert relay.ask("PUT", f"{path}/a/x", content=bytes(16_384)).status_code == 201
    for number in range(15):
        assert relay.ask("PUT", f"{path}/a/{number}", content=b"x").status_code == 201
    refused(relay.ask("PUT", f"{path}/a/more", content=b"x"), 507, "mailbox-full")
    assert relay.ask("PUT", f"{path}/a/3", content=b"x").status_code == 200


PLACES_WITHOUT_SENSE_ARE = ["c/x", "A/x", "a/X", "a/" + "x" * 33, "a/x_y", "a/x.y", "a/%20", "a/\u00e4", "ab/x"]


def test_places_without_sense_are_refused(relay, box):
    for place in PLACES_WITHOUT_SENSE_ARE:
        refused(relay.ask("PUT", f"{box[0]}/{place}", content=b"x"), 400, "bad-request")
        refused(relay.ask("GET", f"{box[0]}/{place}"), 400, "bad-request")


def test_an_account_opens_eight_at_a_time(relay):
    numbers: list[int] = []
    try:
        for _ in range(9):
            answer = relay.ask("POST", "/v1/pair")
            if answer.status_code != 201:
                break
            numbers.append(answer.json()["nameplate"])
        refused(answer, 429, "too-many-mailboxes")
        assert len(set(numbers)) == len(numbers) <= 8
        assert all(1 <= number <= 999_999 for number in numbers)
    finally:
        for number in numbers:
            relay.ask("DELETE", f"/v1/pair/{number}")
    with opened(relay):
        pass
