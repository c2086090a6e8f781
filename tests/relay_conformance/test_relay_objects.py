"""Claims about objects: written once, listed by their ids, deleted by who stored them."""

import base64
import hashlib
import secrets

import pytest

from tests.relay_conformance.targets import new_stream, refused
from tests.relay_conformance.test_relay_blobs import MAX_SIZE, race


def path(name):
    return f"/v1/objects/{name.hex()}"


def test_an_object_is_written_once_and_comes_back_as_it_was(relay):
    name, data = new_stream(), secrets.token_bytes(5000)
    answer = relay.ask("PUT", path(name), content=data)
    assert answer.status_code == 201
    assert answer.json() == {"id": name.hex(), "size": 5000, "result": "created"}
    again = relay.ask("PUT", path(name), content=data)
    assert (again.status_code, again.json()["result"]) == (200, "duplicate")
    refused(relay.ask("PUT", path(name), content=b"other"), 409, "object-conflict")
    got = relay.ask("GET", path(name))
    assert got.content == data
    assert got.headers["content-type"] == "application/octet-stream"
    digest = hashlib.sha256(data).digest()
    assert got.headers["etag"] == f'"{digest.hex()}"'
    assert got.headers["content-digest"] == f"sha-256=:{base64.b64encode(digest).decode()}:"
    assert relay.ask("PUT", path(name), content=data, resend=1).status_code == 201
    refused(relay.ask("PUT", path(name), content=b"other", resend=1), 409, "object-conflict")
    assert relay.ask("GET", path(name)).content == data


def test_a_deleted_object_is_gone_and_its_name_is_free(relay):
    name = new_stream()
    refused(relay.ask("GET", path(name)), 404, "no-object")
    assert relay.ask("DELETE", path(name)).status_code == 204
    relay.ask("PUT", path(name), content=b"one")
    assert relay.ask("DELETE", path(name)).status_code == 204
    assert relay.ask("DELETE", path(name)).status_code == 204
    refused(relay.ask("GET", path(name)), 404, "no-object")
    assert relay.ask("PUT", path(name), content=b"two").status_code == 201
    assert relay.ask("GET", path(name)).content == b"two"


def test_objects_are_listed_by_rising_id_in_pages(relay):
    # Ids that sort together, so that other tests' objects are not between them.
    prefix = secrets.token_bytes(12)
    names = sorted(prefix + bytes([0, 0, 0, n]) for n in (9, 3, 200, 0, 77))
    for name in reversed(names):
        relay.ask("PUT", path(name), content=name)
    before = (int.from_bytes(names[0], "big") - 1).to_bytes(16, "big").hex()
    page = relay.ask("GET", "/v1/objects", after=before, limit=5).json()["objects"]
    assert [one["id"] for one in page] == [name.hex() for name in names]
    assert all(one["size"] == 16 and one["created_at"] > 1_600_000_000_000 for one in page)
    page = relay.ask("GET", "/v1/objects", after=names[1].hex(), limit=2).json()["objects"]
    assert [one["id"] for one in page] == [name.hex() for name in names[2:4]]
    assert relay.ask("GET", "/v1/objects", after="f" * 32).json() == {"objects": []}
    for wrong in ({"limit": 0}, {"limit": 1001}, {"after": "x"}, {"after": "F" * 32}, {"limit": "1.5"}):
        refused(relay.ask("GET", "/v1/objects", **wrong), 400, "bad-request")


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 131_073, MAX_SIZE])
def test_sizes_from_one_byte_to_the_largest_are_taken(relay, size):
    name, data = new_stream(), secrets.token_bytes(size)
    assert relay.ask("PUT", path(name), content=data).status_code == 201
    assert relay.ask("GET", path(name)).content == data
    relay.ask("DELETE", path(name))


def test_nothing_and_too_much_are_refused(relay):
    name = new_stream()
    refused(relay.ask("PUT", path(name), content=b""), 400, "bad-request")
    refused(relay.ask("PUT", path(name), content=bytes(MAX_SIZE + 1)), 413, "body-too-large")
    wrong = base64.b64encode(bytes(32)).decode()
    refused(
        relay.ask("PUT", path(name), content=b"x", headers={"Content-Digest": f"sha-256=:{wrong}:"}),
        400,
        "digest-mismatch",
    )
    refused(relay.ask("GET", path(name)), 404, "no-object")


def test_of_eight_at_once_exactly_one_content_wins(relay):
    name = new_stream()
    statuses = race(
        [
            lambda at=at: (at % 2, relay.ask("PUT", path(name), content=b"ab"[at % 2 : at % 2 + 1]).status_code)
            for at in range(8)
        ],
    )
    winners = [which for which, status in statuses if status == 201]
    assert len(winners) == 1
    assert all(status == (409 if which != winners[0] else 200) for which, status in statuses if status != 201)
