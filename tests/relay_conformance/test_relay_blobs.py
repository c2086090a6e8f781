"""Claims about blobs: one winner for each number, forever; listed in order; gone when they are acknowledged."""

from __future__ import annotations

import base64
import hashlib
import threading
from functools import partial

import pytest

from tests.relay_conformance.targets import make_blob, new_stream, refused
from tests.support.examples import part_of
from tests.support.table import each_row
from tests.support.threads import at_once

FIRST, TAG, OTHER_TAG = b"first " * 10, b"t" * 32, b"o" * 32


def test_a_blob_is_stored_once_and_comes_back_as_it_was(relay):
    stream = new_stream()
    blob = make_blob(stream, 1)
    answer = relay.put(stream, 1, blob)
    assert answer.status_code == 201
    assert answer.json() == {"seq": 1, "tag": blob[-32:].hex(), "result": "created"}
    again = relay.put(stream, 1, blob)
    assert again.status_code == 200
    assert again.json()["result"] == "duplicate"
    got = relay.get(stream, 1)
    assert got.status_code == 200
    assert got.content == blob
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-length"] == str(len(blob))
    assert got.headers["etag"] == f'"{blob[-32:].hex()}"'
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    assert got.headers["content-digest"] == f"sha-256=:{digest}:"
    assert relay.seqs(stream) == [1]


def variants(stream, seq):
    return {
        "same": make_blob(stream, seq, content=FIRST, tag=TAG),
        "other bytes": make_blob(stream, seq, content=b"other " * 10, tag=TAG),
        "other tag": make_blob(stream, seq, content=FIRST, tag=OTHER_TAG),
    }


# state x what comes -> status without and with resend (docs/spec/relay-http.md, section 3)
TABLE = [
    ("nothing", "same", 201, 201),
    ("stored", "same", 200, 201),
    ("stored", "other bytes", 409, 201),
    ("stored", "other tag", 409, 409),
    ("acked", "same", 200, 201),
    ("acked", "other bytes", 409, 201),
    ("acked", "other tag", 409, 409),
]


WHAT_IS_PUT_TWICE_RESEND = [False, True]


@pytest.mark.slow
def test_what_is_put_twice_is_told_by_its_tag_and_bytes(relay):
    for resend in WHAT_IS_PUT_TWICE_RESEND:
        for state, comes, plain, anew in TABLE:
            stream = new_stream()
            before = variants(stream, 1)["same"]
            if state != "nothing":
                assert relay.put(stream, 1, before).status_code == 201
            if state == "acked":
                assert relay.ack(stream, 1).status_code == 204
            # The header's salt is part of the bytes: "same" has to be the very same.
            blob = before if comes == "same" and state != "nothing" else variants(stream, 1)[comes]
            answer = relay.put(stream, 1, blob, **({"resend": 1} if resend else {}))
            assert answer.status_code == (anew if resend else plain)
            if answer.status_code == 409:
                refused(answer, 409, "blob-conflict")
            stored = answer.status_code == 201 or state == "stored"
            assert relay.seqs(stream) == ([1] if stored else [])
            if stored:
                assert relay.get(stream, 1).content == (blob if answer.status_code == 201 else before)
            else:
                refused(relay.get(stream, 1), 404, "no-blob")


def test_resend_0_is_no_resend_and_anything_else_no_value(relay):
    stream = new_stream()
    blob = make_blob(stream, 1)
    assert relay.put(stream, 1, blob, resend=0).status_code == 201
    assert relay.put(stream, 1, blob, resend=0).status_code == 200
    for value in ("2", "true", "", "01"):
        refused(relay.put(stream, 1, blob, resend=value), 400, "bad-request")


def test_numbers_come_in_any_order_and_are_listed_in_theirs(relay):
    stream = new_stream()
    sizes = {}
    for seq in (9, 2, 2**53 - 1, 1, 40):
        blob = make_blob(stream, seq, size=150 + seq % 50)
        sizes[seq] = (len(blob), blob[-32:].hex())
        assert relay.put(stream, seq, blob).status_code == 201
    page = relay.listed(stream)
    assert [one["seq"] for one in page["blobs"]] == [1, 2, 9, 40, 2**53 - 1]
    assert all((one["size"], one["tag"]) == sizes[one["seq"]] for one in page["blobs"])
    assert (page["head"], page["acked"], page["expired_upto"]) == (2**53 - 1, 0, 0)
    assert relay.seqs(stream, after=2) == [9, 40, 2**53 - 1]
    assert relay.seqs(stream, after=2, limit=1) == [9]
    assert relay.seqs(stream, after=2**53 - 1) == []


