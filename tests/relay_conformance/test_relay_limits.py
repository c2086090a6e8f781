"""Claims about limits: each has its own answer, says when to come again, and hurts nobody who stays within."""

import secrets

import pytest

from tests.relay_conformance.targets import make_blob, new_stream, refused
from tests.relay_conformance.test_relay_pairing import claim

DAY = 86_400_000
S = "00112233445566778899aabbccddeeff"


def test_a_full_stream_takes_no_more_until_something_is_acknowledged(limited):
    stream = new_stream()
    blobs = {seq: make_blob(stream, seq) for seq in range(1, 7)}
    for seq in range(1, 6):
        assert limited.put(stream, seq, blobs[seq]).status_code == 201
    refused(limited.put(stream, 6, blobs[6]), 507, "stream-full")
    assert limited.put(stream, 3, blobs[3]).status_code == 200
    assert limited.put(new_stream(), 1).status_code == 201
    limited.ack(stream, 1)
    assert limited.put(stream, 6, blobs[6]).status_code == 201
    assert limited.seqs(stream) == [2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_full_account_takes_no_more_until_there_is_room(limited):
    streams = [new_stream() for _ in range(3)]
    for stream in streams[:2]:
        assert limited.put(stream, 1, make_blob(stream, 1, 40_000)).status_code == 201
    refused(limited.put(streams[2], 1, make_blob(streams[2], 1, 30_000)), 507, "account-full")
    refused(limited.ask("PUT", f"/v1/objects/{S}", content=bytes(30_000)), 507, "account-full")
    assert limited.state(streams[2])["head"] == 0
    assert limited.put(streams[2], 1, token=limited.stranger).status_code == 201
    assert limited.put(streams[2], 1, make_blob(streams[2], 1, 10_000)).status_code == 201
    limited.ack(streams[0], 1)
    assert limited.ask("PUT", f"/v1/objects/{S}", content=bytes(30_000)).status_code == 201
    limited.ask("DELETE", f"/v1/objects/{S}")
    assert limited.ask("PUT", f"/v1/objects/{S}", content=bytes(40_000)).status_code == 201


@pytest.mark.slow
def test_an_account_has_so_many_streams(limited):
    for _ in range(12):
        assert limited.put(new_stream(), 1).status_code == 201
    refused(limited.put(new_stream(), 1), 507, "too-many-streams")
    assert limited.put(new_stream(), 1, token=limited.stranger).status_code == 201


def test_one_prefix_cannot_use_up_the_streams_of_the_account(limited):
    prefix = bytes(range(8))
    for _ in range(3):
        assert limited.put(new_stream(prefix), 1).status_code == 201
    refused(limited.put(new_stream(prefix), 1), 507, "too-many-streams")
    assert limited.put(new_stream(), 1).status_code == 201


def test_the_configured_length_is_the_limit(limited):
    stream = new_stream()
    assert limited.put(stream, 1, make_blob(stream, 1, 40_000)).status_code == 201
    refused(limited.put(stream, 2, make_blob(stream, 2, 40_001)), 413, "body-too-large")
    home = {"Authorization": f"Bearer {limited.home}", "Content-Length": "40001"}
    status, problem = limited.half("PUT", f"/v1/objects/{S}", home)
    assert (status, problem["code"]) == (413, "body-too-large")


@pytest.mark.slow
def test_a_body_that_stops_is_given_up(hurried):
    home = {"Authorization": f"Bearer {hurried.home}", "Content-Length": "1000"}
    for path in (f"/v1/streams/{S}/blobs/1", f"/v1/objects/{S}"):
        status, problem = hurried.half("PUT", path, home, b"x")
        assert (status, problem["code"]) == (408, "body-timeout")
    assert hurried.state(bytes.fromhex(S))["head"] == 0


@pytest.mark.slow
def test_a_body_that_drips_is_given_up(hurried):
    home = {"Authorization": f"Bearer {hurried.home}", "Content-Length": "1000"}
    status, problem = hurried.half("PUT", f"/v1/objects/{S}", home, b"x" * 1000, every=0.05)
    assert (status, problem["code"]) == (408, "body-timeout")
    status, problem = hurried.half("POST", f"/v1/streams/{S}/ack", home, b" " * 1000, every=0.05)
    assert (status, problem["code"]) == (408, "body-timeout")


@pytest.mark.slow
def test_too_many_requests_of_a_token_stop_that_token_only(limited):
    token = limited.make_token("pair")
    answers, statuses = [], []
    while 429 not in statuses and len(statuses) < 5_000:  # a slow machine asks hardly faster than the rate
        answers.append(limited.ask("GET", "/v1/streams", token=token))
        statuses.append(answers[-1].status_code)
    assert set(statuses) == {403, 429}
    assert statuses[:50] == [403] * 50
    refused(answers[statuses.index(429)], 429, "rate-limited")
    assert limited.ask("GET", "/v1/streams").status_code == 200


@pytest.mark.slow
def test_guessing_tokens_is_slowed_down_and_who_has_one_is_not(limited):
    answers = [limited.ask("GET", "/v1/streams", token=None) for _ in range(10)]
    statuses = [answer.status_code for answer in answers]
    assert statuses == [401] * 5 + [429] * 5
    refused(answers[-1], 429, "rate-limited")
    assert limited.ask("GET", "/v1/streams").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_looking_for_open_mailboxes_by_number_is_slowed_down(limited, method):
    path = {"GET": "/v1/pair/{}/a/hello", "DELETE": "/v1/pair/{}"}[method]
    statuses = [limited.ask(method, path.format(n), token=None, headers=claim()).status_code for n in range(1000, 1010)]
    assert set(statuses) == {404 if method == "GET" else 204, 429}
    assert statuses[-1] == 429
    assert limited.ask(method, path.format(1000)).status_code == statuses[0]


def test_claims_are_counted_by_the_address(limited):
    statuses = [limited.ask("PUT", "/v1/pair/999999/claim", token=None, headers=claim()).status_code for _ in range(8)]
    assert statuses == [404] * 5 + [429] * 3
    number = limited.ask("POST", "/v1/pair").json()["nameplate"]
    refused(limited.ask("PUT", f"/v1/pair/{number}/claim", token=None, headers=claim()), 429, "rate-limited")


# --------------------------------------------------------------------------------------------------------------- age


@pytest.mark.slow
def test_what_nobody_reads_expires_visibly_and_is_taken_again(aging):
    stream, kept = new_stream(), new_stream()
    blobs = {seq: make_blob(stream, seq) for seq in (1, 2, 3)}
    for seq in (1, 2):
        aging.put(stream, seq, blobs[seq])
    change = aging.ask("GET", "/v1/streams").json()["change"]
    aging.clock[0] += 20 * DAY
    aging.put(stream, 3, blobs[3])
    aging.put(kept, 1)
    assert aging.seqs(stream) == [1, 2, 3]
    aging.clock[0] += 11 * DAY
    assert aging.seqs(stream) == [3]
    state = aging.state(stream)
    assert (state["head"], state["acked"], state["count"], state["expired_upto"]) == (3, 0, 1, 2)
    assert aging.listed(stream)["expired_upto"] == 2
    assert aging.state(kept)["expired_upto"] == 0
    refused(aging.get(stream, 1), 404, "no-blob")
    # An expiry is news: the reader learns of it without asking for everything.
    listed = aging.ask("GET", "/v1/streams", changed_after=change).json()["streams"]
    assert {one["stream"]: one["expired_upto"] for one in listed}[stream.hex()] == 2
    refused(aging.put(stream, 1, make_blob(stream, 1)), 409, "blob-conflict")
    assert aging.put(stream, 1, blobs[1]).status_code == 201
    assert aging.put(stream, 2, blobs[2], resend=1).status_code == 201
    assert aging.seqs(stream) == [1, 2, 3]
    assert aging.get(stream, 1).content == blobs[1]
    assert aging.state(stream)["expired_upto"] == 2


def test_what_was_acknowledged_is_remembered_for_a_month(aging):
    stream = new_stream()
    blob = make_blob(stream, 1)
    aging.put(stream, 1, blob)
    aging.ack(stream, 1)
    aging.clock[0] += 29 * DAY
    assert aging.put(stream, 1, blob).status_code == 200
    refused(aging.put(stream, 1), 409, "blob-conflict")
    aging.clock[0] += 2 * DAY
    aging.ask("GET", "/v1/streams")
    assert aging.put(stream, 1).status_code == 201
    state = aging.state(stream)
    assert (state["head"], state["acked"], state["expired_upto"]) == (1, 1, 0)


def test_objects_do_not_expire(aging):
    data = secrets.token_bytes(100)
    aging.ask("PUT", f"/v1/objects/{S}", content=data)
    aging.clock[0] += 400 * DAY
    aging.ask("GET", "/v1/streams")
    assert aging.ask("GET", f"/v1/objects/{S}").content == data


@pytest.mark.slow
@pytest.mark.parametrize(("minutes", "status"), [(9, 204), (11, 404)])
def test_a_mailbox_lives_for_ten_minutes(aging, minutes, status):
    answer = aging.ask("POST", "/v1/pair").json()
    assert answer["expires_at"] == aging.clock[0] + 600_000
    path = f"/v1/pair/{answer['nameplate']}"
    headers = claim()
    aging.ask("PUT", f"{path}/claim", token=None, headers=headers)
    aging.clock[0] += minutes * 60_000
    assert aging.ask("GET", f"{path}/b/x").status_code == status
    assert aging.ask("GET", f"{path}/a/x", token=None, headers=headers).status_code == status
    assert aging.ask("PUT", f"{path}/claim", token=None, headers=headers).status_code == (200 if status == 204 else 404)


def test_a_clock_that_jumps_back_loses_nothing(aging):
    stream = new_stream()
    aging.put(stream, 1)
    change = aging.ask("GET", "/v1/streams").json()["change"]
    aging.clock[0] -= 3650 * DAY
    aging.put(stream, 2)
    found = aging.ask("GET", "/v1/streams", changed_after=change).json()
    assert [one["stream"] for one in found["streams"]] == [stream.hex()]
    assert found["change"] > change
    assert aging.seqs(stream) == [1, 2]