def test_pages_of_any_length_make_up_the_whole(relay):
    stream = new_stream()
    for seq in range(1, 8):
        relay.put(stream, seq)
    for limit in (1, 2, 3, 7, 1000):
        found: list[int] = []
        while True:
            page = relay.seqs(stream, after=found[-1] if found else 0, limit=limit)
            found += page
            if len(page) < limit:
                break
        assert found == list(range(1, 8))


def test_a_stream_that_nothing_was_stored_in_is_zeros(relay):
    stream = new_stream()
    zeros = {"head": 0, "acked": 0, "expired_upto": 0}
    assert relay.state(stream) == {"stream": stream.hex(), "count": 0, "bytes": 0, **zeros}
    assert relay.listed(stream) == {"blobs": [], **zeros}
    refused(relay.get(stream, 1), 404, "no-blob")
    assert relay.ack(stream, 5).status_code == 204
    assert relay.state(stream)["acked"] == 0


def test_acknowledging_deletes_and_only_ever_rises(relay):
    stream = new_stream()
    blobs = {seq: make_blob(stream, seq) for seq in (1, 2, 3, 5)}
    for seq, blob in blobs.items():
        relay.put(stream, seq, blob)
    for upto, acked, left in [(2, 2, [3, 5]), (1, 2, [3, 5]), (0, 2, [3, 5]), (2, 2, [3, 5]), (4, 4, [5]), (99, 5, [])]:
        assert relay.ack(stream, upto).status_code == 204
        assert relay.seqs(stream) == left
        state = relay.state(stream)
        assert (state["head"], state["acked"], state["count"]) == (5, acked, len(left))
        assert state["bytes"] == sum(len(blobs[seq]) for seq in left)
    relay.put(stream, 6)
    assert relay.seqs(stream) == [6]


def test_what_was_resent_below_the_acknowledged_is_listed_and_can_be_acknowledged_again(relay):
    stream = new_stream()
    blob = make_blob(stream, 1)
    relay.put(stream, 1, blob)
    relay.put(stream, 2)
    relay.ack(stream, 2)
    assert relay.put(stream, 1, blob, resend=1).status_code == 201
    assert relay.seqs(stream) == [1]
    assert relay.state(stream)["acked"] == 2
    assert relay.get(stream, 1).content == blob
    assert relay.ack(stream, 1).status_code == 204
    assert relay.seqs(stream) == []


def test_eight_at_once_with_the_same_bytes_all_have_them_stored_once(relay):
    stream = new_stream()
    blob = make_blob(stream, 1)
    statuses = race([lambda: relay.put(stream, 1, blob).status_code] * 8)
    assert sorted(statuses) == [200] * 7 + [201]


@each_row("size", [200, 300_000])
@each_row("turn", part_of(range(4)))
def test_of_eight_at_once_with_two_contents_exactly_one_content_wins(relay, size, turn):
    stream = new_stream()
    blobs = [make_blob(stream, 1, size), make_blob(stream, 1, size)]
    statuses = race([lambda at=at: (at % 2, relay.put(stream, 1, blobs[at % 2]).status_code) for at in range(8)])
    winners = [which for which, status in statuses if status == 201]
    assert len(winners) == 1
    assert all(status == (409 if which != winners[0] else 200) for which, status in statuses if status != 201)
    assert relay.get(stream, 1).content == blobs[winners[0]]
    assert relay.state(stream)["count"] == 1


def race(calls):
    barrier = threading.Barrier(len(calls))
    results: list = [None] * len(calls)

    def run(at):
        barrier.wait()
        results[at] = calls[at]()

    at_once(*(partial(run, at) for at in range(len(calls))))
    return results


def test_putting_and_acknowledging_at_once_loses_nothing_that_was_not_acknowledged(relay):
    stream = new_stream()
    for seq in range(1, 5):
        relay.put(stream, seq)
    race([lambda: relay.ack(stream, 4)] * 2 + [lambda seq=seq: relay.put(stream, seq) for seq in range(5, 9)])
    assert relay.seqs(stream) == [5, 6, 7, 8]


MAX_SIZE = 8_388_756


EVERY_SIZE_FROM_THE = [148, 149, 1000, 131_072, 131_073, MAX_SIZE]


@pytest.mark.slow
def test_every_size_from_the_smallest_to_the_largest_is_taken(relay):
    for size in EVERY_SIZE_FROM_THE:
        stream = new_stream()
        blob = make_blob(stream, 1, size)
        assert len(blob) == size
        assert relay.put(stream, 1, blob).status_code == 201
        assert relay.put(stream, 1, blob).status_code == 200
        assert relay.get(stream, 1).content == blob
        assert relay.listed(stream)["blobs"][0]["size"] == size
        relay.ack(stream, 1)


def test_one_byte_more_than_the_largest_is_refused(relay):
    stream = new_stream()
    blob = make_blob(stream, 1, MAX_SIZE + 1)
    refused(relay.put(stream, 1, blob), 413, "body-too-large")
    chunks = (blob[at : at + 65_536] for at in range(0, len(blob), 65_536))
    refused(relay.put(stream, 1, chunks), 413, "body-too-large")
    assert relay.state(stream)["head"] == 0


def test_a_body_in_chunks_is_taken_like_any_other(relay):
    stream = new_stream()
    blob = make_blob(stream, 1, 200_000)
    assert relay.put(stream, 1, (blob[at : at + 999] for at in range(0, len(blob), 999))).status_code == 201
    assert relay.get(stream, 1).content == blob


A_BODY_THAT_DOES = [
    {"magic": b"CRB2"},
    {"magic": b"\0\0\0\0"},
    {"version": 0},
    {"version": 2},
    {"ct_len": 0},
    {"ct_len": 51},
    {"ct_len": 53},
    {"ct_len": 2**32 - 1},
]


def test_a_body_that_does_not_look_sealed_is_refused(relay):
    for wrong in A_BODY_THAT_DOES:
        stream = new_stream()
        assert relay.put(stream, 1, make_blob(stream, 1, 200)).status_code == 201
        refused(relay.put(stream, 2, make_blob(stream, 2, 200, **wrong)), 400, "bad-envelope")
        assert relay.seqs(stream) == [1]


def test_a_blob_of_another_place_is_refused(relay):
    stream = new_stream()
    for blob in (make_blob(new_stream(), 1), make_blob(stream, 2), make_blob(stream, 0), make_blob(stream, 2**63)):
        refused(relay.put(stream, 1, blob), 400, "bad-envelope")
    for size in (0, 1, 116, 147):
        refused(relay.put(stream, 1, make_blob(stream, 1)[:size]), 400, "bad-envelope")
    assert relay.state(stream)["head"] == 0


def test_a_digest_that_does_not_match_keeps_nothing(relay):
    stream = new_stream()
    blob = make_blob(stream, 1, 200_000)
    good = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    wrong = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    for body in (blob, make_blob(stream, 1)):
        answer = relay.put(stream, 1, body, headers={"Content-Digest": f"sha-256=:{wrong}:"})
        refused(answer, 400, "digest-mismatch")
    assert relay.state(stream)["head"] == 0
    assert relay.put(stream, 1, blob, headers={"Content-Digest": f"sha-256=:{good}:"}).status_code == 201
    for value in (
        "sha-256=",
        "md5=:AAAA:",
        f"sha-256=:{good}",
        f"sha-256=:{good[:-4]}:",
        "evil",
        "sha-256=:" + "A" * 999,
    ):
        refused(relay.put(stream, 2, headers={"Content-Digest": value}), 400, "bad-request")


def test_encoded_bodies_are_refused_and_types_of_bytes_do_not_matter(relay):
    stream = new_stream()
    for coding in ("gzip", "br", "deflate", "evil", "identity, gzip"):
        refused(relay.put(stream, 1, headers={"Content-Encoding": coding}), 415, "unsupported-media-type")
    assert (
        relay.put(stream, 1, headers={"Content-Encoding": "identity", "Content-Type": "text/html"}).status_code == 201
    )
